"""The newest run of a card against its accepted baseline and its history: verdicts, a census and an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from results.accepted import Acceptance, acceptances
from results.builds import differing
from results.crossing import Tracked, aa_spread, track, widest
from results.faults import MEND
from results.frame import tuples
from results.judging import Judged, judge_speed
from results.judging_rules import Rules
from results.levels import looks, with_causes, with_levels
from results.series import CONFIRMS, Series, night_of, opened
from results.steps import CANARIES, Step, steps, trail
from results.store import ResultsError
from results.verdicts import DEFAULT_RULES, JUDGED, KEY, VERDICTS, Case, NotComparableError, Row, judge, worst_first

FINE, REGRESSION, WRONG, NOTHING, NOT_COMPARABLE = 0, 1, 3, 4, 5

ENOUGH = 0.5
"""Share of the baseline's cases that must be judged, lest the rest's silence reads as passed."""

WINDOW = 60
"""Accepted runs that are read at most, the newest ones; the rule takes its window out of them."""

COLUMNS = (*KEY, *Row._fields, "aa_ratio")
"""Columns that are asked for of the cases that are judged."""

HISTORY = ("run_id", *KEY, "outcome", "median_us", "low_us", "high_us", "aa_ratio")
"""Columns that are asked for of the accepted runs; fewer are faster."""

ENVIRONMENT = ("gpu_uuid", "driver", "cuda_runtime", "cupy", "nvrtc", "commit", "platform", "cpu")
"""What a comparison tells if it is not as in the baseline, beside the machine code of each kernel."""


@dataclass(frozen=True)
class Census:
    """How many of the cases were judged, and why the others were not.

    Attributes:
        cases: of the run and of the baseline.
        judged: those with a verdict on the code.
        verdicts: number of each verdict.
        unjudged: (verdict, reason, number) of those that were not judged, the most frequent first.
    """

    cases: int
    judged: int
    verdicts: Mapping[str, int]
    unjudged: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        state: "judged", "no baseline", "another card", "another method" or "nothing measured".
        said: the state in words, with the mend; empty where judged.
        exit_code: 0 fine, 1 slower, 3 wrong or unstable, 4 nothing or not enough measured, as of a case that seems
            slower and is not confirmed, 5 not comparable.
        gpu_key, method_id, run_id, started, commit, dirty, status: of the run; None where there is none.
        runs: names of the records that were judged together: the processes of a night and those that confirm it.
        baseline: the acceptance that it is held against, or None.
        accepted: how many accepted runs the speed is held against.
        quiet: whether the canaries are as in the accepted runs, so that the night may join them.
        cases: with their verdicts, the worst first.
        census: of these.
        crossovers, changes: see there.
        environment: (name, in the baseline, now) of what differs.
        notes: what a reader must know.
        problems: a line for each stored file that cannot be read, or in which something cannot be right.
    """

    state: str
    said: str
    exit_code: int
    gpu_key: str | None = None
    method_id: str | None = None
    run_id: str | None = None
    started: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    status: str | None = None
    gpu: str | None = None
    gpu_uuid: str | None = None
    runs: tuple[str, ...] = ()
    baseline: Acceptance | None = None
    accepted: int = 0
    quiet: bool = True
    cases: tuple[Case, ...] = ()
    census: Census = field(default_factory=lambda: Census(0, 0, {}, ()))
    crossovers: tuple[Tracked, ...] = ()
    changes: tuple[Step, ...] = ()
    environment: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def suspicious(self) -> tuple[Case, ...]:
        """Cases that more processes of this night could settle."""
        return tuple(case for case in self.cases if case.suspicious)


@dataclass(frozen=True)
class Asked:
    """What to compare.

    Attributes:
        run_id: the run, or None for the newest one.
        gpu_key: the card that is expected; None: whichever ran last.
        card: only runs of this very card, its gpu_key and UUID.
        since: only runs that started then or later.
        allow_new: that there is no baseline yet is fine, as on a first night.
        rules: thresholds of each case.
        dispatch: token count from which on the dispatch takes a recurrence, by its name.
    """

    run_id: str | None = None
    gpu_key: str | None = None
    card: tuple[str, str | None] | None = None
    since: datetime | None = None
    allow_new: bool = False
    rules: Rules = DEFAULT_RULES
    dispatch: Mapping[str, int] = field(default_factory=lambda: {"chunked": 128})


def compare(root: Path, run_id: str | None = None, asked: Asked | None = None) -> Comparison:
    """Judge a run; see `Asked`.

    Raises:
        ResultsError: there is no such run.
        NotComparableError: what is stored cannot be compared.
    """
    asked = asked or Asked(run_id)
    found, problems, _ = opened(root)
    chosen = _choose(found, asked)
    if chosen is None:
        since = f" since {asked.since:%Y-%m-%d %H:%M} UTC" if asked.since else ""
        said = f"no run is stored in {root}{since}; pytest --benchmark-only measures"
        return Comparison("nothing measured", said, NOT_COMPARABLE if problems else NOTHING, problems=problems)
    series, place = chosen
    return _compare(root, found, series, place, asked, problems)


def cards(root: Path, since: datetime | None) -> list[tuple[str, str | None]]:
    """(gpu_key, UUID) of the cards that have a run since then, or of the one that ran last where no time is given."""
    rows = [one.runs[["gpu_key", "gpu_uuid", "started"]] for one in opened(root)[0] if len(one.runs)]
    if not rows:
        return []
    table = pd.concat(rows).sort_values("started", kind="stable")
    table = table.iloc[-1:] if since is None else table[table["started"] >= since]
    pairs = table[["gpu_key", "gpu_uuid"]].astype("object").drop_duplicates().itertuples(index=False)
    return [(str(key), uuid if isinstance(uuid, str) else None) for key, uuid in pairs]


def _choose(found: Sequence[Series], asked: Asked) -> tuple[Series, int] | None:
    """The card and the row of the run that is asked for."""
    best: tuple[Series, int] | None = None
    for series in found:
        runs = series.runs
        fit = ~runs["night"].astype("object").fillna("").str.startswith(CONFIRMS).to_numpy(bool)
        if asked.run_id is not None:
            fit = (runs["run_id"] == asked.run_id).to_numpy(bool)
        if asked.card is not None:
            key, uuid = asked.card
            same = runs["gpu_uuid"].isna() if uuid is None else runs["gpu_uuid"] == uuid
            fit &= same.to_numpy(bool) & (series.gpu_key == key)
        if asked.since is not None:
            fit &= (runs["started"] >= asked.since).to_numpy(bool)
        rows = np.flatnonzero(fit)
        if rows.size and (best is None or runs["started"].iloc[rows[-1]] > best[0].runs["started"].iloc[best[1]]):
            best = series, int(rows[-1])
    if best is None and asked.run_id is not None:
        raise ResultsError(f"run {asked.run_id!r} is not stored; name one that gdn-bench history lists")
    return best


def together(runs: pd.DataFrame, place: int) -> pd.DataFrame:
    """The rows of a run's night and of the processes that confirm it, the run with times first.

    Raises:
        NotComparableError: the processes of a night are of different methods or cards.
    """
    night = night_of(runs)
    own = runs[night == night[place]]
    confirms = own["night"].astype("object").fillna("").str.startswith(CONFIRMS).to_numpy(bool)
    group: pd.DataFrame = pd.concat([own[~confirms], own[confirms]])
    for column, what in (("method_id", "methods"), ("gpu_uuid", "cards")):
        if len(kinds := sorted({str(one) for one in group[column]})) > 1:
            raise NotComparableError(f"the processes of {night[place]} are of the {what} {', '.join(kinds)}")
    return group


def _faultless(runs: pd.DataFrame) -> None:
    """Refuse to build a verdict on a run in which something cannot be right."""
    for run_id, wrong in tuples(runs[runs["faults"].notna()], ("run_id", "faults")):
        raise NotComparableError(f"run {run_id}: {wrong}; {MEND}")


def _compare(
    root: Path, found: Sequence[Series], series: Series, place: int, asked: Asked, problems: tuple[str, ...]
) -> Comparison:
    key, runs = series.gpu_key, series.runs
    group = together(runs, place)
    _faultless(group)
    own, method = runs.iloc[place], str(runs["method_id"].iloc[place])
    tonight = series.cases(method, run_ids=list(group["run_id"]), columns=COLUMNS)
    timed = tonight[tonight["kind"] == "speed"]["run_id"]
    subject = str(timed.iloc[0]) if len(timed) else str(own["run_id"])
    every = acceptances(root, key, method)
    used = _used(every, series, own["gpu_uuid"])
    members = _members(runs, used.runs)
    _faultless(runs[runs["run_id"].isin([name for names in members for name in names])])
    baseline = series.cases(method, run_ids=members[-1] if members else (), columns=COLUMNS)
    history = _history(series, method, members)
    spread = aa_spread([tonight, history])
    machine = _machine(series, group, used)
    moved = {name: one for name, one in machine.items() if one.verdict != "same"}
    cases = judge(tonight, baseline, history, spread, list(machine.values()), asked.rules)
    past = trail(series, method, place, _text(own["gpu_uuid"]) if used.own_card else None)
    if used.own_card and not moved:
        rose = looks(past, past.quiet(used.runs, used.since), spread, asked.rules)
        cases = worst_first(with_levels(cases, rose, asked.rules))
    if used.baseline is not None:
        base = runs[runs["run_id"] == used.baseline.run_id].iloc[-1]
        cases = with_causes(cases, _plain(base), _plain(own))
    state, said = _state(root, found, series, method, every, asked)
    partial = [str(name) for name in group[group["status"] != "complete"]["run_id"]]
    return Comparison(
        state=state,
        said=said,
        exit_code=_code(cases, state, partial, problems, asked.allow_new),
        gpu_key=key,
        method_id=method,
        run_id=subject,
        started=f"{own['started']:%Y-%m-%d %H:%M} UTC",
        **{name: _text(own[name]) for name in ("commit", "status", "gpu", "gpu_uuid")},
        dirty=None if pd.isna(own["dirty"]) else bool(own["dirty"]),
        runs=tuple(map(str, group["run_id"])),
        baseline=used.baseline,
        accepted=len(used.runs),
        quiet=not moved,
        cases=tuple(cases),
        census=census(cases),
        crossovers=tuple(track(_one_each(tonight), _named(used, history), asked.dispatch, widest(tonight, spread))),
        changes=tuple(steps(past)),
        environment=_environment(runs, used, own),
        notes=(*used.notes, *_notes(group, partial, cases, moved)),
        problems=problems,
    )


@dataclass(frozen=True)
class _Used:
    """The accepted runs that count.

    Attributes:
        runs: their names, oldest first.
        baseline: the acceptance of the newest one.
        own_card: they are of this very card.
        since: when the first one started; the level has not been moved on purpose since.
        notes: what to say of the choice.
    """

    runs: tuple[str, ...]
    baseline: Acceptance | None
    own_card: bool
    since: pd.Timestamp | None
    notes: tuple[str, ...]


def _used(every: Sequence[Acceptance], series: Series, uuid: object) -> _Used:
    """The accepted runs of this very card, or of all cards of its kind where it has none.

    An acceptance with a reason moved the level on purpose: what was accepted before it does not count.
    """
    stored = dict(zip(series.runs["run_id"], series.runs["gpu_uuid"], strict=True))
    gone = [one.run_id for one in every if one.run_id not in stored]
    known = [one for one in every if one.run_id in stored]
    own = [one for one in known if stored[one.run_id] == uuid or not isinstance(uuid, str)]
    notes = [f"the accepted run {name} is not stored; gdn-bench pull brings it back" for name in gone]
    if known and not own:
        notes.append(f"this very card ({uuid}) has no accepted run; those of other cards of its kind are used")
    kept = own or known
    moved = [place for place, one in enumerate(kept) if one.because]
    kept = kept[moved[-1] if moved else 0 :]
    names = tuple(dict.fromkeys(one.run_id for one in kept))[-WINDOW:]
    since = series.runs[series.runs["run_id"] == kept[0].run_id]["started"].iloc[0] if kept else None
    return _Used(names, kept[-1] if kept else None, bool(own), since, tuple(notes))


def _members(runs: pd.DataFrame, names: Sequence[str]) -> list[list[str]]:
    """The runs of each accepted run's night, with those that confirmed it."""
    every = list(zip(runs["run_id"].tolist(), night_of(runs).tolist(), strict=True))
    night_by_run = dict(every)
    nights: dict[str, list[str]] = {night_by_run[name]: [] for name in names}
    for name, night in every:
        if night in nights:
            nights[night].append(name)
    return [nights[night_by_run[name]] for name in names]


def _machine(series: Series, group: pd.DataFrame, used: _Used) -> dict[str, Judged]:
    """Tonight's canaries against those of the accepted runs, by name."""
    runs, found = series.runs, {}
    for name in CANARIES:
        columns = [f"canary_{name}_{when}_us" for when in ("before", "after")]
        new = _positive(group[columns].mean(axis=1))
        old = _positive(runs[runs["run_id"].isin(used.runs)][columns].mean(axis=1))
        if new.size and old.size:
            found[name] = judge_speed(old, new, 0.0)
    return found


def _positive(values: pd.Series) -> np.ndarray:
    found: np.ndarray = values.to_numpy(float)
    fit: np.ndarray = found[np.isfinite(found) & (found > 0)]
    return fit


def _one_each(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each green speed case of each night: the middle of its processes, and the interval of them all."""
    names = [name for name in ("order", "recurrence", "tokens", "shape", "head_map", "inputs") if name in rows]
    how = {"median_us": "median", "low_us": "min", "high_us": "max", "kind": "first", "outcome": "first"}
    speed = rows[(rows["kind"] == "speed") & (rows["outcome"] == "green")][[*names, *how]]
    return speed if not speed.duplicated(names).any() else speed.groupby(names, as_index=False, sort=False).agg(how)


def _history(series: Series, method: str, members: Sequence[Sequence[str]]) -> pd.DataFrame:
    """The speed cases of the accepted nights, with the place of the night as `order`."""
    order = {name: place for place, names in enumerate(members) for name in names}
    rows = series.cases(method, ("speed",), run_ids=order, columns=HISTORY)
    return rows.assign(order=rows["run_id"].map(order).astype("int64"))


def _named(used: _Used, history: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """(run_id, one row for each speed case) of each accepted night."""
    rows = _one_each(history)
    nights = dict(iter(rows.groupby("order")))
    return [(name, nights.get(place, rows[:0])) for place, name in enumerate(used.runs)]


def _state(
    root: Path, found: Sequence[Series], series: Series, method: str, every: Sequence[Acceptance], asked: Asked
) -> tuple[str, str]:
    """(state, in words) of what the run is held against."""
    key = series.gpu_key
    if asked.gpu_key is not None and asked.gpu_key != key:
        return "another card", f"the run is of {key}, and {asked.gpu_key} is expected; look at the machine"
    if every:
        return "judged", ""
    mend = f"gdn-bench accept --results {root} makes a run the baseline"
    methods = {name for name in series.runs["method_id"] if acceptances(root, key, str(name))}
    if methods:
        told = ", ".join(sorted(map(str, methods)))
        return "another method", f"the run is of the method {method}, the baseline of {told}: a new series; {mend}"
    others = [
        one.gpu_key
        for one in found
        if one.gpu_key != key and any(acceptances(root, one.gpu_key, str(name)) for name in set(one.runs["method_id"]))
    ]
    if others:
        told = ", ".join(others)
        return "another card", f"the run is of {key}, baselines are of {told}; cards are never compared; {mend}"
    return "no baseline", f"nothing is accepted for {key} yet; {mend}"


def census(cases: Sequence[Case]) -> Census:
    """How many of the cases were judged, and why the others were not."""
    verdicts = Counter(case.verdict for case in cases)
    left = Counter((case.verdict, case.reason) for case in cases if case.verdict not in JUDGED)
    ordered = {verdict: verdicts[verdict] for verdict in VERDICTS if verdicts[verdict]}
    why = tuple((verdict, reason, number) for (verdict, reason), number in left.most_common())
    return Census(len(cases), sum(verdicts[one] for one in JUDGED), ordered, why)


def _code(cases: Sequence[Case], state: str, partial: Sequence[str], problems: Sequence[str], allow_new: bool) -> int:
    """The exit code: the worst that was found, before what could not be judged."""
    verdicts = Counter(case.verdict for case in cases)
    if verdicts["wrong"] or verdicts["unstable"]:
        return WRONG
    if verdicts["slower"]:
        return REGRESSION
    if problems or (state == "another card" and not allow_new):
        return NOT_COMPARABLE
    measured = any(verdict not in ("not measured", "missing", "inconclusive") for verdict in verdicts)
    if partial or not measured or verdicts["missing"] or any(case.suspect for case in cases):
        return NOTHING
    if state != "judged":
        return FINE if allow_new else NOTHING
    for kinds in (("speed",), ("speed", "accuracy", "determinism")):
        wanted = [case for case in cases if case.kind in kinds and case.in_baseline]
        if sum(case.verdict in JUDGED for case in wanted) < ENOUGH * len(wanted):
            return NOTHING
    return FINE if any(case.verdict in JUDGED for case in cases) else NOTHING


def _notes(
    group: pd.DataFrame, partial: Sequence[str], cases: Sequence[Case], moved: Mapping[str, Judged]
) -> list[str]:
    found = [f"{name} is partial: it was stopped, or cases failed to run" for name in partial]
    if suspects := sum(case.suspect for case in cases):
        told = "1 case seems" if suspects == 1 else f"{suspects} cases seem"
        found.append(f"{told} slower, by too few processes to tell; gdn-bench compare --confirm runs fresh ones")
    held = dict.fromkeys(str(one) for one in group["throttle"] if isinstance(one, str) and one)
    found += [f"the card held its clocks back: {one}" for one in held]
    if group["dirty"].fillna(False).any():
        found.append("the source differs from its commit (dirty)")
    for name, one in moved.items():
        found.append(f"the canary {name} is {one.verdict}, so that the machine is not as it was: {one.reason}")
    return found


def _environment(runs: pd.DataFrame, used: _Used, own: pd.Series) -> tuple[tuple[str, str, str], ...]:
    """What is not as in the baseline."""
    if used.baseline is None:
        return ()
    base = runs[runs["run_id"] == used.baseline.run_id].iloc[-1]
    pairs = [(name, _text(base[name]), _text(own[name])) for name in ENVIRONMENT]
    told = [(name, old or "unknown", new or "unknown") for name, old, new in pairs if old != new]
    return (*told, *differing(_plain(base), _plain(own)))


def _plain(row: pd.Series) -> dict[str, Any]:
    return {str(name): value for name, value in row.items()}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
