"""The time of one call of each recurrence, after its checks."""

from __future__ import annotations

from typing import Any

import pytest

from suite import bridge
from suite.run import Item, Run


@pytest.mark.benchmark(timer=bridge.device_time)
def test_speed(benchmark: Any, run: Run, item: Item) -> None:
    case = run.speed(item)
    if case.outcome == "green":
        bridge.report(benchmark, case)
        return
    bridge.no_times(benchmark)
    if case.outcome == "not measured":
        pytest.skip(case.reason)
    if case.outcome == "inconclusive":
        pytest.skip(f"inconclusive: {case.reason}")
    pytest.fail(f"{item.id}: {case.reason}", pytrace=False)
