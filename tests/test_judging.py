"""The rule for speed against scipy, and against what a reader would say of plain cases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from results.judging import Series, Thresholds, band, control, judge_cases, judge_speed, short_history
from results.judging_rules import Rules, read_rules, rules
from results.store import ResultsError

RUNS = 100 * (1 + 0.01 * np.random.default_rng(1).standard_normal(30))
QUIET = 100 * (1 + 0.001 * np.random.default_rng(2).standard_normal(30))


def test_the_band_is_the_median_and_the_mad() -> None:
    seen = band(np.log(RUNS), 0.0, Thresholds(percent=0, us=0, night=1.0))
    spread = stats.median_abs_deviation(np.log(RUNS), scale="normal")
    assert seen.centre == pytest.approx(np.log(np.median(RUNS)), abs=1e-4)
    assert seen.sigma == pytest.approx(spread * 30 / 29.2 * math.sqrt(1 + math.pi / 60), rel=1e-4)
    assert seen.limit == pytest.approx(math.expm1(2.5 * seen.sigma))


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.0023])
def test_p_holds_on_noise(n: int, alpha: float) -> None:
    """Of normal times as many have a p below alpha as it says, or a few less."""
    chance = np.random.default_rng(3)
    seen = band(3 + 0.01 * chance.standard_normal((60_000, n)), 0.0)
    share = np.mean(seen.p(3 + 0.01 * chance.standard_normal(60_000) - seen.centre) < alpha)
    assert 0.3 * alpha < share < 1.1 * alpha + 0.0002


def test_p_is_conservative_where_half_of_the_noise_is_of_the_night() -> None:
    chance = np.random.default_rng(4)
    history, night = chance.standard_normal((60_000, 30)) / 100, chance.standard_normal(60_000) / 100 * math.sqrt(0.5)
    new = np.median(night[:, None] + chance.standard_normal((60_000, 5)) / 100 * math.sqrt(0.5), axis=1)
    seen = band(history, 0.0, Thresholds(), 5)
    assert np.mean(seen.p(new - seen.centre) < 0.0023) < 0.0023 * 1.15


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "same"), (1.015, "same"), (1.1, "slower"), (0.9, "faster"), (1 / 1.015, "same")]
)
def test_a_time_is_inside_or_outside(factor: float, verdict: str) -> None:
    found = judge_speed(RUNS, [100 * factor], 0.005)
    assert (found.verdict, found.short_history, found.confirmed) == (verdict, False, False)
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(factor, rel=0.01)


def test_so_many_processes_confirm() -> None:
    five = judge_speed(RUNS, [105.0, 106.0, 104.5, 105.2, 105.0], 0.005)
    assert (five.verdict, five.confirmed, five.suspicious) == ("slower", True, False)
    assert "5 processes say so" in five.reason
    one = judge_speed(RUNS, [105.0], 0.005)
    assert (one.verdict, one.confirmed, one.suspicious) == ("slower", False, True)
    assert five.p < one.p
    assert judge_speed(RUNS, [105.0, 100.1, 99.9, 100.3, 99.8], 0.005).verdict == "same"


@pytest.mark.parametrize(
    ("thresholds", "aa", "limit"),
    [
        (Thresholds(), 0.005, 0.02),
        (Thresholds(percent=1.0), 0.005, 0.01),
        (Thresholds(us=4.0), 0.005, 0.04),
        (Thresholds(), 0.03, 0.03),
        (Thresholds(percent=0, us=0), 0.006, 0.006),
    ],
)
def test_the_floor(thresholds: Thresholds, aa: float, limit: float) -> None:
    """A quiet history's band is the practical floor, never below the A/A spread."""
    middle = float(np.median(QUIET))
    inside = judge_speed(QUIET, [middle * (1 + limit * 0.98)], aa, thresholds)
    outside = judge_speed(QUIET, [middle * (1 + limit * 1.02)], aa, thresholds)
    assert (inside.verdict, outside.verdict) == ("same", "slower")
    assert inside.limit == pytest.approx(limit, rel=0.001)


def test_only_the_window_counts() -> None:
    assert judge_speed([*RUNS * 2, *RUNS], [100.0], 0.005) == judge_speed(RUNS, [100.0], 0.005)


@pytest.mark.parametrize(("n", "m"), [(1, 5), (3, 1), (9, 5)])
def test_a_short_history_is_students_interval(n: int, m: int) -> None:
    chance = np.random.default_rng(n * 10 + m)
    old, new = chance.normal(3, 0.01, n), chance.normal(3.05, 0.01, m)
    found = short_history(old, new, 0.0)
    if m > 1 and n > 1:
        test = stats.ttest_ind(new, old)
        # The pooled error is the same; the centres are medians instead of means.
        error = (new.mean() - old.mean()) / test.statistic
        assert found.p == pytest.approx(2 * stats.t.sf(abs(found.log) / error, n + m - 2))
    assert found.reach > 0.01
    assert judge_speed(np.exp(old), np.exp(new), 0.0).short_history


def test_one_run_against_one_is_never_certain() -> None:
    found = judge_speed([100.0], [130.0], 0.005)
    assert found.verdict == "inconclusive"
    assert math.isnan(found.p)
    assert "short history: 1 accepted run, a band needs 10" in found.reason
    assert judge_speed([100.0], [101.0], 0.005).verdict == "same"
    assert judge_speed([100.0], [101.0], 0.005, within=0.05).high == pytest.approx(1.01 * 1.05)


def test_few_runs_need_a_clear_change_and_processes_help() -> None:
    assert judge_speed([100.0, 101.0], [106.0], 0.005).verdict == "inconclusive"
    found = judge_speed([100.0, 101.0], [106.0, 106.3, 105.8, 106.1, 106.0], 0.005)
    assert (found.verdict, found.confirmed, found.short_history) == ("slower", True, True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("place", ["history", "new"])
def test_what_is_no_time_is_refused(bad: float, place: str) -> None:
    arguments: dict[str, Any] = {"history": [1.0, 2.0], "new": [1.0, 2.0]}
    arguments[place] = [1.0, bad]
    with pytest.raises(ValueError, match=rf"{place}\[1\] is"):
        judge_speed(**arguments, aa=0.0)


def test_empty_arrays_and_bad_spreads_are_refused() -> None:
    for arguments in ({"history": [], "new": [1.0]}, {"history": [1.0], "new": []}, {"history": [[1.0]], "new": [1.0]}):
        with pytest.raises(ValueError, match="shape"):
            judge_speed(**arguments, aa=0.0)
    with pytest.raises(ValueError, match="aa is nan"):
        judge_speed([1.0], [1.0], math.nan)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_false_discovery_rate_is_scipys(p: list[float], q: float) -> None:
    np.testing.assert_array_equal(control(p, q), np.array(p) <= _last(p, q))


def _last(p: list[float], q: float) -> float:
    """The greatest p that scipy's adjusted values leave below q; adjusting rounds, so they are compared with care."""
    adjusted = stats.false_discovery_control(p)
    return max((one for one, a in zip(p, adjusted, strict=True) if a <= q * (1 + 1e-12)), default=-1.0)


def test_what_was_not_judged_does_not_count() -> None:
    assert control([0.02, math.nan, math.nan]).tolist() == [True, False, False]
    assert control([0.02, 1.0, 1.0]).tolist() == [False, False, False]
    assert control(np.array([[0.02, 0.03], [0.04, 0.9]])).tolist() == [[True, True], [False, False]]
    assert control([math.nan]).tolist() == [False]
    with pytest.raises(ValueError):
        control([1.5])


def test_a_small_p_among_many_cases_is_not_enough() -> None:
    alone = Series(RUNS, [102.1] * 5, 0.005)
    assert judge_cases([alone])[0].verdict == "slower"
    found = judge_cases([alone, *[Series(RUNS, [100.0], 0.005)] * 21])
    assert found[0].verdict == "inconclusive"
    assert "among 22 cases is not rare enough" in found[0].reason
    assert {one.verdict for one in found[1:]} == {"same"}
    assert judge_cases([]) == []


def test_one_process_is_not_enough_to_call_a_case_slower() -> None:
    for value, side in ((106.0, "slower"), (94.0, "faster")):
        (one,) = judge_cases([Series(RUNS, [value], 0.005)])
        assert (one.verdict, one.suspicious, one.suspect) == ("inconclusive", True, side == "slower")
        assert f"1 of 5 processes; it takes fresh processes to call it {side}" in one.reason
        (four,) = judge_cases([Series(RUNS, [value] * 4, 0.005)])
        (five,) = judge_cases([Series(RUNS, [value] * 5, 0.005)])
        assert (four.verdict, five.verdict, five.suspect) == ("inconclusive", side, False)
    alone = judge_speed([100.0], [130.0], 0.005)
    assert (alone.verdict, alone.suspect) == ("inconclusive", True)
    canary = judge_speed(QUIET, [105.0], 0.0)
    assert not judge_cases([Series(RUNS, [106.0], 0.005)], [canary])[0].suspect


def test_a_slower_machine_is_not_slower_code() -> None:
    canary = judge_speed(QUIET, [105.0], 0.0)
    slow, slower, fast = (Series(RUNS, [value] * 5, 0.005) for value in (106.0, 125.0, 90.0))
    found = judge_cases([slow, slower, fast], [canary])
    assert [one.verdict for one in found] == ["inconclusive", "slower", "faster"]
    assert "the machine, not the code" in found[0].reason
    quiet = judge_speed(QUIET, [100.0], 0.0)
    assert judge_cases([slow], [quiet])[0].verdict == "slower"


def test_thresholds_of_each_case() -> None:
    found = rules({"percent": 3, "cases": {"tensor/*": {"percent": 4.0}, "*/32": {"us": 1.0}}})
    assert found.of("chunked/64") == Thresholds(percent=3)
    assert found.of("tensor/64") == Thresholds(percent=4.0)
    assert found.of("tensor/32") == Thresholds(percent=4.0, us=1.0)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"percents": 1}, "'percents', which is not known; known are percent, us"),
        ({"percent": "2"}, "percent is '2'; it must be a number"),
        ({"percent": True}, "percent is True"),
        ({"percent": -1}, "percent is -1"),
        ({"percent": math.nan}, "percent is nan"),
        ({"window": 5, "least": 10}, "window must not be the smaller"),
        ({"window": 30.5}, "window is 30.5; it must be an integer"),
        ({"confirm": 1}, "confirm is 1"),
        ({"q": 0}, "q is 0"),
        ({"night": 2}, "night is 2"),
        ({"cases": 1}, "cases is 1"),
        ({"cases": {"a": 1}}, "'a' = 1"),
        ({"cases": {"a": {"colour": 1}}}, "'colour', which is not known"),
        ({"cases": {"a": {"us": -1}}}, 'cases."a"] us is -1'),
        ({"cases": {"a": {"q": 0.1}}}, "of all the cases"),
    ],
)
def test_wrong_thresholds_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ResultsError) as error:
        rules(table)
    assert words in str(error.value)


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    assert read_rules(path) == Rules()
    path.write_text('[project]\nname = "a"\n')
    assert read_rules(path) == Rules()
    path.write_text('[tool.gdn-bench]\npercent = 3\n[tool.gdn-bench.cases."tensor/*"]\nus = 1\n')
    assert read_rules(path).of("tensor/32") == Thresholds(percent=3, us=1)
    for text, words in (("[tool.gdn-bench]\npercentage = 3\n", "percentage"), ("[", "not valid TOML")):
        path.write_text(text)
        with pytest.raises(ResultsError, match=words):
            read_rules(path)
