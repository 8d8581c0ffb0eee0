"""A share of the kills that `python -m tests.kill` makes a thousand of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_at_random_moments_lose_and_change_nothing() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.kill", "--kills", "40", "--seed", "11"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing that was complete is lost or changed" in done.stdout
    counts = {what.strip(): int(number.replace(",", "")) for number, what in re.findall(r"([\d,]+)  (.+)", done.stdout)}
    assert counts["kills"] == 40
    assert counts["of them after something was done"] > 5
