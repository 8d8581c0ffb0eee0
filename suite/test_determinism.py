"""The same bits on every rerun."""

from __future__ import annotations

from typing import Any

import pytest

from suite import bridge
from suite.run import Item, Run


def test_determinism(benchmark: Any, run: Run, item: Item) -> None:
    bridge.no_times(benchmark)
    case = run.determinism(item)
    if case.outcome == "not measured":
        pytest.skip(case.reason)
    if case.outcome != "green":
        pytest.fail(f"{item.id}: {case.reason}", pytrace=False)
