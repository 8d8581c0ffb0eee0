"""The crossover followed over runs: where it lies, how it stands to the threshold, and when it leaves it."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from results.crossing import crossings, track
from results.frame import frame
from tests.fabricate import record, speed

TOKENS = (32, 64, 128, 256, 512)
LIMITS = {"chunked": 128}


def run(at: float, tokens: tuple[int, ...] = TOKENS, half: float = 0.003, **overrides: object) -> pd.DataFrame:
    """Cases of a run whose lines cross at that token count: sequential n us, chunked so that the ratio is sqrt."""
    cases = []
    for n in tokens:
        for name, us in (("sequential", float(n)), ("chunked", math.sqrt(n * at))):
            ns = us * 1e3
            given = {"median_ns": ns, "low_ns": ns * (1 - half), "high_ns": ns * (1 + half)} | overrides
            cases.append(speed(recurrence=name, tokens=n, **given))
    return frame([record(cases=tuple(cases))])


@pytest.mark.parametrize("at", [40.0, 100.0, 128.0, 300.0])
def test_the_crossover_is_where_the_lines_cross(at: float) -> None:
    ((key, found),) = crossings(run(at))
    assert key == ("chunked", "sequential", "16x48x128", "tiled", "normal")
    assert found.tokens == pytest.approx(at)
    # Both times are known to 0.5 % at least: (n / at) ** 0.5 = 1.005 / 0.995.
    assert (found.low, found.high) == pytest.approx((at * (0.995 / 1.005) ** 2, at * (1.005 / 0.995) ** 2))


def test_a_wider_spread_widens_the_interval() -> None:
    ((_, narrow),) = crossings(run(100))
    ((_, wide),) = crossings(run(100), least=0.03)
    assert wide.low < narrow.low < 100 < narrow.high < wide.high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("at", "note", "best"),
    [(127.0, "it fits", 130), (60.0, "is above it", 62), (300.0, "is below it", 307)],
)
def test_how_the_threshold_stands_and_what_is_recommended(at: float, note: str, best: int) -> None:
    (one,) = track(run(at), [], LIMITS)
    assert note in one.note
    assert one.recommended == best == math.ceil(at * (1.005 / 0.995) ** 2)
    assert one.alarm == ""  # nothing was accepted that it could have left


@pytest.mark.parametrize(
    ("at", "note", "best"),
    [(10.0, "is above it", 32), (9000.0, "chooses the slower one", None)],
)
def test_no_crossover_within_what_was_measured(at: float, note: str, best: int | None) -> None:
    (one,) = track(run(at), [], LIMITS)
    assert one.now.tokens is None
    assert note in one.note
    assert one.recommended == best


@pytest.mark.parametrize(
    ("before", "now", "alarm"),
    [
        (128.0, 129.0, False),  # noise
        (128.0, 150.0, True),  # the dispatch now chooses the slower one
        (128.0, 100.0, True),  # gain is left unused
        (150.0, 151.0, False),  # it was so when it was accepted
        (100.0, 150.0, True),  # over to the other side
        (150.0, 128.0, False),  # it has come home
        (128.0, 9000.0, True),
        (128.0, 10.0, True),
    ],
)
def test_the_alarm_sounds_when_the_crossover_leaves_the_threshold(before: float, now: float, alarm: bool) -> None:
    (one,) = track(run(now), [("old", run(20)), ("accepted", run(before))], LIMITS)
    assert [run_id for run_id, _ in one.before] == ["old", "accepted"]
    assert bool(one.alarm) == alarm
    if alarm:
        assert one.alarm.startswith("the crossover of chunked left the dispatch threshold of 128: it is ")


def test_without_a_threshold_it_is_followed_and_no_alarm_sounds() -> None:
    (one,) = track(run(500), [("accepted", run(60))], {})
    assert (one.alarm, one.note, one.threshold) == ("", "", None)
    assert len(one.before) == 1


def test_what_is_not_green_or_has_no_partner_does_not_count() -> None:
    assert track(run(100, outcome="inconclusive"), [], LIMITS) == []
    rows = run(100)
    assert track(rows[rows["recurrence"] == "chunked"], [], LIMITS) == []
    ((_, found),) = crossings(rows[(rows["recurrence"] == "chunked") | (rows["tokens"] >= 64)])
    assert found.tokens == pytest.approx(100)
