"""A stand-in for CuPy, with what `GraphClock` asks of it: a stream that is a list, and a time that kernels move.

Nothing runs before it is waited for, as on a device; a stream that is held while the host waits for it stays held
until the hold's limit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.compile import Source

L2_BYTES, SMS, MHZ = 2**20, 4, 1500.0


class Device:
    """The device behind the stand-in.

    Attributes:
        ns: its time.
        log: what ran, in order.
        cold: whether the L2 cache holds nothing of the call's.
        queue: what was enqueued and has not run.
    """

    def __init__(self) -> None:
        self.ns, self.log, self.cold = 1_000.0, list[str](), False
        self.queue: list[Callable[[], None]] = []
        self.capture: list[Callable[[], None]] | None = None
        self.hooks: list[Any] = []
        self.refuses_capture = False

    def enqueue(self, what: Callable[[], None]) -> None:
        (self.queue if self.capture is None else self.capture).append(what)

    def synchronize(self) -> None:
        if self.capture is not None:
            raise CUDARuntimeError("operation not permitted when stream is capturing")
        waiting, self.queue = self.queue, []
        for what in waiting:
            what()

    def kernel(self, name: str, ns: float, cold_ns: float = 0.0) -> None:
        """Enqueue a kernel that takes that long, and so much longer on a cold cache."""

        def run() -> None:
            self.ns += ns + (cold_ns if self.cold else 0.0)
            self.cold = False
            self.log.append(name)

        self.enqueue(run)

    def allocate(self, size: int) -> None:
        for hook in self.hooks:
            hook.malloc_preprocess(size=size)


class CUDARuntimeError(RuntimeError):
    pass


class Stream:
    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        self._device.synchronize()

    def begin_capture(self) -> None:
        self._device.capture = []

    def end_capture(self) -> Any:
        device = self._device
        held, device.capture = device.capture or [], None
        if device.refuses_capture:
            raise CUDARuntimeError("operation failed due to a previous error during capture")
        launch = lambda stream: [device.enqueue(what) for what in held]  # noqa: E731
        return SimpleNamespace(upload=lambda stream: None, launch=launch)


class Event:
    def __init__(self, device: Device) -> None:
        self._device, self.ns = device, 0.0

    def record(self, stream: Stream) -> None:
        def run() -> None:
            self.ns = self._device.ns

        self._device.enqueue(run)


def memory_at(address: Any, count: int, dtype: Any) -> np.ndarray:
    """Host memory as a kernel sees it."""
    import ctypes

    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype)


def stand_in(device: Device) -> tuple[Any, Callable[[Source], Any]]:
    """(the module, the loader of kernels) of a device."""

    def stamp(grid: Any, block: Any, arguments: Any) -> None:
        def run() -> None:
            stamps = memory_at(arguments[0], 2 * SMS, np.uint64)
            stamps[::2], stamps[1::2] = round(device.ns * MHZ / 1e3), round(device.ns)
            device.log.append("stamp")

        device.enqueue(run)

    def hold(grid: Any, block: Any, arguments: Any) -> None:
        def run() -> None:
            if not memory_at(arguments[0], 1, np.int32)[0]:
                device.ns += float(arguments[2])
                memory_at(arguments[1], 1, np.int32)[0] = 1
            device.log.append("hold")

        device.enqueue(run)

    class Hook:
        def __enter__(self) -> None:
            device.hooks.append(self)

        def __exit__(self, *error: object) -> None:
            device.hooks.remove(self)

    def fill(value: int) -> None:
        def run() -> None:
            device.cold = True
            device.log.append("flush")

        device.enqueue(run)

    attributes = {"L2CacheSize": L2_BYTES, "MultiProcessorCount": SMS}
    of_cuda = SimpleNamespace(
        Stream=lambda non_blocking: Stream(device),
        Event=lambda: Event(device),
        Device=lambda: SimpleNamespace(attributes=attributes, synchronize=device.synchronize, mem_info=(2**30, 2**30)),
        alloc_pinned_memory=bytearray,
        get_elapsed_time=lambda start, stop: (stop.ns - start.ns) * 1e-6,
        MemoryHook=Hook,
        nvtx=SimpleNamespace(
            available=True,
            RangePush=lambda name: device.log.append(f"[{name}"),
            RangePop=lambda: device.log.append("]"),
        ),
        runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
    )
    module = SimpleNamespace(cuda=of_cuda, empty=lambda size, dtype: SimpleNamespace(fill=fill, nbytes=size))
    return module, lambda source: {"gdn_stamp": stamp, "gdn_hold": hold}[source.entry]
