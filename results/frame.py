"""Records as tidy pandas frames: a row per (run, case)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from results.schema import Accuracy, Determinism, Group, Record, Speed, Times

RUN_COLUMNS = (
    "run_id",
    "status",
    "started",
    "gpu_key",
    "method_id",
    "commit",
    "dirty",
    "driver",
    "cuda_runtime",
    "cupy",
    "gpu",
    "night",
    "process",
)
CASE_COLUMNS = (
    "kind",
    "recurrence",
    "against",
    "tokens",
    "shape",
    "head_map",
    "inputs",
    "outcome",
    "reason",
    "error_out",
    "error_state",
    "rms_out",
    "rms_state",
    "limit",
    "reruns",
    "differing",
    "sha256_out",
    "sha256_state",
    "median_us",
    "low_us",
    "high_us",
    "limit_us",
    "samples",
    "cold_us",
    "cold_low_us",
    "cold_high_us",
    "host_us",
    "replay_us",
    "order_effect",
    "stop",
    "aa_ratio",
    "aa_low",
    "aa_high",
    "sm_mhz",
    "clock_spread",
)
OF_GROUP = ("aa_ratio", "aa_low", "aa_high", "sm_mhz", "clock_spread")
"""Columns of a speed case that say how good its alternation was."""

_KINDS = {Accuracy: "accuracy", Determinism: "determinism", Speed: "speed"}


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per case of each record; what a kind of case does not have is missing. Times are microseconds."""
    columns: dict[str, list[object]] = {name: [] for name in (*RUN_COLUMNS, *CASE_COLUMNS)}
    for record in records:
        e = record.environment
        run = (record.run_id, record.status, record.started, record.gpu_key, record.method.id)
        run += (e.commit, e.dirty, e.driver, e.cuda_runtime, e.cupy, e.gpu)  # type: ignore[assignment]
        run += (record.night, record.process)  # type: ignore[assignment]
        groups = {_place(group): group for group in record.groups}
        for case in record.cases:
            for name, value in zip(RUN_COLUMNS, run, strict=True):
                columns[name].append(value)
            row = _row(case)
            if isinstance(case, Speed) and (group := groups.get(_place(case))):
                row |= {name: getattr(group, name) for name in OF_GROUP}
            for name in CASE_COLUMNS:
                columns[name].append(row.get(name))
    return typed(columns)


def tuples(rows: pd.DataFrame, columns: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """The rows as tuples of some columns: where there are few of each case, Python is faster than pandas."""
    return zip(*(rows[name].tolist() for name in columns), strict=True)


def typed(columns: Mapping[str, Sequence[object]]) -> pd.DataFrame:
    """A frame of lists; a column's type follows from its name (`type_of`), not from what happens to be in it."""
    table = pd.DataFrame({name: pd.Series(list[Any](values), dtype="object") for name, values in columns.items()})
    times = [name for name in columns if type_of(name) == TIME]
    for name in times:
        table[name] = pd.to_datetime(table[name], utc=True, format="ISO8601").astype("datetime64[us, UTC]")
    return table.astype({name: type_of(name) for name in columns if name not in times})


TIME = "datetime64[us, UTC]"
_FLOATS = {"limit", "order_effect", "sm_mhz", "clock_spread"}
_COUNTS = {"tokens", "reruns", "differing", "samples", "process"}
_COUNTS |= {"schema", "green", "red", "inconclusive", "not_measured", "cores"}


def type_of(column: str) -> str:
    """The type of a column, whatever happens to be in it."""
    if column in ("started", "finished"):
        return TIME
    if column.startswith(("error_", "rms_", "aa_")) or column.endswith("_us") or column in _FLOATS:
        return "float64"
    if column in _COUNTS:
        return "Int64"
    return "boolean" if column == "dirty" else "object"


def _place(part: Group | Speed) -> tuple[int, str, str, str]:
    """What a speed case and its alternation have in common."""
    return part.tokens, part.shape, part.head_map, part.inputs


def _row(case: Accuracy | Determinism | Speed) -> dict[str, object]:
    row = {name: getattr(case, name) for name in case.__struct_fields__}
    row["kind"] = _KINDS[type(case)]
    if isinstance(case, Speed):
        row["samples"] = len(case.samples_ns)
        for name in ("median", "low", "high", "limit"):
            value = row.pop(f"{name}_ns")
            row[f"{name}_us"] = None if value is None else value / 1000
        cold, host = case.cold or Times(), case.host
        beside = {"cold": cold.median_ns, "cold_low": cold.low_ns, "cold_high": cold.high_ns}
        beside |= {"host": host.call_ns, "replay": host.replay_ns} if host else {}
        row |= {f"{name}_us": None if ns is None else ns / 1000 for name, ns in beside.items()}
        row["stop"] = case.stop or None
    return row


def frames(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    """The frame of each GPU, by its `gpu_key`; results of different GPUs are never in one."""
    table = frame(records)
    return {str(key): part.reset_index(drop=True) for key, part in table.groupby("gpu_key", sort=True)}
