"""The crossover as a quantity that is followed from run to run, against the threshold by which an engine dispatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from results.frame import tuples
from results.statistics import Crossover, crossover

BASELINES = ("sequential", "host-sequential")
"""The recurrences that the others are compared with, one for each platform."""

RUN_TO_RUN = 0.005
"""Half-width that a time has at least: the next process's median is not this one's. Half of `results.night.CHANGE`."""

PLACE = ["shape", "head_map", "inputs"]


@dataclass(frozen=True)
class Tracked:
    """The crossover of one recurrence with the baseline, now and before.

    Attributes:
        recurrence, baseline: from how many tokens on the first is faster than the second.
        shape, head_map, inputs: where.
        now: of the run that is judged.
        before: of the accepted runs, as (run_id, crossover), oldest first.
        threshold: token count from which on the dispatch takes the recurrence; None where it has none.
        recommended: the threshold for this card: from there on the recurrence is faster for sure; None where it is not.
        alarm: that the crossover left the threshold since the baseline, or moved away from it, in words; else empty.
        note: how it stands to the threshold, in words.
    """

    recurrence: str
    baseline: str
    shape: str
    head_map: str
    inputs: str
    now: Crossover
    before: tuple[tuple[str, Crossover], ...]
    threshold: int | None
    recommended: int | None
    alarm: str
    note: str


def track(
    now: pd.DataFrame, accepted: Sequence[tuple[str, pd.DataFrame]], thresholds: Mapping[str, int], least: float = 0.0
) -> list[Tracked]:
    """The crossovers of a run, each with its history.

    Args:
        now: cases of the run, columns of `results.frame.frame`; one row for each case.
        accepted: (run_id, cases) of the accepted runs, oldest first.
        thresholds: token count from which on the dispatch takes a recurrence, by its name.
        least: relative half-width that every time has at least, such as the A/A spread.
    """
    history = [(run_id, dict(crossings(rows, least))) for run_id, rows in accepted]
    found = []
    for key, one in crossings(now, least):
        before = tuple((run_id, known[key]) for run_id, known in history if key in known)
        name, base, shape, head_map, inputs = key
        threshold = thresholds.get(name)
        note = "" if threshold is None else _stands(name, one, threshold)
        alarm = _alarm(name, one, before[-1][1] if before else None, threshold)
        best = recommended(one, now, key)
        found.append(Tracked(name, base, shape, head_map, inputs, one, before, threshold, best, alarm, note))
    return found


Key = tuple[str, str, str, str, str]
"""(recurrence, baseline, shape, head map, inputs)."""


def crossings(rows: pd.DataFrame, least: float = 0.0) -> Iterator[tuple[Key, Crossover]]:
    """The crossover of each recurrence that was timed beside the baseline, both green, at each place."""
    columns = ("kind", "outcome", *PLACE, "recurrence", "tokens", "median_us", "low_us", "high_us")
    found: dict[tuple[str, ...], dict[str, dict[int, Times]]] = {}
    for kind, outcome, *place, name, tokens, median, low, high in tuples(rows, columns):
        if (kind, outcome) == ("speed", "green") and all(map(math.isfinite, (median, low, high))):
            here = found.setdefault((*place,), {}).setdefault(str(name), {})
            here[int(tokens)] = _widened(median, low, high, least)
    for (shape, head_map, inputs), times in sorted(found.items()):
        base = next((name for name in BASELINES if name in times), None)
        if base is None:
            continue
        for name in times:
            if name != base and (at := sorted(times[base].keys() & times[name].keys())):
                one = crossover(at, [times[base][n] for n in at], [times[name][n] for n in at])
                yield (name, base, shape, head_map, inputs), one


def aa_spread(frames: Sequence[pd.DataFrame]) -> Callable[[int], float]:
    """The A/A spread at a token count: the greatest that was seen."""
    found: dict[int, float] = {}
    for rows in frames:
        green = rows[(rows["outcome"] == "green") & rows["aa_ratio"].notna()]
        for tokens, ratio in zip(green["tokens"], green["aa_ratio"], strict=True):
            found[int(tokens)] = max(found.get(int(tokens), 0.0), abs(float(ratio) - 1))
    return lambda tokens: found.get(tokens, 0.0)


def widest(rows: pd.DataFrame, spread: Callable[[int], float]) -> float:
    """The greatest A/A spread at the rows' token counts, 5 % at most: the half-width that their times have at least."""
    return min(max((spread(int(n)) for n in rows["tokens"].unique()), default=0.0), 0.05)


Times = tuple[float, float, float]
"""(median, low, high), us."""


def _widened(median: float, low: float, high: float, least: float) -> Times:
    """With the half-width that a time has at least from one process to the next: `least`, or `RUN_TO_RUN`."""
    share = max(least, RUN_TO_RUN)
    return float(median), min(float(low), median * (1 - share)), max(float(high), median * (1 + share))


def recommended(found: Crossover, rows: pd.DataFrame, key: Key) -> int | None:
    """The threshold for this card: the upper end of the crossover's interval, a whole number of tokens.

    Where the recurrence is faster at every measured token count, it is the least of these; where it is not faster at
    the most, there is none.
    """
    if found.tokens is not None:
        return math.ceil(found.high if found.high is not None else found.tokens)
    if not found.reason.startswith("faster"):
        return None
    name, _, *place = key
    own = rows[(rows["kind"] == "speed") & (rows["recurrence"] == name) & (rows[PLACE] == place).all(axis=1)]
    return int(own["tokens"].min())


def _side(found: Crossover, threshold: int) -> str:
    """Where the threshold lies: "inside" the interval, "above" or "below" it, or "nowhere"."""
    if found.tokens is None:
        return "above" if found.reason.startswith("faster") else "nowhere"
    if found.low is not None and math.ceil(found.low) > threshold:
        return "below"
    if found.high is not None and math.ceil(found.high) < threshold:
        return "above"
    return "inside"


def _stands(name: str, found: Crossover, threshold: int) -> str:
    told = {
        "inside": f"the dispatch threshold of {threshold} lies in the interval: it fits",
        "above": f"the dispatch threshold of {threshold} is above it: {name} would gain below the threshold, too",
        "below": f"the dispatch threshold of {threshold} is below it: from there to the crossover the slower one runs",
        "nowhere": f"the dispatch threshold of {threshold} chooses the slower one",
    }
    return told[_side(found, threshold)]


def _alarm(name: str, now: Crossover, before: Crossover | None, threshold: int | None) -> str:
    """That the threshold was in the accepted run's interval and is not in tonight's, or is newly on the wrong side."""
    if threshold is None or before is None:
        return ""
    then, here = _side(before, threshold), _side(now, threshold)
    if then == here or here == "inside":
        return ""
    return (
        f"the crossover of {name} left the dispatch threshold of {threshold}: it is {now.describe()}, "
        f"and was {before.describe()}"
    )
