"""Compaction: old records move into packs, byte for byte (see `results.packs`), so that no figure is lost.

At every moment each record is in its own file, in a pack that was written, read back and compared, or in both: a
file is removed only after its bytes were found in such a pack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from results import packs, series
from results.store import RESTORE, ResultsError, gpu_folders, loose, unpack

OLD_S = 86_400.0
"""Age in seconds from which on an unfinished pack is one that a kill has left."""


@dataclass
class Compacted:
    """What a compaction did.

    Attributes:
        packs: those written.
        runs: how many runs' own files were removed, as they are in a pack.
        before, after: bytes of these files, and of the packs written.
        problems: a line for each file that could not be packed or removed.
    """

    packs: list[Path] = field(default_factory=list)
    runs: int = 0
    before: int = 0
    after: int = 0
    problems: list[str] = field(default_factory=list)


def compact(root: Path, before: datetime, gpu_key: str | None = None) -> Compacted:
    """Move the complete records that started before a time into packs, one for each card and year.

    Args:
        root: the results folder.
        before: with a time zone.
        gpu_key: of one card; all of them where None.

    Raises:
        ResultsError: a pack cannot be written; nothing was removed for it.
    """
    done = Compacted()
    for folder in gpu_folders(root, done.problems):
        if gpu_key not in (None, folder.name):
            continue
        doubtful = set[Path]()
        packs.sweep(folder, OLD_S)
        for pack in packs.packs(folder):  # a compaction that was killed has left these
            doubtful |= _clear(pack, done)
        runs = series.runs(root, folder.name)
        done.problems += runs.attrs["problems"]
        old = runs[(runs["status"] == "complete") & (runs["started"] < before)]
        years: dict[str, list[Path]] = {}
        for started, file in zip(old["started"], old["file"], strict=True):
            if (path := root / str(file)).parent == folder and path not in doubtful:
                years.setdefault(f"{started:%Y}", []).append(path)
        for year, files in sorted(years.items()):
            _pack(folder, year, sorted(files), done)
    return done


def _pack(folder: Path, year: str, files: list[Path], done: Compacted) -> None:
    try:
        pack = packs.write(folder, year, files)
    except FileNotFoundError as error:
        done.problems.append(f"{error.filename}: went away while it was packed; compact again once nobody else does")
        return
    except packs.PackError as error:
        raise ResultsError(f"{error}; compact again") from None
    except OSError as error:
        raise ResultsError(
            f"the pack of {year} in {folder} cannot be written: {error.strerror or error}; nothing was removed for it"
        ) from None
    done.packs.append(pack)
    done.after += pack.stat().st_size
    _clear(pack, done)


def _clear(pack: Path, done: Compacted) -> set[Path]:
    """Remove the loose files whose bytes are in the pack; returns those that have other bytes there, which stay."""
    doubtful = set[Path]()
    here = {file.name for file in loose(pack.parent, done.problems)}
    try:
        if here.isdisjoint(packs.names(pack)):
            return doubtful
    except packs.PackError as error:
        done.problems.append(f"{pack}: {error}; {RESTORE}")
        return doubtful
    for name, data in unpack(pack):
        file = pack.parent / name
        if name not in here or isinstance(data, str):
            continue
        try:
            if file.read_bytes() != data:
                done.problems.append(f"{file}: differs from the copy in {pack.name}; keep the right one of the two")
                doubtful.add(file)
                continue
            file.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            done.problems.append(f"{file}: {error.strerror}; it is in {pack.name} as well")
            continue
        done.runs += 1
        done.before += len(data)
    return doubtful
