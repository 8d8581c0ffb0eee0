"""Statistics of what is stored, as pure functions of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.timetable import token_count


@dataclass(frozen=True)
class Crossover:
    """From how many tokens on the challenger is the faster one.

    Attributes:
        tokens: where the two are equally fast; None where they are nowhere, see `reason`.
        low, high: the interval of `tokens` that the medians' intervals allow.
        reason: in words, where there is no such place.
    """

    tokens: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def describe(self) -> str:
        if self.tokens is None:
            return self.reason
        # Whole numbers from which on it is faster.
        ends = (f"{math.ceil(end):,}" if end is not None else "?" for end in (self.low, self.high))
        return f"{math.ceil(self.tokens):,} tokens ({' to '.join(ends)})"


def crossover(
    tokens: Sequence[int],
    baseline: Sequence[tuple[float, float, float]],
    challenger: Sequence[tuple[float, float, float]],
) -> Crossover:
    """The token count from which on the challenger is faster at every measured token count.

    The logarithm of the ratio of the times is interpolated linearly in the logarithm of the token count. The
    interval's ends are the crossovers of the ratios that the medians' intervals allow at worst and at best.

    Args:
        tokens: measured token counts, ascending.
        baseline, challenger: (median, low, high) at each of them, in one unit.

    Raises:
        ValueError: the lengths differ, there is nothing, or the token counts do not ascend.
    """
    if not len(tokens) == len(baseline) == len(challenger) > 0 or any(np.diff(tokens) <= 0):
        raise ValueError(f"tokens is {tokens!r}; ascending token counts, with a time of each recurrence, are wanted")
    first, second = np.array(baseline, float), np.array(challenger, float)
    place = np.log(np.array(tokens, float))
    found = _last_rise(place, np.log(first[:, 0] / second[:, 0]))
    if found is None:
        if first[-1, 0] > second[-1, 0]:
            return Crossover(None, reason=f"faster from {token_count(tokens[0])} on, the fewest measured")
        return Crossover(None, reason=f"not faster at {token_count(tokens[-1])}, the most measured")
    best = _last_rise(place, np.log(first[:, 2] / second[:, 1]))
    worst = _last_rise(place, np.log(first[:, 1] / second[:, 2]))
    at, low, high = (None if end is None else float(np.exp(end)) for end in (found, best, worst))
    return Crossover(at, low, high)


def _last_rise(place: np.ndarray, gain: np.ndarray) -> float | None:
    """Where the gain passes 0 for the last time, upwards; None where it ends below 0 or is never below."""
    below = np.flatnonzero(gain <= 0)
    if below.size == 0 or below[-1] == len(gain) - 1:
        return None
    i = below[-1]
    return float(place[i] + (place[i + 1] - place[i]) * gain[i] / (gain[i] - gain[i + 1]))
