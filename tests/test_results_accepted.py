"""The baseline moves by an explicit act alone, and only to a correct, quiet run unless it is told why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from results import accepted
from results.accepted import Acceptance, accept, acceptances, check_acceptances
from results.schema import Clocks, Dropped, Look, Speed
from results.store import ResultsError, save
from suite.quality import POWER_CAP
from tests.fabricate import accuracy, determinism, environment, group, measured, record, speed

ROOT = Path(__file__).parents[1]
KEY, METHOD = record().gpu_key, record().method.id


def test_a_correct_quiet_run_is_accepted_and_comes_back(tmp_path: Path) -> None:
    save(record(), tmp_path)
    assert acceptances(tmp_path, KEY, METHOD) == []
    one = accept(tmp_path, record().run_id)
    assert (one.run_id, one.gpu_key, one.method_id, one.because, one.despite) == (record().run_id, KEY, METHOD, "", ())
    assert acceptances(tmp_path, KEY, METHOD) == [one]
    assert acceptances(tmp_path, KEY, "other") == acceptances(tmp_path, "other", METHOD) == []
    assert check_acceptances(tmp_path) == []


HELD = Look(clocks=Clocks(throttle="power cap"))

CAPPED = Look(clocks=Clocks(throttle=POWER_CAP))


def sampled(dropped: int, why: str = "") -> Speed:
    """A time with an SM clock beside each sample."""
    gone = tuple(Dropped(ns=480_000.0, reason=why) for _ in range(dropped))
    return speed(samples_mhz=(1_732.0,) * 7, dropped=gone)


REFUSED = {
    "red": (
        {"cases": (accuracy(outcome="red", reason="NaN"), determinism(), speed())},
        "1 case is red, first accuracy",
    ),
    "unstable": ({"cases": (accuracy(), determinism(outcome="red"), speed())}, "1 case is red, first determinism"),
    "partial": ({"status": "partial"}, "it is partial"),
    "dirty": ({"environment": environment(dirty=True)}, "differs from its commit"),
    "unknown": ({"environment": environment(commit=None, dirty=None)}, "its commit is not known"),
    "throttled": ({"environment": environment(after=Clocks(throttle="thermal"))}, "held its clocks back (thermal)"),
    "throttled amid": ({"groups": (group(after=HELD),)}, "held its clocks back (power cap)"),
    "throttled at the end, and who knows when": (
        {"environment": environment(after=CAPPED.clocks), "groups": ()},
        "held its clocks back (software power cap)",
    ),
    "throttled now and then": (
        {"groups": (group(after=CAPPED),), "cases": (accuracy(), determinism(), sampled(1, "clock event: 1,700 MHz"))},
        "held its clocks back (software power cap)",
    ),
    "noisy": ({"cases": (accuracy(), determinism(), speed(outcome="inconclusive", reason="A/A"))}, "1 case is inconcl"),
    "unchecked": ({"cases": (determinism(), speed())}, "no check of accuracy is green"),
    "not run": ({"cases": (accuracy(), determinism(outcome="not measured"), speed())}, "no check of determinism"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_runs_are_refused_unless_it_is_told_why(name: str, tmp_path: Path) -> None:
    overrides, reason = REFUSED[name]
    save(record(**overrides), tmp_path)
    with pytest.raises(ResultsError, match="is not accepted: .*--because") as refused:
        accept(tmp_path, record().run_id)
    assert reason in str(refused.value)
    assert acceptances(tmp_path, KEY, METHOD) == []
    one = accept(tmp_path, record().run_id, "  the card was\nswapped ")
    assert one.because == "the card was swapped"
    assert reason in one.despite[0]
    assert acceptances(tmp_path, KEY, METHOD) == [one]


@pytest.mark.parametrize("ends", [{}, {"environment": environment(after=CAPPED.clocks)}])
def test_the_power_caps_usual_clock_is_no_reason_to_refuse(ends: dict[str, Any], tmp_path: Path) -> None:
    """Under tensor cores an H200 names the power's cap run after run, at one and the same clock."""
    quiet = {"groups": (group(after=CAPPED),), "cases": (accuracy(), determinism(), sampled(0))}
    save(record(**quiet, **ends), tmp_path)
    assert accept(tmp_path, record().run_id).despite == ()


@pytest.mark.parametrize(
    "cases",
    [(), (accuracy(), determinism()), (accuracy(), determinism(), speed(median_ns=None, outcome="not measured"))],
)
def test_a_run_without_times_is_never_accepted(cases: tuple[Any, ...], tmp_path: Path) -> None:
    save(record(cases=cases), tmp_path)
    with pytest.raises(ResultsError, match="it has no time"):
        accept(tmp_path, record().run_id, "I say so")


def test_the_last_act_is_the_baseline_even_where_a_clock_was_ahead(tmp_path: Path) -> None:
    for name in "abc":
        save(record(run_id=name), tmp_path)
    ahead = Acceptance(run_id="a", gpu_key=KEY, method_id=METHOD, accepted="2999-01-01T00:00:00+00:00")
    file = tmp_path / "accepted" / KEY / "x.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(ahead))
    for name in "bcb":
        accept(tmp_path, name)
    found = acceptances(tmp_path, KEY, METHOD)
    assert [one.run_id for one in found] == ["a", "b", "c", "b"]
    assert [one.accepted for one in found] == sorted(one.accepted for one in found)


def test_the_same_act_twice_is_one_and_a_new_reason_is_another(tmp_path: Path) -> None:
    save(record(), tmp_path)
    first = accept(tmp_path, record().run_id)
    assert accept(tmp_path, record().run_id) == first
    assert accept(tmp_path, record().run_id, "looked again") != first
    assert accept(tmp_path, record().run_id, "looked again").because == "looked again"
    assert len(acceptances(tmp_path, KEY, METHOD)) == 2


def test_the_newest_run_can_be_named_so(tmp_path: Path) -> None:
    save(record(), tmp_path)
    save(record(run_id="z", started="2027-01-01T00:00:00Z"), tmp_path)
    assert accept(tmp_path, "newest").run_id == "z"


def test_the_checks_of_a_night_count_for_its_fresh_processes(tmp_path: Path) -> None:
    checks = measured(run_id="checks", night="n", cases=(accuracy(), determinism()))
    save(measured(run_id="times", night="n", process=1, cases=(speed(),)), tmp_path)
    with pytest.raises(ResultsError, match="no check of accuracy"):
        accept(tmp_path, "times")
    save(checks, tmp_path)
    assert accept(tmp_path, "times").despite == ()
    save(msgspec.structs.replace(checks, run_id="red", cases=(accuracy(outcome="red"),)), tmp_path)
    save(measured(run_id="more", night="n", process=2, cases=(speed(),)), tmp_path)
    with pytest.raises(ResultsError, match="1 case is red"):
        accept(tmp_path, "more")


@pytest.mark.parametrize("run_id", ["other", "", "../../etc/passwd", "newest"])
def test_a_run_that_is_not_stored_is_named(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"is not stored|is wanted|nothing is stored"):
        accept(tmp_path, run_id)


def test_a_run_of_two_cards_is_ambiguous(tmp_path: Path) -> None:
    save(record(), tmp_path)
    save(record(environment=environment(gpu="NVIDIA B200")), tmp_path)
    with pytest.raises(ResultsError, match="stored for 2 cards"):
        accept(tmp_path, record().run_id)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"run_id": "a"}', "time", "zone", "key"])
def test_a_broken_acceptance_is_named_and_no_baseline_is_guessed(text: str, tmp_path: Path) -> None:
    save(record(), tmp_path)
    accept(tmp_path, record().run_id)
    (file,) = (tmp_path / "accepted" / KEY).iterdir()
    changed = {"time": ("T", " at "), "zone": ("+00:00", ""), "key": (KEY, "other")}
    file.write_text(file.read_text().replace(*changed[text]) if text in changed else text)
    for act in (lambda: acceptances(tmp_path, KEY, METHOD), lambda: accept(tmp_path, record().run_id)):
        with pytest.raises(ResultsError) as broken:
            act()
        assert str(file) in str(broken.value)


def test_an_acceptance_of_a_run_that_is_gone_is_named(tmp_path: Path) -> None:
    path = save(record(), tmp_path)
    accept(tmp_path, record().run_id)
    path.unlink()
    (line,) = check_acceptances(tmp_path)
    assert "is not stored" in line
    assert str(tmp_path / "accepted" / KEY) in line


ACCEPTER = """
import sys
from pathlib import Path
from results.accepted import accept
for number in range(40):
    accept(Path(sys.argv[1]), f"{sys.argv[2]}{number}", "why not")
"""


def test_two_who_accept_at_once_lose_nothing(tmp_path: Path) -> None:
    for name in "ab":
        for number in range(40):
            save(record(run_id=f"{name}{number}"), tmp_path)
    both = [subprocess.Popen([sys.executable, "-c", ACCEPTER, str(tmp_path), name], cwd=ROOT) for name in "ab"]
    while any(one.poll() is None for one in both):
        acceptances(tmp_path, KEY, METHOD)
    assert [one.wait() for one in both] == [0, 0]
    found = [one.run_id for one in acceptances(tmp_path, KEY, METHOD)]
    assert len(found) == len(set(found)) == 80
    for name in "ab":
        assert [run for run in found if run[0] == name] == [f"{name}{number}" for number in range(40)]


def test_the_module_says_where_the_files_are() -> None:
    assert "<root>/accepted/<gpu_key>/" in (accepted.__doc__ or "")
