"""A simulated device that meets the contract of a clock: what it measures is known, and so is all that disturbs it.

Time passes only in samples. Everything random comes from one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels import Problem, Recurrence
from suite.clock import HostTime, Sample, Work
from suite.facts import Clocks, Look

Span = tuple[float, float, float]
"""(from, to, value): seconds of the device's time, and what holds between them."""


@dataclass(frozen=True)
class Cost:
    """What one call costs.

    Attributes:
        cycles: of the SM clock; at 1,980 MHz, 1,980,000 are a millisecond.
        cold_ns: nanoseconds more with a cold L2 cache.
        after: factors on the time by what was sampled just before.
        call_ns, replay_ns: host time.
        allocations, allocated_bytes: of device memory, in every call.
        fault: what every sample reports.
        load: factor on the SM clock while it runs: heavy work draws it down.
    """

    cycles: float = 1_980_000.0
    cold_ns: float = 20_000.0
    after: Mapping[str, float] = field(default_factory=dict)
    call_ns: float = 12_000.0
    replay_ns: float = 5_000.0
    allocations: int = 0
    allocated_bytes: int = 0
    fault: str = ""
    load: float = 1.0


@dataclass
class Device:
    """The device, its clock and its NVML in one.

    Attributes:
        costs: of the works by the part of their name before the comma; others cost the default.
        seed: of all noise.
        noise: standard deviation of a sample, relative.
        process: standard deviation of a factor that holds for one work in one process, relative.
        mhz: the SM clock once it is up; ramp_s: seconds that it takes from 345 MHz.
        drift: relative growth of all times per second of device time.
        throttled: spans with another SM clock.
        contended: spans with a factor on all times, in which NVML sees another process.
        outliers: (share, factor) of samples that take longer.
        blind: whether the SM clock beside a sample cannot be told.
        overhead_s: seconds between two samples.
    """

    costs: Mapping[str, Cost] = field(default_factory=dict)
    seed: int = 1
    noise: float = 0.002
    process: float = 0.0
    mhz: float = 1980.0
    ramp_s: float = 0.0
    drift: float = 0.0
    throttled: Iterable[Span] = ()
    contended: Iterable[Span] = ()
    outliers: tuple[float, float] = (0.0, 1.0)
    blind: bool = False
    overhead_s: float = 1e-4
    name: str = "simulated"
    states: tuple[str, ...] = ("hot", "cold")
    notes: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    time: float = 0.0
    busy_ns: float = 0.0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    # The clock

    def prepare(self, work: Work) -> tuple[str, Cost, float]:
        name = work.name.partition(",")[0]
        return name, self.costs.get(name, Cost()), 1 + self.process * self._rng.standard_normal()

    def calls(self, prepared: Any, l2: str = "hot") -> int:
        return 4 if l2 == "hot" else 1

    def sample(self, prepared: tuple[str, Cost, float], l2: str = "hot") -> Sample:
        name, cost, factor = prepared
        mhz = self.clock_now() * cost.load
        ns = cost.cycles / mhz * 1e3 * factor * (1 + self.noise * self._rng.standard_normal())
        ns *= (1 + self.drift * self.time) * self._held(self.contended, 1.0)
        ns *= cost.after.get(self.order[-1], 1.0) if self.order else 1.0
        ns *= self.outliers[1] if self._rng.random() < self.outliers[0] else 1.0
        ns += cost.cold_ns if l2 == "cold" else 0.0
        self.order.append(name)
        self.busy_ns += ns * self.calls(prepared, l2)
        self.time += ns * 1e-9 * self.calls(prepared, l2) + self.overhead_s
        return Sample(ns, None if self.blind else mhz, cost.fault)

    def host(self, prepared: tuple[str, Cost, float]) -> HostTime:
        _, cost, _ = prepared
        call, replay = (ns * (1 + 0.05 * abs(self._rng.standard_normal())) for ns in (cost.call_ns, cost.replay_ns))
        return HostTime(call, replay, cost.allocations, cost.allocated_bytes)

    def now(self) -> float:
        return self.time

    def clock_now(self) -> float:
        """The SM clock at this moment, MHz."""
        risen = min(1.0, self.time / self.ramp_s) if self.ramp_s else 1.0
        return self._held(self.throttled, 345.0 + (self.mhz - 345.0) * risen)

    def _held(self, spans: Iterable[Span], otherwise: float) -> float:
        return next((value for start, end, value in spans if start <= self.time < end), otherwise)

    # NVML

    def watch(self, now: bool = False) -> None:
        pass

    def busy_share(self, seconds: float) -> float | None:
        return None

    def clocks(self) -> Clocks:
        held = self._held(self.throttled, 0.0)
        return Clocks(sm_mhz=round(self.clock_now()), power_w=400.0, throttle="software power cap" if held else "")

    def look(self) -> Look:
        held = sum(max(0.0, min(end, self.time) - start) for start, end, _ in self.throttled)
        return Look(
            clocks=self.clocks(),
            others=int(self._held(self.contended, 0.0) > 0),
            throttled_ns=round(held * 1e9),
        )


def with_bit_flips(one: Recurrence, share: float, seed: int = 1) -> Recurrence:
    """The recurrence on a device that flips the last bit of one output in a share of the calls."""
    rng = np.random.default_rng(seed)

    def enqueue(problem: Problem, out: Any, state: Any) -> None:
        one.enqueue(problem, out, state)
        if rng.random() < share:
            out.view(np.uint32).reshape(-1)[rng.integers(out.size)] ^= 1

    return Recurrence(one.name, one.platform, enqueue)


def work(name: str, call: Callable[[], None] = lambda: None) -> Work:
    """A work of that name that does nothing."""
    return Work(call, name=name)
