"""The index says what the records say, whatever becomes of it, and names what it built anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from results import series
from results.frame import frame
from results.index import VERSION, decode, encode
from results.store import load, save
from tests import decade
from tests.fabricate import accuracy, environment, measured, record, speed

KEY = record().gpu_key


def same(root: Path) -> None:
    """The index gives what the records give."""
    loaded = load(root)
    found, problems, _ = series.opened(root)
    assert sorted(problems) == sorted(loaded.problems)
    for one in found:
        own = [record for record in loaded.records if record.gpu_key == one.gpu_key]
        pd.testing.assert_frame_equal(one.cases(), frame(own))
        assert list(one.runs["run_id"]) == [record.run_id for record in own]
    assert {one.gpu_key for one in found if len(one.runs)} == {record.gpu_key for record in loaded.records}


def indexes(root: Path) -> list[Path]:
    return sorted((root / "index").rglob("*.index"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    decade.write(tmp_path, 5, 2)
    save(record(status="partial", run_id="20261130T051500Z-00000000"), tmp_path)
    save(record(cases=(), run_id="20270101T051500Z-00000000"), tmp_path)
    save(
        record(
            environment=environment(gpu=None, driver=None, dirty=None), cases=(accuracy(error_out=None, outcome="red"),)
        ),
        tmp_path,
    )
    save(measured(run_id="x", night="n", process=2), tmp_path)
    return tmp_path


def test_it_says_what_the_records_say_the_first_time_and_the_second(root: Path) -> None:
    same(root)
    assert len(series.opened(root)[2]) == 0
    same(root)
    assert series.opened(root)[2] == ()


def test_a_shard_that_is_built_is_said(root: Path) -> None:
    _, _, notes = series.opened(root)
    assert len(indexes(root)) == 5
    assert len(notes) == 2  # of the two cards; a lone new file is no rebuild
    assert all("was built anew from" in note and "there was none" in note for note in notes)


def test_a_new_run_is_read_and_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(root)
    read: list[str] = []
    monkeypatch.setattr("results.index.read_file", lambda file: (read.append(file.name), file.read_bytes())[1])
    path = save(record(run_id="20261130T999999Z-00000000", cases=(speed(), speed(tokens=7))), root)
    assert len(series.runs(root, KEY)) == 9
    assert read == [path.name]
    same(root)
    assert series.opened(root)[2] == ()


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "empty", "version", "text"])
def test_a_broken_index_is_built_anew_and_says_so(root: Path, harm: str) -> None:
    same(root)
    file = max(indexes(root), key=lambda file: file.stat().st_size)
    data = file.read_bytes()
    broken = {
        "cut": data[: len(data) // 2],
        "flipped": data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
        "empty": b"",
        "version": data.replace(VERSION.encode(), VERSION.encode()[::-1]),
        "text": b"gdn-index\n",
    }
    file.unlink() if harm == "missing" else file.write_bytes(broken[harm])
    _, _, (note,) = series.opened(root)
    assert f"the index of {file.parent.name} was built anew from" in note
    assert ("there was none" if harm == "missing" else f"{file.name} was broken") in note
    assert file.read_bytes() == data
    same(root)


def test_a_shard_of_another_version_is_built_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(root)
    monkeypatch.setattr("results.index.VERSION", "other")
    _, _, notes = series.opened(root)
    assert all("was of another version" in note for note in notes)
    assert len(notes) == 5
    same(root)


def test_a_record_that_was_changed_removed_or_replaced_is_noticed(root: Path) -> None:
    same(root)
    loose = sorted((root / "history" / KEY).glob("2026*.json"))
    loose[1].write_bytes(loose[1].read_bytes().replace(b"570.10", b"999.10"))
    (note,) = series.opened(root)[2]
    assert "1 of its files changed, first " + loose[1].name in note
    assert "999.10" in set(series.runs(root)["driver"])
    loose[2].unlink()
    same(root)
    loose[3].write_bytes(loose[3].read_bytes()[:-5])
    same(root)
    assert any("is no JSON" in line for line in series.problems(root))
    assert any("is no JSON" in line for line in series.problems(root))


def test_a_file_of_the_same_size_and_time_is_noticed_by_its_inode(root: Path) -> None:
    same(root)
    file = sorted((root / "history" / KEY).glob("2026*.json"))[1]
    before = file.stat()
    other = file.with_name("other")
    other.write_bytes(file.read_bytes().replace(b"570.10", b"999.10"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    same(root)


def test_a_broken_record_is_named_until_it_is_mended(root: Path) -> None:
    file = sorted((root / "history" / KEY).glob("2026*.json"))[1]
    whole = file.read_bytes()
    file.write_bytes(b"{")
    for _ in range(2):
        same(root)
        assert any(str(file) in line for line in series.problems(root))
    file.write_bytes(whole)
    same(root)
    assert series.problems(root) == ()


def test_a_folder_that_cannot_be_written_is_read_all_the_same(root: Path) -> None:
    (root / "index").write_text("in the way")
    same(root)
    found = series.runs(root)
    assert any("the index" in note and "cannot be written" in note for note in found.attrs["notes"])


def test_a_draft_gives_way_to_its_complete_record(root: Path) -> None:
    same(root)
    save(record(run_id="20261130T051500Z-00000000"), root)
    same(root)
    (root / "history" / KEY / "20261130T051500Z-00000000.partial.json").write_bytes(
        (root / "history" / KEY / "20261130T051500Z-00000000.json").read_bytes().replace(b"complete", b"partial")
    )
    assert list(series.runs(root, KEY)["status"]).count("partial") == 0
    same(root)


def test_runs_tell_what_changed_and_how_it_went(root: Path) -> None:
    own = series.runs(root, KEY, "cuda-graph-2")
    assert list(own.columns) == list(series.RUN_FACTS)
    row = own[own["run_id"] == "x"].iloc[0]
    assert (row["night"], row["process"], row["nvrtc"], row["green"], row["red"]) == ("n", 2, "12.8", 6, 0)
    assert list(row[["canary_fma_before_us", "canary_copy_after_us"]]) == pytest.approx([330.0, 132.4])
    assert list(row[["aa_least", "aa_greatest"]]) == [1.001, 1.001]
    assert row["file"] == f"history/{KEY}/x.json"
    assert set(own["method_id"]) == {"cuda-graph-2"}
    speeds = series.cases(root, KEY, "cuda-graph-2", ("speed",))
    assert set(speeds["kind"]) == {"speed"}
    assert (speeds[speeds["run_id"] == "x"]["aa_high"] == 1.0025).all()


def test_the_newest_of_each_case_is_one_row_of_all_of_them(root: Path) -> None:
    (own,) = series.opened(root, KEY)[0]
    names = ["kind", "recurrence", "against", "tokens", "shape", "head_map", "inputs"]
    wanted = own.cases().drop_duplicates(names, keep="last").reset_index(drop=True)
    pd.testing.assert_frame_equal(own.cases(newest=True), wanted)
    few = ["run_id", "sha256_out", "tokens"]
    pd.testing.assert_frame_equal(own.cases(newest=True, columns=few), wanted[few])
    pd.testing.assert_frame_equal(own.cases("cuda-graph-2", columns=few), own.cases("cuda-graph-2")[few])


@pytest.mark.parametrize("options", [{}, {"gpu_key": "none"}, {"gpu_key": KEY, "method_id": "none"}])
def test_nothing_has_the_same_columns_and_types(tmp_path: Path, root: Path, options: dict[str, Any]) -> None:
    full = series.runs(root)
    empty = series.runs(tmp_path / "none" if not options else root, **options)
    assert len(empty) == 0
    assert empty.dtypes.equals(full.dtypes)
    where = tmp_path / "none" if not options else root
    assert series.cases(where, options.get("gpu_key", KEY), "none").dtypes.equals(frame([]).dtypes)


def test_a_shard_comes_back_from_its_bytes_as_it_was(root: Path) -> None:
    same(root)
    for file in indexes(root):
        assert encode(decode(file.read_bytes())) == file.read_bytes()


def test_a_thousand_runs_are_read_within_seconds(tmp_path: Path) -> None:
    import time

    assert decade.write(tmp_path, 400, 3) == 1200
    series.opened(tmp_path)
    decade.write(tmp_path, 1, 3, first=400)
    start = time.perf_counter()
    runs = series.runs(tmp_path)
    speeds = series.cases(tmp_path, KEY, "cuda-graph-2", ("speed",))
    assert (len(runs), len(speeds)) == (1203, 401 * 22)
    assert time.perf_counter() - start < 5  # observed: 0.4 s
