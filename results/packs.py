"""Packs: old records moved, byte for byte, into one compressed file, `<root>/history/<gpu_key>/packed-*.zip`.

A pack is an ordinary zip file whose members are the records' own files, so that unzip brings them back. Nothing here
knows what is in a record.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PREFIX, SUFFIX = "packed-", ".zip"

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
"""What zipfile raises where a file is cut off, overwritten or encrypted."""


class PackError(Exception):
    """A pack, or a member of it, cannot be used; the message says why, without the file's name."""


def packs(folder: Path) -> list[Path]:
    """The packs of a GPU's folder, by name. List loose files first: a file that has just left is in one of these."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(PREFIX) and name.endswith(SUFFIX))
    except OSError:  # whoever lists the loose files tells of it
        return []
    return [file for file in map(folder.joinpath, names) if file.is_file()]


def names(pack: Path) -> list[str]:
    """The names of a pack's members.

    Raises:
        PackError: it is no zip file, or is cut off.
    """
    try:
        with zipfile.ZipFile(pack) as file:
            return file.namelist()
    except _BROKEN as error:
        raise PackError(f"is no whole zip file: {error}") from None


def members(pack: Path) -> Iterator[tuple[str, bytes | PackError]]:
    """(name, bytes) of each member; a member that is broken gives its error, and the others are still read.

    Raises:
        PackError: the pack as a whole is no zip file, or is cut off.
    """
    try:
        file = zipfile.ZipFile(pack)
    except _BROKEN as error:
        raise PackError(f"is no whole zip file: {error}") from None
    with file:
        for name in file.namelist():
            try:
                yield name, file.read(name)
            except _BROKEN as error:
                yield name, PackError(f"cannot be unpacked: {error}")


def member(pack: Path, name: str) -> bytes:
    """The bytes of one member.

    Raises:
        PackError: it cannot be read.
        KeyError: there is no such member.
    """
    try:
        with zipfile.ZipFile(pack) as file:
            return file.read(name)
    except _BROKEN as error:
        raise PackError(f"cannot be unpacked: {error}") from None


def write(folder: Path, label: str, files: Sequence[Path]) -> Path:
    """Write a pack of some files of a folder and read it back; the files themselves are left where they are.

    The name follows from what is packed, so that two who pack the same files make the same pack. If it was there, it
    stays: compare each member before its file is removed.

    Args:
        folder: where the files are and the pack goes.
        label: part of the name, such as a year.
        files: what to pack.

    Raises:
        PackError: what was read back differs.
        OSError: it cannot be written.
    """
    temporary = folder / f".{PREFIX}{label}-{secrets.token_hex(4)}"
    content = hashlib.sha256()
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED) as pack:
            for file in files:
                data = file.read_bytes()
                content.update(file.name.encode() + b"\0" + hashlib.sha256(data).digest())
                entry = zipfile.ZipInfo(file.name)  # without a time: the same files give the same bytes
                entry.external_attr = 0o644 << 16
                pack.writestr(entry, data, zipfile.ZIP_DEFLATED)
        _sync(temporary)
        final = folder / f"{PREFIX}{label}-{content.hexdigest()[:12]}{SUFFIX}"
        _verify(temporary, files)
        with suppress(FileExistsError):
            os.link(temporary, final)
        _sync(folder)
        return final
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def sweep(folder: Path, age_s: float) -> None:
    """Remove unfinished packs that a kill has left: copies, whose records are still in their own files."""
    for file in folder.glob(f".{PREFIX}*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > age_s:
                file.unlink()


def _verify(pack: Path, files: Sequence[Path]) -> None:
    found = members(pack)
    for file in files:
        name, data = next(found, ("", b""))
        if (name, data) != (file.name, file.read_bytes()):
            raise PackError(f"{pack}: {file.name} differs from the file; nothing was removed")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
