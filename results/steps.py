"""Where the history of a card moved: each case's time and error, and the canaries, with what changed there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from results.judging import Cause, Change, cause, change_points, drift
from results.series import Series

OVER = 120
"""Runs of the history that are looked at, the newest ones."""

RECENT = 14
"""A step is told of while it may lie within the last so many runs."""

LEAST_ERROR = 1e-12
"""Errors are compared as ratios: 0 counts as this."""

CANARIES = tuple(f"canary_{name}_{when}_us" for name in ("fma", "copy") for when in ("before", "after"))


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


def steps(
    series: Series, method_id: str, uuid: str | None = None, over: int = OVER, recent: int = RECENT
) -> list[Step]:
    """The recent steps and drifts of a card's history, the largest first.

    Args:
        series: what is stored of the card.
        method_id: the method.
        uuid: only runs of this very card.
        over, recent: see `OVER` and `RECENT`.
    """
    runs = series.runs
    fit = (runs["method_id"] == method_id) & (runs["status"] == "complete")
    fit &= ~runs["night"].astype("object").fillna("").str.startswith("confirm-").astype(bool)
    if uuid is not None:
        fit &= runs["gpu_uuid"] == uuid
    chosen = runs[fit].iloc[-over:]
    known = {str(row["run_id"]): {str(name): one for name, one in row.items()} for row in chosen.to_dict("records")}
    found: list[Step] = []
    canaries: list[tuple[list[str], list[Change]]] = []
    for what, values in _canaries(chosen):
        found += _of(what, values, known, recent, [])
        canaries.append((list(values.index), change_points(values.to_numpy())))
    for what, values in _cases(series, list(known)):
        beside = [change for names, own in canaries if names == list(values.index) for change in own]
        found += _of(what, values, known, recent, beside)
    return sorted(found, key=lambda one: -abs(np.log(one.ratio)))


def _canaries(chosen: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """(name, medians by run_id) of each canary."""
    for column in CANARIES:
        values = pd.Series(chosen[column].to_numpy(float), index=chosen["run_id"].astype(str))
        yield column.removesuffix("_us").replace("_", " "), values[np.isfinite(values) & (values > 0)]


def _cases(series: Series, run_ids: list[str]) -> Iterator[tuple[str, pd.Series]]:
    """(name, figures by run_id) of the time and the error of each case."""
    names = ["kind", "recurrence", "against", "tokens", "shape", "head_map", "inputs"]
    figures = ["run_id", "outcome", "median_us", "error_out", "error_state"]
    rows = series.cases(None, ("accuracy", "speed"), run_ids=run_ids, columns=[*names, *figures])
    rows = rows[rows["outcome"] == "green"]
    errors = np.maximum(rows[["error_out", "error_state"]].max(axis=1), LEAST_ERROR)
    figure = rows["median_us"].where(rows["kind"] == "speed", errors).to_numpy(float)
    table = rows[names].assign(against=rows["against"].astype("object").fillna(""), figure=figure)
    table["run_id"] = rows["run_id"].astype(str)
    table = table[np.isfinite(table["figure"]) & (table["figure"] > 0)].drop_duplicates([*names, "run_id"])
    for (kind, name, against, tokens, *_), own in table.groupby(names, sort=True):
        beside = f" against {against}" if against else ""
        yield f"{kind} of {name}{beside} at {tokens:,} tokens", own.set_index("run_id")["figure"]


def _of(
    what: str, values: pd.Series, known: dict[str, dict[str, object]], recent: int, canaries: list[Change]
) -> Iterator[Step]:
    names, figures = list(values.index), values.to_numpy(float)
    if len(figures) < 2 or np.all(figures == figures[0]):
        return
    rows = [known[name] for name in names]
    for one in change_points(figures):
        if one.high >= len(figures) - recent:
            why: Cause = cause(one, rows, canaries)
            ends = names[one.low - 1], names[one.high]
            yield Step(what, "step", one.after / one.before, one.p, *ends, why.commits, why.kind, why.reason)
    if (creep := drift(figures)) is not None:
        ends = names[creep.start], names[-1]
        commits = tuple(_commit(known[name]) for name in ends)
        told = f"it creeps since {names[creep.start]}"
        yield Step(what, "drift", creep.after / creep.before, creep.p, *ends, (commits[0], commits[1]), "unknown", told)


def _commit(run: dict[str, object]) -> str | None:
    found = run.get("commit")
    return found if isinstance(found, str) else None
