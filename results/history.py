"""What is stored, as tables: filtered, written to files and read back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from results import series
from results.accepted import check_acceptances
from results.frame import TIME, frame, type_of, typed
from results.index import KINDS, joined
from results.store import ResultsError, read_bytes, replace_bytes

FORMATS = ("csv", "json", "parquet")


@dataclass(frozen=True)
class Filter:
    """Which runs and cases are meant; what is empty or None does not choose.

    Attributes:
        gpu_key, method_id, night, status, driver: as in the record.
        commit: how it begins.
        since, until: UTC; the first is meant, the last is not.
        kinds: accuracy, determinism, speed.
        recurrences: names.
        tokens: T.
        last: how many runs, the newest, of each card.
    """

    gpu_key: str | None = None
    method_id: str | None = None
    night: str | None = None
    status: str | None = None
    driver: str | None = None
    commit: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    kinds: Sequence[str] = KINDS
    recurrences: Sequence[str] = ()
    tokens: Sequence[int] = ()
    last: int | None = None


def moment(text: str, option: str) -> datetime:
    """A date, or a date and time, in UTC unless it says otherwise.

    Raises:
        ResultsError: it is neither.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ResultsError(f"{option} is {text!r}; a date such as {date.today()} is wanted") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _chosen(runs: pd.DataFrame, wanted: Filter) -> pd.DataFrame:
    keep = pd.Series(True, index=runs.index)
    for column in ("method_id", "night", "status", "driver"):
        if (value := getattr(wanted, column)) is not None:
            keep &= runs[column] == value
    if wanted.commit is not None:
        keep &= runs["commit"].fillna("").astype(str).str.startswith(wanted.commit)
    if wanted.since is not None:
        keep &= runs["started"] >= wanted.since
    if wanted.until is not None:
        keep &= runs["started"] < wanted.until
    found = runs[keep]
    return found if wanted.last is None else found.iloc[max(len(found) - wanted.last, 0) :]


def listed(root: Path, wanted: Filter) -> pd.DataFrame:
    """The runs that are meant, oldest first, columns `series.RUN_FACTS`; see `results.series` on its `attrs`."""
    found, said, notes = series.opened(root, wanted.gpu_key)
    parts = [_chosen(one.runs, wanted) for one in found]
    table = joined(parts) if parts else series.runs(root, "none")
    table = table.sort_values(["started", "run_id"], kind="stable", ignore_index=True)
    table.attrs |= {"problems": said, "notes": notes}
    return table


def exported(root: Path, wanted: Filter) -> pd.DataFrame:
    """The cases that are meant, card by card, oldest first, columns as of `results.frame.frame`."""
    found, said, notes = series.opened(root, wanted.gpu_key)
    parts = []
    for one in found:
        cases = one.cases(wanted.method_id, wanted.kinds)
        keep = cases["run_id"].isin(_chosen(one.runs, wanted)["run_id"])
        if wanted.recurrences:
            keep &= cases["recurrence"].isin(wanted.recurrences)
        if wanted.tokens:
            keep &= cases["tokens"].isin(wanted.tokens)
        parts.append(cases[keep])
    table = joined(parts) if parts else frame([])
    table = table.reset_index(drop=True)
    table.attrs = {"problems": said, "notes": notes}
    return table


# Files


def encode(table: pd.DataFrame, form: str) -> bytes:
    """A table as CSV, JSON (a list of rows) or Parquet, with every digit; `decode` gives it back.

    In CSV an empty text is the same as a missing one.

    Raises:
        ResultsError: the format is unknown, or Parquet's library is missing.
    """
    table = table.copy(deep=False)
    table.attrs = {}
    if form == "csv":
        return table.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S.%f%z").encode()
    if form == "json":
        return _json(table)
    if form == "parquet":
        out = io.BytesIO()
        try:
            table.to_parquet(out, index=False)
        except ImportError:
            raise ResultsError(f"--format is 'parquet': {_NO_PARQUET}") from None
        return out.getvalue()
    raise ResultsError(f"--format is {form!r}; one of {', '.join(FORMATS)} is wanted")


_NO_PARQUET = "it needs pyarrow; pip install 'gdn-bench[parquet]', or export as csv or json"


def _json(table: pd.DataFrame) -> bytes:
    columns: list[list[Any]] = []
    for name in table.columns:
        values = table[name]
        if str(values.dtype).startswith("datetime"):
            values = values.dt.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
        column = values.astype("object").tolist()
        columns.append([None if missing else value for value, missing in zip(column, values.isna(), strict=True)])
    names = [str(name) for name in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.encode(rows) if rows else b"[]"


def decode(data: bytes, form: str) -> pd.DataFrame:
    """The table that `encode` wrote, with the types of its columns.

    Raises:
        ResultsError: the format is unknown, or Parquet's library is missing.
    """
    if form == "csv":
        raw = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, na_values=[""])
    elif form == "json":
        raw = pd.DataFrame(msgspec.json.decode(data), dtype="object")
    elif form == "parquet":
        try:
            raw = pd.read_parquet(io.BytesIO(data))
        except ImportError:
            raise ResultsError(_NO_PARQUET) from None
    else:
        raise ResultsError(f"--format is {form!r}; one of {', '.join(FORMATS)} is wanted")
    return typed({str(name): _values(raw[name]) for name in raw.columns})


def _values(column: pd.Series) -> list[object]:
    """Values of a column as `typed` wants them; a text in place of a number is one."""
    kind = type_of(str(column.name))
    values = column.astype("object").where(column.notna(), None).tolist()
    if kind == TIME:
        return [None if value is None else str(value) for value in values]
    read = {"float64": float, "Int64": lambda v: int(float(v)), "boolean": lambda v: str(v) == "True"}
    return [None if v is None else read[kind](v) if kind in read else v for v in values]  # type: ignore[operator]


def write(table: pd.DataFrame, out: Path, form: str | None = None) -> Path:
    """Write a table, whole or not at all; the format is that of the file's name where it is not given.

    Raises:
        ResultsError: the format is unknown, or the file cannot be written.
    """
    return replace_bytes(encode(table, form or out.suffix[1:] or "csv"), out, "export", "name another file with --out")


# Whether all is well


def check(root: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read every stored byte again: (the runs, a line for each thing that is wrong).

    The index only looks at the size, the time and the inode of a file; this finds what changed behind their backs.
    """
    table = series.runs(root)
    said = list(table.attrs["problems"])
    for run in table.itertuples():
        try:
            data = read_bytes(root, str(run.gpu_key), str(run.run_id))
        except (ResultsError, OSError) as error:
            said.append(f"{root / str(run.file)}: {error}")
            continue
        if blake2b(data, digest_size=16).hexdigest() != run.digest:
            said.append(
                f"{root / str(run.file)}: its bytes changed and its size, time and inode did not; restore it from a "
                f"copy, or remove {root / 'index'} if it is right"
            )
    return table, said + check_acceptances(root)
