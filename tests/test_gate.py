"""The whole gate on the NumPy recurrences, with nothing made up: measure, accept, compare, confirm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from results.series import CONFIRMS
from results.store import load
from tests.test_suite import ROOT, suite

SMALL = ("--gdn-tokens", "3,40", "--gdn-shape", "2x4", "--gdn-inputs", "normal", "-q")


def bench(results: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "reports.cli", command, "--results", str(results), *options]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=200)


def test_measure_accept_compare_confirm(tmp_path: Path) -> None:
    assert suite(tmp_path, *SMALL).returncode == 0
    first = bench(tmp_path, "compare")
    assert first.returncode == 4, first.stdout + first.stderr
    assert "nothing is accepted for host-" in first.stdout
    accepted = bench(tmp_path, "accept", "newest", "--because", "a test")
    assert accepted.returncode == 0, accepted.stderr
    assert suite(tmp_path, *SMALL).returncode == 0
    # A host's times say little; with a floor of 900 % none is suspicious, with one of 0 % all are.
    for percent, processes in ((900, 0), (0, 1)):
        config = tmp_path / "pyproject.toml"
        config.write_text(f"[tool.gdn-bench]\npercent = {percent}\nus = 0\nconfirm = 2\n")
        found = bench(tmp_path, "compare", "--confirm", "--format", "json", "--config", str(config))
        (one,) = json.loads(found.stdout)["comparisons"]
        assert one["state"] == "judged"
        assert one["census"]["cases"] == one["census"]["judged"] + sum(n for _, _, n in one["census"]["unjudged"])
        checks = [case for case in one["cases"] if case["kind"] != "speed"]
        assert {case["verdict"] for case in checks} == {"same"}
        fresh = [record for record in load(tmp_path).records if record.night == f"{CONFIRMS}{one['run_id']}"]
        assert len(fresh) == processes, found.stderr
        assert max(case["processes"] for case in one["cases"]) == 1 + processes
