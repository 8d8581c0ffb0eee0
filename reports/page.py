"""The report: one HTML file that loads nothing, a section for each GPU.

A section shows the newest run. A kind of case that the newest run has none of is taken from the newest run that has
some, and the page says so; a table never mixes runs, nor shapes, head maps or families of inputs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from kernels.dispatch import CHUNKED_MIN_TOKENS
from kernels.inputs import FAMILIES
from reports import cases, figures, measured, tables, verdict, words
from reports.measuring import measuring
from results import series
from results.clocks import held_back
from results.frame import frame
from results.reference import Reference, references
from results.schema import Record
from results.store import read, replace_file

TIMES = ("run_id", "started", "method_id", "driver", "cuda_runtime", "recurrence", "tokens", *cases.SERIES)
TIMES += ("median_us", "low_us", "high_us")
"""What the history of the times needs."""

RECORDS_READ = 40
"""Of a longer history, so many of the newest records are read whole; what the page shows of measuring is of them."""

CASES_SHOWN = 40
"""Longer lists of cases are folded."""


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
    tables: list[tables.Table] = field(default_factory=list)
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
    bad: tables.Table | None
    silence: Sequence[str]
    notes: Sequence[str]
    series: Sequence[Section]
    measuring: Section | None
    runs: tables.Table
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
    return page([Stored.of(own) for own in _by_key(records)], problems, references)


def _by_key(records: Iterable[Record]) -> list[list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.gpu_key, []).append(record)
    return [*found.values()]


@dataclass(frozen=True)
class Stored:
    """What the page needs of one GPU's history.

    Attributes:
        key: its `gpu_key`.
        runs: the names of all runs, oldest first.
        records: the newest of them, whole, oldest first: those whose measuring is shown.
        newest: the cases of all runs, or the newest of each case.
        times: all speed cases, columns `TIMES`.
    """

    key: str
    runs: Sequence[str]
    records: Sequence[Record]
    newest: pd.DataFrame
    times: pd.DataFrame

    @classmethod
    def of(cls, records: Sequence[Record]) -> Stored:
        """From all records of a GPU, oldest first."""
        table = frame(records)
        runs = [record.run_id for record in records]
        return cls(records[0].gpu_key, runs, records, table, table[table["kind"] == "speed"])


def stored(root: Path) -> tuple[list[Stored], tuple[str, ...], tuple[str, ...]]:
    """What a results folder holds, out of the index: (GPU by GPU, problems, notes); see `results.series`.

    Only the newest records are read whole, and the newest one that kept its alternations.

    Raises:
        ResultsError: the folder cannot be read, or a record that was just there.
    """
    found, problems, notes = series.opened(root)
    gpus = []
    for one in found:
        if not len(one.runs):
            continue
        names = [str(name) for name in one.runs["run_id"]]
        whole = names[-RECORDS_READ:]
        measured = one.runs[one.runs["aa_least"].notna()]["run_id"]
        if len(measured) and measured.iloc[-1] not in whole:
            whole.insert(0, str(measured.iloc[-1]))
        records = [read(root, one.gpu_key, name) for name in whole]
        gpus.append(
            Stored(one.gpu_key, names, records, one.cases(newest=True), one.cases(kinds=("speed",), columns=TIMES))
        )
    return gpus, problems, notes


def page(gpus: Iterable[Stored], problems: Iterable[str], references: Iterable[Reference]) -> str:
    """The page of what is stored; the arguments are those of `build`."""
    by_key = {one.key: one for one in gpus}
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
        gpus=[_gpu(own, ids[key], published) for key, own in ordered],
        problems=tuple(problems),
        references=[tables.published_tables(reference) for reference in published],
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
    return report(root, out)[0]


def report(root: Path, out: Path | None = None) -> tuple[Path, tuple[str, ...], tuple[str, ...], int]:
    """The same; returns (the page, problems, notes, how many runs there are)."""
    gpus, problems, notes = stored(root)
    path = write(page(gpus, problems, references()), out or root / "report.html")
    return path, problems, notes, sum(len(one.runs) for one in gpus)


def write(text: str, out: Path) -> Path:
    """Replace a file by a text, whole or not at all.

    Raises:
        ResultsError: it cannot be done.
    """
    return replace_file(text, out, "report", "name another file")


def _ids(keys: Iterable[str]) -> dict[str, str]:
    """An anchor for each GPU, from its key."""
    found: dict[str, str] = {}
    for key in sorted(keys):
        slug = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-") or "gpu"
        taken = {"published-figures", *found.values()}
        found[key] = next(name for name in (slug, *(f"{slug}-{i}" for i in range(2, 10_000))) if name not in taken)
    return found


def _gpu(own: Stored, anchor: str, published: Sequence[Reference]) -> Gpu:
    key, records, everything = own.key, own.records, own.newest
    newest = records[-1]
    shown = cases.newest_of_each(everything, own.runs)
    look = figures.styles(everything["recurrence"])
    places = cases.places(shown)
    sections = []
    for number, place in enumerate(places):
        beside = published if place[:2] == cases.DEFAULT and not key.startswith("host-") else ()
        both = (cases.at(shown, place), cases.at(own.times, place))
        sections.append(_section(*both, place, f"{anchor}--{number}", look, newest, beside))
    missing = cases.not_repeated(everything, shown)
    silence = verdict.silence(newest, shown, missing)
    bad = shown[shown["outcome"].isin(["red", "inconclusive"])]
    e = newest.environment
    facts = [
        f"run {newest.run_id}",
        words.utc(newest.started),
        f"commit {words.commit(e.commit, e.dirty)}",
        *([f"driver {e.driver}"] if e.driver else []),
        *([f"CUDA {e.cuda_runtime}"] if e.cuda_runtime else []),
        *([f"CuPy {e.cupy}"] if e.cupy else []),
        words.count(len(own.runs), "run") + " kept",
    ]
    reds = (shown["outcome"] == "red").any() or (missing["outcome"] == "red").any()
    calm = (
        len(shown) > 0 and (shown["outcome"] == "green").all() and newest.status == "complete" and not held_back(newest)
    )
    return Gpu(
        key=key,
        id=anchor,
        name=e.gpu or f"host: {e.cpu}",
        tone="red" if reds else "green" if calm else "amber",
        headline=verdict.headline(newest, shown, missing, cases.at(shown, places[0]) if places else shown),
        facts=" · ".join(facts),
        bad=tables.bad_table(bad) if len(bad) else None,
        silence=silence,
        notes=newest.notes,
        series=sections,
        measuring=_measuring(records, f"{anchor}--measuring", len(own.runs)),
        runs=tables.runs_table(records, len(own.runs)),
        environment=tables.environment_rows(newest),
        command=shlex.join(newest.command),
    )


def _measuring(records: Sequence[Record], anchor: str, total: int) -> Section | None:
    """How good the measurement was: open where an alternation was inconclusive."""
    part = f" The newest {len(records)} of {words.count(total, 'run')}." if total > len(records) else ""
    found = measuring(records)
    if found is None or found.quality is None:
        return None
    doubtful = sum(row[-1].outcome != "green" for row in found.quality.rows)
    summary = (
        f"{doubtful} of {len(found.quality.rows)} alternations are inconclusive" if doubtful else "within its bounds"
    )
    drawn = [
        (
            measured.aa(records, found.run_id, f"{anchor}-aa"),
            "The baseline measured twice under two names, with the 95 % interval. On a GPU, beyond the dotted lines "
            f"nothing is judged. Grey: other runs.{part}",
        ),
        (
            measured.canaries(records, f"{anchor}-canaries"),
            f"Fixed work before and after each run's times: where it moves, the machine did.{part}",
        ),
    ]
    return Section(
        "How good the measurement was",
        anchor,
        open=bool(doubtful),
        summary=f"{summary}; cold times, host times and limits",
        sentences=found.sentences,
        tables=[found.quality, *found.beside],
        pictures=[Picture(Markup(svg), caption) for svg, caption in drawn if svg],
    )


def _section(
    shown: pd.DataFrame,
    history: pd.DataFrame,
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
        cases.title(place),
        anchor,
        open=place == (*cases.DEFAULT, next(iter(FAMILIES))) or set(counts.index) != {"green"},
        summary=summary,
    )
    older = shown[shown["run_id"] != newest.run_id]
    for run_id, rows in older.groupby("run_id", sort=False):
        run = rows.iloc[0]
        section.sentences.append(
            f"The newest run has no {words.listed(rows['kind'].unique())} cases here; those shown are of run {run_id}, "
            f"{run['started']:%Y-%m-%d %H:%M} UTC, commit {words.commit(run['commit'], run['dirty'] is True)}."
        )
    speed, accuracy = kinds["speed"], kinds["accuracy"]
    section.sentences += [verdict.crossing(*crossing) for crossing in verdict.crossings(shown)]
    if len(speed):
        section.tables.append(tables.speed_table(speed))
    if len(accuracy):
        section.tables.append(tables.accuracy_table(accuracy))
    if len(kinds["determinism"]):
        section.tables.append(tables.determinism_table(kinds["determinism"]))
    beside = tables.published_speed(published)
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
    timed = sorted(set(speed.dropna(subset=["median_us"])["tokens"]))
    if timed:
        short = next((n for n in timed if n >= CHUNKED_MIN_TOKENS), timed[0])
        for tokens in sorted({short, timed[-1]}):
            caption = f"Median time at {tokens:,} tokens, run by run; each panel has its own scale, not from 0."
            if history["run_id"].nunique() > figures.MOST_POINTS:
                caption += (
                    " A point is the median of consecutive runs, the band goes from their least to their greatest."
                )
            drawn.append((figures.history(history, tokens, look, f"{anchor}-history-{tokens}"), caption))
    section.pictures = [Picture(Markup(svg), caption) for svg, caption in drawn if svg]
    return section
