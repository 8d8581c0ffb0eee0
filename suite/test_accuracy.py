"""Each recurrence against FP64 and against the baseline, from a state that is not zero, output and state apart."""

from __future__ import annotations

from typing import Any

import pytest

from suite import bridge
from suite.run import Item, Run


def test_accuracy(benchmark: Any, run: Run, item: Item) -> None:
    bridge.no_times(benchmark)
    case = run.accuracy(item)
    if case.outcome == "not measured":
        pytest.skip(case.reason)
    if case.outcome != "green":
        pytest.fail(f"{item.id}: {case.reason}", pytrace=False)
