"""The median and its interval, of an array."""

from __future__ import annotations

import functools
import math

import numpy as np


def median_interval(samples: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """The median and an interval for it that assumes no distribution: (median, low, high), in the samples' unit.

    The ends are order statistics whose ranks are taken from the binomial distribution of the number of samples
    below the median, 0.5 each (Hahn and Meeker, "Statistical Intervals", 1991, section 5.2). With fewer samples
    than such ranks need (6 at 95 %), the ends are the least and the greatest sample.

    Raises:
        ValueError: there are no samples, one is not finite, or the confidence is not between 0 and 1.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    if ordered.size == 0 or not np.isfinite(ordered).all():
        raise ValueError(f"samples are {samples!r}; at least one is wanted, all of them finite")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be between 0 and 1")
    rank = _rank(ordered.size, confidence)
    return float(np.median(ordered)), float(ordered[rank]), float(ordered[ordered.size - 1 - rank])


@functools.cache
def _rank(n: int, confidence: float) -> int:
    """The largest rank, from 0, whose lower tail stays within half of what the interval of n samples may miss."""
    tail, rank = 0.0, 0
    for below in range(n // 2):
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(below + 1) - math.lgamma(n - below + 1) - n * math.log(2))
        if tail > (1 - confidence) / 2:
            break
        rank = below
    return rank
