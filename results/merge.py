"""Merging results folders of several machines: what is new comes in byte for byte, and nothing here is replaced."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from results import packs
from results.accepted import Acceptance
from results.schema import Ceilings, Record
from results.store import (
    DRAFT_SUFFIX,
    RESTORE,
    SUFFIX,
    ResultsError,
    StoredError,
    differs,
    gpu_folders,
    loose,
    parse,
    put,
    read_bytes,
    read_file,
    save,
    unpack,
)


@dataclass
class Merged:
    """What a merge did.

    Attributes:
        added: files that came in.
        same: how many were here already.
        conflicts: a line for each that is here with another content; what is here stayed.
        problems: a line for each that cannot be read; it did not come in.
        notes: a line for each that was left out for a good reason.
    """

    added: list[Path] = field(default_factory=list)
    same: int = 0
    conflicts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _known: dict[Path, set[str]] = field(default_factory=dict, repr=False)

    def known(self, folder: Path) -> set[str]:
        """The runs that a GPU's folder here holds, loose or packed."""
        if folder not in self._known:
            names = [file.name for file in loose(folder, self.problems)]
            for pack in packs.packs(folder):
                try:
                    names += packs.names(pack)
                except packs.PackError as error:
                    raise ResultsError(f"{pack}: {error}; {RESTORE}") from None
            self._known[folder] = {name.removesuffix(SUFFIX).removesuffix(".partial") for name in names}
        return self._known[folder]


def merge(root: Path, sources: Iterable[Path]) -> Merged:
    """Bring in the records, acceptances, ceilings and profiles of other results folders.

    A merge that was stopped is finished by the next one. The sources are only read.

    Args:
        root: the results folder that grows.
        sources: others.

    Raises:
        ResultsError: a source is no results folder, or is the folder itself; or something cannot be written.
    """
    done = Merged()
    folders = list(sources)
    for source in folders:
        if not (source / "history").is_dir():
            raise ResultsError(f"{source} is no results folder: it has no history/; name one that has")
        if source.resolve() == root.resolve():
            raise ResultsError(f"{source} is the results folder itself; name another")
    for source in folders:
        for folder in gpu_folders(source, done.problems):
            for file in loose(folder, done.problems):
                _file(root, file, done)
            for pack in packs.packs(folder):
                _members(root, pack, done)
        for part, kind in (("accepted", Acceptance), ("ceilings", Ceilings), ("profiles", None)):
            _others(root, source, part, kind, done)
    return done


def _file(root: Path, file: Path, done: Merged) -> None:
    try:
        data = read_file(file)
        record = parse(data, file.parent.name, file.name)
    except FileNotFoundError:
        return  # has just ended, or moved into a pack, which comes after
    except (OSError, ResultsError) as error:
        done.problems.append(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
        return
    _record(root, record, data, file, done)


def _record(root: Path, record: Record, data: bytes, file: Path, done: Merged) -> None:
    """Bring in one record, unless it is here."""
    target = root / "history" / record.gpu_key / file.name
    if record.run_id not in done.known(target.parent):
        with suppress(StoredError):  # another merge was faster: compared below
            done.added.append(save(record, root) if record.status == "partial" else put(data, target))
            done.known(target.parent).add(record.run_id)
            return
    here = read_bytes(root, record.gpu_key, record.run_id)
    if here == data:
        done.same += 1
        return
    try:
        known = parse(here, record.gpu_key, _name(here))
    except ResultsError as error:
        done.problems.append(f"{root / 'history' / record.gpu_key}: {record.run_id}: {error}")
        return
    if record.status == "complete" and known.status == "partial":
        done.added.append(put(data, target))
        with suppress(FileNotFoundError):
            (target.parent / f"{record.run_id}{DRAFT_SUFFIX}").unlink()
    elif record.status == "partial" and known.status == "complete":
        done.notes.append(f"{file}: is a draft of a run that is complete here; it was left out")
    elif record.status == "partial" and _later(record, known):
        done.added.append(save(record, root))
    elif record.status == "partial" or record == known:
        done.same += 1
    else:
        done.conflicts.append(f"{file}: {differs(record.run_id)}; what is in {root} stayed")


def _name(data: bytes) -> str:
    """The file name that a record's bytes want."""
    with suppress(msgspec.MsgspecError, KeyError, TypeError):
        raw = msgspec.json.decode(data)
        return str(raw["run_id"]) + (DRAFT_SUFFIX if raw["status"] == "partial" else ".json")
    return ""


def _later(record: Record, known: Record) -> bool:
    return datetime.fromisoformat(record.finished) > datetime.fromisoformat(known.finished)


def _members(root: Path, pack: Path, done: Merged) -> None:
    """Bring in a pack: as it is where nothing of it is here, else the members that are not."""
    key, found, whole = pack.parent.name, [], True
    target = root / "history" / key / pack.name
    with suppress(OSError):
        if target.read_bytes() == pack.read_bytes():
            done.same += len(packs.names(pack))
            return
    for name, data in unpack(pack):
        try:
            if isinstance(data, str):
                raise ResultsError(data)
            found.append((name, data, parse(data, key, name)))
        except ResultsError as error:
            done.problems.append(f"{pack}/{name}: {error}")
            whole = False
            continue
        whole = whole and found[-1][2].run_id not in done.known(target.parent)
    if whole and not target.exists():
        with suppress(StoredError):
            done.added.append(put(pack.read_bytes(), target))
            done.known(target.parent).update(record.run_id for _, _, record in found)
            return
    for name, data, record in found:
        _record(root, record, data, pack / name, done)


def _others(root: Path, source: Path, part: str, kind: type | None, done: Merged) -> None:
    """Bring in the JSON files of another part of a results folder."""
    for file in sorted((source / part).rglob("*.json")):
        if file.name[0] == ".":
            continue
        target = root / file.relative_to(source)
        try:
            data = file.read_bytes()
            msgspec.json.decode(data, type=kind or object)
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            done.problems.append(f"{file}: {error}; {RESTORE.replace('the history', 'the folder')}")
            continue
        if not target.exists():
            done.added.append(put(data, target))
        elif target.read_bytes() == data:
            done.same += 1
        elif part == "ceilings":
            done.notes.append(f"{file}: the card's peak rates are here already, measured another time; those stayed")
        else:
            done.conflicts.append(f"{file}: is here with another content; what is in {root} stayed")
