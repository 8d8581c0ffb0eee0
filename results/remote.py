"""A store of records beside the results folder: another folder, or any URL that fsspec knows, such as s3://bucket/path.

Nothing there is ever overwritten, and what was written is read back. A store has the layout of a results folder, so
that it can be copied, merged and read as one.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec

from results.store import ResultsError, decode

STORED = re.compile(
    r"(history|accepted|profiles|ceilings)/(?:[a-z0-9][\w.-]*/)*[A-Za-z0-9][\w.-]*\.(json|zip)", re.ASCII
)
"""What a store holds: evidence. Pages, indices and half-written files are not."""

KEPT = "ceilings"
"""A card's peak rates are measured by each machine that has such a card: the first ones stay."""


@dataclass(frozen=True)
class Moved:
    """What a push or a pull did; names are paths within the results folder.

    Attributes:
        copied: files that were written and read back.
        there: files that were there before, and were left as they are.
        problems: a line for each file that could not be copied, with the mend.
    """

    copied: tuple[str, ...]
    there: tuple[str, ...]
    problems: tuple[str, ...]


class Store(Protocol):
    """Where files are; names are relative, with slashes."""

    def sizes(self) -> dict[str, int]:
        """The bytes of each file; names that are not `STORED` do not count."""

    def read(self, name: str) -> bytes: ...

    def create(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all; raises FileExistsError where there is one."""


class Folder:
    """A store that is a folder.

    Args:
        root: the folder; it is made with the first file.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def sizes(self) -> dict[str, int]:
        found = {}
        for file in self.root.rglob("*"):
            with suppress(FileNotFoundError):  # a draft whose run has just ended
                found[file.relative_to(self.root).as_posix()] = file.stat().st_size
        return found

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        final = self.root / name
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.parent / f".{final.name}-{secrets.token_hex(4)}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, final)  # refuses a name that is taken, which a rename would not
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                if final.exists():
                    raise FileExistsError(final) from None
                temporary.rename(final)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


class Remote:
    """A store behind a URL.

    Args:
        url: such as s3://bucket/path.
        options: of fsspec's file system, such as {"anon": False}.

    Raises:
        ResultsError: fsspec, or the part that knows this kind of URL, is not installed.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        try:
            import fsspec

            self._fs, self._base = fsspec.core.url_to_fs(url, **options or {})
        except (ImportError, ValueError) as error:
            raise ResultsError(f"the store {url} cannot be used: {error}; pip install 'gdn-bench[store]'") from None
        self._base = self._base.rstrip("/")

    def sizes(self) -> dict[str, int]:
        self._fs.invalidate_cache()  # another job may have written since
        try:
            listed = self._fs.find(self._base, detail=True)
        except FileNotFoundError:
            return {}
        return {path.removeprefix(self._base).lstrip("/"): entry.get("size") or 0 for path, entry in listed.items()}

    def read(self, name: str) -> bytes:
        data: bytes = self._fs.cat_file(f"{self._base}/{name}")
        return data

    def create(self, name: str, data: bytes) -> None:
        path = f"{self._base}/{name}"
        if not getattr(self._fs, "async_impl", False):  # an object store has no folders to be made
            self._fs.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        self._fs.pipe_file(path, data, mode="create")


def store(where: str, options: Mapping[str, Any] | None = None) -> Store:
    """The store at a URL, or in a folder.

    Raises:
        ResultsError: it cannot be used.
    """
    if where.startswith("file://"):
        return Folder(Path(where.removeprefix("file://")))
    return Remote(where, options) if "://" in where else Folder(Path(where))


def push(root: Path, where: str, verify: bool = False, options: Mapping[str, Any] | None = None) -> Moved:
    """Copy what a results folder has, and the store has not, to the store.

    Args:
        root: the results folder.
        where: a folder or a URL.
        verify: read files that are in both, too, instead of comparing their sizes.
        options: of fsspec's file system.

    Raises:
        ResultsError: the store cannot be used.
    """
    return _copy(Folder(root), str(root), store(where, options), where, verify)


def pull(where: str, root: Path, verify: bool = False, options: Mapping[str, Any] | None = None) -> Moved:
    """Copy what the store has, and a results folder has not, to the folder; see `push`."""
    return _copy(store(where, options), where, Folder(root), str(root), verify)


def _copy(source: Store, at: str, target: Store, to: str, verify: bool) -> Moved:
    ours, theirs = _sizes(source, at), _sizes(target, to)
    copied: list[str] = []
    there: list[str] = []
    problems: list[str] = []
    for name in sorted(ours):
        if name in theirs and (name.startswith(f"{KEPT}/") or (ours[name] == theirs[name] and not verify)):
            there.append(name)
            continue
        try:
            data = source.read(name)
            check(name, data)
            (copied if _put(target, name, data) else there).append(name)
        except FileNotFoundError:
            continue  # a draft whose run has just ended
        except ResultsError as error:
            problems.append(f"{at}/{name}: {error}")
        except Exception as error:  # each kind of store has errors of its own; the next file may still do
            problems.append(f"{to}/{name}: {type(error).__name__}: {error}; it was not copied, try again")
    return Moved(tuple(copied), tuple(there), tuple(problems))


def _sizes(one: Store, where: str) -> dict[str, int]:
    try:
        return {name: size for name, size in one.sizes().items() if STORED.fullmatch(name)}
    except Exception as error:  # as above
        raise ResultsError(f"the store {where} cannot be listed: {type(error).__name__}: {error}; mend it") from error


def _put(target: Store, name: str, data: bytes) -> bool:
    """Write a file and read it back; False where it was there already with the same bytes."""
    try:
        target.create(name, data)
        new = True
    except FileExistsError:
        new = False
    back = target.read(name)
    if back == data:
        return new
    mine, other = (f"{len(one):,} bytes, SHA-256 {hashlib.sha256(one).hexdigest()[:12]}" for one in (data, back))
    if new:
        raise ResultsError(f"was written as {mine}, and read back as {other}; remove it there and try again")
    raise ResultsError(
        f"is here with {mine}, and there with {other}; nothing was changed, keep the right one of the two"
    )


def check(name: str, data: bytes) -> None:
    """Refuse bytes that are not what the file's name says.

    Raises:
        ResultsError: they are broken, or belong elsewhere.
    """
    if name.endswith(".zip"):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as pack:
                broken = pack.testzip()
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise ResultsError(f"is no whole zip file: {error}; restore it from a copy") from None
        if broken is not None:
            raise ResultsError(f"has a broken member {broken}; restore it from a copy")
        return
    if name.startswith("history/"):
        record, place = decode(data), PurePosixPath(name)
        file = f"{record.run_id}{'.partial' if record.status == 'partial' else ''}.json"
        if (record.gpu_key, file) != (place.parent.name, place.name):
            raise ResultsError(f"is the record {record.gpu_key}/{file}; move it to where it belongs")
        return
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ResultsError(f"is no JSON: {error}; restore it from a copy") from None
