"""Levels that rose too little for one night to tell: the rule on arrays, and in a comparison of fabricated nights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.compare import Asked, Comparison, compare
from results.confirm import plan
from results.judging import Thresholds
from results.judging_changes import RECENT, suspected
from results.judging_level import risen
from results.judging_rules import Rules
from results.levels import Look, looks
from results.steps import Line, Trail
from results.store import save
from tests.fabricate import canaries
from tests.nights import checks, confirming, keep, night, times

RULE = Thresholds()
NOISE = 0.01


def history(*levels: tuple[int, float], seed: int = 0, noise: float = 0.004) -> np.ndarray:
    """So many nights of each level, us."""
    level = np.concatenate([np.full(count, value) for count, value in levels])
    return np.asarray(level * np.exp(np.random.default_rng(seed).normal(0, noise, level.size)))


def test_a_level_that_holds_did_not_rise() -> None:
    assert all(risen(history((60, 100.0), seed=seed), RULE) is None for seed in range(40))


def test_a_step_up_to_tonight_is_a_rise_with_its_place_and_size() -> None:
    found = risen(history((40, 100.0), (8, 103.0)), RULE)
    assert found is not None
    assert (found.kind, found.low <= 40 <= found.high) == ("step", True)
    assert found.ratio == pytest.approx(1.03, abs=0.006)
    assert found.p < 0.01


def test_steps_up_one_after_another_count_together() -> None:
    alone = history((40, 100.0), (20, 101.4))
    assert risen(alone, RULE) is None
    found = risen(np.concatenate([alone, history((15, 102.8), seed=5)]), RULE)
    assert found is not None
    assert found.ratio == pytest.approx(1.028, abs=0.006)


@pytest.mark.parametrize(
    "levels", [((40, 100.0), (20, 97.0)), ((30, 100.0), (15, 104.0), (15, 100.0)), ((40, 100.0), (20, 101.4))]
)
def test_what_fell_or_is_over_or_within_the_floor_is_no_rise(levels: Any) -> None:
    assert risen(history(*levels), RULE) is None


def test_a_level_that_fell_and_rose_again_is_held_against_the_lower_one() -> None:
    found = risen(history((30, 100.0), (20, 94.0), (20, 97.0)), RULE)
    assert found is not None
    assert found.ratio == pytest.approx(97 / 94, abs=0.006)


def test_the_floor_is_that_of_the_case() -> None:
    values = history((40, 100.0), (20, 103.0))
    assert risen(values, RULE) is not None
    assert risen(values, Thresholds(percent=5)) is None
    assert risen(values, Thresholds(us=5)) is None
    assert risen(values, RULE, aa=0.05) is None


def test_a_night_that_is_back_at_the_old_level_is_no_rise() -> None:
    values = history((40, 100.0), (20, 103.0))
    values[-1] = 100.2
    assert risen(values, RULE) is None


def test_a_creep_is_a_rise() -> None:
    creep = history((80, 100.0)) * np.concatenate([np.ones(30), 1 + 0.001 * np.arange(50)])
    found = risen(creep, RULE)
    assert found is not None
    assert found.kind == "drift"
    assert found.ratio == pytest.approx(1.05, abs=0.01)
    assert risen(1 / creep, RULE) is None


# In a comparison


def years(root: Path, factor: float, slow: int = 10, **overrides: Any) -> Comparison:
    """30 accepted nights, and so many in which chunked is so much slower, which are accepted as well."""
    for number in range(30 + slow):
        given = overrides if number >= 30 else {}
        made = night(number, (*checks(), *times(number, factor if number >= 30 else 1.0, NOISE)), **given)
        keep(root, made, accepted=number < 30)
    return compare(root)


def settled(root: Path, factor: float) -> Comparison:
    """The same after fresh processes of the last night."""
    for made in confirming(night(39), factor):
        save(made, root)
    return compare(root)


def speeds(found: Comparison, name: str = "chunked") -> list[str]:
    return [case.verdict for case in found.cases if (case.kind, case.recurrence) == ("speed", name)]


def test_a_rise_within_the_band_is_open_then_slower_where_fresh_processes_say_so(tmp_path: Path) -> None:
    found = years(tmp_path, 1.025)
    rose = [case for case in found.cases if "its level rose by +" in case.reason]
    assert rose
    assert {(case.verdict, case.suspect, case.suspicious) for case in rose} == {("inconclusive", True, True)}
    assert any("within ±" in case.reason for case in rose)  # the band alone would not tell
    assert found.exit_code == 4
    again = settled(tmp_path, 1.025)
    assert again.exit_code == 1
    slower = [case for case in again.cases if case.verdict == "slower" and "its level rose by +" in case.reason]
    assert slower
    assert all(case.confirmed and not case.suspicious and case.recurrence == "chunked" for case in slower)
    assert all("between" in case.reason and case.cause for case in slower)
    assert "slower" not in speeds(again, "sequential")


def test_a_step_that_is_merely_suspected_is_measured_by_fresh_processes_and_no_more(tmp_path: Path) -> None:
    found = years(tmp_path, 1.012)
    doubtful = [case for case in found.cases if case.verdict == "same" and case.suspicious]
    assert doubtful
    assert not any(case.suspect for case in doubtful)
    (one, *_) = plan(tmp_path, found, Asked())
    (tokens,) = (option for option in one.command if option.startswith("--gdn-tokens="))
    assert {str(case.tokens) for case in doubtful} <= {*tokens.removeprefix("--gdn-tokens=").split(",")}
    again = settled(tmp_path, 1.012)
    assert not again.suspicious
    assert again.exit_code == 0


def test_a_step_that_was_suspected_before_tonight_is_so_whatever_tonights_first_time() -> None:
    values = np.append(history((50, 100.0), (6, 100.8), seed=3), 99.0)
    assert suspected(values[:-1], RECENT)
    assert not suspected(values, RECENT)
    line = Line(("speed", "chunked", "", 64, "", "", ""), "speed of chunked", np.arange(values.size), values)
    nights = tuple({"run_id": str(number)} for number in range(values.size))
    found = Trail(nights, (), (), (line,))
    assert looks(found, np.ones(values.size, bool), lambda tokens: 0.0, Rules()) == {line.key: Look()}


def test_a_rise_that_fresh_processes_do_not_show_wakes_nobody(tmp_path: Path) -> None:
    years(tmp_path, 1.025)
    found = settled(tmp_path, 1.0)
    assert "slower" not in speeds(found)
    assert found.exit_code == 0


def test_a_rise_before_the_level_was_moved_on_purpose_is_not_held_against_the_night(tmp_path: Path) -> None:
    years(tmp_path, 1.025)
    from results.accepted import accept

    accept(tmp_path, night(31).run_id, "slower on purpose")
    found = settled(tmp_path, 1.025)
    assert not any("its level rose" in case.reason for case in found.cases)
    assert found.exit_code == 0


def test_a_rise_that_a_canary_shows_as_well_is_the_machine(tmp_path: Path) -> None:
    """The canary stays within its own band: only its history shows the step."""
    found = years(tmp_path, 1.025, canaries=canaries(3.3e5 * 1.018, 3.31e5 * 1.018))
    assert found.quiet
    again = settled(tmp_path, 1.025)
    rose = [case for case in again.cases if "its level rose by +" in case.reason]
    assert rose
    assert all(case.verdict != "slower" for case in rose)
    assert all("that of a canary as well: the machine, not the code" in case.reason for case in rose)


def test_a_canary_that_rose_by_far_less_excuses_nothing(tmp_path: Path) -> None:
    found = years(tmp_path, 1.07, canaries=canaries(3.3e5 * 1.008, 3.31e5 * 1.008))
    assert any(step.what.startswith("canary fma") for step in found.changes)
    again = settled(tmp_path, 1.07)
    rose = [step for step in again.changes if step.what.startswith("speed of chunked")]
    assert rose
    assert not any("canary" in step.reason for step in rose)
    assert again.exit_code == 1


def test_an_error_within_its_limit_that_rose_is_told_and_wakes_nobody(tmp_path: Path) -> None:
    for number in range(40):
        error = 3.2e-7 if number < 30 else 6.4e-7
        keep(tmp_path, night(number, (*checks(error=error), *times(number))), accepted=number < 30)
    found = compare(tmp_path)
    (step, *_) = (one for one in found.changes if one.what.startswith("accuracy"))
    assert step.ratio == pytest.approx(2.0)
    assert found.exit_code == 0
