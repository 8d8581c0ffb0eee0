"""Timers: how long one call takes. A new timer is one class that meets `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Call = Callable[[], None]


@dataclass(frozen=True)
class Work:
    """What is timed.

    Attributes:
        call: runs the recurrence in place.
        reset: brings its state back to the start.
        name: the recurrence and the token count, for profilers; says nothing to a timer.
    """

    call: Call
    reset: Call = lambda: None
    name: str = ""


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        ns: nanoseconds per call.
        sm_mhz: the SM clock while it was taken, MHz; None where it cannot be told.
        fault: why the sample must not count, or an empty text.
    """

    ns: float
    sm_mhz: float | None = None
    fault: str = ""


@dataclass(frozen=True)
class HostTime:
    """What a call costs the host: the enqueueing alone, without waiting for the device.

    Attributes:
        call_ns: nanoseconds of a plain call.
        replay_ns: nanoseconds of the replay of a graph of one call; None where there are no graphs.
        allocations: allocations of device memory in a call; None where they cannot be counted.
        allocated_bytes: what they ask for together.
    """

    call_ns: float
    replay_ns: float | None = None
    allocations: int | None = None
    allocated_bytes: int = 0


class Clock(Protocol):
    """The contract of a timer.

    Attributes:
        name: the timer's name in the record's method.
        states: what `sample` can be asked for: "hot" alone, or "hot" and "cold".
        notes: what a reader of its times must know, such as a setting that could not be reset.
        busy_ns: what all samples so far let the device run, nanoseconds.
    """

    name: str
    states: tuple[str, ...]
    notes: list[str]
    busy_ns: float

    def prepare(self, work: Work) -> Any:
        """Do all that is needed once, such as compiling or capturing; returns what `sample` takes."""

    def calls(self, prepared: Any, l2: str = "hot") -> int:
        """Calls that one sample is the mean of."""

    def sample(self, prepared: Any, l2: str = "hot") -> Sample:
        """Time the call once: after itself or its like ("hot"), or with nothing of it in the L2 cache ("cold")."""

    def host(self, prepared: Any) -> HostTime:
        """Time the enqueueing of one call once, on an idle device."""


class HostClock:
    """Wall time of one call on the host, whose recurrences enqueue nothing: the call is its host time as well."""

    name = "host"
    states: tuple[str, ...] = ("hot",)

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.busy_ns = 0.0

    def prepare(self, work: Work) -> Work:
        work.call()
        return work

    def calls(self, prepared: Work, l2: str = "hot") -> int:
        return 1

    def sample(self, prepared: Work, l2: str = "hot") -> Sample:
        prepared.reset()
        start = time.perf_counter_ns()
        prepared.call()
        ns = float(time.perf_counter_ns() - start)
        self.busy_ns += ns
        return Sample(ns)

    def host(self, prepared: Work) -> HostTime:
        return HostTime(self.sample(prepared).ns)
