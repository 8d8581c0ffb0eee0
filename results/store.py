"""Where records live: `<root>/history/<gpu_key>/<run_id>.json`, and `<run_id>.partial.json` for a run that has
not ended well: in progress, stopped or killed. Old records may have moved into packs, see `results.packs`."""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from results import packs
from results.schema import SCHEMA, Environment, Record

SUFFIX, DRAFT_SUFFIX = ".json", ".partial.json"
NAME, KEY = re.compile(r"[A-Za-z0-9][\w.-]*"), re.compile(r"[a-z0-9][a-z0-9.-]*")


class ResultsError(Exception):
    """A results folder or a record cannot be used; the message names it, the problem and the mend."""


class NotStoredError(ResultsError, LookupError):
    """There is no such run."""


class StoredError(ResultsError):
    """There is such a file already."""


@dataclass(frozen=True)
class Loaded:
    """What a results folder holds.

    Attributes:
        records: those that could be read, oldest first.
        problems: a line for each file that could not, with its name, what is wrong and the mend.
    """

    records: tuple[Record, ...]
    problems: tuple[str, ...]


def default_root() -> Path:
    """`results/` of the checkout, or of the current folder where the package is installed elsewhere."""
    here = Path(__file__).parent
    return here if (here.parent / "pyproject.toml").exists() else Path.cwd() / "results"


def new_run_id() -> str:
    """A name that no other run has: the UTC time and 32 random bits, such as 20261130T051500Z-3f9a1c02."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def gpu_key(environment: Environment) -> str:
    """The name of the history that a run belongs to: stable facts of the card alone.

    Such as nvidia-h200-132sm-140gib-ecc-700w; a run on the host is host-<processor>-<n>cores.
    """
    e = environment
    if e.gpu is None:
        return "-".join(("host", _slug(e.cpu), f"{e.cores}cores"))
    parts = [_slug(e.gpu)]
    parts += [f"{e.sms}sm"] if e.sms is not None else []
    parts += [f"{round(e.memory_mib / 1024)}gib"] if e.memory_mib is not None else []
    parts += [{True: "ecc", False: "noecc"}[e.ecc]] if e.ecc is not None else []
    # The class of a limit, so that 699.9 W and 700 W are one card; cards' limits are multiples of 25 W.
    parts += (
        [f"{round(e.power_limit_w / 25) * 25}w"]
        if e.power_limit_w is not None and math.isfinite(e.power_limit_w)
        else []
    )
    return "-".join(parts)


def _slug(name: str) -> str:
    text = re.sub(r"\((r|tm)\)", " ", name.lower())
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.") or "unknown"


def check_writable(root: Path, key: str = "") -> None:
    """Write and remove a file, before an hour is spent on what could not be kept.

    Args:
        root: the results folder; it is made where it is missing.
        key: the `gpu_key` whose folder is meant, or an empty text.

    Raises:
        ResultsError: it cannot be done.
    """
    folder = root / "history" / key
    probe = folder / f".probe-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(probe, b"x" * 4096)
    except OSError as error:
        raise _unusable(folder, error) from error
    finally:
        with suppress(OSError):
            probe.unlink()


def _unusable(folder: Path, error: OSError) -> ResultsError:
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "this user may not write there",
        errno.EPERM: "this user may not write there",
        errno.EEXIST: "a file is in the way, which is not a folder",
        errno.ENOTDIR: "part of the path is not a folder",
    }
    why = words.get(error.errno or 0, error.strerror or str(error))
    return ResultsError(
        f"results cannot be written to {folder}: {why}; mend it or choose another with --gdn-results=DIR"
    )


def _write(path: Path, data: bytes, sync: bool = True) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def save(record: Record, root: Path) -> Path:
    """Store a record, whole or not at all.

    A complete record never replaces a file; a partial one replaces the earlier draft of its own run, and the
    complete one removes the draft.

    Raises:
        ResultsError: the folder cannot be written, the record could not be read again, or it is stored already.
    """
    data = _encode(record)
    folder = root / "history" / record.gpu_key
    draft, final = (folder / f"{record.run_id}{suffix}" for suffix in (DRAFT_SUFFIX, SUFFIX))
    temporary = folder / f".{record.run_id}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _write(temporary, data)
            if record.status == "partial":
                temporary.replace(draft)
            else:
                _put(temporary, final)
                draft.unlink(missing_ok=True)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        _sync(folder)
    except OSError as error:
        raise _unusable(folder, error) from error
    return draft if record.status == "partial" else final


def replace_file(text: str, out: Path, what: str, mend: str) -> Path:
    """Write a text, whole or not at all; what cannot be encoded in UTF-8 becomes a question mark. See `replace_bytes`.

    Raises:
        ResultsError: it cannot be done.
    """
    return replace_bytes(text.encode(errors="replace"), out, what, mend)


def replace_bytes(data: bytes, out: Path, what: str, mend: str, sync: bool = True) -> Path:
    """Write bytes, whole or not at all; a file that was there is replaced.

    Args:
        data: the bytes.
        out: the file; its folder is made.
        what: what it is, for the error.
        mend: what to do about the error.
        sync: whether it must outlive a crash of the machine.

    Raises:
        ResultsError: it cannot be done.
    """
    temporary = out.parent / f".{out.name}-{secrets.token_hex(4)}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(temporary, data, sync)
            temporary.replace(out)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise ResultsError(f"the {what} {out} cannot be written: {error.strerror or error}; {mend}") from error
    return out


def put(data: bytes, final: Path) -> Path:
    """Write a file that is never replaced, whole or not at all.

    Raises:
        ResultsError: it is there already, or cannot be written.
    """
    temporary = final.parent / f".{final.name}-{secrets.token_hex(4)}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(temporary, data)
            _put(temporary, final)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        _sync(final.parent)
    except OSError as error:
        raise _unusable(final.parent, error) from error
    return final


def _put(temporary: Path, final: Path) -> None:
    """Give a file its name, and never take a name from another: a link refuses that, a rename would not."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise StoredError(f"{final} is there already; a stored record is never replaced") from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without hard links: names are random, so looking first is enough.
        if final.exists():
            raise StoredError(f"{final} is there already; a stored record is never replaced") from None
        temporary.rename(final)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(record: Record) -> bytes:
    """The record's bytes; refuses one that `load` would not take back."""
    for path, value in _numbers(msgspec.to_builtins(record), ""):
        if not math.isfinite(value):
            raise ResultsError(f"{record.run_id}: {path} is {value}; a record holds finite numbers or null")
    data = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    if not NAME.fullmatch(record.run_id) or record.run_id.endswith(".partial"):
        raise ResultsError(f"run_id is {record.run_id!r}; letters, digits, '-' and '_' are wanted, as it names a file")
    if not KEY.fullmatch(record.gpu_key):
        raise ResultsError(f"gpu_key is {record.gpu_key!r}; a-z, 0-9, '.' and '-' are wanted, as it names a folder")
    _decode(data)
    return data


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield path.removeprefix("."), value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from _numbers(one, f"{path}[{i}]")


def load(root: Path) -> Loaded:
    """All records of a results folder. A file that cannot be read is named in `problems`, and left as it is.

    Of a run that has both a draft and a complete record, the draft does not count.
    """
    records: dict[tuple[str, str], Record] = {}
    problems: list[str] = []
    folders = gpu_folders(root, problems)
    for file in (file for folder in folders for file in loose(folder, problems)):
        try:
            record = parse(read_file(file), file.parent.name, file.name)
        except FileNotFoundError:
            continue  # a draft whose run has just ended, or a record that has just moved into a pack
        except (OSError, ResultsError) as error:
            problems.append(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
            continue
        key = record.gpu_key, record.run_id
        if record.status == "complete" or key not in records:
            records[key] = record
    for place, found in (one for folder in folders for one in _packed(folder)):
        if isinstance(found, str):
            problems.append(f"{place}: {found}")
        elif (known := records.get((found.gpu_key, found.run_id))) is None or known.status == "partial":
            records[found.gpu_key, found.run_id] = found
        elif known != found:
            problems.append(f"{place}: {differs(found.run_id)}")
    ordered = sorted(records.values(), key=lambda record: (_time(record.started), record.run_id))
    return Loaded(tuple(ordered), tuple(problems))


def differs(run_id: str) -> str:
    """What to say of a second record of a run that is not the same as the first."""
    return f"run_id is {run_id!r}, which is stored with another content as well; keep the right one of the two"


def _packed(folder: Path) -> Iterator[tuple[str, Record | str]]:
    """(place, record or what is wrong) of all that is packed in a GPU's folder."""
    for pack in packs.packs(folder):
        for name, found in unpack(pack):
            place = f"{pack}/{name}".rstrip("/")
            try:
                yield place, found if isinstance(found, str) else parse(found, folder.name, name)
            except ResultsError as error:
                yield place, str(error)


def unpack(pack: Path) -> Iterator[tuple[str, bytes | str]]:
    """(name, bytes or what is wrong) of each member of a pack; one without a name where all of it is broken."""
    try:
        for name, found in packs.members(pack):
            yield name, f"{found}; {RESTORE}" if isinstance(found, packs.PackError) else found
    except packs.PackError as error:
        yield "", f"{error}; {RESTORE}"


def read_bytes(root: Path, key: str, run_id: str) -> bytes:
    """The file of a run as it is stored, loose or packed: complete if there is a complete one.

    Args:
        root: the results folder.
        key: its `gpu_key`.
        run_id: the run.

    Raises:
        NotStoredError: it is not stored.
        ResultsError: it cannot be read.
    """
    folder = root / "history" / key
    for _ in range(2):  # a run that ends, or moves into a pack, while it is looked for is found the second time
        with suppress(FileNotFoundError):
            return read_file(folder / f"{run_id}{SUFFIX}")
        for pack in packs.packs(folder):
            try:
                if f"{run_id}{SUFFIX}" in packs.names(pack):
                    return packs.member(pack, f"{run_id}{SUFFIX}")
            except packs.PackError as error:
                raise ResultsError(f"{pack}: {error}; {RESTORE}") from None
        with suppress(FileNotFoundError):
            return read_file(folder / f"{run_id}{DRAFT_SUFFIX}")
    raise NotStoredError(f"run {run_id!r} is not stored in {folder}; name one that gdn-bench history lists")


def read(root: Path, key: str, run_id: str) -> Record:
    """The record of a run, see `read_bytes`."""
    data = read_bytes(root, key, run_id)
    try:
        return _decode(data)
    except ResultsError as error:
        raise ResultsError(f"{root / 'history' / key}: {run_id}: {error}") from None


def gpu_folders(root: Path, problems: list[str]) -> list[Path]:
    """The folders of all GPUs; what lies elsewhere, or cannot be listed, becomes a problem."""
    history, found = root / "history", []
    try:
        for entry in sorted(history.iterdir()):
            if entry.is_dir():
                found.append(entry)
            elif entry.suffix == SUFFIX and entry.name[0] != ".":
                problems.append(f"{entry}: lies outside the folder of a GPU; move it to the one its gpu_key names")
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(f"{history}: {error.strerror}; choose another with --gdn-results=DIR")
    return found


def loose(folder: Path, problems: list[str]) -> list[Path]:
    """Records' own files in a GPU's folder, drafts too."""
    return [folder / name for name in loose_names(folder, problems)]


def loose_names(folder: Path, problems: list[str]) -> list[str]:
    """The names of these, which are had faster where there are thousands."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX) and name[0] != ".")
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: {error.strerror}; mend its permissions")
        return []


def read_file(file: str | Path) -> bytes:
    """The bytes of a record's file.

    Raises:
        FileNotFoundError: there is none.
        ResultsError: it is a link that leads nowhere.
        OSError: it cannot be read.
    """
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        if os.path.islink(file):
            raise ResultsError("a link that leads nowhere; remove it") from None
        raise


def parse(data: bytes, folder: str, name: str) -> Record:
    """The record in the bytes of a file.

    Args:
        data: the file's bytes.
        folder, name: those of the file, which must be the record's own.

    Raises:
        ResultsError: the bytes are no record, or belong elsewhere.
    """
    record = _decode(data)
    if record.gpu_key != folder:
        raise ResultsError(f"gpu_key is {record.gpu_key!r}, the folder is {folder!r}; move the file to its own folder")
    wanted = record.run_id + (DRAFT_SUFFIX if record.status == "partial" else SUFFIX)
    if name == wanted:
        return record
    if name.removesuffix(SUFFIX).removesuffix(".partial") == record.run_id:
        raise ResultsError(f"status is {record.status!r}; rename the file to {wanted}")
    raise ResultsError(f"run_id is {record.run_id!r} and the file has another name; rename the file to {wanted}")


RESTORE = "restore it from a copy, or move it out of the history"
_DECODER = msgspec.json.Decoder(Record)


def _decode(data: bytes) -> Record:
    try:
        record = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ResultsError(_why(data, error)) from None
    if b'"schema"' not in data:
        raise ResultsError(f"has no key schema, so it is no record of gdn-bench; {RESTORE}")
    if record.schema > SCHEMA:
        raise ResultsError(_newer(record.schema))
    try:
        _time(record.started)
    except ValueError:
        raise ResultsError(
            f"started is {record.started!r}; a time in UTC such as 2026-11-30T05:15:00Z is wanted; {RESTORE}"
        ) from None
    return record


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no time zone")
    return found


def _newer(schema: int) -> str:
    return f"schema is {schema}; this gdn-bench reads up to {SCHEMA}; upgrade it"


def _why(data: bytes, error: Exception) -> str:
    """What is wrong with bytes that do not decode: no JSON, foreign, newer, or a key that does not fit."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as broken:
        return f"is no JSON: {broken}; {RESTORE}"
    if not isinstance(raw, dict) or "schema" not in raw:
        return f"has no key schema, so it is no record of gdn-bench; {RESTORE}"
    if isinstance(raw["schema"], int) and raw["schema"] > SCHEMA:
        return _newer(raw["schema"])
    message, _, path = str(error).partition(" - at `$")
    if "unknown field" in message:
        return f"has an {message[message.index('unknown field') :]}; {RESTORE}"
    return f"{_named(raw, path.strip('`.'))}{message}; {RESTORE}"


def _named(raw: Any, path: str) -> str:
    """The key at a path such as cases[0].tokens and its value, cut to a line."""
    value = raw
    for key, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        try:
            value = value[key or int(index)]
        except (KeyError, IndexError, TypeError):
            return f"{path}: "
    text = repr(value)
    return f"{path} is {text if len(text) <= 60 else text[:57] + '...'}: " if path else ""


def decode(data: bytes) -> Record:
    """The record in bytes, wherever they are from.

    Raises:
        ResultsError: they are no record; the message says why, without a file's name.
    """
    return _decode(data)
