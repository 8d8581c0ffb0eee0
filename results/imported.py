"""pytest-benchmark's JSON as records, so that times that were taken without this suite have a history as well."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from results.schema import Environment, Method, Record, Speed
from results.store import KEY, RESTORE, ResultsError, gpu_key
from suite.statistics import median_interval

_GROUP = re.compile(r"\s*(?P<tokens>\d+) tokens, (?P<shape>\d+x\d+x\d+) (?P<head_map>\w+)")
"""How this suite names its groups; others' benchmarks have no shape."""

_MEND = "write it again with --benchmark-json"


def record_of(file: Path, key: str | None = None) -> Record:
    """A record of a file that pytest-benchmark wrote with `--benchmark-json`, `--benchmark-save` or `-autosave`.

    Its times are seconds of whatever timer the benchmark had, and its method says so, so that they are a series of
    their own. The run's name follows from the file's bytes: the same file is the same run.

    Args:
        file: the JSON.
        key: the `gpu_key` of the card that was timed; the host's, of the file's own facts, where None.

    Raises:
        ResultsError: it is no such file, or a time in it is missing, not finite or not above 0.
    """
    try:
        data = file.read_bytes()
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict) or not isinstance(raw["machine_info"], dict) or not raw["benchmarks"]:
            raise ValueError("it has no machine_info or no benchmarks")
        started = datetime.fromisoformat(raw["datetime"])
    except (OSError, msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ResultsError(f"{file} is no JSON of pytest-benchmark: {why}; {_MEND}") from None
    if key is not None and not KEY.fullmatch(key):
        raise ResultsError(f"--gpu is {key!r}; a-z, 0-9, '.' and '-' are wanted, as it names a folder")
    started = started.replace(tzinfo=UTC) if started.tzinfo is None else started.astimezone(UTC)
    digest = hashlib.sha256(data).hexdigest()
    environment = _environment(raw)
    try:
        cases = tuple(_speed(one, file) for one in raw["benchmarks"])
        method = _method(raw["benchmarks"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"{file}: a benchmark in it is not as pytest-benchmark writes it: {error!r}; {_MEND}"
        ) from None
    places = [(case.recurrence, case.tokens, case.shape, case.head_map) for case in cases]
    if doubles := sorted({place for place in places if places.count(place) > 1}):
        raise ResultsError(f"{file}: {doubles[0][0]} is there more than once; import runs one by one")
    return Record(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{digest[:8]}",
        status="complete",
        started=started.isoformat(timespec="milliseconds"),
        finished=started.isoformat(timespec="milliseconds"),
        command=("gdn-bench", "history", "import", file.name),
        gpu_key=key or gpu_key(environment),
        method=method,
        environment=environment,
        cases=cases,
        notes=(
            f"Imported from {file.name} (SHA-256 {digest}), written by pytest-benchmark {raw.get('version', '?')}: "
            "no check of accuracy or determinism came with it.",
        ),
    )


def _environment(raw: Mapping[str, Any]) -> Environment:
    machine, commit = raw["machine_info"], raw.get("commit_info") or {}
    cpu = machine.get("cpu") or {}
    named = commit.get("id") if not commit.get("error") else None
    platform = "-".join(str(machine[name]) for name in ("system", "release", "machine") if machine.get(name))
    return Environment(
        cpu=str(cpu.get("brand_raw") or cpu.get("brand") or machine.get("processor") or machine.get("machine") or ""),
        cores=int(cpu.get("count") or 0),
        numpy="not known",
        python=str(machine.get("python_version", "not known")),
        platform=platform or "not known",
        commit=named if named and named != "unversioned" else None,
        dirty=commit.get("dirty") if named and named != "unversioned" else None,
    )


def _method(benchmarks: Sequence[Mapping[str, Any]]) -> Method:
    timers = sorted({str((one.get("options") or {}).get("timer", "unknown")) for one in benchmarks})
    timer = "+".join(re.sub(r"[^\w.]+", "-", name).strip("-") for name in timers)
    return Method(
        id=f"pytest-benchmark-{timer}", timer=timer, l2="not known", order="one after another", warmup_s=0.0, seed=0
    )


def _speed(one: Mapping[str, Any], file: Path) -> Speed:
    """A time from a benchmark, named by its `extra_info`, its parameters or its own name."""
    name, stats, info = str(one["fullname"]), one["stats"], one.get("extra_info") or {}
    group = _GROUP.fullmatch(str(one.get("group") or ""))
    told = {**(one.get("params") or {}), **(group.groupdict() if group else {}), **info}
    tokens = told.get("tokens", 0)
    if not str(tokens).isdecimal():
        raise ResultsError(f"{file}: {name}: tokens is {tokens!r}; a whole number is wanted")
    samples = [_ns(value, f"stats.data[{i}]", name, file) for i, value in enumerate(stats.get("data") or ())]
    median = _ns(stats["median"], "stats.median", name, file)
    low, high = median_interval(np.array(samples))[1:] if samples else (None, None)
    return Speed(
        recurrence=str(told["recurrence"]) if isinstance(told.get("recurrence"), str) else name,
        tokens=int(tokens),
        shape=str(told.get("shape", "")),
        head_map=str(told.get("head_map", "")),
        inputs=str(told.get("inputs", "")),
        samples_ns=tuple(samples),
        calls_per_sample=int(info.get("calls_per_sample") or stats.get("iterations") or 1),
        median_ns=median,
        low_ns=low,
        high_ns=high,
        stop="rounds",
        outcome="green",
    )


def _ns(seconds: Any, field: str, name: str, file: Path) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ResultsError(f"{file}: {name}: {field} is {seconds!r}; seconds are wanted; {RESTORE}")
    if not seconds > 0:  # JSON holds no NaN and nothing infinite
        raise ResultsError(f"{file}: {name}: {field} is {seconds!r}; seconds above 0 are wanted; leave it out")
    return seconds * 1e9
