"""From samples to facts: one group of recurrences that are timed in alternation, with a twin for A/A."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suite import quality, sampling
from suite.clock import Clock, HostTime, Work
from suite.facts import Canary, Dropped, Host, Look, Times
from suite.sampling import CLOCK_EVENT, Taken, Warmup
from suite.statistics import median_interval

Now = Callable[[], float]


@dataclass
class Sampled:
    """What was sampled together, in the order of the works.

    Attributes:
        hot, cold: samples of each; `cold` is empty where the clock knows no cold cache.
        hosts: host time of each.
        calls: calls per hot sample of each.
        warmup: how the warm-up went.
        wall_s: seconds of warm-up and samples.
        device_s: of these, what the timed calls ran.
        before, after: the card.
    """

    hot: list[Taken]
    cold: list[Taken]
    hosts: list[HostTime]
    calls: list[int]
    warmup: Warmup
    wall_s: float
    device_s: float
    before: Look = field(default_factory=Look)
    after: Look = field(default_factory=Look)

    @property
    def steady(self) -> bool:
        """Whether every sample has an SM clock and none was dropped for another one."""
        every = [*self.hot, *self.cold]
        away = any(CLOCK_EVENT in reason for one in every for _, reason in one.dropped)
        return not away and all(s.sm_mhz is not None for one in every for s in one.samples)

    @property
    def clock_spread(self) -> tuple[float | None, float | None]:
        """(median SM clock in MHz, its relative spread) of the hot samples."""
        return quality.clock_spread(self.hot)


def sample(
    clock: Clock,
    works: Sequence[Work],
    hot: sampling.Policy,
    cold: sampling.Policy,
    host_times: int = 0,
    look: Callable[[], Look] = Look,
    now: Now = time.monotonic,
) -> Sampled:
    """Time the works in alternation: hot, then cold where the clock can, then the host's part.

    Args:
        clock: the timer.
        works: what is compared.
        hot, cold: how long to sample.
        host_times: how often to take a call's host time.
        look: the card now.
        now: a monotonic clock, seconds.
    """
    prepared = [clock.prepare(work) for work in works]
    before, start, ran = look(), now(), clock.busy_ns
    warmup = sampling.warm_up(clock, prepared, hot, "hot", now)
    hot_taken = sampling.take(clock, prepared, hot, "hot", now)
    cold_taken = sampling.take(clock, prepared, cold, "cold", now) if "cold" in clock.states else []
    wall, device = now() - start, (clock.busy_ns - ran) * 1e-9
    hosts = [sampling.host_time(clock, one, host_times) for one in prepared] if host_times else []
    calls = [clock.calls(one) for one in prepared]
    return Sampled(hot_taken, cold_taken, hosts, calls, warmup, wall, device, before, look())


def times(taken: Taken, calls: int) -> Times:
    """The samples as they are stored. Without any there is no median."""
    ns = tuple(one.ns for one in taken.samples)
    middle, low, high = median_interval(taken.ns) if ns else (None, None, None)
    mhz = tuple(round(one.sm_mhz, 2) for one in taken.samples if one.sm_mhz is not None)
    return Times(
        samples_ns=ns,
        samples_mhz=mhz if len(mhz) == len(ns) else (),
        calls_per_sample=calls,
        median_ns=middle,
        low_ns=low,
        high_ns=high,
        stop=taken.stop,
        dropped=tuple(
            Dropped(ns=one.ns, sm_mhz=None if one.sm_mhz is None else round(one.sm_mhz, 2), reason=reason)
            for one, reason in taken.dropped
        ),
    )


def host(found: HostTime, device_ns: float) -> Host:
    """The host time as it is stored, with what is wrong with it."""
    return Host(
        call_ns=found.call_ns,
        replay_ns=found.replay_ns,
        allocations=found.allocations,
        allocated_bytes=found.allocated_bytes,
        said=quality.judge_host(found, device_ns),
    )


def canaries(
    clock: Clock,
    fixed: Sequence[tuple[str, float, Work]],
    when: Any,
    policy: sampling.Policy,
    now: Now = time.monotonic,
) -> list[Canary]:
    """Time the fixed work, once the clocks are up.

    Args:
        fixed: name, work of a call and the call, of each.
        when: "before" or "after".
    """
    warm = policy if when == "before" else replace(policy, warmup_s=0.0)
    prepared = [clock.prepare(work) for _, _, work in fixed]
    sampling.warm_up(clock, prepared, warm, "hot", now)
    taken = sampling.take(clock, prepared, policy, "hot", now)
    return [
        Canary(name=name, when=when, work=amount, times=times(one, clock.calls(ready)))
        for (name, amount, _), one, ready in zip(fixed, taken, prepared, strict=True)
    ]
