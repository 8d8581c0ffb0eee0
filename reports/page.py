"""The report: one HTML file that loads nothing, a section for each GPU.

A section shows the newest run. A kind of case that the newest run has none of is taken from the newest run that has
some, and the page says so; a table never mixes runs, nor shapes, head maps or families of inputs.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pandas as pd
from markupsafe import Markup

from kernels.dispatch import CHUNKED_MIN_TOKENS
from kernels.inputs import FAMILIES
from kernels.problem import Shape
from reports import figures, words
from results.frame import frame
from results.reference import Reference, references
from results.schema import Clocks, Record
from results.statistics import Crossover, crossover
from results.store import ResultsError, load

SERIES = ["shape", "head_map", "inputs"]
"""What a table never mixes."""

CASE = ["kind", "recurrence", "against", "tokens", *SERIES]
"""What names a case."""

RUNS_SHOWN = 20

CASES_SHOWN = 40
"""Longer lists of cases are folded."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what it says, a smaller second line, a hint, and the outcome that colours it."""

    text: str
    small: str = ""
    hint: str = ""
    outcome: str = "green"


@dataclass(frozen=True)
class Table:
    """A table whose first column is the head of its row."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Picture:
    svg: Markup
    caption: str


@dataclass
class Section:
    """One shape, head map and family of inputs on one GPU."""

    title: str
    id: str
    open: bool
    summary: str
    sentences: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class Gpu:
    """The section of one `gpu_key`."""

    key: str
    id: str
    name: str
    tone: str
    headline: str
    facts: str
    bad: Table | None
    silence: Sequence[str]
    notes: Sequence[str]
    series: Sequence[Section]
    runs: Table
    environment: Sequence[tuple[str, str]]
    command: str


def build(records: Iterable[Record], problems: Iterable[str], references: Iterable[Reference]) -> str:
    """The page.

    Args:
        records: of any number of GPUs, oldest first.
        problems: a line for each file that could not be read.
        references: published figures, shown beside.

    Returns:
        HTML; the same arguments give the same text.
    """
    by_key: dict[str, list[Record]] = {}
    for record in records:
        by_key.setdefault(record.gpu_key, []).append(record)
    published = tuple(references)
    ordered = sorted(by_key.items(), key=lambda item: (item[0].startswith("host-"), item[0]))
    ids = _ids(by_key)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2").render(
        gpus=[_gpu(key, own, ids[key], published) for key, own in ordered],
        problems=tuple(problems),
        references=[_reference(reference) for reference in published],
        colors=figures.SERIES,
        threshold=CHUNKED_MIN_TOKENS,
        most=CASES_SHOWN,
    )


def write_report(root: Path, out: Path | None = None) -> Path:
    """Write the page of a results folder; a page that was there stays whole until the new one replaces it.

    Args:
        root: the results folder.
        out: the file; `<root>/report.html` where None.

    Raises:
        ResultsError: the folder cannot be read, or the file cannot be written.
    """
    loaded = load(root)
    return write(build(loaded.records, loaded.problems, references()), out or root / "report.html")


def write(text: str, out: Path) -> Path:
    """Replace a file by a text, whole or not at all.

    Raises:
        ResultsError: it cannot be done.
    """
    temporary = out.parent / f".{out.name}-{secrets.token_hex(4)}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(out)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise ResultsError(
            f"the report {out} cannot be written: {error.strerror or error}; name another file"
        ) from error
    return out


def _ids(keys: Iterable[str]) -> dict[str, str]:
    """An anchor for each GPU, from its key."""
    found: dict[str, str] = {}
    for key in sorted(keys):
        slug = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-") or "gpu"
        taken = set(found.values())
        found[key] = next(name for name in (slug, *(f"{slug}-{i}" for i in range(2, 10_000))) if name not in taken)
    return found


def _gpu(key: str, records: Sequence[Record], anchor: str, published: Sequence[Reference]) -> Gpu:
    everything = frame(records)
    newest = records[-1]
    shown = _shown(everything, records)
    look = figures.styles(everything["recurrence"])
    places = sorted({tuple(place) for place in shown[SERIES].itertuples(index=False)}, key=_rank)
    series = []
    for number, place in enumerate(places):
        beside = published if place[:2] == _DEFAULT and not key.startswith("host-") else ()
        series.append(
            _section(_at(shown, place), _at(everything, place), place, f"{anchor}-{number}", look, newest, beside)
        )
    missing = _missing(everything, shown)
    silence = _silence(newest, shown, missing)
    bad = shown[shown["outcome"].isin(["red", "inconclusive"])]
    e = newest.environment
    facts = [
        f"run {newest.run_id}",
        _utc(newest.started),
        f"commit {_commit(e.commit, e.dirty)}",
        *([f"driver {e.driver}"] if e.driver else []),
        *([f"CUDA {e.cuda_runtime}"] if e.cuda_runtime else []),
        *([f"CuPy {e.cupy}"] if e.cupy else []),
        words.count(len(records), "run") + " kept",
    ]
    reds = (shown["outcome"] == "red").any() or (missing["outcome"] == "red").any()
    calm = (
        len(shown) > 0
        and (shown["outcome"] == "green").all()
        and newest.status == "complete"
        and not _throttled(newest)
    )
    return Gpu(
        key=key,
        id=anchor,
        name=e.gpu or f"host: {e.cpu}",
        tone="red" if reds else "green" if calm else "amber",
        headline=_headline(newest, shown, missing, _at(shown, places[0]) if places else shown),
        facts=" · ".join(facts),
        bad=_bad(bad) if len(bad) else None,
        silence=silence,
        notes=newest.notes,
        series=series,
        runs=_runs(records),
        environment=_environment(newest),
        command=shlex.join(newest.command),
    )


# Which cases are shown


def _shown(everything: pd.DataFrame, records: Sequence[Record]) -> pd.DataFrame:
    """For each kind and series, the cases of the newest run that has some."""
    order = {record.run_id: place for place, record in enumerate(records)}
    age = everything["run_id"].map(order)
    groups = [everything[column] for column in ("kind", *SERIES)]
    rows = everything[age == age.groupby(groups).transform("max")]
    return rows.drop_duplicates(CASE, keep="last").sort_values("tokens", kind="stable")


def _missing(everything: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """Cases that only runs before the shown ones have, as they were last."""
    last = everything.drop_duplicates(CASE, keep="last")
    known = set(_names(shown))
    return last.loc[[case not in known for case in _names(last)]]


def _names(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows[CASE].fillna("").itertuples(index=False, name=None))


_DEFAULT = (str(Shape()), Shape().head_map)


def _rank(place: tuple[str, ...]) -> tuple[Any, ...]:
    """The default shape first, and the families of inputs in their order."""
    shape, head_map, inputs = place
    families = list(FAMILIES)
    family = families.index(inputs) if inputs in families else len(families)
    return (shape != _DEFAULT[0], head_map != _DEFAULT[1], shape, head_map, family, inputs)


def _at(rows: pd.DataFrame, place: tuple[str, ...]) -> pd.DataFrame:
    return rows[(rows[SERIES] == list(place)).all(axis=1)]


# Words


def _headline(newest: Record, shown: pd.DataFrame, missing: pd.DataFrame, first: pd.DataFrame) -> str:
    """The verdict: what is red, what is green, and where the others beat the baseline."""
    checks, times = shown[shown["kind"] != "speed"], shown[shown["kind"] == "speed"]
    parts = []
    counts = checks["outcome"].value_counts()
    red = checks[checks["outcome"] == "red"]
    if len(red):
        parts.append(f"{len(red):,} of {words.count(len(checks), 'check')} {_are(len(red))} red: {_cases(red, most=4)}")
    elif not len(checks):
        parts.append("No check of accuracy or determinism is stored")
    elif len(checks) == counts.get("green", 0):
        parts.append(f"All {words.count(len(checks), 'check')} {_are(len(checks))} green")
    else:
        green = counts.get("green", 0)
        parts.append(f"{green:,} of {words.count(len(checks), 'check')} {_are(green)} green, none is red")
    parts += [
        f"{counts[outcome]:,} {_are(counts[outcome])} {outcome}"
        for outcome in ("inconclusive", "not measured")
        if outcome in counts
    ]
    withheld = (times["outcome"] == "red").sum()
    if withheld:
        told = f"{words.count(withheld, 'time')} withheld, as a check is red"
        parts.insert(1 if len(red) else 0, told)
    absent = times["outcome"].isin(["inconclusive", "not measured"]).sum()
    if absent:
        parts.append(f"{words.count(absent, 'time')} not measured")
    stale = (missing["outcome"] == "red").sum()
    if stale:
        parts.append(
            f"{words.count(stale, 'case')} red in an earlier run {'was' if stale == 1 else 'were'} not repeated"
        )
    if newest.status == "partial":
        parts.append("the newest run is partial")
    for name, found, rows in _crossings(first):
        last = rows.iloc[-1]
        where = f"{words.ratio(last['ratio'])} times as fast at {words.tokens([last['tokens']])}"
        if found.tokens is not None:
            parts.append(f"{name} wins from {_place(found)} on, {where}")
        else:
            parts.append(f"{name} is {found.reason}, {where}")
    return "; ".join(parts) + "."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _cases(rows: pd.DataFrame, most: int) -> str:
    """Cases by recurrence and kind, with their token counts."""
    groups = [
        f"{name} {kind} at {words.tokens(list(group['tokens']))}"
        for (name, kind), group in rows.groupby(["recurrence", "kind"], sort=False)
    ]
    return words.listed(groups, most)


def _place(found: Crossover) -> str:
    """97 tokens (95–101): the first whole number at which it wins."""
    first, *ends = (
        f"{math.ceil(end):,}" if end is not None else "?" for end in (found.tokens, found.low, found.high)
    )
    return f"{first} tokens ({'–'.join(ends)})"


def _crossings(rows: pd.DataFrame) -> Iterator[tuple[str, Crossover, pd.DataFrame]]:
    """(recurrence, crossover, its ratios) of each recurrence that was timed beside the baseline."""
    speed = rows[rows["kind"] == "speed"].dropna(subset=["median_us", "low_us", "high_us"])
    columns = ["median_us", "low_us", "high_us"]
    base = speed[speed["recurrence"] == figures.baseline(speed["recurrence"])].set_index("tokens")[columns]
    for name, ratios in figures.by_recurrence(figures.ratios(speed)):
        own = speed[speed["recurrence"] == name].set_index("tokens")[columns]
        at = list(ratios["tokens"])
        found = crossover(at, *([tuple(t.loc[n]) for n in at] for t in (base, own)))
        yield name, found, ratios


def _verdict(name: str, found: Crossover, ratios: pd.DataFrame) -> str:
    """The crossover against the dispatch threshold, and what follows."""
    threshold = CHUNKED_MIN_TOKENS
    if found.tokens is None:
        said = f"{name} has no crossover: it is {found.reason}."
        if name == "chunked" and ratios["ratio"].iloc[-1] < 1:
            said += f" The dispatch, once asked for it, would still choose it from {threshold} tokens on."
        return said
    said = f"{name} is the faster one from {_place(found)} on."
    if name != "chunked":
        return said + (" The dispatch rule is for GPUs." if name == "host-chunked" else "")
    start = math.ceil(found.tokens)
    if (found.low or 0) <= threshold <= (found.high or math.inf):
        return f"{said} The dispatch threshold of {threshold} lies in the interval: it fits."
    if start < threshold:
        unused = words.count(threshold - start, "token")
        return (
            f"{said} The dispatch threshold of {threshold} is above the crossover: {unused} of gain "
            f"({start} to {threshold - 1}) {_are(threshold - start)} left unused."
        )
    return (
        f"{said} The dispatch threshold of {threshold} is below the crossover: from {threshold} to "
        f"{start - 1:,} tokens the dispatch chooses the slower one."
    )


def _silence(newest: Record, shown: pd.DataFrame, missing: pd.DataFrame) -> list[str]:
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
            cases = words.count(len(rows), f"{what} case")
            where = words.tokens(list(rows["tokens"]))
            said.append(f"{outcome.capitalize()}: {cases} of {who} at {where}: {reason or 'no reason given'}.")
    if len(missing):
        red = missing[missing["outcome"] == "red"]
        told = f"; red among them: {_cases(red, most=4)}" if len(red) else ""
        cases = words.count(len(missing), "case")
        said.append(f"{cases} of earlier runs {_are(len(missing))} not in the runs shown{told}.")
    accuracy = shown[(shown["kind"] == "accuracy") & shown["outcome"].isin(["green", "red"])]
    truth = accuracy[accuracy["against"] == "fp64"]["tokens"]
    beyond = sorted(set(accuracy["tokens"]) - set(truth))
    if beyond:
        said.append(
            f"No check against FP64 at {words.tokens(beyond)}: there the recurrences are held against each other alone."
        )
    if throttled := _throttled(newest):
        said.append(f"The card reported that its clocks were held back ({throttled}); the times may be too long.")
    if len(shown):
        places = [
            _title(place) for place in sorted({tuple(p) for p in shown[SERIES].itertuples(index=False)}, key=_rank)
        ]
        said.append(
            f"Covered: {'; '.join(places)}. Other head counts, head maps and inputs are not, nor is anything but one "
            "layer and one sequence in FP32 with warm caches."
        )
    return said


def _title(place: Sequence[str]) -> str:
    shape, head_map, inputs = place
    return f"{shape}, {head_map} heads, {inputs} inputs"


def _throttled(record: Record) -> str:
    both: tuple[Clocks, Clocks] = (record.environment.before, record.environment.after)
    return ", ".join(dict.fromkeys(clocks.throttle for clocks in both if clocks.throttle))


def _commit(commit: str | None, dirty: bool | None) -> str:
    return (commit[:10] if commit else "unknown") + (" + changes" if dirty else "")


def _utc(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return text


# Series


def _section(
    shown: pd.DataFrame,
    everything: pd.DataFrame,
    place: tuple[str, ...],
    anchor: str,
    look: Mapping[str, figures.Style],
    newest: Record,
    published: Sequence[Reference],
) -> Section:
    kinds = {kind: shown[shown["kind"] == kind] for kind in ("speed", "accuracy", "determinism")}
    counts = shown["outcome"].value_counts()
    summary = ", ".join(f"{counts[o]} {o}" for o in ("red", "inconclusive", "not measured", "green") if o in counts)
    section = Section(
        _title(place),
        anchor,
        open=place == (*_DEFAULT, next(iter(FAMILIES))) or set(counts.index) != {"green"},
        summary=summary,
    )
    for kind, rows in kinds.items():
        if len(rows) and rows["run_id"].iloc[0] != newest.run_id:
            run = rows.iloc[0]
            section.sentences.append(
                f"The newest run has no {kind} cases here; those shown are of run {run['run_id']}, "
                f"{run['started']:%Y-%m-%d %H:%M} UTC, commit {_commit(run['commit'], run['dirty'] is True)}."
            )
    speed, accuracy = kinds["speed"], kinds["accuracy"]
    section.sentences += [_verdict(*crossing) for crossing in _crossings(shown)]
    if len(speed):
        section.tables.append(_speed(speed))
    if len(accuracy):
        section.tables.append(_accuracy(accuracy))
    if len(kinds["determinism"]):
        section.tables.append(_determinism(kinds["determinism"]))
    beside = _published(published)
    note = " Grey: published figures of another card, for orientation." if beside is not None else ""
    drawn = [
        (
            figures.speedup(speed, look, f"{anchor}-speedup", beside),
            f"The baseline's time over each other recurrence's; above 1 it is faster. Bands: 95 % intervals.{note}",
        ),
        (
            figures.time_per_token(speed, look, f"{anchor}-time", beside),
            f"Time per token, both axes logarithmic.{note}",
        ),
        (
            figures.accuracy(accuracy, look, f"{anchor}-accuracy"),
            "Error: max |difference| / max |reference|. Dotted: the limits.",
        ),
    ]
    history = everything[everything["kind"] == "speed"]
    timed = sorted(set(speed.dropna(subset=["median_us"])["tokens"]))
    if timed:
        short = next((n for n in timed if n >= CHUNKED_MIN_TOKENS), timed[0])
        for tokens in sorted({short, timed[-1]}):
            caption = f"Median time at {tokens:,} tokens, run by run; each panel has its own scale, not from 0."
            drawn.append((figures.history(history, tokens, look, f"{anchor}-history-{tokens}"), caption))
    section.pictures = [Picture(Markup(svg), caption) for svg, caption in drawn if svg]
    return section


def _published(published: Sequence[Reference]) -> pd.DataFrame | None:
    rows = [
        {
            "label": reference.label,
            "recurrence": one.recurrence,
            "tokens": one.tokens,
            **dict.fromkeys(("median_us", "low_us", "high_us"), one.median_us),
        }
        for reference in published
        for one in reference.speed
    ]
    return pd.DataFrame(rows) if rows else None


def _row_of(rows: pd.DataFrame, **wanted: Any) -> Any:
    """The row with these values, or None."""
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return rows.iloc[0] if len(rows) else None


def _speed(rows: pd.DataFrame) -> Table:
    names = figures.ordered(rows["recurrence"])
    base = figures.baseline(names)
    others = [name for name in names if name != base] if base else []
    ratios = figures.ratios(rows)
    limits = rows["limit_us"].notna().any()
    table = []
    for tokens in sorted(set(rows["tokens"])):
        cells = [Cell(f"{tokens:,}")]
        for name in names:
            row = _row_of(rows, tokens=tokens, recurrence=name)
            cells.append(
                _absent(row)
                or Cell(
                    words.duration(row["median_us"]),
                    words.interval(row["low_us"], row["high_us"]),
                    f"{row['samples']:.0f} samples",
                )
            )
        for name in others:
            row = _row_of(ratios, tokens=tokens, recurrence=name)
            if row is None:
                cells.append(Cell(words.ABSENT))
            else:
                ends = f"{words.ratio(row['low'])}–{words.ratio(row['high'])}"
                cells.append(Cell(f"{words.ratio(row['ratio'])}x", ends))
        if limits:
            cells.append(Cell(words.duration(rows[rows["tokens"] == tokens]["limit_us"].max())))
        table.append(cells)
    heads = ["tokens", *names, *(f"{base} / {name}" for name in others), *(["physical limit"] if limits else [])]
    return Table("Speed: median time of a call, below it the 95 % interval", heads, table)


def _absent(row: Any) -> Cell | None:
    """The cell of a case that has no figures."""
    if row is None:
        return Cell(words.ABSENT, hint="no such case in this run")
    if row["kind"] == "speed":
        if pd.isna(row["median_us"]):
            text = "no time" if row["outcome"] == "red" else row["outcome"]
            return Cell(text, hint=row["reason"], outcome=row["outcome"])
    elif row["outcome"] != "red" and row[["error_out", "error_state"]].isna().all():
        return Cell(row["outcome"], hint=row["reason"], outcome=row["outcome"])
    return None


def _accuracy(rows: pd.DataFrame) -> Table:
    pairs = {(name, against) for name, against in rows[["recurrence", "against"]].itertuples(index=False)}
    names = figures.ordered(rows["recurrence"])
    ordered = sorted(pairs, key=lambda pair: (pair[1] != "fp64", pair[1], names.index(pair[0])))
    table = []
    for tokens in sorted(set(rows["tokens"])):
        cells = [Cell(f"{tokens:,}")]
        for name, against in ordered:
            row = _row_of(rows, tokens=tokens, recurrence=name, against=against)
            if absent := _absent(row):
                cells.append(absent)
                continue
            both = [words.error(row[c]) if not pd.isna(row[c]) else "not finite" for c in ("error_out", "error_state")]
            rms = " / ".join(words.error(row[column]) for column in ("rms_out", "rms_state"))
            hint = f"RMS {rms}; limit {words.error(row['limit'])}"
            cells.append(
                Cell(" / ".join(both), hint="; ".join(filter(None, (row["reason"], hint))), outcome=row["outcome"])
            )
        table.append(cells)
    heads = [f"{name} vs {'FP64' if against == 'fp64' else against}" for name, against in ordered]
    return Table("Accuracy: error of the output / of the state after the last token", ["tokens", *heads], table)


def _determinism(rows: pd.DataFrame) -> Table:
    table = []
    for name in figures.ordered(rows["recurrence"]):
        for _, row in rows[rows["recurrence"] == name].iterrows():
            measured = row["outcome"] != "not measured"
            table.append(
                [
                    Cell(name),
                    Cell(f"{row['tokens']:,}"),
                    Cell(f"{row['reruns']:.0f}" if measured else words.ABSENT),
                    Cell(f"{row['differing']:.0f}" if measured else words.ABSENT, outcome=row["outcome"]),
                    *(Cell(row[c][:10] or words.ABSENT, hint=row[c]) for c in ("sha256_out", "sha256_state")),
                    Cell(row["reason"] or "the same bits each time", outcome=row["outcome"]),
                ]
            )
    heads = ["recurrence", "tokens", "reruns", "differing", "SHA-256 of out", "SHA-256 of state", "what differed first"]
    return Table("Determinism: reruns whose bits differed from the first run's", heads, table)


# The rest of a GPU's section


def _bad(rows: pd.DataFrame) -> Table:
    """A line for each cause, the checks before the times that they cost."""
    rows = rows.assign(against=rows["against"].fillna("")).sort_values(
        ["outcome", "kind"], key=lambda column: column.map(_LOUDNESS), kind="stable"
    )
    table = []
    for cause, cases in rows.groupby(["outcome", "kind", "recurrence", "against", *SERIES, "reason"], sort=False):
        outcome, kind, name, against, shape, head_map, inputs, reason = map(str, cause)
        table.append(
            [
                Cell(outcome, outcome=outcome),
                Cell(f"{kind} of {name}" + (f" vs {against}" if against else "")),
                Cell(words.listed((f"{number:,}" for number in cases["tokens"]), most=4)),
                Cell(reason),
                Cell(_title((shape, head_map, inputs))),
            ]
        )
    return Table("Cases that are red or inconclusive", ["outcome", "case", "tokens", "reason", "series"], table)


_LOUDNESS = {"red": 0, "inconclusive": 1, "accuracy": 0, "determinism": 1, "speed": 2}


def _runs(records: Sequence[Record]) -> Table:
    table = []
    for record in reversed(records[-RUNS_SHOWN:]):
        e = record.environment
        outcomes = [case.outcome for case in record.cases]
        red = outcomes.count("red")
        other = len(outcomes) - red - outcomes.count("green")
        table.append(
            [
                Cell(_utc(record.started), record.run_id),
                Cell(record.status, outcome="green" if record.status == "complete" else "inconclusive"),
                Cell(f"{red}", outcome="red" if red else "green"),
                Cell(f"{outcomes.count('green')}"),
                Cell(f"{other}", outcome="inconclusive" if other else "green"),
                Cell(
                    e.commit[:10] if e.commit else words.ABSENT,
                    hint=e.commit or "",
                    small="with changes" if e.dirty else "",
                ),
                Cell(e.driver or words.ABSENT),
                Cell(e.cuda_runtime or words.ABSENT),
                Cell(e.cupy or words.ABSENT),
                Cell(record.method.id),
                Cell(shlex.join(record.command)),
            ]
        )
    heads = ["run", "status", "red", "green", "other", "commit", "driver", "CUDA", "CuPy", "method", "command"]
    caption = (
        f"The last {len(table)} of {words.count(len(records), 'run')}" if len(records) > len(table) else "All runs"
    )
    return Table(f"{caption}, newest first", heads, table)


def _environment(record: Record) -> list[tuple[str, str]]:
    """Names and values of the run's environment and method."""
    pairs = [("started", record.started), ("finished", record.finished)]
    for part, values in (("method", record.method), ("", record.environment)):
        for name, value in msgspec.structs.asdict(values).items():
            label = f"{part} {name}".strip().replace("_", " ")
            if isinstance(value, Clocks):
                known = {
                    k.replace("_", " "): v for k, v in msgspec.structs.asdict(value).items() if v not in (None, "")
                }
                value = ", ".join(f"{k} {v}" for k, v in known.items()) or None
                label = f"clocks {label}"
            pairs.append(
                (
                    label,
                    words.ABSENT
                    if value is None
                    else {True: "yes", False: "no"}.get(value, str(value))
                    if isinstance(value, bool)
                    else str(value),
                )
            )
    return pairs


def _reference(reference: Reference) -> dict[str, Any]:
    """A published set with its tables."""
    names = figures.ordered(one.recurrence for one in reference.speed)
    speed = _published([reference])
    tables = []
    if speed is not None:
        ratios = figures.ratios(speed)
        base = figures.baseline(names)
        others = [name for name in names if name != base] if base else []
        rows = []
        for tokens in sorted(set(speed["tokens"])):
            cells = [Cell(f"{tokens:,}")]
            for name in names:
                row = _row_of(speed, tokens=tokens, recurrence=name)
                cells.append(Cell(words.ABSENT if row is None else words.duration(row["median_us"])))
            for name in others:
                row = _row_of(ratios, tokens=tokens, recurrence=name)
                cells.append(Cell(words.ABSENT if row is None else f"{words.ratio(row['ratio'])}x"))
            rows.append(cells)
        tables.append(Table("Speed", ["tokens", *names, *(f"{base} / {name}" for name in others)], rows))
    if reference.accuracy:
        accuracy = pd.DataFrame([msgspec.structs.asdict(one) for one in reference.accuracy])
        accuracy = accuracy.assign(
            kind="accuracy", outcome="green", reason="", rms_out=None, rms_state=None, limit=None
        )
        tables.append(_accuracy(accuracy))
    return {"label": reference.label, "gpu": reference.gpu, "source": reference.source, "tables": tables}
