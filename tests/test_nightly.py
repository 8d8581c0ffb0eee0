"""The nightly workflow, its own shell lines run step by step, with a card that is made up: each outcome of a night."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from results.accepted import acceptances
from results.remote import push
from results.store import load, save
from tests.fabricate import accuracy, canaries, environment
from tests.nights import METHOD, checks, confirming, night, nights, times

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
STEPS = WORKFLOW["jobs"]["measure"]["steps"]

BENCH = f"""#!/bin/bash
if [ "$1" = report ]; then touch "$3"; exit; fi
cd {ROOT} && PYTHONPATH={ROOT} exec {sys.executable} -m reports.cli "$@" --results "$FAKE_RESULTS"
"""
MEASURE = """#!/bin/bash
cp -r "$FAKE_MEASURED"/. "$FAKE_RESULTS" 2> /dev/null
exit "$FAKE_CODE"
"""


@dataclass
class Job:
    """A machine of one night: its store, what the card will measure, and what the workflow left."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    output: str = ""

    def __post_init__(self) -> None:
        self.store, self.results, self.measured = (self.folder / name for name in ("store", "results", "measured"))
        for path in (self.results, self.measured, self.folder / "bin"):
            path.mkdir(parents=True)
        for name, script in (("gdn-bench", BENCH), ("pytest", MEASURE)):
            (self.folder / "bin" / name).write_text(script)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "bin" / "python").symlink_to(sys.executable)
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        for name in ("env", "summary"):
            (self.folder / name).write_text("")

    def measures(self, made: Any, code: int = 0, fresh: float | None = None) -> Job:
        """What tonight's run will be; it starts once the workflow is under way.

        Fresh processes cannot be started for it, as it is of another commit than this checkout; with `fresh`, four
        are there, which find chunked so much slower.
        """
        self.variables["FAKE_CODE"] = str(code)
        if made is not None:
            started = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 60, UTC)
            tonight = _at(made, started)
            for one in (tonight, *(confirming(tonight, fresh) if fresh else ())):
                save(one, self.measured)
        return self

    def run(self) -> str:
        """Run every step as GitHub does; returns how the job ended."""
        ended = "success"
        for step in STEPS:
            if "run" not in step or step.get("name") == "Install":
                continue
            if not self._wanted(step.get("if"), ended):
                continue
            command, environ = ["bash", "-e", "-c", step["run"]], self._environ(step)
            done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True)
            self.output += f"== {step['name']}: {done.returncode}\n{done.stdout}{done.stderr}"
            outcome = "failure" if done.returncode else "success"
            if "id" in step:
                self.outcomes[step["id"]] = outcome
            if done.returncode and not step.get("continue-on-error"):
                ended = "failure"
        return ended

    def _wanted(self, condition: str | None, ended: str) -> bool:
        if condition == "always()":
            return True
        if condition is None:
            return ended == "success"
        places = {f"steps.{name}.outcome": outcome for name, outcome in self.outcomes.items()}
        parts = [part.split(" == ") for part in condition.split(" && ")]
        return ended == "success" and all(places[name] == value.strip("'") for name, value in parts)

    def _environ(self, step: Any) -> dict[str, str]:
        given = {"GDN_STORE": str(self.store), "FAKE_RESULTS": str(self.results), "FAKE_MEASURED": str(self.measured)}
        given |= {"RUNNER_TEMP": str(self.folder / "temp"), "GITHUB_ENV": str(self.folder / "env")}
        given |= {"GITHUB_STEP_SUMMARY": str(self.folder / "summary"), "GDN_LOCK_DIR": str(self.folder)}
        given |= dict(line.split("=", 1) for line in (self.folder / "env").read_text().splitlines())
        for name, value in step.get("env", {}).items():
            given[name] = self.outcomes.get(value.split(".")[1], "skipped")
        return os.environ | given | self.variables | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    @property
    def comparison(self) -> Any:
        return json.loads((self.folder / "temp/nightly/comparison.json").read_text())

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()


def _at(made: Any, started: datetime) -> Any:
    import msgspec

    return msgspec.structs.replace(made, started=started.isoformat(), run_id=f"{started:%Y%m%dT%H%M%SZ}-0000ffff")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job")


@pytest.fixture
def known(job: Job, tmp_path: Path) -> Job:
    """A machine whose store has twelve accepted nights."""
    nights(tmp_path / "before", 12)
    push(tmp_path / "before", str(job.store))
    return job


def accepted(job: Job) -> int:
    return len(acceptances(job.store, night(0).gpu_key, METHOD.id))


def test_a_fine_night_is_green_accepted_and_pushed(known: Job) -> None:
    assert known.measures(night(99)).run() == "success", known.output
    assert known.comparison["comparisons"][0]["census"]["verdicts"] == {"same": 12}
    assert known.summary.startswith("### gdn-bench: fine (exit code 0)")
    assert len(load(known.store).records) == 13
    assert accepted(known) == 13
    assert (known.folder / "temp/nightly/report.html").exists()


def test_a_slower_night_is_red_and_pushed_and_not_accepted(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99, 1.1))), fresh=1.1).run() == "failure"
    assert known.outcomes["compare"] == "failure"
    assert known.comparison["exit_code"] == 1
    assert len(load(known.store).records) == 17
    assert accepted(known) == 12


def test_a_night_that_seems_slower_and_could_not_be_confirmed_is_red_with_4(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99, 1.1)))).run() == "failure"
    assert known.comparison["exit_code"] == 4
    assert "not confirmed" in known.output
    assert len(load(known.store).records) == 13
    assert accepted(known) == 12


def test_a_night_that_fresh_processes_clear_is_green_and_accepted(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99, 1.1))), fresh=1.0).run() == "success", known.output
    assert accepted(known) == 13


def test_a_faster_night_is_green_and_the_level_is_left_for_a_person_to_move(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99, 0.9))), fresh=0.9).run() == "success"
    assert accepted(known) == 12


def test_a_night_that_seems_faster_and_could_not_be_confirmed_is_green_and_not_accepted(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99, 0.9)))).run() == "success"
    assert accepted(known) == 12


def test_a_night_on_a_slower_machine_is_green_and_not_accepted(known: Job) -> None:
    made = night(99, canaries=canaries(before=3.6e5, after=3.6e5))
    assert known.measures(made).run() == "success", known.output
    assert "the canary fma is slower" in known.summary
    assert accepted(known) == 12


def test_a_wrong_night_is_red(known: Job) -> None:
    red = accuracy(recurrence="chunked", error_out=None, outcome="red", reason="NaN")
    one, two, _, four = checks()
    assert known.measures(night(99, (one, two, red, four, *times(99))), code=1).run() == "failure"
    assert known.comparison["exit_code"] == 3
    assert len(load(known.store).records) == 13


def test_a_first_night_wakes_someone_unless_that_is_allowed(job: Job) -> None:
    assert job.measures(night(99)).run() == "failure"
    assert job.comparison["comparisons"][0]["state"] == "no baseline"
    assert job.comparison["exit_code"] == 4
    assert len(load(job.store).records) == 1


def test_a_first_night_that_is_allowed_is_green_and_not_accepted(job: Job) -> None:
    job.variables["GDN_ALLOW_NEW"] = "yes"
    assert job.measures(night(99)).run() == "success", job.output
    assert accepted(job) == 0


def test_a_gpu_that_changed_is_red(known: Job) -> None:
    other = environment(gpu="NVIDIA B200", sms=148)
    assert known.measures(night(99, environment=other)).run() == "failure"
    assert known.comparison["exit_code"] == 5
    assert "cards are never compared" in known.summary


def test_a_driver_that_changed_is_judged_and_told(known: Job) -> None:
    assert known.measures(night(99, environment=environment(driver="580.1"))).run() == "success"
    assert "driver 570.86.15 → 580.1" in known.summary


def test_a_benchmark_that_vanished_is_red(known: Job) -> None:
    assert known.measures(night(99, (*checks(), *times(99)[:-1]))).run() == "failure"
    assert known.comparison["exit_code"] == 4
    assert "**missing**" in known.summary


def test_a_night_without_a_gpu_is_red_and_judges_no_earlier_night(known: Job) -> None:
    assert known.measures(None, code=4).run() == "failure"
    assert (known.comparison["exit_code"], known.comparison["comparisons"][0]["run_id"]) == (4, None)
    assert "no run is stored in" in known.summary


def test_a_second_card_that_failed_is_red_though_the_first_is_fine(known: Job) -> None:
    assert known.measures(night(99), code=4).run() == "failure"
    assert known.outcomes == {"fetch": "success", "measure": "failure", "compare": "success"}
    assert accepted(known) == 12


def test_a_broken_file_in_the_store_is_red_and_the_night_is_measured_all_the_same(known: Job) -> None:
    (known.store / "history" / night(0).gpu_key / "cut.json").write_text("{")
    assert known.measures(night(99)).run() == "failure"
    assert known.outcomes == {"fetch": "failure", "measure": "success", "compare": "success"}
    assert "cut.json: " in known.output


def test_without_a_store_the_shipped_history_serves(known: Job) -> None:
    known.variables["GDN_STORE"] = ""
    nights(known.results, 12)
    assert known.measures(night(99)).run() == "success", known.output
    assert len(load(known.results).records) == 13
