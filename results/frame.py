"""Records as tidy pandas frames: a row per (run, case)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from results.schema import Accuracy, Determinism, Record, Speed, Times

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
)
_KINDS = {Accuracy: "accuracy", Determinism: "determinism", Speed: "speed"}


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per case of each record; what a kind of case does not have is missing. Times are microseconds."""
    columns: dict[str, list[object]] = {name: [] for name in (*RUN_COLUMNS, *CASE_COLUMNS)}
    for record in records:
        e = record.environment
        run = (record.run_id, record.status, record.started, record.gpu_key, record.method.id)
        run += (e.commit, e.dirty, e.driver, e.cuda_runtime, e.cupy, e.gpu)  # type: ignore[assignment]
        run += (record.night, record.process)  # type: ignore[assignment]
        for case in record.cases:
            for name, value in zip(RUN_COLUMNS, run, strict=True):
                columns[name].append(value)
            row = _row(case)
            for name in CASE_COLUMNS:
                columns[name].append(row.get(name))
    table = pd.DataFrame(columns)
    table["started"] = pd.to_datetime(table["started"], utc=True, format="ISO8601").astype("datetime64[us, UTC]")
    return table.astype({name: _type(name) for name in columns if name != "started"})


def _type(column: str) -> str:
    """A column's type does not depend on what happens to be in it."""
    if column.startswith(("error_", "rms_")) or column.endswith("_us") or column in ("limit", "order_effect"):
        return "float64"
    if column in ("tokens", "reruns", "differing", "samples", "process"):
        return "Int64"
    return "boolean" if column == "dirty" else "object"


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
