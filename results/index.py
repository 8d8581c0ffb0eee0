"""A cache of what the records say, `<root>/index/<gpu_key>/<shard>.index`, so that years of runs are read fast.

The records are the truth, and this is rebuilt from them: a shard holds what the files of one year, or of one pack,
said when they had the size, the time and the inode that it kept of each. A file that differs is read anew; a shard
that is missing, of another version or broken is written anew. Nothing is ever read from here that a file does not say.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from results import packs
from results.builds import packed
from results.clocks import held_back
from results.faults import faults
from results.frame import CASE_COLUMNS, RUN_COLUMNS, TIME, frame, type_of, typed
from results.schema import SCHEMA, Record
from results.store import ResultsError, loose_names, parse, read_file, replace_bytes, unpack

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

PLACES = ("run", "place")
"""Columns of a case that say where it stands: its run's row, and its place in the record."""

VERSION = f"3-{SCHEMA}-{zlib.crc32(repr((RUN_FACTS, CASE_COLUMNS)).encode()):08x}"
"""Of what a shard holds; with another one it is written anew."""

_MAGIC = b"gdn-index\n"


class _Column(msgspec.Struct, array_like=True):
    """A column's bytes, see `_stored_as`: floats, microseconds, places, or codes of `texts`; -1 is a missing text."""

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
        packed: a row per run, columns `RUN_FACTS` if there is any; `all_runs` unpacks them.
        cases: a row per case of each kind: `run`, its row in `runs`; `place`, its place in the record; and the columns
            that the kind fills. They are unpacked by `rows`.
    """

    stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    packed: _Table = field(default_factory=lambda: _Table(0, {}))
    cases: dict[str, _Table] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of runs."""
        return self.packed.rows

    @property
    def runs(self) -> pd.DataFrame:
        return all_runs([self])

    def rows(self, kind: str, only: Collection[str] | None = None, of: np.ndarray | None = None) -> pd.DataFrame | None:
        """The cases of a kind, with all columns or, faster, some of them; None where there are none.

        Args:
            kind: one of `KINDS`.
            only: these columns, beside `run` and `place`.
            of: only the cases of these runs, a mask.
        """
        if kind not in self.cases:
            return None
        table = self.cases[kind]
        if of is None or of.all():
            return _unpack(table, only)
        return _unpack(table, only, np.flatnonzero(of[_values("run", table.columns["run"])]))


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


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _tables(read: Sequence[tuple[str, bytes, Record]]) -> tuple[_Table, dict[str, _Table]]:
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
    return _pack(runs), cases


# Tables as bytes


def _pack(table: pd.DataFrame) -> _Table:
    columns = {}
    for name in table.columns:
        own, texts = table[name], None
        kind = str(own.dtype)
        if kind in ("object", "boolean"):
            values, unique = pd.factorize(own.astype("object"))
            texts = [str(text) for text in unique]
        elif kind.startswith("datetime"):
            values = own.to_numpy("datetime64[us]")
        else:
            values = own.to_numpy(float, na_value=np.nan)
        columns[name] = _Column(memoryview(values.astype(_stored_as(name, texts)).tobytes()), texts)
    return _Table(len(table), columns)


def _stored_as(name: str, texts: Sequence[str] | None) -> str:
    """The type of a column's numbers: short ones are read faster where there are millions."""
    if texts is not None:
        return "<i1" if len(texts) < 128 else "<i4"
    if name in PLACES:
        return "<i4"
    return "<i8" if type_of(name) == TIME else "<f8"


def _unpack(table: _Table, only: Collection[str] | None = None, at: np.ndarray | None = None) -> pd.DataFrame:
    """The rows of a table, or those at some places."""
    wanted = [name for name in table.columns if only is None or name in only or name in PLACES]
    found = {name: _column(name, _values(name, table.columns[name], at)) for name in wanted}
    return pd.DataFrame(found, index=pd.RangeIndex(table.rows if at is None else len(at)))


def all_runs(parts: Sequence[Shard]) -> pd.DataFrame:
    """The runs of several shards, one after another: faster than to unpack each and to join the frames."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return no_runs()
    found = {
        name: _column(name, np.concatenate([_values(name, part.packed.columns[name]) for part in parts]))
        for name in RUN_FACTS
    }
    return pd.DataFrame(found, index=pd.RangeIndex(sum(map(len, parts))))


def _values(name: str, column: _Column, at: np.ndarray | None = None) -> np.ndarray:
    """What a column holds, or holds at some places, with NaN or None for what is missing."""
    data = np.frombuffer(column.data, _stored_as(name, column.texts))
    data = data if at is None else data[at]
    if column.texts is not None:
        texts: list[object] = (
            [text == "True" for text in column.texts] if type_of(name) == "boolean" else [*column.texts]
        )
        known = np.empty(len(texts) + 1, object)
        known[:-1], known[-1] = texts, None
        return np.asarray(known[data])
    return data.astype("datetime64[us]") if type_of(name) == TIME else data


def _column(name: str, values: np.ndarray) -> Any:
    """The values as a column of the type that the name has."""
    kind = type_of(name)
    if name in PLACES:
        return values.astype(np.int64)
    if kind == "Int64":
        missing = np.isnan(values)
        return pd.arrays.IntegerArray(np.where(missing, 0, values).astype(np.int64), missing)
    if kind == TIME:
        return pd.Series(values).dt.tz_localize("UTC")
    if kind == "float64":
        return values
    found = pd.Series(values, dtype="object")
    return found.astype("boolean") if kind == "boolean" else found


def encode(shard: Shard) -> bytes:
    """A shard as bytes, with a checksum."""
    tables = {"runs": shard.packed, **shard.cases}
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
    return Shard(stored.stamps, stored.problems, stored.tables.pop("runs"), stored.tables)


# Shards and files


def _stamps(folder: Path, names: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """The stamp of each file that is still there."""
    found, before = {}, f"{folder}/"
    for name in names:
        try:
            one = os.stat(before + name)
        except OSError:
            continue
        found[name] = (one.st_size, one.st_mtime_ns, one.st_ino)
    return found


def shards(root: Path, folder: Path, notes: list[str], problems: list[str]) -> list[Shard]:
    """What is stored of one GPU: a shard for each year of loose files, then one for each pack.

    Args:
        root: the results folder.
        folder: the GPU's.
        notes: gets a line for what had to be written anew, and why.
        problems: gets a line for each file that cannot be read, with the mend.
    """
    place, anew = root / "index" / folder.name, dict[str, list[int]]()
    years: dict[str, list[str]] = {}
    for name in loose_names(folder, problems):
        years.setdefault(name[:4], []).append(name)
    of_years = [(place / f"loose-{year}.index", names) for year, names in sorted(years.items())]
    found = [_current(kept, folder, names, _loose, anew, notes) for kept, names in of_years]
    # Packs are looked for last: a file that has just left its place is in one of them.
    of_packs = [(place / f"{pack.stem}.index", [pack.name]) for pack in packs.packs(folder)]
    found += [_current(kept, folder, names, _packed, anew, notes) for kept, names in of_packs]
    for why, counts in anew.items():
        notes.append(f"the index of {folder.name} was built anew from {sum(counts):,} files: {why}")
    for shard in found:
        problems += [f"{folder / name}: {why}" for name, why in shard.problems.items()]
    return found


_NONE = "there was none"


def _current(
    kept: Path, folder: Path, files: Sequence[str], read: Any, anew: dict[str, list[int]], notes: list[str]
) -> Shard:
    """The shard as its files are now, named in their folder; what changed is read and written."""
    shard, why = Shard(), ""
    try:
        shard = decode(kept.read_bytes())
    except FileNotFoundError:
        why = _NONE
    except (OSError, ValueError) as error:
        why = f"{kept.name} was {error.strerror if isinstance(error, OSError) else error}"
    stamps = _stamps(folder, files)
    if len(stamps) == len(files) and stamps == shard.stamps:
        return shard
    stale = [name for name in files if name not in stamps or shard.stamps.get(name) != stamps[name]]
    gone = shard.stamps.keys() - stamps.keys()
    if not why and (changed := [name for name in stale if name in shard.stamps]):
        why = f"{len(changed)} of its files changed, first {changed[0]}"
    shard = _kept(shard, {*stale} | gone)
    shard = _joined(shard, read([folder / name for name in stale], stamps))
    if why and (why != _NONE or len(files) > 1):  # the first run of a year is no rebuild, nor is a new pack
        anew.setdefault(why, []).append(len(shard.stamps))
    try:
        replace_bytes(encode(shard), kept, "index", "the records are read each time until it can", sync=False)
    except ResultsError as error:
        notes.append(str(error))
    return shard


def _kept(shard: Shard, without: set[str]) -> Shard:
    """The shard without some files."""
    runs = shard.runs
    names = runs["file"].map(lambda file: str(file).split("/")[2])
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
        _pack(runs[stay].reset_index(drop=True)),
        cases,
    )


def _joined(first: Shard, second: Shard) -> Shard:
    stamps, problems = first.stamps | second.stamps, first.problems | second.problems
    if not len(first):
        return Shard(stamps, problems, second.packed, second.cases)
    cases = {}
    for kind in first.cases.keys() | second.cases.keys():
        later = second.rows(kind)
        parts = [first.rows(kind), None if later is None else later.assign(run=later["run"] + len(first))]
        cases[kind] = _pack(joined([part for part in parts if part is not None]))
    return Shard(stamps, problems, _pack(joined([first.runs, second.runs])), cases)


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
    shard.packed, shard.cases = _tables(read)
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
    shard.packed, shard.cases = _tables(read)
    return shard
