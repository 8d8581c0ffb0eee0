"""Compaction moves records into packs byte for byte; nothing reads otherwise afterwards, and a broken pack is named."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from results import packs, series
from results.accepted import accept, acceptances
from results.compact import compact
from results.history import Filter, check, exported
from results.store import ResultsError, load, read, save
from tests import decade
from tests.fabricate import environment, record
from tests.test_results_series import same

KEY = record().gpu_key
LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    decade.write(tmp_path, 40, 2)  # from December on: two years
    save(record(run_id="draft", status="partial"), tmp_path)
    return tmp_path


def texts(root: Path) -> dict[str, bytes]:
    """Every record's bytes, loose or packed."""
    found = {file.name: file.read_bytes() for file in (root / "history").glob("*/*.json")}
    for pack in (root / "history").glob("*/packed-*.zip"):
        with zipfile.ZipFile(pack) as file:  # any unzip will do
            found |= {name: file.read(name) for name in file.namelist()}
    return found


def test_no_byte_is_lost_and_everything_reads_as_before(root: Path) -> None:
    before, loaded, cases = texts(root), load(root), exported(root, Filter())
    done = compact(root, LATER)
    assert (done.runs, len(done.packs), done.problems) == (80, 4, [])
    assert sorted(pack.name.split("-")[1] for pack in done.packs) == ["2026", "2026", "2027", "2027"]
    assert texts(root) == before
    assert [file.name for file in (root / "history").glob("*/*.json")] == ["draft.partial.json"]
    assert load(root) == loaded
    same(root)
    assert exported(root, Filter()).equals(cases)
    assert check(root)[1] == []
    assert sum(pack.stat().st_size for pack in done.packs) < sum(map(len, before.values())) / 5


def test_only_old_complete_records_of_the_card_move(root: Path) -> None:
    done = compact(root, datetime(2026, 12, 11, tzinfo=UTC), KEY)
    assert (done.runs, len(done.packs)) == (10, 1)
    assert len(list((root / "history" / KEY).glob("*.json"))) == 31
    same(root)
    again = compact(root, LATER)
    assert again.runs == 70
    assert compact(root, LATER).packs == []
    same(root)


def test_a_compaction_that_was_killed_before_it_removed_is_finished(root: Path) -> None:
    before, loaded = texts(root), load(root)
    folder = root / "history" / KEY
    packs.write(folder, "2026", sorted(folder.glob("2026*.json"))[:9])
    assert load(root) == loaded
    same(root)
    assert compact(root, datetime(2000, 1, 1, tzinfo=UTC)).runs == 9
    assert texts(root) == before
    assert load(root) == loaded


def test_the_same_files_make_the_same_pack(root: Path, tmp_path: Path) -> None:
    folder = root / "history" / KEY
    first = packs.write(folder, "2026", sorted(folder.glob("2026*.json")))
    data = first.read_bytes()
    assert packs.write(folder, "2026", sorted(folder.glob("2026*.json"))) == first
    assert first.read_bytes() == data
    assert not list(folder.glob(".*"))


def test_a_file_that_differs_from_its_packed_copy_stays_and_is_named(root: Path) -> None:
    folder = root / "history" / KEY
    file = sorted(folder.glob("2026*.json"))[0]
    packs.write(folder, "2026", [file])
    file.write_bytes(file.read_bytes().replace(b"570.10", b"999.10"))
    assert len(load(root).problems) == 1
    same(root)
    done = compact(root, LATER)
    assert file.exists()
    assert any(str(file) in line and "differs from the copy" in line for line in done.problems)


def test_a_pack_that_would_not_read_back_removes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = texts(root)
    written = zipfile.ZipFile.writestr

    def spoilt(self: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes, kind: int) -> None:
        written(self, entry, data.replace(b"8", b"9", 1), kind)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", spoilt)
    with pytest.raises(ResultsError, match="differs from the file; nothing was removed"):
        compact(root, LATER)
    assert texts(root) == before


def test_a_full_disk_removes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = texts(root)

    def full(self: zipfile.ZipFile, *arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(ResultsError, match="cannot be written: No space left on device; nothing was removed"):
        compact(root, LATER)
    assert texts(root) == before
    assert not list((root / "history").rglob(".*"))


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_broken_pack_is_named_and_the_rest_is_read(root: Path, harm: str) -> None:
    done = compact(root, datetime(2027, 1, 1, tzinfo=UTC), KEY)
    (pack,) = done.packs
    data = pack.read_bytes()
    middle = 300  # in the first member
    flipped = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
    pack.write_bytes({"cut": data[:-50], "flip": flipped, "empty": b""}[harm])
    loaded = load(root)
    assert len(loaded.records) == {"flip": 80, "cut": 50, "empty": 50}[harm]
    for _ in range(2):
        same(root)
        (line,) = series.problems(root)
        assert str(pack) in line
        assert "restore it from a copy" in line
    assert compact(root, LATER).problems
    assert len(check(root)[1]) >= 1


def test_a_packed_run_can_be_read_accepted_and_is_the_baseline_still(root: Path) -> None:
    name = sorted((root / "history" / KEY).glob("2026*.json"))[0].stem
    whole = read(root, KEY, name)
    accept(root, name)
    compact(root, LATER)
    assert read(root, KEY, name) == whole
    assert [one.run_id for one in acceptances(root, KEY, whole.method.id)] == [name]
    assert accept(root, name).run_id == name


def test_a_check_finds_what_size_and_time_hide(root: Path) -> None:
    import os

    series.runs(root)
    file = sorted((root / "history" / KEY).glob("2026*.json"))[0]
    before = file.stat()
    data = file.read_bytes().replace(b"570.10", b"999.10")
    with file.open("r+b") as same_inode:
        same_inode.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (line,) = check(root)[1]
    assert str(file) in line
    assert "its bytes changed" in line


def test_an_unpacked_record_beside_its_pack_is_no_problem(root: Path) -> None:
    loaded = load(root)
    (pack, *_) = compact(root, LATER).packs
    with zipfile.ZipFile(pack) as file:
        file.extractall(pack.parent)
    assert load(root) == loaded
    same(root)


def test_an_unfinished_pack_is_swept_once_it_is_old(root: Path) -> None:
    import os

    left = [root / "history" / KEY / f".packed-2026-{name}" for name in ("old", "new")]
    for file in left:
        file.write_bytes(b"PK")
    os.utime(left[0], (0, 0))
    compact(root, LATER)
    assert [file.exists() for file in left] == [False, True]


def test_an_unreadable_record_is_not_packed(root: Path) -> None:
    file = sorted((root / "history" / KEY).glob("2026*.json"))[0]
    file.write_bytes(b"{")
    done = compact(root, LATER)
    assert file.read_bytes() == b"{"
    assert any(str(file) in line for line in done.problems)
    assert done.runs == 79


def test_other_cards_are_left_alone(root: Path) -> None:
    save(record(environment=environment(gpu=None)), root)
    compact(root, LATER, KEY)
    assert len(list((root / "history").glob("*/*.json"))) == 42
