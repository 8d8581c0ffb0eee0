"""Timers: how long one call takes. A new timer is one class that meets `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Call = Callable[[], None]


@dataclass(frozen=True)
class Work:
    """What is timed: `call` runs the recurrence in place, `reset` brings its state back to the start."""

    call: Call
    reset: Call


class Clock(Protocol):
    """The contract of a timer.

    Attributes:
        name: the timer's name in the record's method.
    """

    name: str

    def prepare(self, work: Work) -> Any:
        """Do all that is needed once, such as compiling or capturing; returns what `sample_ns` takes."""

    def calls(self, prepared: Any) -> int:
        """Calls that one sample is the mean of."""

    def sample_ns(self, prepared: Any) -> float:
        """Nanoseconds per call, once."""


class HostClock:
    """Wall time of one call on the host."""

    name = "host"

    def prepare(self, work: Work) -> Work:
        work.call()
        return work

    def calls(self, prepared: Work) -> int:
        return 1

    def sample_ns(self, prepared: Work) -> float:
        prepared.reset()
        start = time.perf_counter_ns()
        prepared.call()
        return float(time.perf_counter_ns() - start)


class GraphClock:
    """Device time of calls back to back in a CUDA graph, between two events.

    The graph hides the launch gap: the device never waits for the host between the calls. Short calls are
    repeated in the graph until a sample lasts about `SAMPLE_NS`, so that the event's resolution (0.5 us) and the
    graph's own start stay below a per cent.
    """

    name = "cuda-graph"
    SAMPLE_NS = 400_000
    MOST_CALLS = 32

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()

    def prepare(self, work: Work) -> tuple[Any, int, Call]:
        self._cupy.cuda.Device().synchronize()  # the arrays were made on another stream
        with self._stream:
            work.reset()
            work.call()  # the first call compiles and allocates, which no capture may
            self._stream.synchronize()
            once = self._elapsed_ns(work.call)
            calls = max(1, min(self.MOST_CALLS, round(self.SAMPLE_NS / once)))
            self._stream.begin_capture()
            for _ in range(calls):
                work.call()
            graph = self._stream.end_capture()
            graph.upload(self._stream)
            self._stream.synchronize()
        return graph, calls, work.reset

    def calls(self, prepared: tuple[Any, int, Call]) -> int:
        return prepared[1]

    def sample_ns(self, prepared: tuple[Any, int, Call]) -> float:
        graph, calls, reset = prepared
        with self._stream:
            reset()
            return self._elapsed_ns(lambda: graph.launch(self._stream)) / calls

    def _elapsed_ns(self, work: Call) -> float:
        self._start.record(self._stream)
        work()
        self._stop.record(self._stream)
        self._stop.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self._start, self._stop)) * 1e6


@dataclass(frozen=True)
class Samples:
    """The samples of one recurrence, nanoseconds per call, in the order taken."""

    ns: tuple[float, ...]
    calls: int


def alternate(
    clock: Clock,
    works: Sequence[Work],
    rounds: tuple[int, int],
    budget_s: float,
    warmup_s: float,
    now: Callable[[], float] = time.monotonic,
) -> list[Samples]:
    """Sample the works in turn, forwards and backwards (ABBA), so that drift meets all of them alike.

    Args:
        clock: the timer.
        works: what is compared.
        rounds: least and most samples of each; even numbers keep the order balanced.
        budget_s: seconds after which no round beyond the least is begun.
        warmup_s: seconds of untimed samples first.
        now: a monotonic clock, seconds.
    """
    prepared = [clock.prepare(work) for work in works]
    ready = now() + warmup_s
    while True:
        for one in prepared:
            clock.sample_ns(one)
        if now() >= ready:
            break
    taken: list[list[float]] = [[] for _ in works]
    order = list(range(len(works)))
    deadline = now() + budget_s
    for round_number in range(rounds[1]):
        if round_number >= rounds[0] and now() >= deadline:
            break
        for i in order if round_number % 2 == 0 else reversed(order):
            taken[i].append(clock.sample_ns(prepared[i]))
    return [Samples(tuple(ns), clock.calls(one)) for ns, one in zip(taken, prepared, strict=True)]
