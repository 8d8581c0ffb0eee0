"""Sampling in alternation, on a simulated clock whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from suite.clock import HostClock, Work, alternate
from suite.statistics import median_interval


@dataclass
class Simulated:
    """A device whose calls take given times, slower by `drift` a sample; time passes only in samples."""

    name = "simulated"
    times_ns: list[float]
    drift: float = 0.0
    order: list[int] = field(default_factory=list)
    now_s: float = 0.0
    prepared: int = 0

    def prepare(self, work: Work) -> int:
        self.prepared += 1
        return self.prepared - 1

    def calls(self, prepared: int) -> int:
        return 4

    def sample_ns(self, prepared: int) -> float:
        taken = self.times_ns[prepared] * (1 + self.drift * len(self.order))
        self.order.append(prepared)
        self.now_s += taken * 1e-9
        return taken


NOTHING = Work(lambda: None, lambda: None)


def sample(clock: Simulated, rounds: tuple[int, int], budget_s: float, warmup_s: float = 0.0) -> list[np.ndarray]:
    works = [NOTHING] * len(clock.times_ns)
    taken = alternate(clock, works, rounds, budget_s, warmup_s, now=lambda: clock.now_s)
    return [np.array(one.ns) for one in taken]


def test_samples_go_forwards_then_backwards() -> None:
    clock = Simulated([1.0, 2.0, 3.0])
    sample(clock, (4, 4), 1.0)
    assert clock.order[3:] == [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]


def test_linear_drift_leaves_the_ratio_alone() -> None:
    """One after the other, the second would look 40 % slower; in ABBA order both meet the same drift."""
    first, second = sample(Simulated([100.0, 100.0], drift=0.01), (40, 40), 1.0)
    assert np.mean(second) / np.mean(first) == pytest.approx(1.0, abs=1e-12)


def test_rounds_stop_when_the_budget_is_spent_but_not_before_the_least() -> None:
    long, _ = sample(Simulated([1e8, 1e8]), (6, 100), budget_s=0.1)
    assert len(long) == 6
    some, _ = sample(Simulated([1e6, 1e6]), (6, 100), budget_s=0.1)
    assert len(some) == 50
    most, _ = sample(Simulated([1e3, 1e3]), (6, 100), budget_s=0.1)
    assert len(most) == 100


def test_warm_up_lasts_at_least_its_time_and_is_not_kept() -> None:
    clock = Simulated([3e7, 3e7])
    (first, _) = sample(clock, (2, 2), 0.0, warmup_s=0.1)
    assert len(clock.order) == 4 + 4
    assert len(first) == 2


def test_the_host_clock_times_the_call_and_not_the_reset() -> None:
    import time

    clock = HostClock()
    work = clock.prepare(Work(lambda: time.sleep(0.002), lambda: time.sleep(0.03)))
    assert 2e6 <= clock.sample_ns(work) < 20e6


def test_the_median_interval_covers_the_median_as_often_as_it_says() -> None:
    from scipy.stats import binom

    rng = np.random.default_rng(7)
    for n in (6, 20, 37):
        _, low, high = median_interval(np.arange(n, dtype=float))
        promised = 1 - 2 * binom.cdf(low, n, 0.5)
        wider = 1 - 2 * binom.cdf(low + 1, n, 0.5)
        assert promised >= 0.95 > wider
        assert high == n - 1 - low
        covered = 0
        for _ in range(2000):
            _, low, high = median_interval(rng.lognormal(size=n))
            covered += low <= 1.0 <= high
        assert covered / 2000 >= 0.935


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")]])
def test_no_median_of_nothing_or_of_nan(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="samples are"):
        median_interval(np.array(bad))
