"""The suite as a user runs it, on the NumPy recurrences: `pytest --benchmark-only` in a process of its own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results.schema import Record, Speed
from results.store import load
from suite.plugin import NOT_KEPT

ROOT = Path(__file__).parent.parent
SMALL = ("--gdn-tokens", "3,40", "--gdn-shape", "2x4")


def command(results: Path, *options: str) -> list[str]:
    fixed = ["--benchmark-only", "-p", "no:cacheprovider", "--gdn-device=host", f"--gdn-results={results}"]
    return [sys.executable, "-m", "pytest", *fixed, *options]


def suite(results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(results, *options), cwd=ROOT, capture_output=True, text=True, timeout=120)


def only_record(results: Path) -> Record:
    loaded = load(results)
    assert loaded.problems == ()
    (record,) = loaded.records
    return record


def test_a_run_leaves_a_record_and_a_report_and_shows_its_times(tmp_path: Path) -> None:
    json_file = tmp_path / "benchmark.json"
    done = suite(tmp_path / "r", *SMALL, f"--benchmark-json={json_file}")
    assert done.returncode == 0, done.stdout + done.stderr
    record = only_record(tmp_path / "r")
    assert record.status == "complete"
    assert {case.outcome for case in record.cases} == {"green"}
    # 2 families: 2 T x (2 against FP64 + 1 pair); 2 families x 2 T x 2 reruns; 2 T x 2 times
    assert len(record.cases) == 12 + 8 + 4
    assert "24 cases: 24 green" in done.stdout
    assert record.cost is not None
    assert 0 < record.cost.share < 1
    assert re.search(r"^[\d.]+ s, of which the device worked \d+%$", done.stdout, re.MULTILINE)
    assert f"report: {tmp_path / 'r' / 'report.html'}" in done.stdout
    assert (tmp_path / "r" / "report.html").read_text().startswith("<!doctype html>")
    # pytest-benchmark's figures are the record's
    theirs = {one["param"]: one["stats"]["median"] for one in json.loads(json_file.read_text())["benchmarks"]}
    ours = {f"{c.recurrence}-{c.tokens}-{c.inputs}": c.median_ns for c in record.cases if isinstance(c, Speed)}
    assert theirs == {name: pytest.approx(ns * 1e-9) for name, ns in ours.items()}


def test_k_selects_and_what_was_selected_is_a_complete_run(tmp_path: Path) -> None:
    done = suite(tmp_path, *SMALL, "-k", "speed and chunked and 40")
    assert done.returncode == 0, done.stdout
    record = only_record(tmp_path)
    (case,) = record.cases
    assert isinstance(case, Speed)
    assert (case.recurrence, case.tokens, record.status) == ("host-chunked", 40, "complete")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gdn-tokens", "0"), "--gdn-tokens has '0'; token counts are positive integers"),
        (("--gdn-tokens=-5",), "--gdn-tokens has '-5'; token counts are positive integers"),
        (("--gdn-tokens", "abc"), "--gdn-tokens has 'abc'; token counts are positive integers"),
        (("--gdn-tokens", ""), "--gdn-tokens is ''; give one or more values"),
        (("--gdn-recurrences", "fast"), "--gdn-recurrences has 'fast'; here there are host-sequential, host-chunked"),
        (("--gdn-shape", "16x40"), "--gdn-shape is '16x40': value_heads is 40, no multiple of key_heads = 16"),
        (("--gdn-head-map", "both"), "head_map is 'both'; it must be one of tiled, grouped"),
        (("--gdn-inputs", "odd"), "--gdn-inputs has 'odd'; there are normal, correlated"),
    ],
)
def test_a_users_mistake_is_one_clear_message(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = suite(tmp_path, *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    text = done.stdout + done.stderr
    assert message in text
    assert "Traceback" not in text
    assert load(tmp_path).records == ()


def test_a_results_folder_that_cannot_be_written_is_named_before_anything_runs(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = suite(blocked, *SMALL)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    text = done.stdout + done.stderr
    assert f"results cannot be written to {blocked}" in text
    assert "part of the path is not a folder" in text
    assert "choose another with --gdn-results" in text
    assert "Traceback" not in text


def started(results: Path) -> subprocess.Popen[str]:
    """A long run that has stored its first draft."""
    process = subprocess.Popen(command(results), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while not list(results.glob("history/*/*.partial.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return process


def test_ctrl_c_leaves_a_usable_record_marked_as_partial(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    record = only_record(tmp_path)
    assert record.status == "partial"
    assert record.cases
    assert "not reached" in text
    assert (tmp_path / "report.html").exists()


def test_a_killed_run_leaves_its_last_draft(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.kill()
    process.communicate()
    record = only_record(tmp_path)
    assert record.status == "partial"
    assert record.cases


def test_two_runs_at_once_into_one_folder_keep_both(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(command(tmp_path, *SMALL), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    loaded = load(tmp_path)
    assert loaded.problems == ()
    assert [record.status for record in loaded.records] == ["complete", "complete"]


def test_files_that_cannot_be_read_are_named_and_kept_and_the_run_is_stored(tmp_path: Path) -> None:
    assert suite(tmp_path, *SMALL).returncode == 0
    (folder,) = (tmp_path / "history").iterdir()
    (stored,) = folder.glob("*.json")
    bad = {
        "truncated.json": stored.read_text()[:500],
        "foreign.json": '{"hello": 1}',
        "newer.json": json.dumps({**json.loads(stored.read_text()), "schema": 99}),
    }
    for name, text in bad.items():
        (folder / name).write_text(text)
    done = suite(tmp_path, *SMALL)
    assert done.returncode == 0
    for name, text in bad.items():
        assert name in done.stdout
        assert (folder / name).read_text() == text
    assert len(load(tmp_path).records) == 2


def test_a_report_that_cannot_be_written_is_an_error_and_the_record_stays(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    done = suite(tmp_path, *SMALL)
    assert done.returncode == NOT_KEPT
    assert "ERROR: the report" in done.stdout
    assert only_record(tmp_path).status == "complete"


def test_a_record_that_finds_no_room_is_rescued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is there when the run starts and gone, replaced by a file, when it ends."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    results = tmp_path / "results"
    process = started(results)
    shutil.rmtree(results)
    results.write_text("in the way")
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == NOT_KEPT
    assert "The record of this run is" in text
    assert only_record(tmp_path / "gdn-bench").status == "partial"
