"""The table has a row per run and case, the right types, and holes where a case has nothing to say."""

from __future__ import annotations

import pandas as pd
import pytest

from results.frame import frame, frames
from results.schema import Host, Times
from tests.fabricate import accuracy, determinism, environment, record, speed

COLUMNS = [
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
]


def test_a_row_per_run_and_case_in_order() -> None:
    table = frame([record(run_id="a"), record(run_id="b", cases=()), record(run_id="c", cases=(speed(tokens=32),))])
    assert list(table.columns) == COLUMNS
    assert list(table.index) == [0, 1, 2, 3]
    assert list(table.run_id) == ["a", "a", "a", "c"]
    assert list(table.kind) == ["accuracy", "determinism", "speed", "speed"]
    assert list(table.tokens) == [2048, 2048, 2048, 32]


def test_each_kind_fills_its_columns_and_no_others() -> None:
    table = frame([record(cases=(accuracy(against="sequential"), determinism(differing=2), speed(limit_ns=5000.0)))])
    filled = [set(row.dropna().index) for _, row in table.iterrows()]
    shared = set(COLUMNS[: COLUMNS.index("error_out")]) - {"against", "night", "process"}
    assert filled[0] - shared == {"against", "error_out", "error_state", "rms_out", "rms_state", "limit"}
    assert filled[1] - shared == {"reruns", "differing", "sha256_out", "sha256_state"}
    assert filled[2] - shared == {"median_us", "low_us", "high_us", "limit_us", "samples"}
    assert all(shared <= row for row in filled)
    assert table.against[0] == "sequential"
    assert table.differing[1] == 2
    assert table.median_us[2] == pytest.approx(470.0)
    assert table.limit_us[2] == 5.0
    assert table.samples[2] == 7


def test_what_is_measured_beside_the_hot_time_has_columns_of_its_own() -> None:
    cold = Times(median_ns=490_000.0, low_ns=480_000.0, high_ns=500_000.0)
    case = speed(cold=cold, host=Host(call_ns=12_000.0, replay_ns=5_000.0), order_effect=-0.01, stop="precision")
    row = frame([record(cases=(case,), night="n", process=3)]).iloc[0]
    assert list(row[["cold_us", "cold_low_us", "cold_high_us"]]) == [490.0, 480.0, 500.0]
    assert list(row[["host_us", "replay_us", "order_effect", "stop"]]) == [12.0, 5.0, -0.01, "precision"]
    assert list(row[["night", "process"]]) == ["n", 3]


def test_a_red_case_has_its_reason_and_no_time() -> None:
    table = frame([record(cases=(speed(outcome="red", reason="no time", median_ns=None),))])
    assert table.outcome[0] == "red"
    assert table.reason[0] == "no time"
    assert table.samples[0] == 0
    assert table[["median_us", "low_us", "high_us"]].isna().all(axis=None)


def test_times_of_runs_are_in_utc() -> None:
    table = frame([record(started="2026-11-30T06:15:00+01:00"), record(started="2026-11-30T05:15:00.250Z")])
    assert table.started[0] == pd.Timestamp("2026-11-30T05:15:00Z")
    assert table.started[3] == pd.Timestamp("2026-11-30T05:15:00.250Z")


def test_types_do_not_depend_on_the_rows() -> None:
    host = environment(gpu=None, driver=None, cupy=None, cuda_runtime=None, commit=None, dirty=None)
    full = frame([record()]).dtypes
    for records in ([], [record(cases=())], [record(environment=host, cases=(accuracy(error_out=None),))]):
        assert frame(records).dtypes.equals(full)
    assert frame([record(environment=host)]).gpu.isna().all()


def test_a_frame_per_gpu() -> None:
    other = record(environment=environment(gpu="NVIDIA B200"), cases=(speed(),))
    tables = frames([record(), other, record(run_id="second")])
    assert list(tables) == sorted(tables)
    assert {key: len(table) for key, table in tables.items()} == {other.gpu_key: 1, record().gpu_key: 6}
    assert all((table.gpu_key == key).all() for key, table in tables.items())
    assert frames([]) == {}
