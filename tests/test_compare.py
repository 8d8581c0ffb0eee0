"""The comparison of a night with its baseline and history: every verdict, every defined outcome, every exit code."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from results.compare import Asked, Comparison, cards, compare
from results.schema import Method, Record
from results.store import ResultsError, load, save
from tests.fabricate import accuracy, canaries, determinism, environment, speed
from tests.nights import ENOUGH, FIRST, METHOD, checks, confirming, judged, keep, night, nights, times


def load_one(root: Path, run_id: str) -> Record:
    return next(one for one in load(root).records if one.run_id == run_id)


def verdicts(found: Comparison, kind: str, name: str = "chunked") -> dict[int, str]:
    return {case.tokens: case.verdict for case in found.cases if (case.kind, case.recurrence) == (kind, name)}


def confirmed(root: Path, factor: float, **overrides: Any) -> Comparison:
    """Tonight, with fresh processes: all say that chunked is so much slower."""
    found = judged(root, *checks(), *times(99, factor), **overrides)
    assert found.run_id is not None
    for made in confirming(load_one(root, found.run_id), factor):
        save(made, root)
    return compare(root)


def doubtful(cases: Any, reason: str, **overrides: Any) -> list[Any]:
    """The same cases, not judged for that reason."""
    given = {"outcome": "inconclusive", "reason": reason} | overrides
    return [speed(recurrence=case.recurrence, tokens=case.tokens, **given) for case in cases]


def test_a_night_like_the_others_is_fine(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert (found.state, found.exit_code, found.accepted, found.quiet) == ("judged", 0, ENOUGH, True)
    assert found.census.verdicts == {"same": 12}
    assert (found.census.cases, found.census.judged, found.census.unjudged) == (12, 12, ())
    assert found.run_id == night(ENOUGH).run_id
    assert found.baseline is not None
    assert found.baseline.run_id == night(ENOUGH - 1).run_id
    assert found.environment == (("commit", f"{ENOUGH - 1:040x}", f"{ENOUGH:040x}"),)


@pytest.mark.parametrize(("factor", "verdict", "code"), [(1.1, "slower", 1), (0.9, "faster", 0)])
def test_a_changed_time(tmp_path: Path, factor: float, verdict: str, code: int) -> None:
    found = confirmed(tmp_path, factor)
    assert set(verdicts(found, "speed").values()) == {verdict}
    assert set(verdicts(found, "speed", "sequential").values()) == {"same"}
    assert found.exit_code == code
    (case, *_) = (case for case in found.cases if case.verdict == verdict)
    assert case.ratio == pytest.approx(factor, rel=0.02)
    assert case.low is not None
    assert case.high is not None
    assert case.low < case.ratio < case.high
    assert "5 processes say so" in case.reason


@pytest.mark.parametrize(("factor", "code"), [(1.1, 4), (0.9, 0)])
def test_a_changed_time_is_open_until_fresh_processes_have_run(tmp_path: Path, factor: float, code: int) -> None:
    found = judged(tmp_path, *checks(), *times(99, factor))
    assert set(verdicts(found, "speed").values()) == {"inconclusive"}
    assert set(verdicts(found, "speed", "sequential").values()) == {"same"}
    assert found.exit_code == code
    (case, *_) = found.suspicious
    assert case.suspect == (factor > 1)
    assert "1 of 5 processes; it takes fresh processes to call it" in case.reason
    told = any("4 cases seem slower, by too few processes to tell" in note for note in found.notes)
    assert told == (factor > 1)


def test_processes_that_confirm_are_judged_with_the_run(tmp_path: Path) -> None:
    again = confirmed(tmp_path, 1.1)
    assert again.run_id == night(ENOUGH).run_id
    assert len(again.runs) == 5
    slow = [case for case in again.cases if case.verdict == "slower"]
    assert {case.processes for case in slow} == {5}
    assert all(case.confirmed and not case.suspicious for case in slow)
    assert again.exit_code == 1


def test_processes_that_do_not_confirm_clear_the_run(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *times(99, 1.1))
    assert found.run_id is not None
    for made in confirming(load_one(tmp_path, found.run_id), 1.0):
        save(made, tmp_path)
    again = compare(tmp_path)
    assert set(verdicts(again, "speed").values()) == {"same"}
    assert again.exit_code == 0


def _later(made: Any, minutes: int) -> Any:
    started = FIRST + timedelta(days=ENOUGH, minutes=10 * minutes)
    return msgspec.structs.replace(made, run_id=f"{made.run_id[:-2]}c{minutes}", started=started.isoformat())


def test_a_wrong_case_is_wrong_and_its_times_are_withheld(tmp_path: Path) -> None:
    red = accuracy(recurrence="chunked", error_out=None, outcome="red", reason="NaN in the output")
    held = [speed(recurrence="chunked", tokens=64, median_ns=None, outcome="red", reason="no time: accuracy is red")]
    found = judged(tmp_path, red, *held, *(case for case in (*checks(), *times(99)) if case.recurrence == "sequential"))
    assert verdicts(found, "accuracy") == {2048: "wrong"}
    assert verdicts(found, "speed")[64] == "wrong"
    assert found.exit_code == 3
    assert found.cases[0].reason == "NaN in the output"


def test_reruns_that_differ_are_unstable_and_so_are_the_times_withheld_for_it(tmp_path: Path) -> None:
    red = determinism(recurrence="chunked", differing=3, outcome="red", reason="3 of 199 reruns differ")
    held = speed(recurrence="chunked", tokens=64, median_ns=None, outcome="red", reason="no time: determinism is red")
    rest = [case for case in times(9) if (case.recurrence, case.tokens) != ("chunked", 64)]
    found = judged(tmp_path, *checks()[:3], red, held, *rest)
    assert verdicts(found, "determinism") == {2048: "unstable"}
    assert verdicts(found, "speed")[64] == "unstable"
    assert found.exit_code == 3


def test_a_process_that_could_not_check_the_bits_makes_them_no_less_stable(tmp_path: Path) -> None:
    held = [
        determinism(recurrence=name, outcome="not measured", reason="no memory", reruns=0, sha256_out="")
        for name in ("sequential", "chunked")
    ]
    own = night(ENOUGH)
    nights(tmp_path, ENOUGH)
    save(msgspec.structs.replace(own, night="n"), tmp_path)
    save(_later(msgspec.structs.replace(own, night="n", cases=(*held, *times(99))), 1), tmp_path)
    found = compare(tmp_path)
    assert len(found.runs) == 2
    assert verdicts(found, "determinism") == {2048: "same"}
    assert "199 reruns gave the same bits" in next(case.reason for case in found.cases if case.kind == "determinism")


def test_bits_that_changed_since_the_baseline_and_are_stable_are_told_and_fine(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(bits="c"), *times(99))
    changed = [case for case in found.cases if case.bits_changed]
    assert len(changed) == 2
    assert changed[0].reason == "199 reruns gave the same bits: the bits changed since the baseline, and are stable"
    assert found.exit_code == 0


def test_a_greater_error_within_its_limit_is_told(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(error=3.2e-6), *times(99))
    (case, _) = (case for case in found.cases if case.kind == "accuracy")
    assert case.verdict == "same"
    assert case.reason == "error 3.2e-06, limit 1.0e-04; 10.0 times that of the baseline, 3.2e-07"
    assert any(step.what.startswith("accuracy of chunked") for step in found.changes) is False  # one night is no step


def test_quality_makes_a_case_inconclusive_and_the_census_says_why(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *doubtful(times(9)[:1], "throttled"), *times(9)[1:])
    assert verdicts(found, "speed", "sequential")[64] == "inconclusive"
    assert (found.census.cases, found.census.judged) == (12, 11)
    assert found.census.unjudged == (("inconclusive", "throttled", 1),)
    assert found.exit_code == 0


def test_too_few_that_could_be_judged_is_4(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *doubtful(times(9), "shared"))
    assert found.census.judged == 4
    assert found.exit_code == 4


def test_a_new_case_is_new(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *times(9), speed(recurrence="tensor", tokens=64), accuracy(recurrence="tensor"))
    assert verdicts(found, "speed", "tensor") == {64: "new"}
    assert verdicts(found, "accuracy", "tensor") == {2048: "new"}
    assert found.exit_code == 0


def test_what_the_recurrence_cannot_do_here_is_not_measured(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    skipped = speed(recurrence="tensor", tokens=64, median_ns=None, outcome="not measured", reason="needs sm_80")
    keep(tmp_path, night(ENOUGH, (*checks(), *times(9), skipped)), accepted=False)
    found = compare(tmp_path)
    assert verdicts(found, "speed", "tensor") == {64: "not measured"}
    assert found.census.unjudged == (("not measured", "needs sm_80", 1),)
    assert found.exit_code == 0


# Short histories


def test_with_one_accepted_run_a_large_change_is_inconclusive_and_the_short_history_said(tmp_path: Path) -> None:
    nights(tmp_path, 1)
    keep(tmp_path, night(1, (*checks(), *times(1, 1.2))), accepted=False)
    found = compare(tmp_path)
    assert set(verdicts(found, "speed").values()) == {"inconclusive"}
    (case, *_) = (case for case in found.cases if case.verdict == "inconclusive")
    assert case.short_history
    assert case.suspicious
    assert "short history: 1 accepted run" in case.reason


def test_an_acceptance_with_a_reason_starts_the_history_anew(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    keep(tmp_path, night(ENOUGH, (*checks(), *times(9, 1.1))), because="slower on purpose: it is exact now")
    keep(tmp_path, night(ENOUGH + 1, (*checks(), *times(10, 1.1))), accepted=False)
    found = compare(tmp_path)
    assert found.accepted == 1
    assert set(verdicts(found, "speed").values()) == {"same"}
    assert found.exit_code == 0


# The defined outcomes of a night


def test_a_first_night_is_4_and_fine_where_that_is_allowed(tmp_path: Path) -> None:
    keep(tmp_path, night(0), accepted=False)
    found = compare(tmp_path)
    assert (found.state, found.exit_code) == ("no baseline", 4)
    assert "gdn-bench accept" in found.said
    assert found.census.verdicts == {"new": 12}
    assert compare(tmp_path, asked=Asked(allow_new=True)).exit_code == 0


def test_a_first_night_that_is_wrong_is_3_all_the_same(tmp_path: Path) -> None:
    keep(tmp_path, night(0, (accuracy(outcome="red", reason="NaN"), *times(0))), accepted=False)
    assert compare(tmp_path, asked=Asked(allow_new=True)).exit_code == 3


def test_another_card_is_never_compared(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    other = environment(gpu="NVIDIA GeForce RTX 5090", sms=170, memory_mib=32_607, ecc=None, power_limit_w=575.0)
    keep(tmp_path, night(ENOUGH, environment=other), accepted=False)
    found = compare(tmp_path)
    assert (found.state, found.exit_code) == ("another card", 5)
    assert "nvidia-geforce-rtx-5090-170sm-32gib-575w" in found.said
    assert {case.verdict for case in found.cases} == {"new"}
    assert found.accepted == 0
    assert compare(tmp_path, asked=Asked(allow_new=True)).exit_code == 0


def test_a_card_that_is_not_the_expected_one_is_5_even_with_a_baseline(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    found = compare(tmp_path, asked=Asked(gpu_key="nvidia-b200-148sm"))
    assert (found.state, found.exit_code) == ("another card", 5)
    assert "nvidia-b200-148sm is expected" in found.said


def test_another_card_of_the_same_kind_is_judged_and_told(tmp_path: Path) -> None:
    found = judged(tmp_path, environment=environment(gpu_uuid="GPU-another"))
    assert found.exit_code == 0
    assert found.accepted == ENOUGH
    assert any("this very card (GPU-another) has no accepted run" in note for note in found.notes)
    assert ("gpu_uuid", environment().gpu_uuid, "GPU-another") in found.environment


def test_each_of_two_cards_of_a_kind_has_a_history_of_its_own(tmp_path: Path) -> None:
    for number in range(ENOUGH):
        for card, factor in (("GPU-a", 1.0), ("GPU-b", 1.05)):
            made = night(number, (*checks(), *times(number, factor)), environment=environment(gpu_uuid=card))
            keep(tmp_path, _renamed(made, card[-1]))
    for card, factor in (("GPU-a", 1.0), ("GPU-b", 1.0)):
        made = night(ENOUGH, (*checks(), *times(5, factor)), environment=environment(gpu_uuid=card))
        for one in (kept := keep(tmp_path, _renamed(made, card[-1]), accepted=False), *confirming(made, 1.0)):
            if one is not kept:
                night_ = f"confirm-{kept.run_id}"
                save(msgspec.structs.replace(one, run_id=f"{one.run_id}{card[-1]}", night=night_), tmp_path)
    since = FIRST + timedelta(days=ENOUGH)
    key = night(0).gpu_key
    assert cards(tmp_path, since) == [(key, "GPU-a"), (key, "GPU-b")]
    one, two = (compare(tmp_path, asked=Asked(card=(key, card))) for card in ("GPU-a", "GPU-b"))
    assert (one.accepted, two.accepted) == (ENOUGH, ENOUGH)
    assert set(verdicts(one, "speed").values()) == {"same"}
    assert set(verdicts(two, "speed").values()) == {"faster"}


def _renamed(made: Any, letter: str) -> Any:
    return msgspec.structs.replace(made, run_id=f"{made.run_id[:-1]}{letter}")


def test_a_driver_that_changed_is_judged_and_told(tmp_path: Path) -> None:
    found = confirmed(tmp_path, 1.1, environment=environment(driver="580.1"))
    assert ("driver", "570.86.15", "580.1") in found.environment
    assert found.exit_code == 1


def test_a_machine_that_is_slower_is_no_regression(tmp_path: Path) -> None:

    found = judged(tmp_path, *checks(), *times(9, 1.1), canaries=canaries(before=3.6e5, after=3.6e5))
    assert set(verdicts(found, "speed").values()) == {"inconclusive"}
    assert "the machine, not the code" in found.cases[0].reason
    assert not found.quiet
    assert any(
        note.startswith("the canary fma is slower, so that the machine is not as it was: ") for note in found.notes
    )
    assert found.exit_code != 1


def test_a_benchmark_that_vanished_is_missing_and_4(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *(case for case in times(9) if case.tokens != 256))
    assert verdicts(found, "speed")[256] == "missing"
    assert found.exit_code == 4
    assert "it is in the baseline" in found.cases[0].reason


def test_a_night_without_a_gpu_has_no_run_and_the_last_one_is_not_judged_again(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    found = compare(tmp_path, asked=Asked(since=FIRST + timedelta(days=ENOUGH)))
    assert (found.state, found.exit_code, found.run_id) == ("nothing measured", 4, None)
    assert "no run is stored in" in found.said


def test_a_night_on_the_host_instead_is_another_card(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    host = environment(gpu=None, gpu_uuid=None, sms=None, memory_mib=None, ecc=None, power_limit_w=None, driver=None)
    keep(tmp_path, night(ENOUGH, environment=host), accepted=False)
    assert compare(tmp_path).exit_code == 5


def test_a_run_in_which_nothing_could_be_measured_is_4(tmp_path: Path) -> None:
    cases = doubtful(times(9), "no memory", outcome="not measured", median_ns=None)
    assert judged(tmp_path, *cases).exit_code == 4


def test_a_stopped_night_is_judged_as_far_as_it_came_and_4(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *times(9)[:4], status="partial")
    assert found.exit_code == 4
    assert found.census.verdicts == {"missing": 4, "same": 8}
    assert any("is partial" in note for note in found.notes)


def test_a_stopped_night_that_has_every_case_is_4_as_well(tmp_path: Path) -> None:
    found = judged(tmp_path, status="partial")
    assert found.census.verdicts == {"same": 12}
    assert found.exit_code == 4


def test_another_method_starts_a_new_series(tmp_path: Path) -> None:
    method = Method(id="cuda-graph-9", timer="cuda-graph", l2="hot", order="abba", warmup_s=0.5, seed=1372)
    found = judged(tmp_path, method=method)
    assert METHOD.id in found.said
    assert (found.state, found.exit_code) == ("another method", 4)
    assert found.census.verdicts == {"new": 12}


def test_an_empty_folder_is_4(tmp_path: Path) -> None:
    assert compare(tmp_path).exit_code == 4


def test_an_accepted_run_that_is_gone_is_told(tmp_path: Path) -> None:
    found = judged(tmp_path)
    (tmp_path / "history" / str(found.gpu_key) / f"{night(3).run_id}.json").unlink()
    again = compare(tmp_path)
    assert again.accepted == ENOUGH - 1
    assert any(f"the accepted run {night(3).run_id} is not stored" in note for note in again.notes)


def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    nights(tmp_path, 1)
    with pytest.raises(ResultsError, match="run 'nosuch' is not stored"):
        compare(tmp_path, "nosuch")


def test_an_older_run_can_be_judged(tmp_path: Path) -> None:
    nights(tmp_path, 3)
    assert compare(tmp_path, night(1).run_id).run_id == night(1).run_id


# Several processes, crossovers and steps


def test_the_processes_of_a_night_are_one_run(tmp_path: Path) -> None:
    nights(tmp_path, ENOUGH)
    head = night(ENOUGH, checks(), night="n")
    save(head, tmp_path)
    for number in range(1, 4):
        save(_later(night(ENOUGH, times(50 + number), night="n", process=number), number), tmp_path)
    found = compare(tmp_path)
    assert len(found.runs) == 4
    assert found.census.verdicts == {"same": 12}
    assert {case.processes for case in found.cases if case.kind == "speed"} == {3}
    assert found.run_id is not None
    assert found.run_id.endswith("c1")  # one that has times, so that it can be accepted


def test_the_crossover_is_followed_and_its_alarm_sounds(tmp_path: Path) -> None:
    found = judged(tmp_path, *checks(), *times(9, 1.2))
    (one,) = found.crossovers
    assert (one.recurrence, one.threshold, len(one.before)) == ("chunked", 128, ENOUGH)
    assert one.now.tokens == pytest.approx(128 * 1.2**2, rel=0.05)
    assert one.before[-1][1].tokens == pytest.approx(128, rel=0.05)
    assert "left the dispatch threshold of 128" in one.alarm
    assert one.recommended is not None
    assert one.recommended > 128 * 1.2**2


def test_a_step_is_told_with_its_place_its_commits_and_its_cause(tmp_path: Path) -> None:
    for number in range(40):
        factor = 1.0 if number < 33 else 1.08
        driver = "570.86.15" if number < 33 else "580.1"
        given = environment(commit=f"{number:040x}", driver=driver)
        keep(tmp_path, night(number, (*checks(), *times(number, factor)), environment=given), accepted=False)
    found = compare(tmp_path)
    steps = [step for step in found.changes if step.what.startswith("speed of chunked")]
    assert len(steps) == 4
    for step in steps:
        assert step.ratio == pytest.approx(1.08, rel=0.02)
        assert abs(int(step.commits[1] or "", 16) - 33) <= 2
        assert "driver 570.86.15 → 580.1" in step.reason
    assert not any(step.what.startswith("speed of sequential") for step in found.changes)
