"""Where the level of a history changed, and whether it creeps: pure functions of arrays.

Values are compared as logarithms, which suits times and errors alike. Single outliers are pulled in before anything
is fitted, so that a bad night is not a change. The search over seeded intervals (Kovács et al., "Seeded binary
segmentation", Biometrika 2023) sees a level that lasts for a short while in a long history; its cost grows with
n log n.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

ALPHA = 0.01
"""p below which a change or a drift is reported."""
SUSPECT = 0.05
"""p below which a step is suspected, so that fresh processes are worth their time."""
RECENT = 14
"""Runs at the end within which a step must be able to lie to be told of, and to be worth fresh processes."""
LEAST = 3
"""Runs on either side of a change."""
CLIP = 3.0
"""Standard deviations from the running median beyond which a value is pulled in."""
MAD_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
DEGREES = 2 / 3
"""Degrees of freedom of the noise of n values, over n - 1: squared differences of neighbours tell so much of what the
values would. With it p holds on noise (tests/test_judging_changes.py)."""
FLOOR = 1e-4
"""Least standard deviation, relative: a history without any noise, as errors of deterministic kernels have, is not
infinitely sure of its next value."""
DROP = 6.0
"""How much worse a place may fit, as twice the logarithm of the likelihood, to be in a change's 95 % interval."""


@dataclass(frozen=True)
class Change:
    """A step of the level.

    Attributes:
        index: the first value of the new level.
        before, after: the levels next to the step, in the values' unit.
        p: that noise alone gives such a step anywhere among the values.
        low, high: 95 % interval of `index`.
        ratio_low, ratio_high: 95 % interval of after / before.
    """

    index: int
    before: float
    after: float
    p: float
    low: int
    high: int
    ratio_low: float = math.nan
    ratio_high: float = math.nan

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass(frozen=True)
class Drift:
    """A level that creeps.

    Attributes:
        start: the value from which on it does.
        before, after: the level there and at the end, in the values' unit.
        slope: relative change from one value to the next.
        p: that noise alone gives such a slope.
        low, high: 95 % interval of after / before.
    """

    start: int
    before: float
    after: float
    slope: float
    p: float
    low: float
    high: float


def change_points(values: Sequence[float] | np.ndarray, alpha: float = ALPHA) -> list[Change]:
    """The steps of a history, oldest first.

    Args:
        values: one of each run, oldest first, in any unit, above 0.
        alpha: p below which a step counts.

    Raises:
        ValueError: a value is not finite or not above 0, or alpha is not between 0 and 1.
    """
    logs = _logs(values)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must be between 0 and 1")
    if logs.size < 2 * LEAST:
        return []
    clean, sigma = _clean(logs[None])
    x, noise = clean[0], float(sigma[0])
    places = _settle(x, noise, _candidates(x, noise, alpha), alpha)
    ends = [0, *places, x.size]
    found = []
    for left, at, right in zip(ends, ends[1:], ends[2:], strict=False):
        found.append(_change(x, logs, noise, (left, at, right)))
    return found


def suspected(values: Sequence[float] | np.ndarray, recent: int | None = None) -> bool:
    """Whether a history may have a step that is not clear yet: fresh processes would help to tell.

    Args:
        values: one of each run, oldest first.
        recent: not if all the steps that it may have lie before the last so many runs.

    Raises:
        ValueError: a value is not finite or not above 0.
    """
    if not clear(values, SUSPECT):
        return False
    places = change_points(values, SUSPECT)
    return recent is None or not places or any(one.high >= len(values) - recent for one in places)


def clear(values: Sequence[float] | np.ndarray, alpha: float = ALPHA) -> bool:
    """Whether the clearest step of all seeded intervals has a lower p; see `strongest`, which sifts many at once."""
    return bool(strongest(_logs(values)[None])[0] < alpha)


def strongest(logs: np.ndarray) -> np.ndarray:
    """p of the clearest step in each row of an array of logarithms [rows, n], over all seeded intervals.

    A row whose p is not below `change_points`' alpha has no step there; so many histories are sifted at once.
    """
    if logs.shape[-1] < 2 * LEAST:
        return np.ones(logs.shape[0])
    clean, sigma = _clean(logs)
    sums = np.concatenate([np.zeros((logs.shape[0], 1)), np.cumsum(clean, axis=1)], axis=1)
    best = np.zeros(logs.shape[0])
    for starts, length in _layers(logs.shape[1]):
        z, _ = _scan(sums, starts, length)
        best = np.maximum(best, z.max(axis=1))
    return np.asarray(_p(best / sigma, logs.shape[1]))


def drift(values: Sequence[float] | np.ndarray, alpha: float = ALPHA) -> Drift | None:
    """A creeping level, or None where there is none or steps describe the history better.

    A level that holds and then rises or falls in a straight line to the end is held against the steps that
    `change_points` finds; the Bayesian information criterion decides.

    Args:
        values: one of each run, oldest first, in any unit, above 0; the last hundred or so of a longer history.
        alpha: p below which a drift counts.

    Raises:
        ValueError: a value is not finite or not above 0.
    """
    logs = _logs(values)
    n = logs.size
    if n < 4 * LEAST:
        return None
    clean, sigma = _clean(logs[None])
    x, noise = clean[0], float(sigma[0])
    start, level, slope, squares = _hinge(x)
    degrees = _degrees(n)
    spread = max(math.sqrt(squares / (n - 2)), noise)
    ramp = np.maximum(np.arange(n) - start, 0.0)
    error = spread / math.sqrt(float(np.sum((ramp - ramp.mean()) ** 2)))
    p = min(1.0, len(_starts(n)) * 2 * float(stdtr(degrees, -abs(slope) / error)))
    steps = change_points(values, alpha)
    if p >= alpha or n * math.log(squares + n * FLOOR**2) + 3 * math.log(n) >= _steps_cost(x, steps):
        return None
    total, reach = slope * (n - 1 - start), float(stdtrit(degrees, 0.975)) * error * (n - 1 - start)
    ends = (math.exp(level), math.exp(level + total))
    return Drift(start, *ends, math.expm1(slope), p, math.exp(total - reach), math.exp(total + reach))


def _logs(values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise ValueError(f"values have shape {array.shape}; one dimension is wanted")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise ValueError(f"values[{bad[0]}] is {array[bad[0]]}; a value must be finite and above 0")
    return np.asarray(np.log(array))


def _clean(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows with outliers pulled in, and the standard deviation of each row's noise, which few steps widen little.

    The noise is that of differences of neighbours, as a step is in one of them only.
    """
    n = logs.shape[1]
    steps = np.diff(logs, axis=1)
    rough = np.maximum(np.median(np.abs(steps), axis=1) * MAD_SIGMA / math.sqrt(2) * n / (n - 0.8), FLOOR)
    padded = np.pad(logs, ((0, 0), (2, 2)), mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5, axis=1), axis=-1)
    reach = CLIP * rough[:, None]
    clean = np.clip(logs, middle - reach, middle + reach)
    most = CLIP * math.sqrt(2) * rough[:, None]
    squares = np.minimum(np.abs(np.diff(clean, axis=1)), most) ** 2
    return clean, np.maximum(np.sqrt(np.mean(squares, axis=1) / 2), FLOOR)


def _degrees(n: int) -> float:
    return max(DEGREES * (n - 1), 1.0)


def _p(z: np.ndarray | float, n: int) -> np.ndarray | float:
    """p of the clearest of the steps between n values: Bonferroni over the places and the sizes of the intervals."""
    looks = (n - 1) * max(math.log2(n / (2 * LEAST)), 1.0)
    p: np.ndarray = np.minimum(1.0, looks * 2 * stdtr(_degrees(n), -np.abs(z)))
    return p if p.ndim else float(p)


@functools.cache
def _layers(n: int) -> tuple[tuple[np.ndarray, int], ...]:
    """Seeded intervals: all of the values, then ever shorter stretches that overlap by half, as (starts, length)."""
    found, length = [], float(n)
    while length >= 2 * LEAST:
        whole = math.ceil(length)
        count = 2 * math.ceil(n / length) - 1
        starts = np.unique(np.linspace(0, n - whole, count).round().astype(int))
        found.append((starts, whole))
        length /= math.sqrt(2)
    return tuple(found)


def _scan(sums: np.ndarray, starts: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The clearest step of each interval: its height over the error of unit noise, and its place; [rows, starts].

    Args:
        sums: running sums of the rows, with a leading 0.
    """
    cut = np.arange(LEAST, length - LEAST + 1)
    first, last = sums[:, starts, None], sums[:, starts + length, None]
    inner = sums[:, starts[:, None] + cut]
    height = np.abs((last - inner) / (length - cut) - (inner - first) / cut)
    z = height / np.sqrt(1 / cut + 1 / (length - cut))
    best = z.argmax(axis=2)
    return np.take_along_axis(z, best[..., None], axis=2)[..., 0], starts + cut[best]


def _candidates(x: np.ndarray, noise: float, alpha: float) -> list[int]:
    """Places of steps, found by the clearest interval first; the intervals that hold a found place are spent."""
    sums = np.concatenate([[0.0], np.cumsum(x)])[None]
    z, places, lefts, rights = [], [], [], []
    for starts, length in _layers(x.size):
        height, place = _scan(sums, starts, length)
        z.append(height[0] / noise)
        places.append(place[0])
        lefts.append(starts)
        rights.append(starts + length)
    clear, at, left, right = (np.concatenate(part) for part in (z, places, lefts, rights))
    open_ = np.asarray(_p(clear, x.size)) < alpha
    found: list[int] = []
    while open_.any():
        best = int(at[np.where(open_, clear, -1.0).argmax()])
        found.append(best)
        open_ &= (right <= best) | (left >= best)
    return sorted(found)


ROUNDS = 20
"""Most times that the places are gone through; the fit gets better each time, and two or three are usual."""


def _settle(x: np.ndarray, noise: float, places: list[int], alpha: float) -> list[int]:
    """Move every place to the best one between its neighbours, and leave out, weakest first, what is not clear."""
    sums = np.concatenate([[0.0], np.cumsum(x)])[None]
    while places:
        ends, clear = [0, *places, x.size], [1.0] * len(places)
        for _ in range(ROUNDS):
            before = ends.copy()
            for i in range(1, len(ends) - 1):
                left, right = ends[i - 1], ends[i + 1]
                if right - left < 2 * LEAST:
                    clear[i - 1] = 1.0
                    continue
                z, place = _scan(sums, np.array([left]), right - left)
                ends[i], clear[i - 1] = int(place[0, 0]), float(_p(float(z[0, 0]) / noise, x.size))
            if ends == before:
                break
        weakest = int(np.argmax(clear))
        places = ends[1:-1]
        if clear[weakest] < alpha:
            return places
        places = places[:weakest] + places[weakest + 1 :]
    return places


def _change(x: np.ndarray, logs: np.ndarray, noise: float, ends: tuple[int, int, int]) -> Change:
    left, at, right = ends
    sizes = (at - left, right - at)
    error = noise * math.sqrt(1 / sizes[0] + 1 / sizes[1])
    height = float(x[at:right].mean() - x[left:at].mean())
    cut = np.arange(1, right - left)
    sums = np.cumsum(x[left:right])
    gain = (
        (sums[:-1] / cut - (sums[-1] - sums[:-1]) / (right - left - cut)) ** 2
        * cut
        * (right - left - cut)
        / (right - left)
    )
    fits = np.flatnonzero(gain >= gain[at - left - 1] - DROP * noise**2) + left + 1
    levels = (float(np.exp(np.median(logs[left:at]))), float(np.exp(np.median(logs[at:right]))))
    reach = float(stdtrit(_degrees(x.size), 0.975)) * error
    sides = (math.exp(height - reach), math.exp(height + reach))
    return Change(at, *levels, float(_p(height / error, x.size)), int(fits.min()), int(fits.max()), *sides)


def _starts(n: int) -> range:
    """Where a drift may begin: at the first value, or later by steps of a twentieth, up to two thirds."""
    return range(0, max(n * 2 // 3, 1), max(n // 20, 1))


def _hinge(x: np.ndarray) -> tuple[int, float, float, float]:
    """The best level that creeps from some place on: (start, level, slope, sum of squares)."""
    best = (0, 0.0, 0.0, math.inf)
    for start in _starts(x.size):
        ramp = np.maximum(np.arange(x.size) - start, 0.0)
        ramp_mean, mean = float(ramp.mean()), float(x.mean())
        slope = float(np.sum((ramp - ramp_mean) * (x - mean)) / np.sum((ramp - ramp_mean) ** 2))
        level = mean - slope * ramp_mean
        squares = float(np.sum((x - level - slope * ramp) ** 2))
        if squares < best[3]:
            best = (start, level, slope, squares)
    return best


def _steps_cost(x: np.ndarray, steps: Sequence[Change]) -> float:
    """The criterion of levels with steps between them: each step has a place and a height."""
    ends = [0, *(one.index for one in steps), x.size]
    squares = sum(float(np.sum((x[a:b] - x[a:b].mean()) ** 2)) for a, b in itertools.pairwise(ends))
    return x.size * math.log(squares + x.size * FLOOR**2) + (1 + 2 * len(steps)) * math.log(x.size)
