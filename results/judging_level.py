"""Whether tonight's level of a case is slower than it was, though no single night told: pure functions of arrays.

The band of `results/judging.py` sees a night that is far off. What is too small for it, or creeps, shows in the
history: a step or a drift up to tonight. Like everything that makes a case slower, it counts once as many processes
of tonight as the rule asks for say so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.judging import Thresholds
from results.judging_changes import Change, Drift, change_points, clear, drift

LOOK_BACK = 90
"""Nights that are looked at, the newest ones."""


@dataclass(frozen=True)
class Moved:
    """The level that a history came up to.

    Attributes:
        kind: "step" or "drift".
        before, after: the level before the last steps up, or where the drift starts; and that of tonight.
        p: of chance, that of the clearest of the steps.
        low, high: places of the history between which the level moved: the last value of the old level for certain is
            `low - 1`, the first one of the new level for certain `high`.
    """

    kind: str
    before: float
    after: float
    p: float
    low: int
    high: int

    @property
    def ratio(self) -> float:
        return self.after / self.before


def moved(
    values: Sequence[float] | np.ndarray, floor: float, steps: Sequence[Change], creep: Drift | None = None
) -> Moved | None:
    """The rise up to tonight's level, or None where there is none or it counts for nothing.

    Steps up one after another count together. A rise counts for nothing if it is within the floor, or if tonight's
    value is nearer to the old level: then it is over, or it never was.

    Args:
        values: one of each night, oldest first, the last one tonight's; since the level was last moved on purpose.
        floor: the practical floor, a relative change.
        steps, creep: what `change_points` and `drift` find in the values; a drift describes them better than steps.
    """
    found = None
    rising = list(itertools.takewhile(lambda one: one.after > one.before, reversed(steps)))[::-1]
    if creep is not None:
        found = Moved("drift", creep.before, creep.after, creep.p, max(creep.start, 1), len(values) - 1)
    elif rising:
        p = min(one.p for one in rising)
        found = Moved("step", rising[0].before, rising[-1].after, p, rising[0].low, rising[-1].high)
    if found is None or found.ratio - 1 < floor or values[-1] <= math.sqrt(found.before * found.after):
        return None
    return found


def floor_of(thresholds: Thresholds, level_us: float, aa: float = 0.0) -> float:
    """The practical floor of a case, relative: its per cent, its us, or the A/A spread, whichever is greatest."""
    return max(thresholds.percent / 100, thresholds.us / level_us, aa)


def risen(values: Sequence[float] | np.ndarray, thresholds: Thresholds, aa: float = 0.0) -> Moved | None:
    """`moved` of the steps and the drift that the values have, if their clearest step is clear at all.

    Raises:
        ValueError: a value is not finite or not above 0.
    """
    if not clear(values):
        return None
    return moved(values, floor_of(thresholds, float(np.median(values)), aa), change_points(values), drift(values))
