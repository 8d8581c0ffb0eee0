"""The report's tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from reports import cases, figures, words
from results.reference import Reference
from results.schema import Clocks, Record

RUNS_SHOWN = 20


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


def speed_table(rows: pd.DataFrame) -> Table:
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
                    row["outcome"],
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


def accuracy_table(rows: pd.DataFrame) -> Table:
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


def determinism_table(rows: pd.DataFrame) -> Table:
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


def bad_table(rows: pd.DataFrame) -> Table:
    """A line for each cause, the checks before the times that they cost."""
    rows = rows.assign(against=rows["against"].fillna("")).sort_values(
        ["outcome", "kind"], key=lambda column: column.map(_LOUDNESS), kind="stable"
    )
    table = []
    for cause, alike in rows.groupby(["outcome", "kind", "recurrence", "against", *cases.SERIES, "reason"], sort=False):
        outcome, kind, name, against, shape, head_map, inputs, reason = map(str, cause)
        table.append(
            [
                Cell(outcome, outcome=outcome),
                Cell(f"{kind} of {name}" + (f" vs {against}" if against else "")),
                Cell(words.listed((f"{number:,}" for number in alike["tokens"]), most=4)),
                Cell(reason),
                Cell(cases.title((shape, head_map, inputs))),
            ]
        )
    return Table("Cases that are red or inconclusive", ["outcome", "case", "tokens", "reason", "series"], table)


_LOUDNESS = {"red": 0, "inconclusive": 1, "accuracy": 0, "determinism": 1, "speed": 2}


def runs_table(records: Sequence[Record], total: int) -> Table:
    """The newest runs, of `total` that there are."""
    table = []
    for record in reversed(records[-RUNS_SHOWN:]):
        e = record.environment
        outcomes = [case.outcome for case in record.cases]
        red = outcomes.count("red")
        other = len(outcomes) - red - outcomes.count("green")
        table.append(
            [
                Cell(words.utc(record.started), record.run_id),
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
    caption = f"The last {len(table)} of {words.count(total, 'run')}" if total > len(table) else "All runs"
    return Table(f"{caption}, newest first", heads, table)


def environment_rows(record: Record) -> list[tuple[str, str]]:
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


def published_speed(published: Sequence[Reference]) -> pd.DataFrame | None:
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


def published_tables(reference: Reference) -> dict[str, Any]:
    """A published set with its tables."""
    names = figures.ordered(one.recurrence for one in reference.speed)
    speed = published_speed([reference])
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
        tables.append(accuracy_table(accuracy))
    return {"label": reference.label, "gpu": reference.gpu, "source": reference.source, "tables": tables}


def _absent(row: Any) -> Cell | None:
    """The cell of a case that has no figures."""
    if row is None:
        return Cell(words.ABSENT, hint="no such case in this run")
    if row["kind"] == "speed":
        if pd.isna(row["median_us"]):
            text = "no time" if row["outcome"] == "red" else row["outcome"]
            return Cell(text, hint=row["reason"], outcome=row["outcome"])
    elif row["outcome"] != "red" and pd.isna(row["error_out"]) and pd.isna(row["error_state"]):
        return Cell(row["outcome"], hint=row["reason"], outcome=row["outcome"])
    return None


def _row_of(rows: pd.DataFrame, **wanted: Any) -> Any:
    """The row with these values, or None."""
    # One mask: to cut the wide frame down column by column takes ten times as long.
    fits = np.ones(len(rows), bool)
    for column, value in wanted.items():
        fits &= (rows[column] == value).to_numpy(dtype=bool, na_value=False)
    return rows.iloc[int(fits.argmax())] if fits.any() else None
