"""The verdict of each case of a night: pure functions of frames of cases (`results.frame.frame`), no files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from results.frame import tuples
from results.judging import Judged, Series, judge_cases
from results.judging_rules import Rules

KEY = ("kind", "recurrence", "against", "tokens", "shape", "head_map", "inputs")
"""What names a case."""

JUDGED = ("faster", "same", "slower", "wrong", "unstable")
VERDICTS = ("wrong", "unstable", "slower", "faster", "missing", "inconclusive", "not measured", "new", "same")
"""All verdicts, in the order in which they are shown."""

Key = tuple[Any, ...]
DEFAULT_RULES = Rules()


def rule_name(recurrence: str, tokens: int) -> str:
    """What the patterns of `[tool.gdn-bench.cases]` are held against, such as "tensor/2048"."""
    return f"{recurrence}/{int(tokens)}"


class NotComparableError(Exception):
    """What is stored cannot be compared: another card, a time of 0, a case twice; the message names it."""


@dataclass(frozen=True)
class Case:
    """One case and its verdict.

    Attributes:
        kind: "speed", "accuracy" or "determinism": the leg that it is judged on.
        recurrence, against, tokens, shape, head_map, inputs: which case it is; `against` of accuracy alone.
        verdict: one of `VERDICTS`.
        reason: why, with the numbers.
        value, baseline: tonight's figure and the accepted one: times in us, errors as they are; None where none.
        ratio, low, high: tonight's time over that of the accepted runs, with its 95 % interval.
        p: of an unchanged case being as far off.
        processes: of tonight that have a time.
        accepted: runs that it was held against.
        confirmed: enough fresh processes say so.
        suspicious: more processes of this night could settle it.
        suspect: it seems slower, and too few processes have run to tell.
        cause: where it seems or is slower, what changed beside it, such as "machine: the machine code is the same".
        short_history: there are too few accepted runs for a band.
        in_baseline: the baseline has a green one, so that it ought to be judged.
        bits_changed: all reruns gave the same bits, and the baseline's were others.
    """

    kind: str
    recurrence: str
    against: str
    tokens: int
    shape: str
    head_map: str
    inputs: str
    verdict: str
    reason: str
    value: float | None = None
    baseline: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    processes: int = 0
    accepted: int = 0
    confirmed: bool = False
    suspicious: bool = False
    suspect: bool = False
    cause: str = ""
    short_history: bool = False
    bits_changed: bool = False
    in_baseline: bool = False

    @property
    def told(self) -> str:
        """The reason, with the cause where one is known."""
        return f"{self.reason}; {self.cause}" if self.cause else self.reason

    @property
    def name(self) -> str:
        """Such as "speed of chunked at 2,048 tokens"."""
        against = f" against {self.against}" if self.against else ""
        return f"{self.kind} of {self.recurrence}{against} at {self.tokens:,} token{'' if self.tokens == 1 else 's'}"


def key_of(case: Case) -> Key:
    """What names the case, in the order of `KEY`."""
    return tuple(getattr(case, name) for name in KEY)


def checked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, with a missing `against` as an empty text.

    Raises:
        NotComparableError: a run has a case twice, or a green time that is none.
    """
    rows = rows.assign(against=rows["against"].astype("object").fillna(""))
    twice = rows.duplicated(["run_id", *KEY]).to_numpy()
    if twice.any():
        row = rows[twice].iloc[0]
        raise NotComparableError(
            f"run {row['run_id']} has {_said(row)} twice; remove the record in a commit that says why"
        )
    times = rows["median_us"].to_numpy(float)
    bad = (rows["kind"] == "speed").to_numpy() & (rows["outcome"] == "green").to_numpy()
    bad &= ~(np.isfinite(times) & (times > 0))
    if bad.any():
        row = rows[bad].iloc[0]
        raise NotComparableError(
            f"run {row['run_id']}: median_us of {_said(row)} is {row['median_us']}; a green time must be finite and "
            "above 0: restore the record, or remove it in a commit that says why"
        )
    return rows


class Row(NamedTuple):
    """What is judged of a case in one process: columns of `results.frame.frame`; NaN is a number that is not known."""

    run_id: str
    outcome: str
    reason: str | None
    median_us: float
    low_us: float
    high_us: float
    error_out: float
    error_state: float
    limit: float
    reruns: int
    sha256_out: str | None
    sha256_state: str | None


def by_case(rows: pd.DataFrame) -> dict[Key, list[Row]]:
    """The rows of each case."""
    found: dict[Key, list[Row]] = {}
    for key, row in zip(tuples(rows, KEY), map(Row._make, tuples(rows, Row._fields)), strict=True):
        found.setdefault(key, []).append(row)
    return found


def by_night(rows: pd.DataFrame, place: str, figure: str) -> dict[Key, dict[int, float]]:
    """A figure of each case in each of its nights, oldest first: the middle of what the night's processes have.

    Args:
        rows: columns `KEY` and the two that follow.
        place: the column with the night's place.
        figure: the column with the figure.
    """
    found: dict[Key, dict[int, list[float]]] = {}
    for key, (at, value) in zip(tuples(rows, KEY), tuples(rows, (place, figure)), strict=True):
        found.setdefault(key, {}).setdefault(at, []).append(value)
    return {key: {at: median(nights[at]) for at in sorted(nights)} for key, nights in found.items()}


def medians(history: pd.DataFrame) -> dict[Key, list[float]]:
    """The green times of each case, us, one of each night by `order`."""
    green = history[(history["kind"] == "speed") & (history["outcome"] == "green")]
    return {key: [*nights.values()] for key, nights in by_night(green, "order", "median_us").items()}


def _said(row: pd.Series) -> str:
    return f"the {row['kind']} of {row['recurrence']} at {int(row['tokens']):,} tokens"


def judge(
    tonight: pd.DataFrame,
    baseline: pd.DataFrame,
    history: pd.DataFrame,
    aa: Callable[[int], float],
    machine: Sequence[Judged] = (),
    rules: Rules = DEFAULT_RULES,
) -> list[Case]:
    """The verdict of each case of tonight and of the baseline.

    Args:
        tonight: cases of tonight's processes, in whichever order.
        baseline: cases of the night that was accepted last; empty where none was.
        history: speed cases of the accepted nights, with the place of the night as `order`.
        aa: the A/A spread at a token count.
        machine: tonight's canaries, judged.
        rules: thresholds of each case.

    Raises:
        NotComparableError: see `checked`.
    """
    new, base, before = by_case(checked(tonight)), by_case(checked(baseline)), medians(checked(history))
    found: dict[Key, Case] = {}
    waiting: dict[Key, tuple[Case, Series]] = {}
    for key, rows in new.items():
        if key[0] == "accuracy":
            found[key] = _accuracy(key, rows, base.get(key, []))
        elif key[0] == "determinism":
            found[key] = _determinism(key, rows, base.get(key, []))
        elif isinstance(one := _speed(key, rows, before.get(key, []), aa, rules), Case):
            found[key] = one
        else:
            waiting[key] = one
    judged = judge_cases([series for _, series in waiting.values()], machine, rules.default.q)
    for (key, (case, series)), said in zip(waiting.items(), judged, strict=True):
        found[key] = _timed(case, said, series.thresholds.confirm)
    for key, rows in base.items():
        if key not in new:
            found[key] = _case(key, "missing", f"it is in the baseline, {rows[0].run_id}, and not in this run")
    had = {key for key, rows in base.items() if _green(rows)}
    found = {key: replace(_blamed(one, found), in_baseline=key in had) for key, one in found.items()}
    return worst_first(found.values())


def worst_first(cases: Iterable[Case]) -> list[Case]:
    """The cases in the order in which they are shown."""
    return sorted(cases, key=lambda one: (VERDICTS.index(one.verdict), one.kind, one.recurrence, one.tokens))


def _case(key: Key, verdict: str, reason: str, **numbers: Any) -> Case:
    kind, recurrence, against, tokens, shape, head_map, inputs = key
    return Case(
        kind, recurrence, against, int(tokens), shape, head_map, inputs, verdict=verdict, reason=reason, **numbers
    )


def _green(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.outcome == "green"]


def _outcome(rows: Sequence[Row]) -> tuple[str, str]:
    """(the outcome of a case over its processes, its reason): one red makes it red, one green beats the rest."""
    for outcome in ("red", "green", "inconclusive", "not measured"):
        for row in rows:
            if row.outcome == outcome:
                return outcome, row.reason or ""
    raise NotComparableError(f"run {rows[0].run_id}: outcome is {rows[0].outcome!r}, which is not known")


def _unjudged(key: Key, outcome: str, reason: str) -> Case:
    return _case(key, outcome, reason or "no reason given")


def _worst(rows: Sequence[Row]) -> float | None:
    known = [error for row in rows for error in (row.error_out, row.error_state) if not math.isnan(error)]
    return max(known) if any(map(math.isfinite, known)) else None


def _accuracy(key: Key, rows: Sequence[Row], base: Sequence[Row]) -> Case:
    outcome, reason = _outcome(rows)
    value, limit = _worst(rows), rows[0].limit
    if outcome == "red":
        return _case(key, "wrong", reason or f"the error is {value}, the limit {limit:.1e}", value=value)
    if outcome != "green":
        return _unjudged(key, outcome, reason)
    told = "an error that is not known" if value is None else f"error {value:.1e}"
    told += f", limit {limit:.1e}"
    if not _green(base):
        return _case(key, "new", f"{told}; the baseline has no such case", value=value)
    old = _worst(base)
    if value and old and value > 2 * old:
        told += f"; {value / old:.1f} times that of the baseline, {old:.1e}"
    elif old is not None:
        told += f", was {old:.1e}"
    return _case(key, "same", told, value=value, baseline=old)


def _determinism(key: Key, rows: Sequence[Row], base: Sequence[Row]) -> Case:
    outcome, reason = _outcome(rows)
    if outcome == "red":
        return _case(key, "unstable", reason or "reruns gave other bits")
    if outcome != "green":
        return _unjudged(key, outcome, reason)
    green = _green(rows)
    told = f"{sum(row.reruns for row in green):,} reruns gave the same bits"
    bits, old = ({(row.sha256_out, row.sha256_state) for row in own} for own in (green, _green(base)))
    if len(bits) > 1:
        return _case(key, "unstable", f"{len(green)} processes of this night gave {len(bits)} different results")
    if not old:
        return _case(key, "new", f"{told}; the baseline has no such case")
    if bits <= old:
        return _case(key, "same", f"{told}, those of the baseline")
    return _case(key, "same", f"{told}: the bits changed since the baseline, and are stable", bits_changed=True)


def _speed(
    key: Key,
    rows: Sequence[Row],
    history: list[float],
    aa: Callable[[int], float],
    rules: Rules,
) -> Case | tuple[Case, Series]:
    outcome, reason = _outcome(rows)
    if outcome == "red":
        return _case(key, "wrong", reason or "no time")
    if outcome != "green":
        return _unjudged(key, outcome, reason)
    green = _green(rows)
    new = np.array([row.median_us for row in green])
    numbers = {"value": median(row.median_us for row in green), "processes": len(green), "accepted": len(history)}
    if not history:
        return _case(key, "new", "no accepted run has a time of it", **numbers)
    halves = [(row.high_us - row.low_us) / 2 / row.median_us for row in green]
    within = math.sqrt(2) * max((half for half in halves if not math.isnan(half)), default=0.0)
    case = _case(key, "inconclusive", "", baseline=history[-1], **numbers)
    return case, Series(history, new, aa(int(key[3])), rules.of(rule_name(key[1], key[3])), within)


def _timed(case: Case, judged: Judged, confirm: int) -> Case:
    return replace(
        case,
        verdict=judged.verdict,
        reason=judged.reason,
        ratio=judged.ratio,
        low=judged.low,
        high=judged.high,
        p=None if math.isnan(judged.p) else judged.p,
        confirmed=judged.confirmed,
        suspicious=judged.suspicious and case.processes < confirm,
        suspect=judged.suspect,
        short_history=judged.short_history,
    )


def _blamed(case: Case, found: dict[Key, Case]) -> Case:
    """A time withheld since reruns differ is unstable, not wrong, unless the recurrence is wrong as well."""
    if case.kind != "speed" or case.verdict != "wrong":
        return case
    own = {one.verdict for one in found.values() if one.recurrence == case.recurrence and one.kind != "speed"}
    if "wrong" in own or not ("unstable" in own or "determinism" in case.reason or "rerun" in case.reason):
        return case
    return replace(case, verdict="unstable")
