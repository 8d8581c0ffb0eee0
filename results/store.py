"""Where records live: `<root>/history/<gpu_key>/<run_id>.json`, and `<run_id>.partial.json` for a run that has
not ended well: in progress, stopped or killed."""

from __future__ import annotations

import json
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

from results.schema import SCHEMA, Environment, Record


class ResultsError(Exception):
    """A results folder or a record cannot be used; the message names it, the problem and the mend."""


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
        parts = ["host", e.cpu, f"{e.cores}cores"]
    else:
        parts = [e.gpu, f"{e.sms}sm", f"{round((e.memory_mib or 0) / 1024)}gib"]
        parts += ["ecc"] if e.ecc else []
        # The class of a limit, so that 699.9 W and 700 W are one card.
        parts += [f"{round(e.power_limit_w / 50) * 50}w"] if e.power_limit_w else []
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)


def check_writable(root: Path) -> None:
    """Write and remove a file, before an hour is spent on what could not be kept.

    Raises:
        ResultsError: it cannot be done.
    """
    try:
        folder = root / "history"
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{secrets.token_hex(4)}"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        raise _unusable(root, error) from error


def _unusable(root: Path, error: OSError) -> ResultsError:
    return ResultsError(
        f"the results folder {root} cannot be written: {error.strerror or error}; choose another with --gdn-results"
    )


def save(record: Record, root: Path) -> Path:
    """Store a record, whole or not at all.

    A complete record never replaces a file; a partial one may replace the earlier draft of its own run.

    Raises:
        ResultsError: the folder cannot be written, a number is not finite, or the run is stored already.
    """
    data = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    for path, value in _numbers(msgspec.to_builtins(record), record.run_id):
        if not math.isfinite(value):
            raise ResultsError(f"{path} is {value}; a record holds finite numbers or null")
    folder = root / "history" / record.gpu_key
    draft, final = (folder / f"{record.run_id}{suffix}" for suffix in (".partial.json", ".json"))
    temporary = folder / f".{record.run_id}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if record.status == "partial":
                temporary.replace(draft)
            else:
                os.link(temporary, final)  # unlike a rename, it refuses to replace a file
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        if record.status == "complete":
            draft.unlink(missing_ok=True)
        _sync(folder)
    except FileExistsError as error:
        raise ResultsError(f"{final} exists already; a stored record is never replaced") from error
    except OSError as error:
        raise _unusable(root, error) from error
    return draft if record.status == "partial" else final


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from _numbers(one, f"{path}[{i}]")


def load(root: Path) -> Loaded:
    """All records of a results folder. A file that cannot be read is named in `problems`, and left as it is.

    Raises:
        ResultsError: the folder itself cannot be read.
    """
    records, problems = [], []
    try:
        folders = sorted(path for path in (root / "history").iterdir() if path.is_dir())
        files = [path for folder in folders for path in sorted(folder.glob("*.json")) if path.name[0] != "."]
    except FileNotFoundError:
        files = []
    except OSError as error:
        raise ResultsError(f"the results folder {root} cannot be read: {error.strerror or error}") from error
    for file in files:
        try:
            records.append(_read(file))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ResultsError) as error:
            problems.append(f"{file}: {error}")
    return Loaded(tuple(sorted(records, key=lambda record: (record.started, record.run_id))), tuple(problems))


_DECODER = msgspec.json.Decoder(Record)


def _read(file: Path) -> Record:
    data = file.read_bytes()
    try:
        record = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ResultsError(_why(data, error)) from error
    if record.schema > SCHEMA:
        raise ResultsError(_newer(record.schema))
    if record.gpu_key != file.parent.name:
        raise ResultsError(f"gpu_key is {record.gpu_key!r}; the folder says {file.parent.name!r}; move the file back")
    name = file.name.removesuffix(".json").removesuffix(".partial")
    if record.run_id != name:
        raise ResultsError(f"run_id is {record.run_id!r}; the file's name says {name!r}; name it back")
    return record


def _newer(schema: int) -> str:
    return f"schema is {schema}; this gdn-bench reads up to {SCHEMA}; upgrade it"


def _why(data: bytes, error: Exception) -> str:
    """What is wrong with a file that does not decode: truncated, foreign, newer, or a key that does not fit."""
    try:
        raw = json.loads(data)
    except ValueError:
        return f"not whole JSON ({error}); restore the file from a copy or move it away"
    if not isinstance(raw, dict) or "run_id" not in raw or not isinstance(raw.get("schema", 1), int):
        return "not a record of gdn-bench; move it out of the history"
    if raw.get("schema", 1) > SCHEMA:
        return _newer(raw["schema"])
    return f"{error}; docs/schema.md says what each key holds"
