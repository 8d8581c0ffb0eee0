"""The table of `gdn-bench simulate`: what rules of judging do with fabricated histories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from results.rivals import contests, groups, has_asv
from results.simulate import Contest, Figures, Model, figures, missed

HEADS = (
    "rule",
    "nights with a false alarm",
    "5 % found the first night",
    "within 3 nights",
    "2 % placed within ±2 in 14 nights",
    "measured by fresh processes",
)


def simulate(histories: int, steps: int, seed: int, jobs: int) -> list[Figures]:
    """The figures of every contest, ours first.

    Args:
        histories, steps: histories without a change and with one, for each of our rule and the quick rivals.
        jobs: processes at once; the figures do not depend on it.
    """
    shared = groups(contests(Model(), histories, steps, seed))
    if jobs == 1:
        return [one for group in shared for one in _held(group)]
    # Slow groups first, so that the processes end together.
    order = sorted(range(len(shared)), key=lambda i: -len(shared[i]))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = {i: pool.submit(_held, shared[i]) for i in order}
        return [one for i in range(len(shared)) for one in futures[i].result()]


def _held(group: Sequence[Contest]) -> list[Figures]:
    return [figures(contest) for contest in group]


def markdown(found: Sequence[Figures]) -> str:
    """A table in Markdown, with the two numbers that each share is taken over, and what ours misses."""
    lines = [f"| {' | '.join((*HEADS, 'nights', 'steps'))} |", f"|{'---|' * (len(HEADS) + 2)}"]
    for one in found:
        shares = (_share(value, 2 if name == "false" else 1) for name, value in _shares(one))
        lines.append(f"| {' | '.join((one.rule, *shares, f'{one.judged:,}', f'{one.steps:,}'))} |")
    return "\n".join(lines)


def notes(found: Sequence[Figures]) -> list[str]:
    """What the reader of the table must know."""
    said = [f"ours misses a figure: {one}" for one in missed(found[0])]
    return said if has_asv() else [*said, "asv is not installed, so that its rule is left out; pip install asv"]


def _shares(one: Figures) -> list[tuple[str, float]]:
    return [(name, getattr(one, name)) for name in ("false", "first", "third", "right", "fresh")]


def _share(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value * 100:.{digits}f} %"
