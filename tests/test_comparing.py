"""The commands `gdn-bench compare`, `push` and `pull`: options, exit codes and the fresh processes that confirm."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import results.confirm
from reports.cli import main
from reports.comparing import parse_since
from results.compare import Asked, compare
from results.confirm import plan
from results.store import ResultsError, load, save
from tests.fabricate import environment
from tests.nights import FIRST, UUID, checks, confirming, keep, night, nights, times

SLOW = (*checks(), *times(99, 1.1))


def run(root: Path, *options: str) -> int:
    return main(["compare", "--results", str(root), *options])


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Twelve accepted nights, and one whose chunked is slower."""
    nights(tmp_path, 12)
    keep(tmp_path, night(12, SLOW), accepted=False)
    return tmp_path


@pytest.fixture
def slower(slow: Path) -> Path:
    """The same, and fresh processes have confirmed it."""
    for made in confirming(night(12, SLOW), 1.1):
        save(made, slow)
    return slow


def test_what_seems_slower_and_is_not_confirmed_is_4(slow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(slow) == 4
    said = capsys.readouterr().out
    assert "NOTHING OR NOT ENOUGH WAS MEASURED (exit code 4); 4 inconclusive" in said
    assert "4 cases seem slower, by too few processes to tell; gdn-bench compare --confirm runs fresh ones" in said


def test_the_exit_code_is_the_comparisons_and_the_text_is_printed(
    slower: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(slower) == 1
    assert "SLOWER (exit code 1); 4 slower" in capsys.readouterr().out
    assert run(slower, "--run", night(11).run_id) == 0
    assert run(slower, "--gpu", "nvidia-b200") == 1  # a regression is told before what is expected
    assert run(slower, "--run", night(11).run_id, "--gpu", "nvidia-b200") == 5


def test_formats_and_files(slower: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {how: tmp_path / f"out.{how}" for how in ("markdown", "junit", "text")}
    also = [f"--also={how}={file}" for how, file in files.items()]
    assert run(slower, "--format", "json", *also) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1
    assert files["markdown"].read_text().startswith("### gdn-bench: SLOWER")
    assert files["junit"].read_text().startswith("<?xml")
    assert files["text"].read_text().startswith(night(0).gpu_key)


@pytest.mark.parametrize(
    "options",
    [("--run", "nosuch"), ("--since", "yesterday"), ("--since", "2026-01-01"), ("--also", "pdf=x"), ("--also", "json")],
)
def test_wrong_usage_is_2_in_one_line(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *options) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_moment_is_given_with_its_zone_or_before_now() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert parse_since("36h", now) == now - timedelta(hours=36)
    assert parse_since("90m", now) == now - timedelta(minutes=90)
    assert parse_since("2026-01-01T03:00+02:00") == datetime(2026, 1, 1, 1, tzinfo=UTC)
    with pytest.raises(ResultsError, match="--since is '2026-01-01T03:00'"):
        parse_since("2026-01-01T03:00")


def test_since_judges_every_card_that_ran_and_the_worst_counts(
    slower: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    since = f"--since={FIRST + timedelta(days=12):%Y-%m-%dT%H:%M:%SZ}"
    other = night(13, environment=environment(gpu="NVIDIA B200", sms=148))
    keep(slower, other, accepted=False)
    assert run(slower, since, "--format", "json") == 1
    found = json.loads(capsys.readouterr().out)["comparisons"]
    assert {one["gpu_key"]: one["exit_code"] for one in found} == {night(0).gpu_key: 1, other.gpu_key: 5}
    assert run(slower, "--since=2027-01-01T00:00Z") == 4


def test_data_that_cannot_be_right_is_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nights(tmp_path, 2)
    keep(tmp_path, night(2, (*checks(), *times(9), times(9)[0])), accepted=False)
    assert run(tmp_path) == 5
    assert "the speed of sequential at 64 tokens is there 2 times" in capsys.readouterr().out


def test_thresholds_come_from_a_file_and_unknown_keys_are_2(
    slower: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "pyproject.toml"
    config.write_text('[tool.gdn-bench.cases."chunked/*"]\npercent = 15\n')
    assert run(slower, "--config", str(config)) == 0
    config.write_text('[tool.gdn-bench.cases."chunked/64"]\npercent = 15\n')
    assert run(slower, "--config", str(config)) == 1
    assert "3 slower" in capsys.readouterr().out
    config.write_text("[tool.gdn-bench]\npercentage = 15\n")
    assert run(slower, "--config", str(config)) == 2
    assert "'percentage', which is not known" in capsys.readouterr().err


# Confirmation


@pytest.fixture
def machine(slow: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A machine on which fresh processes find what `factor` says; lists what was started."""
    started: list[Any] = [1.1]

    def process(command: tuple[str, ...], **how: Any) -> subprocess.CompletedProcess[str]:
        given = dict(option.split("=", 1) for option in command if option.startswith("--gdn-"))
        started.append((given, how["env"].get("CUDA_VISIBLE_DEVICES")))
        number = int(given["--gdn-process"])
        tokens = [int(text) for text in given["--gdn-tokens"].split(",")]
        cases = tuple(case for case in times(200 + number, started[0]) if case.tokens in tokens)
        made = night(13, cases, run_id=f"fresh-{number}", night=given["--gdn-night"], process=number)
        save(made, Path(given["--gdn-results"]))
        return subprocess.CompletedProcess(command, 0, f"8 cases: 8 green\nrecord: {made.run_id}\n", "")

    monkeypatch.setattr(results.confirm, "commit", lambda: (f"{12:040x}", False))
    monkeypatch.setattr(subprocess, "run", process)
    return started


def test_a_change_that_fresh_processes_show_as_well_is_confirmed(
    slow: Path, machine: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(slow, "--confirm", "--format", "json") == 1
    said = capsys.readouterr()
    (one,) = json.loads(said.out)["comparisons"]
    assert one["run_id"] == night(12, SLOW).run_id
    assert all(case["confirmed"] for case in one["cases"] if case["verdict"] == "slower")
    assert len(machine) == 1 + 4
    given, visible = machine[1]
    assert visible == UUID
    assert given == {
        "--gdn-device": UUID,
        "--gdn-tokens": "64,128,256,2048",
        "--gdn-recurrences": "sequential,chunked" if given["--gdn-recurrences"][0] == "s" else "chunked,sequential",
        "--gdn-shape": "16x48x128",
        "--gdn-head-map": "tiled",
        "--gdn-inputs": "normal",
        "--gdn-results": str(slow),
        "--gdn-night": f"confirm-{night(12).run_id}",
        "--gdn-process": "1",
        "--gdn-red": "",
    }
    assert "process 4 of 4: 8 cases: 8 green" in said.err
    machine[1:] = []
    assert run(slow, "--confirm") == 1
    assert machine[1:] == []  # it is settled


def test_a_change_that_fresh_processes_do_not_show_is_cleared(slow: Path, machine: list[Any]) -> None:
    machine[0] = 1.0
    assert run(slow, "--confirm") == 0
    assert len(load(slow).records) == 17


def test_other_code_is_never_measured_to_confirm(
    slow: Path, machine: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results.confirm, "commit", lambda: ("f" * 40, False))
    assert run(slow, "--confirm") == 4
    assert "not confirmed: --confirm would measure commit ffff" in capsys.readouterr().out
    assert machine[1:] == []


def test_a_process_that_fails_is_told_and_nothing_is_confirmed(
    slow: Path, machine: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = subprocess.CompletedProcess((), 4, "", "ERROR: the GPU cannot be used")
    monkeypatch.setattr(subprocess, "run", lambda *command, **how: dead)
    assert run(slow, "--confirm") == 4
    assert "the GPU cannot be used" in capsys.readouterr().err


def test_only_what_is_open_is_measured_again(tmp_path: Path) -> None:
    nights(tmp_path, 12)
    some = (*(case for case in times(9) if case.tokens != 256), *(case for case in times(9, 1.1) if case.tokens == 256))
    keep(tmp_path, night(12, (*checks(), *some)), accepted=False)
    found = compare(tmp_path)
    asked = Asked()
    assert len(plan(tmp_path, found, asked)) == 4
    assert all("--gdn-tokens=256" in one.command for one in plan(tmp_path, found, asked))
    assert plan(tmp_path, compare(tmp_path, night(11).run_id), asked) == []


# The store


def test_push_and_pull(slow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, back = str(tmp_path / "store"), tmp_path / "back"
    assert main(["push", store, "--results", str(slow)]) == 0
    assert capsys.readouterr().out == "25 copied, 0 there before, 0 failed\n"
    assert main(["pull", store, "--results", str(back)]) == 0
    capsys.readouterr()
    assert run(back) == run(slow) == 4
    one, two, *_ = capsys.readouterr().out.split(night(0).gpu_key)[1:]
    assert one.strip() == two.strip()


def test_a_file_that_cannot_be_pushed_is_5_and_named(slow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (slow / "history" / night(0).gpu_key / "cut.json").write_text("{")
    assert main(["push", str(slow.parent / "elsewhere"), "--results", str(slow)]) == 5
    said = capsys.readouterr()
    assert said.out.endswith("1 failed\n")
    assert "cut.json: is no JSON" in said.err


def test_an_unusable_store_is_2(slow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", "nosuch://x", "--results", str(slow)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
