"""A merge brings in what is new byte for byte, names what is in conflict, and replaces nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from results.accepted import accept, acceptances
from results.ceilings import keep_ceilings
from results.compact import compact
from results.history import check
from results.merge import merge
from results.schema import Ceilings
from results.store import ResultsError, load, save
from tests import decade
from tests.fabricate import environment, record, speed
from tests.test_results_compact import texts
from tests.test_results_series import same

ROOT = Path(__file__).parents[1]
KEY = record().gpu_key


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of two machines that have 3 nights of one card in common."""
    one, other = tmp_path / "one", tmp_path / "other"
    decade.write(one, 6, 1)
    decade.write(other, 6, 2, first=3)
    return one, other


def tree(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_what_is_new_comes_in_and_the_source_stays(two: tuple[Path, Path]) -> None:
    one, other = two
    before, wanted = tree(other), texts(one) | texts(other)
    done = merge(one, [other])
    assert (len(done.added), done.same) == (9, 3)
    assert done.conflicts == done.problems == []
    assert tree(other) == before
    assert texts(one) == wanted
    same(one)
    again = merge(one, [other])
    assert (len(again.added), again.same) == (0, 12)


def test_order_does_not_matter(two: tuple[Path, Path], tmp_path: Path) -> None:
    for name, sources in (("x", two), ("y", two[::-1])):
        merge(tmp_path / name, sources)
    assert tree(tmp_path / "x") == tree(tmp_path / "y")
    assert load(tmp_path / "x").problems == ()


def test_a_run_with_another_content_is_a_conflict_and_stays(two: tuple[Path, Path]) -> None:
    one, other = two
    (name, data) = next((n, d) for n, d in texts(one).items() if n in texts(other))
    file = other / "history" / KEY / name
    file.write_bytes(data.replace(b"570.10", b"999.10"))
    done = merge(one, [other])
    (line,) = done.conflicts
    assert str(file) in line
    assert "stored with another content" in line
    assert texts(one)[name] == data
    assert len(done.added) == 9


def test_the_same_record_in_another_layout_is_no_conflict(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    save(record(), one)
    file = save(record(), other)
    file.write_bytes(msgspec.json.encode(record()))
    done = merge(one, [other])
    assert (done.added, done.same, done.conflicts) == ([], 1, [])


def test_drafts_give_way_to_complete_records_in_both_directions(tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in ("one", "other", "third"))
    draft, whole = record(status="partial"), record()
    save(draft, one)
    save(whole, other)
    later = record(status="partial", finished="2026-11-30T09:00:00Z", cases=(speed(), speed(tokens=1)))
    save(later, third)
    assert len(merge(one, [third]).added) == 1
    assert load(one).records == (later,)
    assert merge(third, [one]).same == 1
    assert len(merge(one, [other]).added) == 1
    assert [file.name for file in (one / "history" / KEY).iterdir()] == [f"{whole.run_id}.json"]
    (note,) = merge(one, [third]).notes
    assert "is a draft of a run that is complete here" in note
    assert load(one).records == (whole,)


def test_packs_come_in_whole_where_they_are_new_and_in_part_where_not(two: tuple[Path, Path], tmp_path: Path) -> None:
    one, other = two
    wanted, loaded = texts(one) | texts(other), load(other)
    compact(other, datetime(2030, 1, 1, tzinfo=UTC))
    fresh = tmp_path / "fresh"
    assert len(merge(fresh, [other]).added) == 2
    assert load(fresh) == loaded
    done = merge(one, [other])
    assert texts(one) == wanted
    assert done.conflicts == done.problems == []
    assert len(done.added) == 3 + 1  # the loose nights of one card, and the other card's pack
    same(one)
    assert merge(one, [other]).added == []
    compact(one, datetime(2030, 1, 1, tzinfo=UTC))
    assert texts(one) == wanted
    assert merge(one, [other, fresh]).added == []
    assert check(one)[1] == []


def test_a_broken_record_is_named_and_does_not_come_in(two: tuple[Path, Path]) -> None:
    one, other = two
    file = sorted((other / "history" / KEY).iterdir())[-1]
    file.write_bytes(file.read_bytes()[:-9])
    done = merge(one, [other])
    (line,) = done.problems
    assert str(file) in line
    assert not (one / "history" / KEY / file.name).exists()
    assert len(done.added) == 8


def test_acceptances_and_rates_come_too(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        save(record(run_id=root.name), root)
        accept(root, root.name)
        keep_ceilings(Ceilings(fma_flops=float(len(root.name))), root, KEY)
    keep_ceilings(Ceilings(fma_flops=1.0), other, "another")
    done = merge(one, [other])
    assert [a.run_id for a in acceptances(one, KEY, record().method.id)] == ["one", "other"]
    assert len(done.notes) == 1
    assert "measured another time" in done.notes[0]
    assert msgspec.json.decode((one / "ceilings" / f"{KEY}.json").read_bytes())["fma_flops"] == 3.0
    assert (one / "ceilings" / "another.json").exists()
    assert done.conflicts == done.problems == []
    (file,) = (other / "accepted" / KEY).iterdir()
    file.write_text(file.read_text().replace('"because": ""', '"because": "x"'))
    assert len(merge(one, [other]).conflicts) == 1
    file.write_text("{")
    assert len(merge(one, [other]).problems) == 1


def test_cards_stay_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    save(record(), one)
    save(record(environment=environment(gpu="NVIDIA B200")), other)
    merge(one, [other])
    assert len(load(one).records) == 2
    assert {len(list(folder.iterdir())) for folder in (one / "history").iterdir()} == {1}


@pytest.mark.parametrize("name", ["none", "file", "itself"])
def test_what_is_no_results_folder_is_refused(name: str, tmp_path: Path) -> None:
    save(record(), tmp_path / "one")
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="is no results folder|is the results folder itself"):
        merge(tmp_path / "one", [tmp_path / ("one" if name == "itself" else name)])


MERGER = """
import sys
from pathlib import Path
from results.merge import merge
done = merge(Path(sys.argv[1]), [Path(sys.argv[2])])
print(len(done.added), done.same, len(done.conflicts), len(done.problems))
"""


def test_two_merges_of_the_same_at_once_are_one(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    decade.write(source, 150, 1)
    command = [sys.executable, "-c", MERGER, str(target), str(source)]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [list(map(int, one.communicate()[0].split())) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sum(one[0] for one in said) == 150
    assert all(one[0] + one[1] == 150 and one[2:] == [0, 0] for one in said)
    assert texts(target) == texts(source)
