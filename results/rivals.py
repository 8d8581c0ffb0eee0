"""What else is used to judge benchmarks, as rules of `results/simulate.py`, and the contest between them."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from results.judging import DEFAULT, band
from results.simulate import Contest, Histories, Model, Outcome, changes_alone, ours

ASV_WINDOW = 90
"""Nights that asv's step detection looks back: as many as ours."""


def _empty(histories: Histories, names: bool = False) -> Outcome:
    count, series, nights, _ = histories.times.shape
    return Outcome(np.zeros((count, nights, series), bool), names=names)


def fixed(histories: Histories, percent: float = 5.0) -> Outcome:
    """More than so many per cent slower than the night before."""
    outcome = _empty(histories)
    first = histories.times[..., 0]
    outcome.alarms[:, 1:] = np.moveaxis(np.diff(first, axis=2) > math.log1p(percent / 100), 1, 2)
    return outcome


def mann_whitney(histories: Histories, alpha: float = 0.01) -> Outcome:
    """The samples of tonight's process against those of the night before, one-sided, p below alpha."""
    outcome = _empty(histories)
    before = histories.samples(0)
    for night in range(1, histories.times.shape[2]):
        own = histories.samples(night)
        outcome.alarms[:, night] = rank_p(before, own) < alpha
        before = own
    return outcome


def rank_p(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """One-sided p of Mann and Whitney that `after` is greater, over the last axis; normal, corrected for continuity.

    The values must be continuous: ties are not corrected for.
    """
    n, m = before.shape[-1], after.shape[-1]
    order = np.argsort(np.concatenate([before, after], axis=-1), axis=-1)
    ranks = np.where(order >= n, np.arange(1, n + m + 1), 0).sum(axis=-1)
    u = ranks - m * (m + 1) / 2
    return np.asarray(ndtr(-(u - n * m / 2 - 0.5) / math.sqrt(n * m * (n + m + 1) / 12)))


def band_alone(histories: Histories, sigmas: float = 3.0) -> Outcome:
    """Outside of a band of 3 standard deviations over the last 30 nights, for one process, whatever they were."""
    outcome, first = _empty(histories), histories.times[..., 0]
    thresholds = replace(DEFAULT, sigmas=sigmas)
    for night in range(DEFAULT.least, first.shape[2]):
        seen = band(first[..., max(night - 30, 0) : night], histories.model.aa, thresholds)
        outcome.alarms[:, night] = first[..., night] - seen.centre > np.log1p(seen.limit)
    return outcome


def asv(histories: Histories, threshold: float = 0.05) -> Outcome:
    """asv's step detection and its regressions, on the first process of the last nights, looked for every night.

    A regression that is reported for the first time is an alarm. It needs asv, which the extra `dev` brings.
    """
    outcome = _empty(histories, names=True)
    first, planted = histories.times[..., 0], histories.plant
    # Where a change is planted, only its series and the nights from then on are looked at.
    series, start = (1, planted.night) if planted else (first.shape[1], 10)
    known: dict[tuple[int, int], list[int]] = {}
    for history, one, night in np.ndindex(first.shape[0], series, first.shape[2]):
        if night < start - 1:
            continue
        left = max(night + 1 - ASV_WINDOW, 0)
        places = [left + place for place in _asv_regressions(first[history, one, left : night + 1], threshold)]
        old = known.setdefault((history, one), [])
        fresh = [place for place in places if all(abs(place - other) > 5 for other in old)]
        old += fresh
        outcome.standing[history, night, one] = tuple(places)
        outcome.alarms[history, night, one] = bool(fresh) and night >= start
    return outcome


def _asv_regressions(logs: np.ndarray, threshold: float) -> list[int]:
    from asv.step_detect import detect_regressions

    _, _, found = detect_regressions(_asv_steps(logs.tobytes()), threshold)
    return [int(after) for _, after, *_ in found or ()]


@functools.lru_cache(maxsize=100_000)
def _asv_steps(logs: bytes) -> list[tuple[int, int, float, float, float]]:
    """asv's steps of the logarithms of some times; it takes milliseconds, and two rules ask for the same ones."""
    from asv.step_detect import detect_steps

    values = np.exp(np.frombuffer(logs)).tolist()
    steps: list[tuple[int, int, float, float, float]] = detect_steps(values, [1] * len(values))
    return steps


def has_asv() -> bool:
    return importlib.util.find_spec("asv") is not None


def _asv_any(histories: Histories) -> Outcome:
    return asv(histories, 0.0)


def _without_changes(histories: Histories) -> Outcome:
    return ours(histories, changes=False)


def contests(model: Model, histories: int, steps: int, seed: int) -> list[Contest]:
    """Ours first, then ours in harder models, then the rivals. asv is slow and gets a share of the histories.

    asv is left out where it is not installed.
    """
    full = (histories, steps, seed)
    found = [
        Contest("ours", ours, model, *full),
        Contest("ours, without change points", _without_changes, model, *full),
    ]
    harder = {
        "half of the bad nights unseen by the canary": replace(model, blind=0.5),
        "heavy tails (Student, 4 degrees)": replace(model, tails=4.0),
        "shared shocks of 1 %": replace(model, shock=0.01),
        "10 % bad nights": replace(model, bad=0.1),
        "1.5 % noise": replace(model, noise=0.015),
    }
    found += [Contest(f"ours, {name}", ours, other, histories // 2, steps // 2, seed) for name, other in harder.items()]
    found += [
        Contest("5 % against the last run", fixed, model, *full),
        Contest("Mann-Whitney on samples, p < 0.01", mann_whitney, model, *full),
        Contest("band of 3 MAD-sigmas alone", band_alone, model, *full),
        Contest("change points alone", changes_alone, model, *full),
    ]
    if has_asv():
        few = (max(histories // 40, 2), max(steps // 5, 10), seed)
        found += [
            Contest("asv, regressions from 5 % on", asv, model, *few),
            Contest("asv, any step up", _asv_any, model, *few),
        ]
    return found


def groups(all_of: Sequence[Contest]) -> list[list[Contest]]:
    """Contests that share work, to be held in one process."""
    shared = [one for one in all_of if one.name.startswith("asv")]
    return [*([one] for one in all_of if one not in shared), *([shared] if shared else [])]
