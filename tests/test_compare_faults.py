"""The comparison where what is stored cannot be right, or cannot be read: named, and never a pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reports.cli import main
from results.compare import compare
from results.store import save
from results.verdicts import NotComparableError
from tests.fabricate import accuracy, canaries, determinism, environment, group, speed
from tests.nights import checks, judged, keep, night, nights, times


@pytest.mark.parametrize("where", ["tonight", "accepted"])
def test_a_time_of_0_is_an_error_that_names_it(tmp_path: Path, where: str) -> None:
    bad = (*checks(), *times(9)[1:], speed(tokens=64, median_ns=0.0))
    spoilt(tmp_path, where, cases=bad)
    with pytest.raises(NotComparableError, match=f"run {night(2).run_id}: median_ns of the speed of sequential at 64"):
        compare(tmp_path)


def spoilt(root: Path, where: str, **overrides: Any) -> None:
    """Three nights, the third one with data that cannot be right: tonight's, accepted, or merely one before tonight."""
    nights(root, 2)
    good = keep(root, night(2), accepted=where == "accepted")
    (root / "history" / good.gpu_key / f"{good.run_id}.json").unlink()
    save(night(2, gpu_key=good.gpu_key, **overrides), root)
    if where != "tonight":
        keep(root, night(3), accepted=False)


OTHER = environment(gpu="NVIDIA B200", sms=148)
BAD = {
    "zero": ({"cases": (*checks(), *times(9)[1:], speed(tokens=64, median_ns=0.0))}, "is 0; a time must be above 0"),
    "below zero": ({"cases": (*checks(), speed(samples_ns=(1.0, -2.0)))}, "a sample .* is -2 ns"),
    "missing": ({"cases": (*checks(), speed(median_ns=None))}, "is missing; a green one has a time"),
    "NaN": ({"cases": (accuracy(error_state=None), *times(9))}, "error_state of .* against fp64 .* is missing"),
    "too great": ({"cases": (accuracy(error_out=2.0), *times(9))}, "error_out of .* is 2; a green one .* up to 0.0001"),
    "differing": ({"cases": (determinism(differing=3), *times(9))}, "is green, and 3 of 199 reruns differ"),
    "no reruns": ({"cases": (determinism(reruns=0), *times(9))}, "is green, and 0 of 0 reruns differ"),
    "no bits": ({"cases": (determinism(sha256_out=""), *times(9))}, "199 reruns differ, and a fingerprint is missing"),
    "twice": ({"cases": (*checks(), *times(9), times(8)[0])}, "the speed of sequential at 64 tokens is there 2 times"),
    "a check twice": ({"cases": (accuracy(), accuracy(), *times(9))}, "against fp64 at 2,048 tokens is there 2 times"),
    "another card": ({"environment": OTHER}, "its environment is that of 'nvidia-b200-148sm.*': data of another card"),
    "a host": ({"environment": environment(gpu=None)}, "its environment is that of 'host-"),
    "canary": ({"canaries": canaries(before=0.0)}, "of the canary fma before the times is 0"),
    "A/A": ({"groups": (group(aa_ratio=0.0),)}, "aa_ratio at 2,048 tokens is 0; a ratio must be above 0"),
}


@pytest.mark.parametrize("where", ["tonight", "accepted", "before"])
@pytest.mark.parametrize("what", BAD)
def test_data_that_cannot_be_right_in_one_record_is_5_wherever_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, where: str
) -> None:
    overrides, told = BAD[what]
    spoilt(tmp_path, where, **overrides)
    assert main(["compare", "--results", str(tmp_path)]) == 5
    said = capsys.readouterr().out
    assert re.search(f"{night(2).run_id}.*{told}.*remove it in a commit that says why", said), said
    # Where no verdict rests on it, the rest is judged.
    assert ("12 of 12 cases judged: 12 same" in said) == (where == "before")


def test_the_processes_of_a_night_are_of_one_card(tmp_path: Path) -> None:
    nights(tmp_path, 2)
    save(night(2, checks(), night="n"), tmp_path)
    save(night(3, times(3), night="n", environment=environment(gpu_uuid="GPU-other")), tmp_path)
    with pytest.raises(NotComparableError, match="the processes of n are of the cards GPU-00000000.*, GPU-other"):
        compare(tmp_path)


def test_a_green_case_without_a_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotComparableError, match="median_ns .* is missing"):
        judged(tmp_path, *checks(), *times(9)[1:], speed(tokens=64, median_ns=None))


def test_a_case_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotComparableError, match="the speed of sequential at 64 tokens is there 2 times"):
        judged(tmp_path, *checks(), *times(9), times(9)[0])


def test_a_file_that_cannot_be_read_is_5_and_named_and_the_rest_is_judged(tmp_path: Path) -> None:
    found = judged(tmp_path)
    file = tmp_path / "history" / str(found.gpu_key) / f"{night(3).run_id}.json"
    file.write_bytes(file.read_bytes()[:500])
    again = compare(tmp_path)
    assert again.exit_code == 5
    assert night(3).run_id in again.problems[0]
    assert again.census.verdicts == {"same": 12}
