"""The host's clock, and the median's interval."""

from __future__ import annotations

import numpy as np
import pytest

from suite.clock import HostClock, Work
from suite.statistics import median_interval


def test_the_host_clock_times_the_call_and_not_the_reset() -> None:
    import time

    clock = HostClock()
    work = clock.prepare(Work(lambda: time.sleep(0.002), lambda: time.sleep(0.03)))
    assert 2e6 <= clock.sample(work).ns < 20e6
    assert 2e6 <= clock.host(work).call_ns < 20e6


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
