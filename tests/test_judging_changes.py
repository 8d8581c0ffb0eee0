"""Change points against ruptures and asv on fabricated histories; p, places and drifts against what was planted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from results.judging_cause import between
from results.judging_changes import ALPHA, change_points, drift, strongest, suspected
from results.steps import Interval, Line, Trail, cause_of


def history(steps: dict[int, float], n: int = 90, noise: float = 0.01, seed: int = 1, outliers: int = 0) -> np.ndarray:
    """Times around 100 us with relative steps, and so many values that are 10 % too great."""
    chance = np.random.default_rng(seed)
    logs = math.log(100) + chance.normal(0, noise, n)
    for place, size in steps.items():
        logs[place:] += math.log1p(size)
    logs[chance.choice(n, outliers, replace=False)] += 0.1
    return np.exp(logs)


STEPS: list[dict[int, float]] = [{40: 0.04}, {30: 0.05, 60: -0.05}, {25: 0.06, 50: 0.05, 75: -0.1}, {84: 0.06}, {}]


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_ruptures_finds_the_same(steps: dict[int, float], seed: int) -> None:
    """Exact segmentation with the penalty of the Bayesian criterion has as many steps, in those places."""
    ruptures = pytest.importorskip("ruptures")
    values = history(steps, seed=seed)
    logs = np.log(values)
    penalty = 3 * math.log(logs.size) * 0.01**2
    theirs = ruptures.Pelt("l2", min_size=3, jump=1).fit(logs).predict(pen=penalty)[:-1]
    ours = [one.index for one in change_points(values)]
    assert len(ours) == len(theirs) == len(steps)
    for own, other, true in zip(ours, theirs, steps, strict=True):
        assert abs(own - other) <= 1
        assert abs(own - true) <= 2


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_asv_finds_the_same(steps: dict[int, float], seed: int) -> None:
    """asv needs steps twice as great to see them all."""
    detection = pytest.importorskip("asv.step_detect")
    values = history({place: (1 + size) ** 2 - 1 for place, size in steps.items()}, seed=seed)
    theirs = [left for left, *_ in detection.detect_steps(values.tolist(), [1] * values.size)][1:]
    assert [one.index for one in change_points(values)] == pytest.approx(theirs, abs=1)
    assert len(theirs) == len(steps)


@pytest.mark.parametrize("n", [20, 60, 200])
def test_p_holds_on_noise(n: int) -> None:
    """Of histories without a step no more are reported than alpha says."""
    logs = np.random.default_rng(n).normal(0, 0.01, (8000, n))
    assert np.mean(strongest(logs) < ALPHA) < 1.3 * ALPHA


def test_outliers_are_no_changes() -> None:
    wrong = sum(bool(change_points(history({}, seed=seed, outliers=4))) for seed in range(200))
    assert wrong <= 4
    found = [change_points(history({45: 0.04}, seed=seed, outliers=4)) for seed in range(50)]
    assert sum(len(one) == 1 and abs(one[0].index - 45) <= 2 for one in found) >= 45


def test_the_intervals_hold_the_truth() -> None:
    places, sizes = [], []
    for seed in range(200):
        found = change_points(history({60: 0.03}, seed=seed))
        if len(found) == 1:
            one = found[0]
            assert one.low <= one.index <= one.high
            places.append(one.low <= 60 <= one.high)
            sizes.append(one.ratio_low <= 1.03 <= one.ratio_high)
    assert len(places) > 180
    assert np.mean(places) > 0.93
    assert np.mean(sizes) > 0.88


def test_how_large_and_how_sure() -> None:
    (one,) = change_points(history({45: 0.05}))
    assert one.before == pytest.approx(100, rel=0.01)
    assert one.after == pytest.approx(105, rel=0.01)
    assert one.ratio == pytest.approx(1.05, rel=0.01)
    assert one.p < 1e-9
    (down,) = change_points(history({45: -0.05}))
    assert down.ratio < 1


def test_a_level_that_lasts_ten_nights_in_ten_years() -> None:
    found = change_points(history({1000: 0.05, 1010: 1 / 1.05 - 1}, n=3650))
    assert [one.index for one in found] == pytest.approx([1000, 1010], abs=1)


def test_errors_without_noise() -> None:
    """Errors of a deterministic kernel are the same every night, until they are not."""
    assert change_points([3e-7] * 30) == []
    (one,) = change_points([3e-7] * 20 + [4e-7] * 5)
    assert (one.index, one.low, one.high) == (20, 20, 20)
    assert (one.before, one.after) == (3e-7, 4e-7) or one.ratio == pytest.approx(4 / 3)


def test_the_last_night_alone_is_not_yet_a_change() -> None:
    assert change_points(history({89: 0.2})) == []


def test_a_doubt_comes_before_a_report() -> None:
    doubts = [next(n for n in range(62, 90) if suspected(history({60: 0.02}, seed=s)[:n])) for s in range(20)]
    reports = [
        next((n for n in range(62, 90) if change_points(history({60: 0.02}, seed=s)[:n])), 90) for s in range(20)
    ]
    assert all(doubt <= report for doubt, report in zip(doubts, reports, strict=True))
    assert np.mean(doubts) < np.mean(reports)


@pytest.mark.parametrize("n", range(8))
def test_short_histories_say_nothing(n: int) -> None:
    values = history({n // 2: 0.01}, n=n)
    assert change_points(values) == []
    assert drift(values) is None


@pytest.mark.parametrize("function", [change_points, drift, suspected])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_value_is_refused(function: Any, bad: float) -> None:
    with pytest.raises(ValueError, match=r"values\[2\] is"):
        function([1.0, 1.0, bad] + [1.0] * 20)
    with pytest.raises(ValueError, match="one dimension"):
        function(np.ones((2, 20)))


@pytest.mark.parametrize("start", [0, 30])
@pytest.mark.parametrize("slope", [0.001, -0.001])
def test_a_drift_is_found(start: int, slope: float) -> None:
    found = 0
    for seed in range(20):
        values = history({}, seed=seed) * np.exp(slope * np.maximum(np.arange(90) - start, 0))
        one = drift(values)
        if one is not None:
            found += 1
            assert one.slope == pytest.approx(slope, rel=0.5)
            assert abs(one.start - start) <= 20
            assert one.low < one.after / one.before < one.high
    assert found >= 17


def test_steps_and_noise_are_no_drift() -> None:
    for seed in range(30):
        assert drift(history({}, seed=seed)) is None
        assert drift(history({45: 0.05}, seed=seed)) is None
        assert drift(history({30: 0.05, 60: 0.05}, seed=seed)) is None


RUN = {"commit": "a", "machine_code": "m", "driver": "570", "cupy": "13", "nvrtc": "12.8", "source": "s"}


@pytest.mark.parametrize(
    ("after", "kind", "words"),
    [
        ({"driver": "580"}, "machine", "the machine code is the same; driver 570 → 580"),
        ({"commit": "b"}, "machine", "the machine code is the same"),
        ({"commit": "b", "cupy": "14"}, "machine", "cupy 13 → 14"),
        ({"machine_code": "n", "nvrtc": "12.9"}, "compiler", "source is the same and the machine code is another"),
        ({"machine_code": "n", "nvrtc": "12.9", "commit": "b"}, "compiler", "nvrtc 12.8 → 12.9"),
        ({"machine_code": "n", "source": "t", "commit": "b"}, "source", "the source changed, and the machine code"),
        ({"machine_code": "n", "source": "t", "nvrtc": "12.9"}, "unknown", "changed together"),
        ({"machine_code": None, "driver": "580"}, "machine", "machine code is not known; driver 570 → 580"),
        ({"machine_code": None, "nvrtc": "12.9"}, "compiler", "the machine code is not known"),
        ({"machine_code": None, "source": None, "commit": "b"}, "source", "the commit changed"),
        ({"machine_code": None, "source": None, "commit": "b", "driver": "1"}, "unknown", "machine changed together"),
        ({"machine_code": None, "source": None, "commit": None}, "unknown", "neither"),
        ({"machine_code": "n", "source": None, "commit": None}, "unknown", "the source is not known"),
    ],
)
def test_what_changed(after: dict[str, Any], kind: str, words: str) -> None:
    found = between(RUN, RUN | after)
    assert (found.kind, words in found.reason) == (kind, True), found
    assert found.commits == ("a", (RUN | after)["commit"])
    assert between(RUN, RUN | after, canary=True).kind == "machine"


LINE = Line(("speed", "chunked"), "speed of chunked", np.array([0, 2, 3, 5, 6, 7, 9]), np.ones(7))
"""Over ten nights, three of which do not have it."""


def test_an_uncertain_place_takes_all_that_changed_within() -> None:
    runs = [RUN] * 3 + [RUN | {"commit": "b"}] * 2 + [RUN | {"commit": "c", "driver": "580"}] * 5
    found = cause_of(Trail(tuple(runs), (), (), ()), LINE, (2, 4), 1.1, [])
    assert found.commits == ("a", "c")
    assert found.changed["driver"] == ("570", "580")


@pytest.mark.parametrize(
    ("low", "high", "ratio", "accounts"),
    [
        (6, 7, 1.1, True),
        (2, 3, 1.1, True),
        (7, 8, 1.1, False),  # later
        (1, 2, 1.1, False),  # earlier
        (5, 5, 1 / 1.1, False),  # the other way
        (5, 5, 1.05, True),
        (5, 5, 1.03, False),  # too little for twice as much and the floor of 2 %
    ],
)
def test_a_canary_that_changed_there_by_enough_is_the_machine(
    low: int, high: int, ratio: float, accounts: bool
) -> None:
    runs = [RUN] * 5 + [RUN | {"machine_code": "n", "source": "t"}] * 5
    nights = Trail(tuple(runs), (), (), ())
    found = cause_of(nights, LINE, (2, 4), 1.1, [Interval(low, high, ratio)])  # of the nights 3 to 6
    assert found.canary == accounts
    assert (found.kind == "machine") == accounts
