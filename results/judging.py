"""Whether a time of tonight is another than the accepted ones: pure functions of arrays, no files.

The rule of one case is a robust band over its last accepted runs, then fresh processes of the same night; over all
the cases of a night the false discovery rate is controlled. `docs/judging.md` describes it and shows what it finds.
Times are compared as logarithms, so that twice and half are equally far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from results.judging_changes import Change, Drift, change_points, drift, suspected

__all__ = [
    "Change",
    "Drift",
    "Judged",
    "Series",
    "Thresholds",
    "change_points",
    "control",
    "drift",
    "judge_cases",
    "judge_speed",
    "suspected",
]

MAD_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
DEGREES = 0.42
"""Degrees of freedom of a deviation held against the MAD of n values, over n - 1: with it Student's distribution
has the tails that 400,000 draws of normal values gave, or slightly wider ones (10 to 30 values, down to 0.0005)."""
AA_SIGMAS = 3.0
"""The A/A spread is a greatest deviation, not a standard deviation: it is taken for so many of them."""


@dataclass(frozen=True)
class Thresholds:
    """What counts as a change of a case's time.

    Attributes:
        percent, us: the practical floor: a lesser change counts for nothing, whichever of the two is greater.
        sigmas: half-width of the band in standard deviations.
        night: share of the variance from run to run that the processes of one night have in common, so that more
            processes do not lessen it. A history of one figure a night cannot tell it, so it is assumed.
        window: accepted runs that the band is taken over, the newest ones.
        least: accepted runs from which on there is a band; with fewer the history is short.
        confirm: processes of one night, the first one included, that confirm a change.
        q: false discovery rate over the cases of a night.
    """

    percent: float = 2.0
    us: float = 0.5
    sigmas: float = 2.5
    night: float = 0.5
    window: int = 30
    least: int = 10
    confirm: int = 5
    q: float = 0.05

    def __post_init__(self) -> None:
        for name in ("percent", "us", "sigmas"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; it must be a number from 0 on")
        if not 0 < self.q < 1:
            raise ValueError(f"q is {self.q!r}; it must be between 0 and 1")
        if not 0 <= self.night <= 1:
            raise ValueError(f"night is {self.night!r}; it must be a share from 0 to 1")
        for name, least in (("window", 5), ("least", 5), ("confirm", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; it must be an integer from {least} on")
        if self.window < self.least:
            raise ValueError(f"window is {self.window} and least is {self.least}; window must not be the smaller")


DEFAULT = Thresholds()


@dataclass(frozen=True)
class Judged:
    """What the rule says of one case.

    Attributes:
        verdict: "faster", "same", "slower" or "inconclusive".
        ratio: the median of tonight's processes over that of the accepted runs.
        low, high: 95 % interval of the ratio.
        p: two-sided, that an unchanged case is as far off; NaN where nothing tells (one run against one).
        reason: in words, with the numbers.
        short_history: there are fewer accepted runs than a band needs.
        confirmed: as many processes of tonight as `Thresholds.confirm` say so.
        suspect: outside, on the slower side, by fewer processes than that.
        limit: the relative change from which on a time is outside; 0.02 is 2 %.
    """

    verdict: str
    ratio: float
    low: float
    high: float
    p: float
    reason: str
    short_history: bool
    confirmed: bool = False
    suspect: bool = False
    limit: float = 0.0

    @property
    def suspicious(self) -> bool:
        """Whether more processes of this night, if it had fewer than `Thresholds.confirm`, could settle it."""
        return not self.confirmed and self.verdict in ("slower", "faster", "inconclusive")


@dataclass(frozen=True)
class Series:
    """What `judge_cases` must know of a case: the arguments of `judge_speed`."""

    history: Sequence[float] | np.ndarray
    new: Sequence[float] | np.ndarray
    aa: float = 0.0
    thresholds: Thresholds = field(default=DEFAULT)
    within: float = 0.0


def judge_speed(
    history: Sequence[float] | np.ndarray,
    new: Sequence[float] | np.ndarray,
    aa: float,
    thresholds: Thresholds = DEFAULT,
    within: float = 0.0,
) -> Judged:
    """Judge the time of one case.

    Args:
        history: medians of the accepted runs since the level was last moved on purpose, oldest first, us.
        new: medians of tonight's processes, us.
        aa: the A/A spread, the greatest relative difference of one kernel from itself; 0.005 is 0.5 %.
        within: relative half-width of the interval that the samples of one run give for the ratio. It counts only
            where one run is held against one.

    Raises:
        ValueError: one of them is empty, not finite or not positive.
    """
    old, own = _times("history", history)[-thresholds.window :], _times("new", new)
    for name, value in (("aa", aa), ("within", within)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value!r}; it must be a relative difference from 0 on")
    if old.size < thresholds.least:
        return _short(old, own, aa, thresholds, within)
    seen = band(np.log(old), aa, thresholds, own.size)
    log = float(np.median(np.log(own)) - seen.centre)
    p = float(seen.p(np.array(log)))
    reach = float(stdtrit(seen.degrees, 0.975) * seen.sigma)
    limit = float(seen.limit)
    confirmed = own.size >= thresholds.confirm
    verdict = _side(log, limit)
    place = f"{math.expm1(log):+.2%}, {'outside' if verdict != 'same' else 'within'} ±{limit:.2%} of {old.size} runs"
    if verdict != "same":
        place += f", {own.size} processes say so" if confirmed else f", {own.size} of {thresholds.confirm} processes"
    numbers = (math.exp(log), math.exp(log - reach), math.exp(log + reach), p)
    suspect = verdict == "slower" and not confirmed
    return Judged(verdict, *numbers, place, False, confirmed and verdict != "same", suspect, limit)


@dataclass(frozen=True)
class Band:
    """Bands of many series at once, in logarithms.

    Attributes:
        centre, sigma, limit: arrays of one shape. `sigma` is that of one run's distance from the centre; `limit` is
            a relative change.
        degrees: degrees of freedom of a distance over `sigma`.
    """

    centre: np.ndarray
    sigma: np.ndarray
    limit: np.ndarray
    degrees: float

    def p(self, log: np.ndarray) -> np.ndarray:
        """Two-sided p of the logarithm of a ratio to the centre."""
        return np.asarray(2 * stdtr(self.degrees, -np.abs(log) / self.sigma))


def band(history: np.ndarray, aa: float | np.ndarray, thresholds: Thresholds = DEFAULT, processes: int = 1) -> Band:
    """The band for the median of so many processes of one night.

    Args:
        history: logarithms of times in us; the band is taken over the last axis.
        aa: the A/A spread, one or one of each series.
    """
    n = history.shape[-1]
    centre = np.median(history, axis=-1)
    # Without n / (n - 0.8) the MAD of few values is too small (Croux and Rousseeuw, 1992).
    mad = np.median(np.abs(history - centre[..., None]), axis=-1) * MAD_SIGMA * n / (n - 0.8)
    one = np.maximum(np.maximum(mad, np.asarray(aa) / AA_SIGMAS), 1e-6)
    # The medians of the history and of the processes are uncertain, too (pi / 2 is a median's variance for a mean's).
    own = thresholds.night + (1 - thresholds.night) * _median_variance(processes)
    sigma = one * math.sqrt(own + math.pi / (2 * n))
    floor = np.maximum(thresholds.percent / 100, thresholds.us / np.exp(centre))
    limit = np.maximum(np.maximum(floor, aa), np.expm1(thresholds.sigmas * sigma))
    return Band(centre, sigma, limit, DEGREES * (n - 1))


def _median_variance(count: int) -> float:
    """The variance of the median of so many normal values, for that of one; at most 4 % too great."""
    return 1 / count if count < 3 else math.pi / (2 * count + math.pi - 2)


def _side(log: float, limit: float) -> str:
    if abs(log) <= math.log1p(limit):
        return "same"
    return "slower" if log > 0 else "faster"


@dataclass(frozen=True)
class Short:
    """What few accepted runs and tonight's processes say, in logarithms; arrays of one shape.

    Attributes:
        log: of the ratio.
        reach: half-width of its 95 % interval, with Student's wide intervals for few values; infinite where no
            spread is known, which is one run against one.
        p: two-sided; NaN where no spread is known.
        limit: a relative change.
    """

    log: np.ndarray
    reach: np.ndarray
    p: np.ndarray
    limit: np.ndarray

    @property
    def outside(self) -> np.ndarray:
        return np.asarray(np.abs(self.log) > np.log1p(self.limit))

    @property
    def sure(self) -> np.ndarray:
        """Outside with the whole interval."""
        return np.asarray(np.abs(self.log) - self.reach > np.log1p(self.limit))


def short_history(old: np.ndarray, new: np.ndarray, aa: float | np.ndarray, thresholds: Thresholds = DEFAULT) -> Short:
    """What to make of too few runs for a band: the spread of the accepted runs and of tonight's processes, pooled.

    Args:
        old, new: logarithms of times in us; runs and processes are along the last axis.
    """
    n, m = old.shape[-1], new.shape[-1]
    centre, log = np.median(old, axis=-1), np.median(new, axis=-1) - np.median(old, axis=-1)
    limit = np.maximum(np.maximum(thresholds.percent / 100, thresholds.us / np.exp(centre)), aa)
    degrees = n + m - 2
    if degrees == 0:
        return Short(log, np.full_like(log, np.inf), np.full_like(log, np.nan), limit)
    sigma = np.sqrt((old.var(axis=-1) * n + new.var(axis=-1) * m) / degrees)
    error = np.maximum(np.maximum(sigma, np.asarray(aa) / AA_SIGMAS), 1e-6) * math.sqrt(1 / n + 1 / m)
    return Short(log, stdtrit(degrees, 0.975) * error, np.asarray(2 * stdtr(degrees, -np.abs(log) / error)), limit)


def _short(old: np.ndarray, new: np.ndarray, aa: float, thresholds: Thresholds, within: float) -> Judged:
    n, m = old.size, new.size
    found = short_history(np.log(old), np.log(new), aa, thresholds)
    log, p, limit = float(found.log), float(found.p), float(found.limit)
    alone = n + m == 2
    reach = math.log1p(max(limit, within)) if alone else float(found.reach)
    runs = f"{n} accepted run{'' if n == 1 else 's'}"
    short = f"short history: {runs}, a band needs {thresholds.least}"
    change, verdict = f"{math.expm1(log):+.2%}", _side(log, limit)
    if verdict == "same":
        reason = f"{change}, within ±{limit:.2%}; {short}"
        reason += f", so that less than {math.expm1(reach):.1%} cannot be told" if reach > math.log1p(limit) else ""
    elif alone:
        verdict, reason = "inconclusive", f"{change}, outside ±{limit:.2%}; {short}; one run says little about the next"
    elif not found.sure:
        verdict = "inconclusive"
        reason = f"{change}, outside ±{limit:.2%}, but ±{math.expm1(reach):.1%} cannot be told apart; {short}"
    else:
        reason = f"{change}, with its whole interval outside ±{limit:.2%}; {short}"
    confirmed = m >= thresholds.confirm and verdict in ("slower", "faster")
    numbers = (math.exp(log), math.exp(log - reach), math.exp(log + reach), p)
    suspect = log > math.log1p(limit) and m < thresholds.confirm
    return Judged(verdict, *numbers, reason, True, confirmed, suspect, limit)


def _times(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; one time at least is wanted, in one dimension")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]}; a time in us must be finite and above 0")
    return array


def control(p_values: Sequence[float] | np.ndarray, q: float = DEFAULT.q) -> np.ndarray:
    """Which p values stay below a false discovery rate of q (Benjamini and Hochberg, 1995): booleans of one shape.

    The cases are along the last axis. NaN is a case that was not judged: it is never found, and it does not count.

    Raises:
        ValueError: a p value is not between 0 and 1, or q is not.
    """
    p = np.asarray(p_values, dtype=float)
    if not 0 < q < 1 or np.any((p < 0) | (p > 1)):
        raise ValueError(f"q is {q} and the p values are {p}; they must be between 0 and 1")
    judged = ~np.isnan(p)
    ordered = np.sort(np.where(judged, p, np.inf), axis=-1)
    lines = q * np.arange(1, p.shape[-1] + 1) / np.maximum(judged.sum(axis=-1, keepdims=True), 1)
    under = np.where(ordered <= lines, ordered, -1.0)
    return np.asarray(judged & (p <= under.max(axis=-1, keepdims=True, initial=-1.0)))


def judge_cases(cases: Sequence[Series], machine: Sequence[Judged] = (), q: float = DEFAULT.q) -> list[Judged]:
    """Judge the cases of one night together.

    A change that stays among so many cases is kept; one that chance gives among so many becomes inconclusive. A
    change that the canaries of the night show as well is the machine's and becomes inconclusive, too; and one that
    too few processes of the night show is inconclusive until more have run.

    Args:
        cases: those that have a history and a time of tonight.
        machine: the canaries, judged by `judge_speed`.
        q: false discovery rate.
    """
    found = [judge_speed(one.history, one.new, one.aa, one.thresholds, one.within) for one in cases]
    kept = control([one.p for one in found], q) if found else np.zeros(0, bool)
    return [_held(one, bool(keep), machine, len(found)) for one, keep in zip(found, kept, strict=True)]


EXPLAINED = 2.0
"""A disturbed machine slows a case down by up to so many times what it does to a canary."""


def _held(one: Judged, keep: bool, machine: Sequence[Judged], cases: int) -> Judged:
    if one.verdict not in ("slower", "faster"):
        return one
    for canary in machine:
        # A canary's own band is used, and its p: that it was asked once needs no correction.
        if canary.verdict == one.verdict and abs(math.log(one.ratio)) <= explained(canary.ratio, one.limit):
            why = f"{one.reason}; a canary changed as well, {canary.ratio - 1:+.2%}: the machine, not the code"
            return replace(one, verdict="inconclusive", reason=why, confirmed=False, suspect=False)
    if keep:
        why = f"{one.reason}; it takes fresh processes to call it {one.verdict}"
        return one if one.confirmed else replace(one, verdict="inconclusive", reason=why)
    why = f"{one.reason}; p is {one.p:.2g}, which among {cases} cases is not rare enough"
    return replace(one, verdict="inconclusive", reason=why, confirmed=False)


def explained(canary: float | np.ndarray, limit: float | np.ndarray) -> float | np.ndarray:
    """The change, in logarithms, up to which a canary's ratio accounts for that of a case."""
    change: float | np.ndarray = EXPLAINED * np.abs(np.log(canary)) + np.log1p(limit)
    return change
