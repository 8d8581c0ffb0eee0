"""What the figures of one GPU say, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from kernels.dispatch import CHUNKED_MIN_TOKENS
from reports import cases, figures, words
from results.clocks import held_back
from results.crossing import aa_spread, widest
from results.crossing import crossings as crossovers
from results.schema import Record
from results.statistics import Crossover


def headline(newest: Record, shown: pd.DataFrame, missing: pd.DataFrame, first: pd.DataFrame) -> str:
    """The verdict: what is red, what is green, and where the others beat the baseline."""
    checks, times = shown[shown["kind"] != "speed"], shown[shown["kind"] == "speed"]
    parts = []
    counts = checks["outcome"].value_counts()
    red = checks[checks["outcome"] == "red"]
    if len(red):
        share = f"{len(red):,} of {words.count(len(checks), 'check')}"
        parts.append(f"{share} {words.are(len(red))} red: {_cases(red, most=4)}")
    elif not len(checks):
        parts.append("no check of accuracy or determinism is stored")
    elif len(checks) == counts.get("green", 0):
        parts.append(f"all {words.count(len(checks), 'check')} {words.are(len(checks))} green")
    else:
        green = counts.get("green", 0)
        parts.append(f"{green:,} of {words.count(len(checks), 'check')} {words.are(green)} green, none is red")
    parts += [
        f"{counts[outcome]:,} {words.are(counts[outcome])} {outcome}"
        for outcome in ("inconclusive", "not measured")
        if outcome in counts
    ]
    withheld = (times["outcome"] == "red").sum()
    if withheld:
        told = f"{words.count(withheld, 'time')} withheld, as a check is red"
        parts.insert(1 if len(red) else 0, told)
    for outcome in ("inconclusive", "not measured"):
        if number := (times["outcome"] == outcome).sum():
            parts.append(f"{words.count(number, 'time')} {outcome}")
    stale = (missing["outcome"] == "red").sum()
    if stale:
        parts.append(
            f"{words.count(stale, 'case')} red in an earlier run {'was' if stale == 1 else 'were'} not repeated"
        )
    if newest.status == "partial":
        parts.append("the newest run is partial")
    parts += gains(first)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def gains(rows: pd.DataFrame) -> list[str]:
    """How the others compare with the baseline: with their crossovers, or, where they are many, at the end alone."""
    found = list(crossings(rows))
    last = {name: ratios.iloc[-1] for name, _, ratios in found}
    if len(found) > 2 and len({row["tokens"] for row in last.values()}) == 1:
        base = figures.baseline(rows[rows["kind"] == "speed"]["recurrence"])
        best, *others = sorted(last, key=lambda name: -last[name]["ratio"])
        where = words.tokens([last[best]["tokens"]])
        rest = "".join(f", {name} {words.ratio(last[name]['ratio'])}" for name in others)
        return [f"at {where} {best} is {words.ratio(last[best]['ratio'])} times as fast as {base}{rest}"]
    said = []
    for name, crossing, _ in found:
        where = f"{words.ratio(last[name]['ratio'])} times as fast at {words.tokens([last[name]['tokens']])}"
        if crossing.tokens is not None:
            said.append(f"{name} wins from {_from(crossing)} on, {where}")
        else:
            said.append(f"{name} is {crossing.reason}, {where}")
    return said


def silence(newest: Record, shown: pd.DataFrame, missing: pd.DataFrame) -> list[str]:
    """What was not measured, and what the green does not speak of."""
    said = []
    if newest.status == "partial":
        said.append("The newest run is partial: it was stopped, or cases failed to run. What it lacks is not judged.")
    for kind in ("accuracy", "determinism", "speed"):
        if not (shown["kind"] == kind).any():
            said.append(f"{kind.capitalize()}: nothing is stored.")
    for outcome in ("inconclusive", "not measured"):
        groups = shown[shown["outcome"] == outcome].groupby(["kind", "reason"], sort=False)
        for (what, reason), rows in groups:
            who = words.listed(figures.ordered(rows["recurrence"]))
            number = words.count(len(rows), f"{what} case")
            where = words.tokens(list(rows["tokens"]))
            said.append(f"{outcome.capitalize()}: {number} of {who} at {where}: {reason or 'no reason given'}.")
    if len(missing):
        red = missing[missing["outcome"] == "red"]
        told = f"; red among them: {_cases(red, most=4)}" if len(red) else ""
        number = words.count(len(missing), "case")
        said.append(f"{number} of earlier runs {words.are(len(missing))} not in the runs shown{told}.")
    accuracy = shown[(shown["kind"] == "accuracy") & shown["outcome"].isin(["green", "red"])]
    truth = accuracy[accuracy["against"] == "fp64"]["tokens"]
    beyond = sorted(set(accuracy["tokens"]) - set(truth))
    if beyond:
        said.append(
            f"No check against FP64 at {words.tokens(beyond)}: there the recurrences are held against each other alone."
        )
    if held := held_back(newest):
        said.append(f"The card reported that its clocks were held back ({held}); the times may be too long.")
    if len(shown):
        places = [cases.title(place) for place in cases.places(shown)]
        said.append(
            f"Covered: {'; '.join(places)}. Other head counts, head maps and inputs are not, nor is anything but one "
            f"layer and one sequence in FP32{'' if shown['cold_us'].notna().any() else ' with warm caches'}."
        )
    return said


def crossing(name: str, found: Crossover, ratios: pd.DataFrame) -> str:
    """The crossover against the dispatch threshold, and what follows."""
    threshold = CHUNKED_MIN_TOKENS
    if found.tokens is None:
        said = f"{name} has no crossover: it is {found.reason}."
        if name == "chunked" and ratios["ratio"].iloc[-1] < 1:
            said += f" The dispatch, once asked for it, would still choose it from {threshold} tokens on."
        return said
    said = f"{name} is the faster one from {_from(found)} on."
    if name != "chunked":
        return said + (" The dispatch rule is for GPUs." if name == "host-chunked" else "")
    start = math.ceil(found.tokens)
    said += f" Recommended for this card: a threshold of {math.ceil(found.high or found.tokens):,}."
    if (found.low or 0) <= threshold <= (found.high or math.inf):
        return f"{said} The dispatch threshold of {threshold} lies in the interval: it fits."
    if start < threshold:
        unused = words.count(threshold - start, "token")
        return (
            f"{said} The dispatch threshold of {threshold} is above the crossover: {unused} of gain "
            f"({start} to {threshold - 1}) {words.are(threshold - start)} left unused."
        )
    return (
        f"{said} The dispatch threshold of {threshold} is below the crossover: from {threshold} to "
        f"{start - 1:,} tokens the dispatch chooses the slower one."
    )


def crossings(rows: pd.DataFrame) -> Iterator[tuple[str, Crossover, pd.DataFrame]]:
    """(recurrence, crossover, its ratios) of each recurrence that was timed beside the baseline, both green."""
    speed = rows[(rows["kind"] == "speed") & (rows["outcome"] == "green")].dropna(
        subset=["median_us", "low_us", "high_us"]
    )
    found = {name: one for (name, *_), one in crossovers(speed, widest(speed, aa_spread([speed])))}
    for name, ratios in figures.by_recurrence(figures.ratios(speed)):
        yield name, found[name], ratios


def _cases(rows: pd.DataFrame, most: int) -> str:
    """Cases by recurrence and kind, with their token counts."""
    groups = [
        f"{name} {kind} at {words.tokens(list(group['tokens']))}"
        for (name, kind), group in rows.groupby(["recurrence", "kind"], sort=False)
    ]
    return words.listed(groups, most)


def _from(found: Crossover) -> str:
    """97 tokens (95–101): the first whole number at which it wins."""
    first, *ends = (f"{math.ceil(end):,}" if end is not None else "?" for end in (found.tokens, found.low, found.high))
    return f"{first} tokens ({'–'.join(ends)})"
