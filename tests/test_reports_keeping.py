"""The commands on what is kept: exit codes, and what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.cli import main
from results.store import save
from tests import decade
from tests.fabricate import environment, record

KEY = record().gpu_key


@pytest.fixture
def root(tmp_path: Path) -> Path:
    decade.write(tmp_path / "results", 3, 2)
    save(record(environment=environment(dirty=True)), tmp_path / "results")
    return tmp_path / "results"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_list_has_a_line_for_each_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", "--results", root) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert len(lines) == 2 + 7
    assert KEY in lines
    assert "0123456789 + changes  driver 570.86.15  3 green" in said.out
    assert "was built anew" in said.err
    assert run("history", "list", "--results", root, "--last", 1, "--gpu", KEY) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err == ""


def test_an_export_goes_to_a_file_or_to_standard_output(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("history", "--results", root) == 0
    capsys.readouterr()
    out = tmp_path / "a.csv"
    assert run("history", "export", "--results", root, "--out", out, "--kinds", "speed", "--tokens", "128") == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert len(out.read_text().splitlines()) == 1 + 3 * 2 * 2
    assert run("history", "export", "--results", root, "--format", "json", "--recurrences", "chunked") == 0
    assert {row["recurrence"] for row in json.loads(capsys.readouterr().out)} == {"chunked"}
    assert run("history", "list", "--results", root, "--format", "csv", "--since", "2026-12-02") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "soon"], "--since is 'soon'"),
        (["--last", "-1"], "--last is -1"),
        (["export", "--kinds", "spead"], "--kinds has 'spead'"),
        (["export", "--tokens", "x"], "--tokens is 'x'"),
        (["export", "--format", "parquet"], "give --out=FILE"),
        (["export", "--format", "text"], "--format is 'text'"),
        (["export", "--out", "a.xlsx"], "name it .csv, .json or .parquet"),
        (["compact"], "wants --before=DATE"),
        (["import"], "wants at least one path"),
        (["list", "x"], "takes no path"),
        (["merge", "none"], "is no results folder"),
        (["import", "none.json"], "is no JSON of pytest-benchmark"),
    ],
)
def test_usage_is_2(options: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("history", "--results", root)
    capsys.readouterr()
    assert run("history", *options, "--results", root) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_nothing_is_4(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", "--results", tmp_path / "empty") == 4
    assert run("history", "check", "--results", tmp_path / "empty") == 4
    assert run("history", "export", "--results", root, "--gpu", "none") == 4
    assert "nothing like that is stored" in capsys.readouterr().err


def test_a_broken_file_is_5_and_named_every_time(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = sorted((root / "history" / KEY).iterdir())[0]
    file.write_text("{")
    for action in ("list", "export", "check", "list"):
        assert run("history", action, "--results", root) == 5
        assert str(file) in capsys.readouterr().err
    assert run("history", "compact", "--before", "2030-01-01", "--results", root) == 5
    assert str(file) in capsys.readouterr().err


def test_compact_check_and_merge(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", "compact", "--before", "2030-01-01", "--results", root) == 0
    said = capsys.readouterr().out
    assert "7 records of" in said
    assert "written: 2 of" in said
    assert run("history", "check", "--results", root) == 0
    assert "runs: 7, cards: 2, all bytes were read; problems: 0" in capsys.readouterr().out
    other = tmp_path / "other"
    for _ in range(2):
        assert run("history", "merge", root, "--results", other) == 0
    assert "0 files came in, 7 records and files were here already" in capsys.readouterr().out
    save(record(run_id="x"), root)
    save(record(run_id="x", finished="2026-12-24T00:00:00Z"), other)
    assert run("history", "merge", root, "--results", other) == 5
    assert "stored with another content" in capsys.readouterr().err


def test_import(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    stats = {"median": 1e-3, "iterations": 1}
    raw = {"machine_info": {"python_version": "3.12.0"}, "datetime": "2026-11-30T05:15:00+00:00"}
    file.write_text(json.dumps({**raw, "benchmarks": [{"fullname": "t.py::t", "stats": stats}]}))
    assert run("history", "import", file, "--results", root) == 0
    assert Path(capsys.readouterr().out.strip()).exists()
    assert run("history", "import", file, "--results", root) == 0
    assert "is here already" in capsys.readouterr().err


def test_accept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = sorted((root / "history" / KEY).glob("202612*.json"))[0].stem
    assert run("accept", good, "--results", root) == 0
    assert f"{good} is the baseline of {KEY} cuda-graph-2 since 20" in capsys.readouterr().out
    assert run("accept", record().run_id, "--results", root) == 2
    assert "differs from its commit (dirty); accept another run, or tell why" in capsys.readouterr().err
    assert run("accept", record().run_id, "--because", "a comment changed", "--results", root) == 0
    said = capsys.readouterr()
    assert "because: a comment changed" in said.out
    assert "accepted although its source differs from its commit" in said.err
    assert run("accept", "nothing", "--results", root) == 2
