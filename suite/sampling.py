"""When to sample what: warm-up until nothing moves, ABBA order, and an end once the median is known well enough.

Pure policy: it knows a clock's contract and a time of day, no device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from suite.clock import Clock, HostTime, Sample
from suite.statistics import median_interval

CLOCK_EVENT = "clock event"
"""What the reason of a sample begins with that was dropped for its SM clock."""

CLOCK_AWAY = 0.01
"""A sample whose SM clock is farther than this from the median of the same recurrence's does not count: its seconds are
those of another clock. Recurrences differ: under the load of tensor cores an H200 runs at 1.73 GHz, else up to 1.98."""

WINDOW = 4
"""Samples of each that are compared with the next as many, to see whether times still move."""


@dataclass(frozen=True)
class Policy:
    """How long to sample.

    Attributes:
        rounds: least and most samples of each; even numbers keep the order balanced.
        precision: relative half-width of the median's 95 % interval at which sampling ends.
        budget_s: seconds for each work, all shared, after which no round beyond the least is begun.
        warmup_s: least seconds of untimed samples.
        warmup_most_s: seconds after which warm-up ends, whatever still moves.
        stationary: largest relative difference of two windows' medians at rest, of times and of clocks.
    """

    rounds: tuple[int, int]
    precision: float
    budget_s: float
    warmup_s: float = 0.0
    warmup_most_s: float = 3.0
    stationary: float = 0.005


@dataclass(frozen=True)
class Warmup:
    """How the warm-up went.

    Attributes:
        seconds: what it took.
        stationary: whether times and clocks had come to rest.
        samples: how many samples it used, all works together.
    """

    seconds: float
    stationary: bool
    samples: int


@dataclass
class Taken:
    """The samples of one work, in the order taken.

    Attributes:
        samples: those that count.
        rounds: the round of each.
        dropped: those that do not, with the reason.
        stop: what ended the sampling: "precision", "budget" or "rounds".
    """

    samples: list[Sample] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    dropped: list[tuple[Sample, str]] = field(default_factory=list)
    stop: str = ""

    @property
    def ns(self) -> np.ndarray:
        return np.array([one.ns for one in self.samples])

    @property
    def mhz(self) -> np.ndarray:
        """SM clocks of those samples that have one."""
        return np.array([one.sm_mhz for one in self.samples if one.sm_mhz is not None])

    @property
    def half_width(self) -> float:
        """Relative half-width of the median's interval; infinite with no sample."""
        if not self.samples:
            return float("inf")
        middle, low, high = median_interval(self.ns)
        return (high - low) / 2 / middle


def warm_up(
    clock: Clock,
    prepared: Sequence[Any],
    policy: Policy,
    l2: str = "hot",
    now: Callable[[], float] = time.monotonic,
) -> Warmup:
    """Sample without keeping anything until the least time has passed and neither times nor clocks move any more."""
    start = now()
    ns: list[list[float]] = [[] for _ in prepared]
    mhz: list[list[float]] = [[] for _ in prepared]
    while True:
        for i, one in enumerate(prepared):
            sample = clock.sample(one, l2)
            ns[i].append(sample.ns)
            if sample.sm_mhz is not None:
                mhz[i].append(sample.sm_mhz)
        spent = now() - start
        if len(ns[0]) % WINDOW and spent < policy.warmup_most_s:
            continue
        rest = all(_at_rest(values, policy.stationary) for values in (*ns, *(row for row in mhz if row)))
        if spent >= policy.warmup_most_s or (rest and spent >= policy.warmup_s):
            return Warmup(spent, rest, sum(map(len, ns)))


def _at_rest(values: Sequence[float], tolerance: float) -> bool:
    """Whether the last two windows have the same median.

    A window's median has a scatter of its own, so noisy samples may differ by that much as well.
    """
    if len(values) < 2 * WINDOW:
        return False
    one, other = values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
    middle = median(values[-2 * WINDOW :])
    scatter = median(abs(value - middle) for value in values[-2 * WINDOW :]) * 1.4826
    return bool(abs(median(other) - median(one)) <= max(tolerance * middle, 2 * scatter / WINDOW**0.5))


def take(
    clock: Clock,
    prepared: Sequence[Any],
    policy: Policy,
    l2: str = "hot",
    now: Callable[[], float] = time.monotonic,
) -> list[Taken]:
    """Sample in turn, forwards and backwards (ABBA), so that drift meets all alike, until every median is known.

    Args:
        clock: the timer.
        prepared: what is compared, as the clock prepared it.
        policy: when to stop.
        l2: what `Clock.sample` is asked for.
        now: a monotonic clock, seconds.

    Returns:
        Samples of each. Those with a fault, and those of another SM clock, are set apart.
    """
    taken = [Taken() for _ in prepared]
    order = list(range(len(prepared)))
    start, stop, number = now(), "rounds", 0
    while number < policy.rounds[1]:
        # Only after a pair of rounds, forwards and backwards, has everything met the same drift.
        if number >= policy.rounds[0] and number % 2 == 0:
            if all(one.half_width <= policy.precision for one in taken):
                stop = "precision"
                break
            if now() - start >= policy.budget_s * len(prepared):
                stop = "budget"
                break
        for i in order if number % 2 == 0 else reversed(order):
            sample = clock.sample(prepared[i], l2)
            if sample.fault:
                taken[i].dropped.append((sample, sample.fault))
            else:
                taken[i].samples.append(sample)
                taken[i].rounds.append(number)
        number += 1
    _set_apart(taken)
    for one in taken:
        one.stop = "precision" if stop != "precision" and one.half_width <= policy.precision else stop
    return taken


def _set_apart(taken: Sequence[Taken]) -> None:
    """Drop the samples that were taken at another SM clock than the others of the same work."""
    for one in taken:
        if not one.mhz.size:
            continue
        usual = float(np.median(one.mhz))
        away = [s.sm_mhz is not None and abs(s.sm_mhz / usual - 1) > CLOCK_AWAY for s in one.samples]
        if not any(away):
            continue
        # The samples at the usual clock say what its seconds and cycles are; all of them where none is.
        usuals = [s for s, bad in zip(one.samples, away, strict=True) if not bad] or one.samples
        ns = median(s.ns for s in usuals)
        one.dropped += [(s, _clock_event(s, usual, ns)) for s, bad in zip(one.samples, away, strict=True) if bad]
        one.rounds = [place for place, bad in zip(one.rounds, away, strict=True) if not bad]
        one.samples = [s for s, bad in zip(one.samples, away, strict=True) if not bad]


def _clock_event(sample: Sample, usual_mhz: float, usual_ns: float) -> str:
    """What happened, in seconds and in cycles: a change in seconds that is none in cycles is the clock's."""
    assert sample.sm_mhz is not None
    seconds = sample.ns / usual_ns - 1
    cycles = (1 + seconds) * sample.sm_mhz / usual_mhz - 1
    return (
        f"{CLOCK_EVENT}: {sample.sm_mhz:,.0f} MHz, the others {usual_mhz:,.0f}; "
        f"{seconds:+.1%} in seconds, {cycles:+.1%} in cycles"
    )


def order_effect(first: Taken, other: Taken) -> float | None:
    """How much longer `other` takes, against `first`, after it than before it: 0.01 is a per cent.

    The ratio of the two in forward rounds over that in backward ones, each the median over its rounds; None where a
    direction has no round with both.
    """
    forward, backward = ([ratio for place, ratio in _ratios(first, other) if place % 2 == parity] for parity in (0, 1))
    return median(forward) / median(backward) - 1 if forward and backward else None


def paired(first: Taken, other: Taken) -> tuple[float, float, float] | None:
    """(median, low, high) of `other` / `first`, with the median's 95 % interval; None where they share no pair.

    Each ratio is that of a pair of rounds, one forwards and one backwards, added up: linear drift, and whatever one
    direction does to both, leaves it alone.
    """
    sums: dict[int, list[tuple[float, float]]] = {}
    base = dict(zip(first.rounds, first.samples, strict=True))
    for place, sample in zip(other.rounds, other.samples, strict=True):
        if place in base:
            sums.setdefault(place // 2, []).append((sample.ns, base[place].ns))
    both = [(one[0] + two[0]) / (one[1] + two[1]) for one, two in (pair for pair in sums.values() if len(pair) == 2)]
    return median_interval(np.array(both)) if both else None


def _ratios(first: Taken, other: Taken) -> list[tuple[int, float]]:
    base = dict(zip(first.rounds, first.samples, strict=True))
    pairs = zip(other.rounds, other.samples, strict=True)
    return [(place, sample.ns / base[place].ns) for place, sample in pairs if place in base]


def host_time(clock: Clock, prepared: Any, times: int) -> HostTime:
    """Medians of some host times; of the allocations, the least that every call makes."""
    every = [clock.host(prepared) for _ in range(times)]
    replays = [one.replay_ns for one in every if one.replay_ns is not None]
    fewest = min(every, key=lambda one: (one.allocations or 0, one.allocated_bytes))
    return HostTime(
        call_ns=median(one.call_ns for one in every),
        replay_ns=median(replays) if replays else None,
        allocations=fewest.allocations,
        allocated_bytes=fewest.allocated_bytes,
    )
