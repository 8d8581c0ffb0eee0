"""Tests that need a GPU skip with the reason where there is none."""

from __future__ import annotations

import pytest

from kernels.detect import gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if gpu().usable:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {gpu().problem}"))
