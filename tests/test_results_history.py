"""Filters choose what they say, exports come back with every digit, and imports are what pytest-benchmark wrote."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from results import series
from results.frame import frame
from results.history import Filter, decode, encode, exported, listed, moment, write
from results.imported import record_of
from results.store import ResultsError, load, save
from tests import decade
from tests.fabricate import accuracy, environment, measured, record, speed

KEY = record().gpu_key


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("history")
    decade.write(root, 4, 2)
    save(record(run_id="draft", status="partial", environment=environment(driver=None, commit=None, dirty=None)), root)
    hostile = 'a "quoted", text\nof two lines; é, NaN'
    save(
        record(run_id="odd", cases=(speed(outcome="red", reason=hostile, median_ns=None), accuracy(error_out=None))),
        root,
    )
    save(measured(run_id="night", night="n", process=3), root)
    return root


# Filters


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, 11),
        ({"gpu_key": KEY}, 7),
        ({"gpu_key": "none"}, 0),
        ({"method_id": "cuda-graph-2"}, 9),
        ({"night": "n"}, 1),
        ({"status": "partial"}, 1),
        ({"driver": "570.10"}, 8),
        ({"commit": "0123"}, 2),
        ({"since": datetime(2026, 12, 2, tzinfo=UTC)}, 6),
        ({"until": datetime(2026, 12, 2, tzinfo=UTC)}, 5),
        ({"last": 2}, 4),
        ({"last": 2, "status": "partial"}, 1),
        ({"last": 100}, 11),
    ],
)
def test_a_filter_chooses_what_it_says(wanted: dict[str, Any], expected: int, root: Path) -> None:
    runs = listed(root, Filter(**wanted))
    assert len(runs) == expected
    assert list(runs.columns) == list(series.RUN_FACTS)
    chosen = exported(root, Filter(**wanted))
    assert set(chosen["run_id"]) == set(runs["run_id"])
    assert chosen.dtypes.equals(frame([]).dtypes)


def test_cases_are_filtered_too(root: Path) -> None:
    cases = exported(root, Filter(kinds=("speed",), recurrences=("chunked",), tokens=(128, 2048)))
    assert (set(cases["kind"]), set(cases["recurrence"]), set(cases["tokens"])) == ({"speed"}, {"chunked"}, {128, 2048})
    assert len(cases) == 4 * 2 * 2 + 1


def test_a_date_is_a_moment_in_utc() -> None:
    assert moment("2026-12-01", "--since") == datetime(2026, 12, 1, tzinfo=UTC)
    assert moment("2026-12-01T02:00+02:00", "--since") == datetime(2026, 12, 1, tzinfo=UTC)
    with pytest.raises(ResultsError, match="--since is 'yesterday'; a date such as"):
        moment("yesterday", "--since")


# Exports


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("what", ["cases", "runs", "nothing"])
def test_an_export_comes_back_with_every_digit_and_type(form: str, what: str, root: Path, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    table = {"cases": exported, "runs": listed, "nothing": lambda r, f: exported(r, Filter(gpu_key="none"))}[what](
        root, Filter()
    )
    out = write(table, tmp_path / f"a.{form}")
    back = decode(out.read_bytes(), form) if what != "nothing" or form != "json" else table
    if form == "csv":
        table = table.replace({"reason": {"": None}, "sha256_out": {"": None}})
    pd.testing.assert_frame_equal(back, table, check_exact=True)


def test_numbers_are_the_records_own(root: Path) -> None:
    rows = json.loads(encode(exported(root, Filter(gpu_key=KEY, kinds=("speed",))), "json"))
    stored = [
        case.median_ns / 1000
        for one in load(root).records
        if one.gpu_key == KEY
        for case in one.cases
        if hasattr(case, "median_ns") and case.median_ns is not None
    ]
    assert [row["median_us"] for row in rows if row["median_us"] is not None] == stored


def test_parquet_without_its_library_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> None:
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
    with pytest.raises(ResultsError, match=r"pip install 'gdn-bench\[parquet\]'"):
        encode(listed(root, Filter()), "parquet")


def test_an_unknown_format_is_named(root: Path, tmp_path: Path) -> None:
    for act in (lambda: write(listed(root, Filter()), tmp_path / "a.xlsx"), lambda: decode(b"", "xlsx")):
        with pytest.raises(ResultsError, match="--format is 'xlsx'; one of csv, json, parquet is wanted"):
            act()


# Imports

BENCHMARKS = """
import time
import pytest
@pytest.mark.parametrize("tokens", [4, 16])
def test_sum(benchmark, tokens):
    benchmark(sum, range(tokens))
def test_named(benchmark):
    benchmark.extra_info.update(recurrence="mine", tokens=7, shape="16x48x128", head_map="tiled", inputs="normal")
    benchmark.pedantic(time.sleep, args=(1e-4,), rounds=9)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files that pytest-benchmark itself wrote: with all times, and saved without."""
    folder = tmp_path_factory.mktemp("pytest-benchmark")
    (folder / "test_some.py").write_text(BENCHMARKS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    options = ["--benchmark-json=full.json", "--benchmark-save=short", "--benchmark-min-rounds=3", "-q"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark-max-time=0.01", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (short,) = folder.glob(".benchmarks/*/*_short.json")
    return {"full": folder / "full.json", "short": short}


@pytest.mark.parametrize("name", ["full", "short"])
def test_an_import_says_what_the_file_says(name: str, written: dict[str, Path], tmp_path: Path) -> None:
    raw = json.loads(written[name].read_text())
    one = record_of(written[name])
    save(one, tmp_path)
    assert load(tmp_path).records == (one,)
    assert one.gpu_key.startswith("host-")
    assert one.method.id == "pytest-benchmark-perf_counter"
    assert len(one.cases) == len(raw["benchmarks"]) == 3
    for case, benchmark in zip(one.cases, raw["benchmarks"], strict=True):
        assert case.median_ns == pytest.approx(benchmark["stats"]["median"] * 1e9, rel=1e-15)
        assert case.samples_ns == tuple(second * 1e9 for second in benchmark["stats"].get("data", ()))
        assert (case.low_ns is None) == (name == "short")
    names = {(case.recurrence, case.tokens, case.shape) for case in one.cases}
    assert ("mine", 7, "16x48x128") in names
    assert {(f"test_some.py::test_sum[{n}]", n, "") for n in (4, 16)} <= names
    assert (one.environment.python, one.environment.cores) == (
        raw["machine_info"]["python_version"],
        raw["machine_info"]["cpu"]["count"],
    )
    assert "no check of accuracy or determinism came with it" in one.notes[0]


def test_the_same_file_is_the_same_run_and_a_card_can_be_named(written: dict[str, Path]) -> None:
    assert record_of(written["full"]) == record_of(written["full"])
    assert record_of(written["full"]).run_id != record_of(written["short"]).run_id
    assert record_of(written["full"], KEY).gpu_key == KEY
    with pytest.raises(ResultsError, match="--gpu is '../x'"):
        record_of(written["full"], "../x")


SPOILT: dict[str, tuple[Any, str]] = {
    "zero": (lambda raw: raw["benchmarks"][0]["stats"].update(median=0.0), "stats.median is 0.0"),
    "negative": (lambda raw: raw["benchmarks"][0]["stats"]["data"].insert(0, -1.0), r"stats.data\[0\] is -1.0"),
    "text": (lambda raw: raw["benchmarks"][0]["stats"].update(median="fast"), "stats.median is 'fast'"),
    "missing": (lambda raw: raw["benchmarks"][0]["stats"].pop("median"), "KeyError"),
    "twice": (lambda raw: raw["benchmarks"].append(raw["benchmarks"][0]), "is there more than once"),
    "none": (lambda raw: raw["benchmarks"].clear(), "is no JSON of pytest-benchmark"),
    "foreign": (lambda raw: raw.pop("machine_info"), "it has no 'machine_info'"),
    "tokens": (lambda raw: raw["benchmarks"][0]["extra_info"].update(tokens=-1), "tokens is -1"),
    "time": (lambda raw: raw.update(datetime="now"), "is no JSON of pytest-benchmark"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_file_that_cannot_be_believed_is_named(name: str, written: dict[str, Path], tmp_path: Path) -> None:
    raw = json.loads(written["full"].read_text())
    spoil, message = SPOILT[name]
    spoil(raw)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(ResultsError, match=message) as refused:
        record_of(file)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-0.0", "true", '"1"', "null"])
def test_a_time_that_is_no_number_above_0_is_refused(number: str, written: dict[str, Path], tmp_path: Path) -> None:
    raw = json.loads(written["short"].read_text())
    raw["benchmarks"][0]["stats"]["median"] = "HERE"
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(raw).replace('"HERE"', number))
    with pytest.raises(ResultsError, match=re.escape(str(file))):
        record_of(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", '{"benchmarks": [{"stats": {"median": NaN}}]}'])
def test_what_is_no_json_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ResultsError, match="is no JSON of pytest-benchmark"):
        record_of(file)
