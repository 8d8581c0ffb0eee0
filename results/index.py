"""A cache of what the records say, `<root>/index/<gpu_key>/<shard>.index`, so that years of runs are read fast.

The records are the truth, and this is rebuilt from them: a shard holds what the files of one year, or of one pack,
said when they had the size, the time and the inode that it kept of each. A file that differs is read anew; a shard
that is missing, of another version or broken is written anew. Nothing is ever read from here that a file does not say.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from results import packs
from results.builds import packed
from results.faults import faults
from results.frame import CASE_COLUMNS, RUN_COLUMNS, frame, type_of, typed
from results.schema import SCHEMA, Record
from results.store import ResultsError, loose, parse, read_file, replace_bytes, unpack
from suite.quality import throttling

RUN_FACTS = (
    *RUN_COLUMNS,
    "finished",
    "schema",
    "nvrtc",
    "builds",
    "launcher",
    "numpy",
    "python",
    "platform",
    "cpu",
    "gpu_uuid",
    "throttle",
    "faults",
    "green",
    "red",
    "inconclusive",
    "not_measured",
    "canary_fma_before_us",
    "canary_fma_after_us",
    "canary_copy_before_us",
    "canary_copy_after_us",
    "aa_least",
    "aa_greatest",
    "command",
    "digest",
    "file",
)
"""The columns of a frame of runs. `builds` are the fingerprints of the compiled kernels (`results.builds`), and
`launcher` that of the code that launches them; older records have none. `throttle` is why the card held its clocks
back; `faults` is what cannot be right in the record (`results.faults`); the canaries are medians; A/A is the least and
the greatest ratio over the run's alternations; `digest` is of the file's bytes; `file` is where it lies under the
results folder."""

KINDS = ("accuracy", "determinism", "speed")
_OUTCOMES = {"green": "green", "red": "red", "inconclusive": "inconclusive", "not measured": "not_measured"}

VERSION = f"1-{SCHEMA}-{zlib.crc32(repr((RUN_FACTS, CASE_COLUMNS)).encode()):08x}"
"""Of what a shard holds; with another one it is written anew."""

_MAGIC = b"gdn-index\n"


class _Column(msgspec.Struct, array_like=True):
    """A column's bytes: floats, microseconds, integers, or codes of `texts`; -1 is a text that is missing."""

    data: memoryview
    texts: list[str] | None = None


class _Table(msgspec.Struct):
    rows: int
    columns: dict[str, _Column]


class _Stored(msgspec.Struct):
    version: str
    stamps: dict[str, tuple[int, int, int]]
    problems: dict[str, str]
    tables: dict[str, _Table]


@dataclass
class Shard:
    """What the files of one shard say.

    Attributes:
        stamps: (size, time in ns, inode) of each file that was read, by its name.
        problems: what is wrong with a file, by its name.
        runs: a row per run, columns `RUN_FACTS`.
        cases: a row per case of each kind: `run`, its row in `runs`; `place`, its place in the record; and the columns
            that the kind fills. They are unpacked by `rows`.
    """

    stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    runs: pd.DataFrame = field(default_factory=lambda: no_runs())  # type: ignore[has-type]
    cases: dict[str, _Table] = field(default_factory=dict)

    def rows(self, kind: str, only: Collection[str] | None = None) -> pd.DataFrame | None:
        """The cases of a kind, with all columns or, faster, some of them; None where there are none."""
        return _unpack(self.cases[kind], only) if kind in self.cases else None


@functools.cache
def no_runs() -> pd.DataFrame:
    """A frame of runs without any."""
    return typed({name: [] for name in RUN_FACTS})


# Rows of records


def run_row(record: Record, digest: str, file: str) -> dict[str, object]:
    """A run's row: what names it, what it ran on, and how it went."""
    e = record.environment
    row: dict[str, object] = {name: getattr(e, name, None) for name in RUN_FACTS}
    row |= {name: getattr(record, name) for name in ("run_id", "status", "started", "finished", "gpu_key", "schema")}
    row |= {"method_id": record.method.id, "night": record.night, "process": record.process}
    row |= {"command": msgspec.json.encode(record.command).decode(), "digest": digest, "file": file}
    row |= {"throttle": held_back(record) or None, "builds": packed(record)}
    row |= {"faults": "; ".join(faults(record)) or None}
    outcomes: list[str] = [case.outcome for case in record.cases]
    row |= {column: outcomes.count(outcome) for outcome, column in _OUTCOMES.items()}
    for one in record.canaries:
        if (name := f"canary_{one.name}_{one.when}_us") in row and one.times.median_ns is not None:
            row[name] = one.times.median_ns / 1000
    ratios = [group.aa_ratio for group in record.groups if group.aa_ratio is not None]
    row |= {"aa_least": min(ratios, default=None), "aa_greatest": max(ratios, default=None)}
    return row


def held_back(record: Record) -> str:
    """Why the card held its clocks back before, in or after the run; empty where it did not."""
    e = record.environment
    told = [clocks.throttle for clocks in (e.before, e.after) if clocks.throttle]
    told += [said for group in record.groups if (said := throttling(group.before, group.after))]
    return ", ".join(dict.fromkeys(told))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _tables(read: Sequence[tuple[str, bytes, Record]]) -> tuple[pd.DataFrame, dict[str, _Table]]:
    """Runs and cases, as in a `Shard`, of (file, its bytes, its record)."""
    rows = [run_row(record, _digest(data), file) for file, data, record in read]
    runs = typed({name: [row[name] for row in rows] for name in RUN_FACTS})
    records = [record for _, _, record in read]
    table = frame(records)[list(CASE_COLUMNS)]
    counts = [len(record.cases) for record in records]
    table.insert(0, "place", np.concatenate([np.arange(n) for n in counts]) if counts else np.empty(0, int))
    table.insert(0, "run", np.repeat(np.arange(len(records)), counts))
    cases = {}
    for kind in KINDS:
        own = table[table["kind"] == kind].drop(columns="kind")
        if len(own):
            cases[kind] = _pack(own.dropna(axis="columns", how="all"))
    return runs, cases


# Tables as bytes


def _pack(table: pd.DataFrame) -> _Table:
    columns = {}
    for name in table.columns:
        values = table[name]
        kind = str(values.dtype)
        if kind == "object" or kind == "boolean":
            codes, texts = pd.factorize(values.astype("object"))
            columns[name] = _Column(memoryview(codes.astype("<i4").tobytes()), [str(text) for text in texts])
        elif kind == "Int64":
            columns[name] = _Column(memoryview(values.to_numpy("<f8", na_value=np.nan).tobytes()))
        elif kind.startswith("datetime"):
            columns[name] = _Column(memoryview(values.to_numpy("datetime64[us]").astype("<i8").tobytes()))
        else:
            columns[name] = _Column(memoryview(values.to_numpy("<f8").tobytes()))
    return _Table(len(table), columns)


def _unpack(table: _Table, only: Collection[str] | None = None) -> pd.DataFrame:
    found: dict[str, Any] = {}
    for name, column in table.columns.items():
        if only is not None and name not in only and name not in ("run", "place"):
            continue
        kind = type_of(name)
        if column.texts is not None:
            codes = np.frombuffer(column.data, "<i4")
            values: list[object] = [text == "True" for text in column.texts] if kind == "boolean" else [*column.texts]
            known = np.empty(len(values) + 1, object)
            known[:-1], known[-1] = values, None
            taken = pd.Series(known[codes], dtype="object")
            found[name] = taken.astype("boolean") if kind == "boolean" else taken
        elif name in ("run", "place"):
            found[name] = np.frombuffer(column.data, "<f8").astype(np.int64)
        elif kind == "Int64":
            numbers = np.frombuffer(column.data, "<f8")
            missing = np.isnan(numbers)
            found[name] = pd.arrays.IntegerArray(np.where(missing, 0, numbers).astype(np.int64), missing)
        elif kind == "float64":
            found[name] = np.frombuffer(column.data, "<f8")
        else:
            found[name] = pd.Series(np.frombuffer(column.data, "<i8").astype("datetime64[us]")).dt.tz_localize("UTC")
    return pd.DataFrame(found, index=pd.RangeIndex(table.rows))


def encode(shard: Shard) -> bytes:
    """A shard as bytes, with a checksum."""
    tables = {"runs": _pack(shard.runs), **shard.cases}
    body = msgspec.msgpack.encode(_Stored(VERSION, shard.stamps, shard.problems, tables))
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def decode(data: bytes) -> Shard:
    """The shard in some bytes.

    Raises:
        ValueError: they are broken, or of another version; the message says which.
    """
    head, body = len(_MAGIC) + 4, memoryview(data)[len(_MAGIC) + 4 :]
    if not body or data[: len(_MAGIC)] != _MAGIC or zlib.crc32(body) != int.from_bytes(data[head - 4 : head], "little"):
        raise ValueError("broken")
    try:
        stored = msgspec.msgpack.decode(body, type=_Stored)
    except msgspec.MsgspecError:
        raise ValueError("of another version") from None
    if stored.version != VERSION:
        raise ValueError("of another version")
    return Shard(stored.stamps, stored.problems, _unpack(stored.tables.pop("runs")), stored.tables)


# Shards and files


def _stamp(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def shards(root: Path, folder: Path, notes: list[str], problems: list[str]) -> list[Shard]:
    """What is stored of one GPU: a shard for each year of loose files, then one for each pack.

    Args:
        root: the results folder.
        folder: the GPU's.
        notes: gets a line for what had to be written anew, and why.
        problems: gets a line for each file that cannot be read, with the mend.
    """
    place, anew = root / "index" / folder.name, dict[str, list[int]]()
    years: dict[str, list[Path]] = {}
    for file in loose(folder, problems):
        years.setdefault(file.name[:4], []).append(file)
    found = [
        _current(place / f"loose-{year}.index", files, _loose, anew, notes) for year, files in sorted(years.items())
    ]
    # Packs are looked for last: a file that has just left its place is in one of them.
    found += [_current(place / f"{pack.stem}.index", [pack], _packed, anew, notes) for pack in packs.packs(folder)]
    for why, counts in anew.items():
        notes.append(f"the index of {folder.name} was built anew from {sum(counts):,} files: {why}")
    for shard in found:
        problems += [f"{folder / name}: {why}" for name, why in shard.problems.items()]
    return found


_NONE = "there was none"


def _current(kept: Path, files: Sequence[Path], read: Any, anew: dict[str, list[int]], notes: list[str]) -> Shard:
    """The shard as its files are now; what changed is read and written."""
    shard, why = Shard(), ""
    try:
        shard = decode(kept.read_bytes())
    except FileNotFoundError:
        why = _NONE
    except (OSError, ValueError) as error:
        why = f"{kept.name} was {error.strerror if isinstance(error, OSError) else error}"
    stamps = {}
    for file in files:
        with suppress(OSError):
            stamps[file.name] = _stamp(file)
    stale = [file for file in files if file.name not in stamps or shard.stamps.get(file.name) != stamps[file.name]]
    gone = shard.stamps.keys() - stamps.keys()
    if not stale and not gone:
        return shard
    if not why and (changed := [file for file in stale if file.name in shard.stamps]):
        why = f"{len(changed)} of its files changed, first {changed[0].name}"
    shard = _kept(shard, {file.name for file in stale} | gone)
    shard = _joined(shard, read(stale, stamps))
    if why and (why != _NONE or len(files) > 1):  # the first run of a year is no rebuild, nor is a new pack
        anew.setdefault(why, []).append(len(shard.stamps))
    try:
        replace_bytes(encode(shard), kept, "index", "the records are read each time until it can", sync=False)
    except ResultsError as error:
        notes.append(str(error))
    return shard


def _kept(shard: Shard, without: set[str]) -> Shard:
    """The shard without some files."""
    names = shard.runs["file"].map(lambda file: str(file).split("/")[2])
    stay = ~names.isin(without).to_numpy(bool)
    place = np.cumsum(stay) - 1
    cases = {}
    for kind in shard.cases:
        rows = _unpack(shard.cases[kind])
        own = rows[stay[rows["run"]]]
        if len(own):
            cases[kind] = _pack(own.assign(run=place[own["run"]]))
    return Shard(
        {name: stamp for name, stamp in shard.stamps.items() if name not in without},
        {name: why for name, why in shard.problems.items() if name.split("/")[0] not in without},
        shard.runs[stay].reset_index(drop=True),
        cases,
    )


def _joined(first: Shard, second: Shard) -> Shard:
    if not len(first.runs):
        return Shard(first.stamps | second.stamps, first.problems | second.problems, second.runs, second.cases)
    cases = {}
    for kind in first.cases.keys() | second.cases.keys():
        later = second.rows(kind)
        parts = [first.rows(kind), None if later is None else later.assign(run=later["run"] + len(first.runs))]
        cases[kind] = _pack(joined([part for part in parts if part is not None]))
    return Shard(
        first.stamps | second.stamps, first.problems | second.problems, joined([first.runs, second.runs]), cases
    )


def joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames below one another; a column that a part lacks is missing there, and has its own type all the same."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part.columns):
        pieces = [part[name] if name in part else absent(name, len(part)) for part in parts]
        columns[name] = pd.concat(pieces, ignore_index=True)
    return pd.DataFrame(columns)


def absent(name: str, rows: int) -> pd.Series:
    """A column of which nothing is known."""
    kind = type_of(name)
    fill = np.nan if kind == "float64" else None if kind == "object" else pd.NA
    return pd.Series(np.full(rows, fill, dtype=float if kind == "float64" else object), dtype=kind)


def _loose(files: Iterable[Path], stamps: Mapping[str, tuple[int, int, int]]) -> Shard:
    """What loose files say; one that cannot be opened has no stamp, so that it is tried again."""
    shard, read = Shard(), []
    for file in files:
        stamp = stamps.get(file.name)
        try:
            data = read_file(file)
            record = parse(data, file.parent.name, file.name)
        except FileNotFoundError:
            continue
        except (OSError, ResultsError) as error:
            shard.problems[file.name] = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            if stamp and isinstance(error, ResultsError):
                shard.stamps[file.name] = stamp
            continue
        if stamp:
            shard.stamps[file.name] = stamp
        read.append((f"history/{file.parent.name}/{file.name}", data, record))
    shard.runs, shard.cases = _tables(read)
    return shard


def _packed(files: Iterable[Path], stamps: Mapping[str, tuple[int, int, int]]) -> Shard:
    """What packs say."""
    shard, read = Shard(), []
    for pack in files:
        for name, found in unpack(pack):
            place = f"{pack.name}/{name}".rstrip("/")
            try:
                if isinstance(found, str):
                    raise ResultsError(found)
                record = parse(found, pack.parent.name, name)
            except ResultsError as error:
                shard.problems[place] = str(error)
                continue
            read.append((f"history/{pack.parent.name}/{place}", found, record))
        if pack.name in stamps:
            shard.stamps[pack.name] = stamps[pack.name]
    shard.runs, shard.cases = _tables(read)
    return shard
