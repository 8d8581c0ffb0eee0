"""Where the history of a card moved: each case's time and error, and the canaries, with what changed there."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from results.builds import facts
from results.judging import DEFAULT, band, explained
from results.judging_cause import Cause, between
from results.judging_changes import ALPHA, RECENT, change_points, drift, strongest
from results.judging_level import LOOK_BACK
from results.series import CONFIRMS, Series, night_of
from results.verdicts import KEY, Key, by_night

LEAST_ERROR = 1e-12
"""Errors are compared as ratios: 0 counts as this."""

CANARIES = ("fma", "copy")


@dataclass(frozen=True)
class Step:
    """A change of level, or a drift.

    Attributes:
        what: such as "speed of chunked at 2,048 tokens" or "canary fma before".
        kind: "step" or "drift".
        ratio: the later level over the earlier one.
        p: of chance.
        first, last: the runs between which it lies: the last one of the old level for certain, the first of the new.
        commits: those of these runs.
        cause: "machine", "compiler", "source" or "unknown".
        reason: the cause in words.
    """

    what: str
    kind: str
    ratio: float
    p: float
    first: str
    last: str
    commits: tuple[str | None, str | None]
    cause: str
    reason: str


@dataclass(frozen=True)
class Line:
    """One figure over the nights that have it.

    Attributes:
        key: the case, or the canary's name alone.
        what: it in words.
        at: places of the nights.
        values: the figure of each, above 0: the median of the night's processes.
    """

    key: Key
    what: str
    at: np.ndarray
    values: np.ndarray

    def since(self, nights: np.ndarray) -> Line:
        """The same over some of the nights, True in a mask of all nights."""
        fit = nights[self.at]
        return Line(self.key, self.what, self.at[fit], self.values[fit])


@dataclass(frozen=True)
class Trail:
    """The last nights of a card's history of one method, oldest first.

    Attributes:
        nights: what is known of each night: its first run's row of `Series.runs`.
        members: the runs of each night.
        canaries, cases: their figures.
    """

    nights: tuple[Mapping[str, Any], ...]
    members: tuple[tuple[str, ...], ...]
    canaries: tuple[Line, ...]
    cases: tuple[Line, ...]

    def quiet(self, accepted: Collection[str], since: pd.Timestamp | None = None) -> np.ndarray:
        """Which nights count, a mask: the canaries are as in the accepted runs, where these are enough to tell.

        Args:
            accepted: run_ids.
            since: only nights that started then or later.
        """
        known = {*accepted}
        found = np.array([since is None or night["started"] >= since for night in self.nights], bool)
        own = np.array([not known.isdisjoint(names) for names in self.members], bool)
        for line in self.canaries:
            old = np.log(line.since(own).values)
            if old.size >= DEFAULT.least:
                calm = band(old[-DEFAULT.window :], 0.0)
                found[line.at] &= np.abs(np.log(line.values) - calm.centre) <= np.log1p(calm.limit)
        return found


def trail(series: Series, method_id: str, place: int, uuid: str | None = None, over: int = LOOK_BACK) -> Trail:
    """The last nights up to that of a run.

    Args:
        series: what is stored of the card.
        method_id: the method.
        place: the run's row in `series.runs`; what was measured later counts only if it is of that night.
        uuid: only runs of this very card.
        over: so many nights.
    """
    runs = series.runs
    night = night_of(runs)
    fit = (runs["method_id"] == method_id).to_numpy(bool) & (runs["status"] == "complete").to_numpy(bool)
    fit &= runs["faults"].isna().to_numpy(bool)  # these are named as problems
    if uuid is not None:
        fit &= (runs["gpu_uuid"] == uuid).to_numpy(bool)
    fit &= (np.arange(len(runs)) <= place) | (night == night[place])
    fit &= np.array([not str(name).startswith(CONFIRMS) for name in night], bool)
    kept = list(dict.fromkeys(night[fit]))[-over:]
    at = {name: number for number, name in enumerate(kept)}
    chosen = np.flatnonzero(fit & np.isin(night, kept))
    number = np.array([at[name] for name in night[chosen]], int)
    rows = runs.iloc[chosen].assign(at=number)
    first = rows.drop_duplicates("at").drop(columns="at").to_dict("records")
    known = tuple({str(name): one for name, one in row.items()} for row in first)
    members = tuple(tuple(map(str, own)) for _, own in rows.groupby("at")["run_id"])
    return Trail(known, members, tuple(_canaries(rows)), tuple(_cases(series, rows)))


def _canaries(rows: pd.DataFrame) -> Iterator[Line]:
    """The time of each canary, before and after."""
    for name in CANARIES:
        for when in ("before", "after"):
            column = f"canary_{name}_{when}_us"
            middle = rows[np.isfinite(rows[column]) & (rows[column] > 0)].groupby("at")[column].median()
            yield Line((name, when), f"canary {name} {when}", middle.index.to_numpy(int), middle.to_numpy(float))


def _cases(series: Series, chosen: pd.DataFrame) -> Iterator[Line]:
    """The time and the error of each case; errors count with their greater one."""
    figures = ("run_id", "outcome", "median_us", "error_out", "error_state")
    run_ids = list(chosen["run_id"])
    rows = series.cases(None, ("accuracy", "speed"), run_ids=run_ids, columns=(*KEY, *figures))
    rows = rows[rows["outcome"] == "green"]
    errors = np.maximum(rows[["error_out", "error_state"]].to_numpy(float).max(axis=1), LEAST_ERROR)
    figure = np.where(rows["kind"] == "speed", rows["median_us"].to_numpy(float), errors)
    table = pd.DataFrame({name: rows[name] for name in KEY})
    table["against"] = table["against"].astype("object").fillna("")
    table["at"] = rows["run_id"].map(dict(zip(run_ids, chosen["at"], strict=True))).to_numpy(int)
    table["figure"] = figure
    table = table[np.isfinite(figure) & (figure > 0)]
    for key, nights in sorted(by_night(table, "at", "figure").items()):
        kind, name, against, tokens, *_ = key
        beside = f" against {against}" if against else ""
        what = f"{kind} of {name}{beside} at {tokens:,} tokens"
        yield Line(key, what, np.array([*nights]), np.array([*nights.values()]))


def clear(lines: Sequence[Line], p: float) -> list[Line]:
    """The lines whose clearest step has a lower p; those of one length are sifted at once."""
    found = set[int]()
    lengths: dict[int, list[int]] = {}
    for place, line in enumerate(lines):
        lengths.setdefault(len(line.values), []).append(place)
    for places in lengths.values():
        table = np.log(np.stack([lines[place].values for place in places]))
        found |= {place for place, one in zip(places, strongest(table), strict=True) if one < p}
    return [line for place, line in enumerate(lines) if place in found]


@dataclass(frozen=True)
class Interval:
    """Nights between which the level of a canary changed, as of a `Change`, and its ratio there."""

    low: int
    high: int
    ratio: float

    def accounts_for(self, low: int, high: int, ratio: float) -> bool:
        """Whether it is in the same place and direction as another change, and large enough to explain it."""
        same = self.low <= high and low <= self.high and (self.ratio > 1) == (ratio > 1)
        return same and abs(math.log(ratio)) <= float(explained(self.ratio, DEFAULT.percent / 100))


def changed(lines: Sequence[Line]) -> list[Interval]:
    """The steps of the canaries."""
    return [
        Interval(int(line.at[one.low]), int(line.at[one.high]), one.ratio)
        for line in clear(lines, ALPHA)
        for one in change_points(line.values)
    ]


def cause_of(found: Trail, line: Line, ends: tuple[int, int], ratio: float, canaries: Sequence[Interval]) -> Cause:
    """What changed where a line's level did.

    Args:
        found: the nights.
        line: over these.
        ends: the first value that may have the new level, and the first that has it for certain.
        ratio: the later level over the earlier one.
        canaries: their steps.
    """
    low, high = int(line.at[ends[0]]), int(line.at[ends[1]])
    moved = any(one.accounts_for(low, high, ratio) for one in canaries)
    name = line.key[0] if line.key[0] in CANARIES else line.key[1]
    return between(*facts(found.nights[int(line.at[ends[0] - 1])], found.nights[high], name), moved)


def steps(found: Trail, recent: int = RECENT) -> list[Step]:
    """The steps that may lie within the last nights, and the drifts that last until now, the largest first."""
    canaries = changed(found.canaries)
    told: list[Step] = []
    for line in clear(found.canaries, ALPHA):
        told += _of(found, line, recent, [])
    for line in clear(found.cases, ALPHA):
        told += _of(found, line, recent, canaries)
    return sorted(told, key=lambda one: -abs(np.log(one.ratio)))


def _of(found: Trail, line: Line, recent: int, canaries: Sequence[Interval]) -> Iterator[Step]:
    names = [str(found.nights[place]["run_id"]) for place in line.at]
    creep = drift(line.values)
    if creep is not None:
        start = max(creep.start, 1)
        why = cause_of(found, line, (start, len(names) - 1), creep.after / creep.before, canaries)
        ends = names[creep.start], names[-1]
        told = f"it creeps since {names[creep.start]}; {why.reason}"
        yield Step(line.what, "drift", creep.after / creep.before, creep.p, *ends, why.commits, why.kind, told)
    for one in change_points(line.values):
        if one.high >= len(names) - recent:
            why = cause_of(found, line, (one.low, one.high), one.ratio, canaries)
            ends = names[one.low - 1], names[one.high]
            yield Step(line.what, "step", one.after / one.before, one.p, *ends, why.commits, why.kind, why.reason)
