"""The interval against the binomial distribution; the crossover against what it is defined as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from results.reference import references
from results.statistics import Crossover, crossover
from suite.statistics import median_interval


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_interval_is_the_narrowest_of_order_statistics_that_holds(confidence: float) -> None:
    for n in range(1, 200):
        median, low, high = median_interval(np.arange(n), confidence)
        # The least rank below the median that misses with at most half of the probability left over.
        rank = max((r for r in range(n // 2) if binom.cdf(r, n, 0.5) <= (1 - confidence) / 2), default=0)
        assert (median, low, high) == ((n - 1) / 2, rank, n - 1 - rank)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.randoms())
def test_the_interval_holds_the_median_in_any_order(samples: list[float], chance: Any) -> None:
    first = median_interval(np.array(samples))
    assert min(samples) <= first[1] <= first[0] <= first[2] <= max(samples)
    chance.shuffle(samples)
    assert median_interval(np.array(samples)) == first


def times(median: Any, down: float = 1.0, up: float = 1.0) -> list[tuple[float, float, float]]:
    return [(float(m), float(m) * down, float(m) * up) for m in median]


def exact(tokens: Any, a: Any, b: Any) -> Crossover:
    return crossover([*map(int, tokens)], times(a), times(b))


def test_power_laws_cross_where_they_are_equal() -> None:
    tokens = np.array([32.0, 100.0, 128.0, 512.0])
    found = exact(tokens, 2 * tokens, 30 * tokens**0.5)
    assert found.tokens == pytest.approx(225)
    assert found.describe() == "225 tokens (225 to 225)"


def test_the_published_times_cross_just_below_96_tokens() -> None:
    speeds = references()[0].speed
    tokens = sorted({one.tokens for one in speeds})
    found = {(one.recurrence, one.tokens): one.median_us for one in speeds}
    a, b = ([found[name, count] for count in tokens] for name in ("sequential", "chunked"))
    assert exact(tokens, a, b).tokens == pytest.approx(91.1, abs=0.1)


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ([9, 9, 9], "faster from 32 tokens on, the fewest measured"),
        ([9, 9, 11], "not faster at 128 tokens, the most measured"),
        ([11, 11, 11], "not faster at 128 tokens, the most measured"),
        ([9, 9, 10], "not faster at 128 tokens, the most measured"),
        ([11, 10, 9], "64 tokens (64 to 64)"),
        ([9, 10, 9], "64 tokens (64 to 64)"),
    ],
)
def test_the_last_change_counts(b: list[float], words: str) -> None:
    assert exact([32, 64, 128], [10, 10, 10], b).describe() == words


def test_of_two_changes_the_last_counts() -> None:
    found = exact([16, 32, 64, 128], [10] * 4, [11, 9, 11, 9]).tokens
    assert found is not None
    assert 64 < found < 128


def test_the_interval_is_where_the_band_crosses() -> None:
    tokens, a, b = [32, 128, 512], np.array([10.0, 40.0, 160.0]), np.array([20.0, 36.0, 80.0])
    found = crossover(tokens, times(a, 0.95, 1.05), times(b, 0.98, 1.02))
    assert found.low == exact(tokens, a * 1.05, b * 0.98).tokens
    assert found.high == exact(tokens, a * 0.95, b * 1.02).tokens
    assert found.low is not None
    assert found.tokens is not None
    assert found.high is not None
    assert found.low < found.tokens < found.high


def test_an_open_end_is_no_number() -> None:
    wide = crossover([32, 128], times([10, 20], 0.9, 1.1), times([10.5, 19], 0.9, 1.1))
    assert (wide.low, wide.high) == (None, None)
    assert wide.describe().endswith("(? to ?)")


@given(st.lists(st.tuples(*[st.floats(0.1, 10), st.floats(1, 2), st.floats(1, 2)] * 2), min_size=1, max_size=8))
def test_the_interval_holds_the_crossover(points: list[tuple[float, ...]]) -> None:
    a = [(m, m / down, m * up) for m, down, up, _, _, _ in points]
    b = [(m, m / down, m * up) for _, _, _, m, down, up in points]
    found = crossover([2**i for i in range(len(points))], a, b)
    assert found.describe()
    if found.tokens is not None:
        assert found.low is None or found.low <= found.tokens * (1 + 1e-12)
        assert found.high is None or found.tokens <= found.high * (1 + 1e-12)


@pytest.mark.parametrize(("tokens", "count"), [([], 0), ([64, 32], 2), ([32], 2)])
def test_bad_arrays_are_refused(tokens: list[int], count: int) -> None:
    with pytest.raises(ValueError, match="tokens is"):
        crossover(tokens, times([10] * count), times([10] * count))
