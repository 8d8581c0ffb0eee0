"""What a run costs: the age of its process, and the spans in which a device worked."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from suite.cost import Busy


def test_a_process_knows_its_age_from_its_start_on() -> None:
    """It sleeps before it imports the module."""
    program = "import time; time.sleep(0.5); from suite.cost import process_age; print(process_age())"
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.5 <= float(done.stdout) <= time.monotonic() - start + 0.05


def test_spans_add_up() -> None:
    busy = Busy("host")
    for _ in range(2):
        with busy.span():
            time.sleep(0.02)
    assert 0.04 <= busy.seconds < 0.4


@pytest.mark.gpu
def test_on_a_gpu_the_work_counts_and_not_the_host() -> None:
    import cupy

    busy, array = Busy("cuda"), cupy.ones(2**28, cupy.float32)
    with busy.span():
        array += 1
    first = busy.seconds
    time.sleep(0.2)
    assert 1e-4 < first < 0.1
    assert busy.seconds == first
