"""The interval against the binomial distribution; the crossover against what it is defined as."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from results.reference import references
from results.statistics import Crossover, crossover, median_interval


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


def exact(tokens: list[float], a: list[float], b: list[float]) -> Crossover:
    return crossover(tokens, a, a, a, b, b, b)


def test_power_laws_cross_where_they_are_equal() -> None:
    tokens = np.array([32.0, 100.0, 128.0, 512.0])
    found = exact(tokens, 2 * tokens, 200 * tokens**0.5)
    assert found.tokens == pytest.approx(10_000) if found.found else found.tokens == math.inf
    found = exact(tokens, 2 * tokens, 30 * tokens**0.5)
    assert found.tokens == pytest.approx(225)
    assert found.describe() == "225 tokens (225 to 225)"


def test_the_published_times_cross_just_below_96_tokens() -> None:
    speeds = references()[0].speed
    tokens = sorted({one.tokens for one in speeds})
    times = {(one.recurrence, one.tokens): one.median_us for one in speeds}
    a, b = ([times[name, count] for count in tokens] for name in ("sequential", "chunked"))
    assert exact(tokens, a, b).tokens == pytest.approx(91.1, abs=0.1)


@pytest.mark.parametrize(
    ("b", "tokens", "words"),
    [
        ([9, 9, 9], 0, "below the smallest measured, 32"),
        ([9, 9, 11], math.inf, "none up to the largest measured, 128"),
        ([11, 11, 11], math.inf, "none up to the largest measured, 128"),
        ([9, 9, 10], math.inf, "none up to the largest measured, 128"),
        ([11, 10, 9], 64, "64 tokens (64 to 64)"),
        ([9, 10, 9], 64, "64 tokens (64 to 64)"),
    ],
)
def test_the_last_change_counts(b: list[float], tokens: float, words: str) -> None:
    found = exact([32, 64, 128], [10, 10, 10], b)
    assert found.tokens == pytest.approx(tokens)
    assert found.describe() == words


def test_of_two_changes_the_last_counts() -> None:
    assert 64 < exact([16, 32, 64, 128], [10] * 4, [11, 9, 11, 9]).tokens < 128


def test_one_token_count_is_enough_to_say_which_side() -> None:
    assert exact([32], [10], [9]).tokens == 0
    assert exact([32], [10], [11]).tokens == math.inf


def test_the_interval_is_where_the_band_crosses() -> None:
    tokens, a, b = np.array([32.0, 128.0, 512.0]), np.array([10.0, 40.0, 160.0]), np.array([20.0, 36.0, 80.0])
    found = crossover(tokens, a * 0.95, a, a * 1.05, b * 0.98, b, b * 1.02)
    assert found.low == exact(tokens, a * 1.05, b * 0.98).tokens
    assert found.high == exact(tokens, a * 0.95, b * 1.02).tokens
    assert found.low < found.tokens < found.high
    assert found.describe() == f"{found.tokens:.0f} tokens ({found.low:.0f} to {found.high:.0f})"


def test_open_ends_are_said() -> None:
    wide = crossover([32, 128], [9, 9], [10, 10], [20, 20], [9, 8], [11, 9], [12, 12])
    assert (wide.low, wide.high) == (0, math.inf)
    assert wide.describe() == f"{wide.tokens:.0f} tokens (below 32 to above 128)"
    faster = crossover([32, 128], [9, 9], [10, 10], [11, 11], [8, 7], [9.5, 8], [10, 8])
    assert faster.tokens == 0
    assert faster.describe() == f"below the smallest measured, 32 (below 32 to {faster.high:.0f})"
    slower = crossover([32, 128], [9, 9], [10, 10], [12, 12], [13, 11], [13, 11], [13, 11])
    assert slower.tokens == math.inf
    assert slower.describe() == f"none up to the largest measured, 128 ({slower.low:.0f} to above 128)"


@given(st.lists(st.tuples(*[st.floats(0.1, 10), st.floats(1, 2), st.floats(1, 2)] * 2), min_size=1, max_size=8))
def test_the_interval_holds_the_crossover(points: list[tuple[float, ...]]) -> None:
    a, a_down, a_up, b, b_down, b_up = np.array(points).T
    found = crossover(2.0 ** np.arange(len(points)), a / a_down, a, a * a_up, b / b_down, b, b * b_up)
    assert found.low <= found.tokens * (1 + 1e-12)
    assert found.tokens <= found.high * (1 + 1e-12)
    assert found.describe()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": []}, "tokens has shape"),
        ({"b_low": [1]}, "b_low has shape"),
        ({"a_median": [1, math.nan]}, "a_median is .*nan"),
        ({"tokens": [64, 32]}, "tokens is .*ascending"),
        ({"b_low": [0, 1]}, "b_low is .*positive"),
        ({"a_high": [9, 9]}, "a_median is .*between"),
    ],
)
def test_bad_arrays_are_refused(changes: dict[str, Any], words: str) -> None:
    good = {f"{name}_{part}": [10, 10] for name in "ab" for part in ("low", "median", "high")}
    with pytest.raises(ValueError, match=words):
        crossover(**{"tokens": [32, 64]} | good | changes)
