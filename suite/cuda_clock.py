"""Device time on a GPU: the replay of a CUDA graph between two events, all of it enqueued before any of it runs."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.compile import HOLD, STAMP, Source
from kernels.problem import Shape
from suite.clock import Call, HostTime, Sample, Work

MOST_SMS = 1024
"""Places for stamps; an SM's number can be above the count of those that a process sees."""

HOLD_NS = 250_000_000
"""How long the device waits for the host to enqueue a sample, nanoseconds; it takes some 0.1 ms."""


SET_UP = 3
"""Calls after which a recurrence must have set up whatever it keeps."""


def load_kernel(source: Source) -> Any:
    """A kernel that depends on no shape, for the current device."""
    import cupy

    from kernels.gpu import loaded

    return loaded(source, Shape(), int(cupy.cuda.runtime.getDevice()))


def captured(stream: Any, call: Call, calls: int) -> Call:
    """A graph of calls, captured on CuPy's current stream and loaded onto the device; returns what replays it there.

    Raises:
        cupy.cuda.runtime.CUDARuntimeError: the call does what no capture may.
    """
    stream.begin_capture()
    try:
        _repeat(call, calls)
    except BaseException:
        stream.end_capture()
        raise
    graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()
    return lambda: graph.launch(stream)


@dataclass(frozen=True)
class Prepared:
    """A work, ready to be sampled.

    Attributes:
        work: itself.
        many: enqueues `calls` calls, for a hot sample.
        calls: how many.
        one: enqueues one call, for a cold sample.
        captured: whether both are replays of graphs, and not plain calls.
    """

    work: Work
    many: Call
    calls: int
    one: Call
    captured: bool


class GraphClock:
    """Device time of calls back to back in a CUDA graph, between two events.

    A kernel in front holds the stream until events, graph and stamps are enqueued: the device never waits for the
    host between them. Everything has run once before, so that nothing is compiled or loaded behind the hold, which
    could wait for the held device; and the hold ends by itself after `HOLD_NS`, which makes the sample a faulty one.

    A hot sample is the mean of calls that last about `SAMPLE_NS` together, so that what the events and the graph's
    start add stays below a per cent; one more call runs in front of them. A cold one is a single call, after a buffer
    of twice the L2 cache's size was overwritten.

    Stamps of all SMs before and after tell the SM clock, outside of the events.

    Args:
        module: CuPy, or what stands in for it.
        load: gives the kernel of a source.
    """

    name = "cuda-graph"
    states: tuple[str, ...] = ("hot", "cold")
    SAMPLE_NS = 400_000
    MOST_CALLS = 64

    def __init__(self, module: Any = None, load: Callable[[Source], Any] = load_kernel) -> None:
        cupy = module or importlib.import_module("cupy")
        self._cupy = cupy
        self.notes: list[str] = []
        self.busy_ns = 0.0
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        attributes = cupy.cuda.Device().attributes
        self.l2_bytes = int(attributes["L2CacheSize"])
        self._sms = int(attributes["MultiProcessorCount"])
        self._flushed = cupy.empty(max(2 * self.l2_bytes, 2**22), np.uint8)
        self._flags = self._pinned(2, np.int32)  # released, late
        self._stamps = self._pinned(4 * MOST_SMS, np.uint64)
        self._nvtx = cupy.cuda.nvtx
        self._hold, self._stamp = load(HOLD), load(STAMP)
        self._reset_persisting = self._persisting()
        with self._stream:  # so that neither is loaded behind a hold
            self._sample(lambda: None, flush=True)

    def _pinned(self, count: int, dtype: Any) -> np.ndarray:
        """Host memory that the device reads and writes in place, at the same address."""
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(size), dtype, count)

    def _persisting(self) -> Callable[[], Any]:
        """What turns lines of the L2 cache that a kernel made persist into ordinary ones."""
        try:
            reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
            code = reset()
        except (OSError, AttributeError) as error:
            self.notes.append(f"persisting lines of the L2 cache are not reset: {error}")
            return lambda: None
        if code:
            self.notes.append(f"persisting lines of the L2 cache are not reset: CUDA's error {code}")
            return lambda: None
        return reset

    def prepare(self, work: Work) -> Prepared:
        self._cupy.cuda.Device().synchronize()  # the arrays were made on another stream
        with self._stream:
            work.reset()
            # The first call compiles and allocates, which no capture and no hold may; a second one may make a graph
            # of a call that comes again.
            _repeat(work.call, SET_UP)
            self._stream.synchronize()
            once = min(self._sample(work.call).ns for _ in range(2))
            calls = max(1, min(self.MOST_CALLS, round(self.SAMPLE_NS / once)))
            try:
                many, one = (captured(self._stream, work.call, count) for count in (calls, 1))
            except self._cupy.cuda.runtime.CUDARuntimeError as error:
                self.notes.append(f"{work.name or 'a call'} is timed without a graph: it cannot be captured ({error})")
                return Prepared(work, lambda: _repeat(work.call, calls), calls, work.call, captured=False)
            return Prepared(work, many, calls, one, captured=True)

    @contextlib.contextmanager
    def _range(self, name: str) -> Iterator[None]:
        """A range with this name in a profiler's timeline (NVTX)."""
        if not self._nvtx.available:
            yield
            return
        self._nvtx.RangePush(name)
        try:
            yield
        finally:
            self._nvtx.RangePop()

    def calls(self, prepared: Prepared, l2: str = "hot") -> int:
        return prepared.calls if l2 == "hot" else 1

    def sample(self, prepared: Prepared, l2: str = "hot") -> Sample:
        with self._stream, self._range(f"{prepared.work.name}, {l2}"):
            prepared.work.reset()
            if l2 == "hot":
                # One call in front, untimed: the first timed one follows its like, as the others do.
                found = self._sample(prepared.many, before=prepared.one)
                self.busy_ns += found.ns / prepared.calls
                return Sample(found.ns / prepared.calls, found.sm_mhz, found.fault)
            self._reset_persisting()
            return self._sample(prepared.one, flush=True)

    def _sample(self, enqueue: Call, flush: bool = False, before: Call = lambda: None) -> Sample:
        """The time between two events around what `enqueue` enqueues, behind `before`, on the current stream."""
        half = 2 * MOST_SMS
        self._stamps[:], self._flags[:] = 0, 0
        if flush:
            self._flushed.fill(0)
        flags = self._flags.ctypes.data
        self._hold((1,), (1,), (np.uintp(flags), np.uintp(flags + 4), np.uint64(HOLD_NS)))
        try:
            before()
            self._stamp_now(self._stamps[:half])  # behind the hold, under which a card runs faster than under work
            self._start.record(self._stream)
            enqueue()
            self._stop.record(self._stream)
            self._stamp_now(self._stamps[half:])
        finally:
            self._flags[0] = 1
        self._stream.synchronize()
        ns = float(self._cupy.cuda.get_elapsed_time(self._start, self._stop)) * 1e6
        self.busy_ns += ns
        fault = "the hold ended by its time limit, before the call was enqueued" if self._flags[1] else ""
        return Sample(ns, sm_clock(self._stamps[:half], self._stamps[half:]), fault)

    def _stamp_now(self, place: np.ndarray) -> None:
        self._stamp((self._sms,), (32,), (np.uintp(place.ctypes.data), np.int32(MOST_SMS)))

    def host(self, prepared: Prepared) -> HostTime:
        with self._stream, self._range(f"{prepared.work.name}, host"):
            prepared.work.reset()
            free = self._cupy.cuda.Device().mem_info[0]
            with self._requests() as sizes:
                call = self._enqueueing_ns(prepared.work.call)
            lost = free - self._cupy.cuda.Device().mem_info[0]
            if not sizes and lost > 0:  # taken from the device without the pool, and kept
                sizes.append(int(lost))
            replay = self._enqueueing_ns(prepared.one) if prepared.captured else None
        return HostTime(call, replay, len(sizes), sum(sizes))

    def _enqueueing_ns(self, enqueue: Call) -> float:
        """Host time of an enqueueing onto the idle stream, which is idle again afterwards."""
        self._stream.synchronize()
        start = time.perf_counter_ns()
        enqueue()
        spent = time.perf_counter_ns() - start
        self._stream.synchronize()
        return float(spent)

    @contextlib.contextmanager
    def _requests(self) -> Iterator[list[int]]:
        """The sizes that CuPy's pool is asked for.

        What a call takes and gives back leaves the pool as it was: requests are counted where they are made.
        """
        sizes: list[int] = []

        class Requests(self._cupy.cuda.MemoryHook):  # type: ignore[misc, name-defined]
            name = "gdn-bench"

            def malloc_preprocess(self, **request: Any) -> None:
                sizes.append(int(request["size"]))

        with Requests():
            yield sizes


def _repeat(call: Call, calls: int) -> None:
    for _ in range(calls):
        call()


def sm_clock(before: np.ndarray, after: np.ndarray) -> float | None:
    """MHz between two rows of stamps, (cycles, nanoseconds) by SM; the middle one of those that both rows have."""
    both = np.flatnonzero((before[1::2] > 0) & (after[1::2] > before[1::2]))
    if not both.size:
        return None
    cycles, ns = ((after[first::2][both] - before[first::2][both]).astype(np.int64) for first in (0, 1))
    return float(np.sort(cycles / ns)[both.size // 2] * 1e3)  # np.median takes five times as long
