"""Fingerprints of what runs: of a source with all that it includes, of machine code, and of the code that launches it.

The same machine code that takes another time is the machine; another machine code of the same source is the compiler.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Mapping
from pathlib import Path

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def machine_code(cubin: bytes) -> str:
    """SHA-256 of the machine code in a cubin: its sections .text.<kernel>, by name.

    The rest of the file, such as the compiler's notes, may change while the instructions stay.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, or it has no machine code.
    """
    digest, found = hashlib.sha256(), sections(cubin)
    names = sorted(name for name in found if name.startswith(".text"))
    if not names:
        raise ValueError(f"a cubin of {len(cubin):,} bytes has no section .text; it has {', '.join(found) or 'none'}")
    for name in names:
        digest.update(f"{name}\0{len(found[name])}\0".encode() + found[name])
    return digest.hexdigest()


def sections(elf: bytes) -> dict[str, bytes]:
    """The sections of a 64-bit little-endian ELF file, by name (System V ABI, chapter 4).

    Raises:
        ValueError: it is none, or it is cut short.
    """
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{len(elf):,} bytes that begin with {elf[:6]!r} are no 64-bit little-endian ELF file")
    try:
        (start,) = struct.unpack_from("<Q", elf, 0x28)
        size, count, strings = struct.unpack_from("<3H", elf, 0x3A)
        heads = [struct.unpack_from("<2I4Q", elf, start + number * size) for number in range(count)]
    except struct.error as error:
        raise ValueError(f"an ELF file of {len(elf):,} bytes is cut short: {error}") from None
    names = elf[heads[strings][4] :] if count else b""
    found = {}
    for name, kind, _, _, offset, length in heads:
        if kind != 8:  # one without bytes in the file
            found[names[name : names.index(b"\0", name)].decode()] = elf[offset : offset + length]
    return found


def source(file: Path, defines: Mapping[str, int]) -> str:
    """SHA-256 of a source, of all that it includes from its own folder, and of its compile-time constants.

    Raises:
        OSError: one of the files cannot be read.
    """
    texts: dict[str, bytes] = {}
    waiting = [file.name]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = (file.parent / name).read_bytes()
            waiting += [one.decode() for one in INCLUDE.findall(texts[name])]
    digest = hashlib.sha256(repr(sorted(defines.items())).encode())
    for name in sorted(texts):
        digest.update(f"{name}\0{len(texts[name])}\0".encode() + texts[name])
    return digest.hexdigest()


@functools.cache
def launcher() -> str:
    """SHA-256 of this package's Python and its tables: what chooses the kernels, lays out their work and launches them.

    For the recurrences of the host it is the source.
    """
    here, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted([*here.glob("*.py"), *here.glob("tables/*.json")]):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(here)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
