"""What must stay fast over years of nights: the cost grows no faster than the history, and is within bounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.page import write_report
from results import series
from results.compare import compare
from tests import decade

YEARS, GPUS = (1, 4), 3
NIGHTS = 150
"""Of a year, to spare CI: 450 and 1,800 runs. `python -m tests.decade` does it with all of ten years."""


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The histories of so many years, with their index and one night that is not in it yet."""
    found = {}
    for years in YEARS:
        root = found[years] = tmp_path_factory.mktemp(f"years{years}")
        decade.write(root, years * NIGHTS - 1, GPUS)
        decade.accepted(root, years * NIGHTS - 1, GPUS)
        series.opened(root)
        decade.write(root, 1, GPUS, years * NIGHTS - 1)
    return found


def seconds(act: Callable[[Path], object], root: Path) -> float:
    """Processor time."""
    start = time.process_time()
    act(root)
    return time.process_time() - start


def best(
    act: Callable[[Path], object], roots: dict[int, Path], rounds: int, fits: Callable[[float, float], bool]
) -> tuple[float, float]:
    """The least times for the short and for the long history, in turns: other work on the machine only adds to them.

    There are `rounds` rounds, and up to three times as many while what they found does not fit.
    """
    short, long = math.inf, math.inf
    for done in range(3 * rounds):
        if done >= rounds and fits(short, long):
            break
        short, long = (min(had, seconds(act, roots[y])) for had, y in zip((short, long), YEARS, strict=True))
    return short, long


# Of ten years, 2 s and 10 s are wanted with the start of Python: 0.7 s and 6 s are left for the 10,950 runs.
@pytest.mark.parametrize(
    ("act", "rounds", "bound", "ms_per_run"), [(compare, 3, 1.0, 0.06), (write_report, 2, 10.0, 0.5)]
)
def test_the_cost_grows_no_faster_than_the_history(
    roots: dict[int, Path], act: Callable[[Path], object], rounds: int, bound: float, ms_per_run: float
) -> None:
    act(roots[1])  # the first one imports and warms up
    growth = ms_per_run / 1e3 * NIGHTS * GPUS * (YEARS[1] - YEARS[0])
    short, long = best(act, roots, rounds, lambda short, long: long - short < growth and long < bound)
    assert long - short < growth, (short, long)
    assert long < bound


def test_a_comparison_over_years_judges_all_cases(roots: dict[int, Path]) -> None:
    found = compare(roots[4])
    assert (found.state, found.census.cases) == ("judged", len(decade.TOKENS) * 7)
    assert found.accepted == 60
