"""The verdicts of a night in the light of the nights before: what rose too little for one night to tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results.builds import facts
from results.judging_cause import Cause, between
from results.judging_changes import RECENT, SUSPECT, suspected
from results.judging_level import Moved, risen
from results.judging_rules import Rules
from results.steps import Line, Trail, cause_of, changed, clear
from results.verdicts import Case, Key, key_of, rule_name


@dataclass(frozen=True)
class Look:
    """What the history of a case says of tonight.

    Attributes:
        moved: the rise up to tonight's level; None where a step is merely suspected, so that fresh processes are worth
            their time.
        cause: of the rise.
        since: the last run that has the old level for certain, and the first that has the new one.
    """

    moved: Moved | None = None
    cause: Cause | None = None
    since: tuple[str, str] = ("", "")


def looks(found: Trail, nights: np.ndarray, aa: Callable[[int], float], rules: Rules) -> dict[Key, Look]:
    """The times whose level rose up to tonight, or may have, by their case.

    Args:
        found: the last nights, tonight's the last one.
        nights: those that count, a mask: quiet ones since the level was last moved on purpose.
        aa: the A/A spread at a token count.
        rules: thresholds of each case.
    """
    tonight, canaries = len(found.nights) - 1, changed(found.canaries)
    own = [line.since(nights) for line in found.cases if line.key[0] == "speed"]
    own = [line for line in own if line.at.size > 1 and line.at[-1] == tonight]
    before = [Line(line.key, line.what, line.at[:-1], line.values[:-1]) for line in own]
    doubtful = {line.key for line in clear(before, SUSPECT) if suspected(line.values, RECENT)}
    rising = {line.key for line in clear(own, SUSPECT)}
    said: dict[Key, Look] = {}
    for line in own:
        name, tokens = line.key[1], int(line.key[3])
        moved = risen(line.values, rules.of(rule_name(name, tokens)), aa(tokens)) if line.key in rising else None
        if moved is not None:
            ends = [str(found.nights[line.at[place]]["run_id"]) for place in (moved.low - 1, moved.high)]
            why = cause_of(found, line, (moved.low, moved.high), moved.ratio, canaries)
            said[line.key] = Look(moved, why, (ends[0], ends[1]))
        elif line.key in doubtful or (line.key in rising and suspected(line.values, RECENT)):
            said[line.key] = Look()
    return said


def with_levels(cases: Sequence[Case], found: Mapping[Key, Look], rules: Rules) -> list[Case]:
    """The cases, slower where the level rose and enough processes of tonight say so; see `looks`."""
    return [_one(case, look, rules) if (look := found.get(key_of(case))) else case for case in cases]


def _one(case: Case, look: Look, rules: Rules) -> Case:
    if case.verdict not in ("same", "inconclusive"):
        return case
    open_ = case.processes < rules.of(rule_name(case.recurrence, case.tokens)).confirm
    if look.moved is None or look.cause is None:
        return replace(case, suspicious=case.suspicious or open_)
    moved, cause = look.moved, look.cause
    how = "it crept up" if moved.kind == "drift" else "its level rose"
    reason = (
        f"{case.reason}; {how} by {moved.ratio - 1:+.2%}, p {moved.p:.1g}, between {look.since[0]} and {look.since[1]}"
    )
    case = replace(case, reason=reason, cause=f"{cause.kind}: {cause.reason}")
    if cause.canary:
        return replace(case, reason=f"{reason}, and that of a canary as well: the machine, not the code")
    if open_:
        reason += "; it takes fresh processes to call it slower"
        return replace(case, verdict="inconclusive", reason=reason, suspicious=True, suspect=True)
    return replace(case, verdict="slower", confirmed=True, suspicious=False, suspect=False)


def with_causes(cases: Sequence[Case], base: Mapping[str, Any], now: Mapping[str, Any]) -> list[Case]:
    """The cases, with what changed since the baseline beside each time that did.

    Args:
        cases: with their verdicts.
        base, now: rows of the baseline's run and of tonight's in `results.series.Series.runs`.
    """
    found = []
    for case in cases:
        if (case.verdict in ("slower", "faster") or case.suspect) and not case.cause:
            why = between(*facts(base, now, case.recurrence))
            case = replace(case, cause=f"since the baseline: {why.kind}, {why.reason}")
        found.append(case)
    return found
