"""Records survive each other, kills, full disks and broken neighbours; a bad file is named."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.schema import SCHEMA, Speed
from results.store import ResultsError, check_writable, default_root, gpu_key, load, new_run_id, save
from tests.fabricate import accuracy, environment, record, speed

ROOT = Path(__file__).parents[1]
KEY = "nvidia-h200-132sm-140gib-ecc-700w"


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


# Names


def test_the_default_root_is_the_checkouts() -> None:
    assert default_root() == ROOT / "results"


def test_the_default_root_of_an_installed_package_is_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("results.store.__file__", str(tmp_path / "site-packages/results/store.py"))
    monkeypatch.chdir(tmp_path)
    assert default_root() == tmp_path / "results"


def test_run_ids_are_a_time_and_a_random_part() -> None:
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", one) for one in ids)


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({}, KEY),
        ({"power_limit_w": 699.5, "memory_mib": 143_156}, KEY),
        ({"ecc": False, "power_limit_w": 575.0}, "nvidia-h200-132sm-140gib-noecc-575w"),
        ({"ecc": None, "power_limit_w": None, "sms": None, "memory_mib": None}, "nvidia-h200"),
        ({"gpu": "NVIDIA H200 MIG 1g.18gb", "sms": 16}, "nvidia-h200-mig-1g.18gb-16sm-140gib-ecc-700w"),
        ({"gpu": None}, "host-intel-xeon-platinum-8480-16cores"),
        ({"gpu": None, "cpu": "../..", "cores": 2}, "host-unknown-2cores"),
    ],
)
def test_gpu_keys_hold_the_stable_facts(facts: dict[str, Any], key: str) -> None:
    assert gpu_key(environment(**facts)) == key


def test_a_driver_update_is_the_same_card() -> None:
    assert gpu_key(environment(driver="999", cupy="99", gpu_uuid="GPU-1", commit=None)) == KEY


@given(st.text())
def test_any_name_makes_a_safe_folder(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", gpu_key(environment(gpu=name)))
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", gpu_key(environment(gpu=None, cpu=name)))


# What is saved is loaded


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = save(record(), tmp_path)
    assert path == tmp_path / f"history/{KEY}/20261130T051500Z-0123abcd.json"
    loaded = load(tmp_path)
    assert loaded.records == (record(),)
    assert loaded.problems == ()
    assert files(tmp_path) == [path.name]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.lists(st.floats(0, allow_nan=False, allow_infinity=False), max_size=5),
    note=st.text(st.characters(exclude_categories=["Cs"])),
    error=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_record_comes_back_as_it_was(tmp_path: Path, samples: list[float], note: str, error: float | None) -> None:
    root = tmp_path / new_run_id()
    one = record(cases=(speed(samples_ns=tuple(samples)), accuracy(error_out=error)), notes=(note,))
    save(one, root)
    assert load(root).records == (one,)


def test_records_are_sorted_by_time_across_gpus(tmp_path: Path) -> None:
    times = {"c": "2026-11-30T05:00:00Z", "a": "2026-11-30T06:00:00+00:00", "b": "2026-11-30T06:00:00.001+00:00"}
    for run_id, started in times.items():
        save(record(run_id=run_id, started=started, environment=environment(driver=run_id, sms=ord(run_id))), tmp_path)
    assert [one.run_id for one in load(tmp_path).records] == ["c", "a", "b"]


def test_an_empty_or_missing_folder_has_no_records_and_no_problems(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "none"):
        assert load(root) == load(tmp_path)
        assert not load(root).records
        assert not load(root).problems


def test_a_draft_is_replaced_and_then_superseded(tmp_path: Path) -> None:
    for cases in ((accuracy(),), (accuracy(), speed())):
        draft = save(record(status="partial", cases=cases), tmp_path)
        assert draft.name == "20261130T051500Z-0123abcd.partial.json"
        assert [one.cases for one in load(tmp_path).records] == [cases]
    complete = save(record(), tmp_path)
    assert files(tmp_path) == [complete.name]


def test_a_draft_beside_its_complete_record_counts_once(tmp_path: Path) -> None:
    save(record(), tmp_path)
    save(record(status="partial"), tmp_path)
    assert load(tmp_path).records == (record(),)


def test_a_draft_counts_where_the_complete_record_is_broken(tmp_path: Path) -> None:
    save(record(), tmp_path).write_bytes(b"{")
    save(record(status="partial"), tmp_path)
    loaded = load(tmp_path)
    assert [one.status for one in loaded.records] == ["partial"]
    assert len(loaded.problems) == 1


@pytest.mark.parametrize("links", [True, False])
def test_a_complete_record_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = save(record(), tmp_path)
    before = path.read_bytes()
    with pytest.raises(ResultsError, match=r"0123abcd\.json is there already"):
        save(record(notes=("another",)), tmp_path)
    assert path.read_bytes() == before
    assert files(tmp_path) == [path.name]


# What is refused


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_with_their_path(tmp_path: Path, bad: float) -> None:
    for path, one in {
        "cases[1].samples_ns[2]": record(cases=(accuracy(), speed(samples_ns=(1.0, 2.0, bad)))),
        "cases[0].limit": record(cases=(accuracy(limit=bad),)),
        "environment.power_limit_w": record(environment=environment(power_limit_w=bad), gpu_key="x"),
    }.items():
        with pytest.raises(ResultsError, match=rf"0123abcd: {re.escape(path)} is {bad};"):
            save(one, tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run_id": "../x"}, "run_id is '../x'"),
        ({"run_id": "x.partial"}, "run_id is 'x.partial'"),
        ({"gpu_key": ".."}, "gpu_key is '..'"),
        ({"gpu_key": "A"}, "gpu_key is 'A'"),
        ({"status": "done"}, "status is 'done'"),
        ({"started": "today"}, "started is 'today'"),
        ({"started": "2026-11-30T05:15:00"}, "started is '2026-11-30T05:15:00'"),
        ({"cases": (accuracy(tokens=-1),)}, r"cases\[0\]\.tokens is -1"),
    ],
)
def test_a_record_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ResultsError, match=words):
        save(record(**changes), tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not write"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failing_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    save(record(run_id="old"), tmp_path)

    def fail(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    message = f"{re.escape(str(tmp_path / 'history'))}.*{words}.*--gdn-results"
    with pytest.raises(ResultsError, match=message):
        check_writable(tmp_path)
    for status in ("complete", "partial"):
        with pytest.raises(ResultsError, match=message):
            save(record(status=status), tmp_path)
    assert files(tmp_path) == ["old.json"]


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(ResultsError, match="is a file|not a folder"):
            check_writable(root)
        with pytest.raises(ResultsError, match="not a folder"):
            save(record(), root)
    problems = load(tmp_path / "file").problems
    assert len(problems) == 1
    assert "Not a directory" in problems[0]


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(ResultsError, match="/proc/none/history"):
        check_writable(Path("/proc/none"))


def test_a_writable_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    check_writable(tmp_path / "new", KEY)
    assert files(tmp_path) == []
    assert (tmp_path / "new/history" / KEY).is_dir()


# Bad files


def change(**values: Any) -> Any:
    """A change of a stored record's JSON."""

    def apply(data: bytes) -> bytes:
        return json.dumps(json.loads(data) | values).encode()

    return apply


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[: len(data) // 2], "is no JSON: Input data was truncated; restore"),
        (lambda data: b"", "is no JSON: Input data was truncated; restore"),
        (lambda data: b"\xff\xfe", "is no JSON: .*; restore"),
        (lambda data: b"[" * 100_000, "is no JSON: .*; restore"),
        (lambda data: data.replace(b"green", b"gr\xffen"), "is no JSON: .*; restore"),
        (lambda data: b'{"benchmarks": []}', "has no key schema, so it is no record of gdn-bench; restore"),
        (lambda data: b"[1, 2]", "has no key schema"),
        (change(schema=SCHEMA + 1), f"schema is {SCHEMA + 1}; this gdn-bench reads up to {SCHEMA}; upgrade it"),
        (
            change(schema=SCHEMA + 1, more={}),
            f"schema is {SCHEMA + 1}; this gdn-bench reads up to {SCHEMA}; upgrade it",
        ),
        (change(schema=0), "schema is 0: Expected `int` >= 1; restore"),
        (change(more={}), "unknown field `more`; restore"),
        (change(status="done"), "status is 'done': Invalid enum value 'done'; restore"),
        (change(cases=[{"kind": "speed", "tokens": "many"}]), r"cases\[0\]\.tokens is 'many': Expected `int`"),
        (change(cases=[{"kind": "other"}]), r"cases\[0\]\.kind is 'other'"),
        (change(command="x" * 1000), r"command is 'x{56}\.\.\.: Expected `array`"),
        (change(started="yesterday"), "started is 'yesterday'; a time in UTC such as"),
        (change(gpu_key="other"), f"gpu_key is 'other', the folder is '{KEY}'; move the file"),
        (change(run_id="other"), r"run_id is 'other' .*; rename the file to other\.json"),
        (change(status="partial"), r"status is 'partial'; rename the file to bad\.partial\.json"),
    ],
)
def test_a_bad_file_is_named_and_kept(tmp_path: Path, spoil: Any, words: str) -> None:
    good = save(record(run_id="good"), tmp_path)
    bad = save(record(run_id="bad"), tmp_path)
    spoiled = spoil(bad.read_bytes())
    bad.write_bytes(spoiled)
    loaded = load(tmp_path)
    assert [one.run_id for one in loaded.records] == ["good"]
    assert len(loaded.problems) == 1
    assert re.match(rf"{re.escape(str(bad))}: .*{words}", loaded.problems[0]), loaded.problems[0]
    assert "\n" not in loaded.problems[0]
    assert bad.read_bytes() == spoiled
    assert files(tmp_path) == [bad.name, good.name]


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "history" / KEY
    (folder / "folder.json").mkdir(parents=True)
    (folder / "loop.json").symlink_to("loop.json")
    save(record(), tmp_path)
    loaded = load(tmp_path)
    assert len(loaded.records) == 1
    assert [line.split(": ")[0] for line in loaded.problems] == [
        str(folder / "folder.json"),
        str(folder / "loop.json"),
    ]


def test_a_record_outside_of_a_gpus_folder_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    path = save(record(), tmp_path)
    stray = tmp_path / "history" / path.name
    stray.write_bytes(path.read_bytes())
    for name in (".gitkeep", ".x.json.1-2.tmp", ".hidden.json", "README.md"):
        (path.parent / name).write_text("?")
        (path.parents[1] / name).write_text("?")
    loaded = load(tmp_path)
    assert loaded.records == (record(),)
    assert loaded.problems == (f"{stray}: lies outside the folder of a GPU; move it to the one its gpu_key names",)


def test_a_draft_that_goes_while_it_is_read_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(record(status="partial"), tmp_path)
    monkeypatch.setattr("results.store.loose", lambda folder, problems: [path])
    path.unlink()
    assert load(tmp_path) == load(tmp_path / "none")


# Several processes

WRITER = """
import sys
from pathlib import Path
from results.store import save
from tests.fabricate import record
for number in range(100):
    run_id = f"{sys.argv[2]}-{number}"
    save(record(run_id=run_id, status="partial"), Path(sys.argv[1]))
    save(record(run_id=run_id), Path(sys.argv[1]))
"""


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [python(WRITER, tmp_path, name) for name in "ab"]
    while any(writer.poll() is None for writer in writers):
        assert load(tmp_path).problems == ()
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    loaded = load(tmp_path)
    assert loaded.problems == ()
    assert {one.run_id for one in loaded.records} == {f"{name}-{n}" for name in "ab" for n in range(100)}
    assert len(files(tmp_path)) == 200


KILLED = """
import os, random, select, signal, sys, time
from pathlib import Path
from results.store import save
from tests.fabricate import record
root, chance = Path(sys.argv[1]), random.Random(7)
for kill in range(50):
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        for number in range(1000):
            for status in ("partial", "complete"):
                save(record(run_id=f"{kill}-{number}", status=status), root)
                os.write(send, f"{kill}-{number} {status}\\n".encode())
    os.close(send)
    if kill % 2:
        select.select([receive], [], [], 10)  # however slow the disk is, half of the kills come after a first save
    time.sleep(chance.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(receive) as said:
        print(said.read(), end="")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_writer_leaves_whole_records(tmp_path: Path) -> None:
    writer = python(KILLED, tmp_path)
    said = dict(line.split() for line in writer.communicate()[0].splitlines())
    assert writer.returncode == 0
    assert len({run_id.split("-")[0] for run_id in said}) > 20
    loaded = load(tmp_path)
    assert loaded.problems == ()
    found = {one.run_id: one.status for one in loaded.records}
    assert set(said) <= set(found)
    assert all(found[run_id] == "complete" for run_id, status in said.items() if status == "complete")
    assert all(name.startswith(".") or name.endswith(".json") for name in files(tmp_path))


def test_ten_thousand_records_load_within_seconds(tmp_path: Path) -> None:
    import time

    folder = tmp_path / "history" / KEY
    folder.mkdir(parents=True)
    for number in range(2000):
        (folder / f"{number}.json").write_bytes(msgspec.json.encode(record(run_id=str(number))))
    start = time.monotonic()
    loaded = load(tmp_path)
    assert len(loaded.records) == 2000
    assert time.monotonic() - start < 2


# Older files


def test_records_of_schema_1_are_read_as_they_are() -> None:
    """The shipped history has them; what they lack is missing, not made up."""
    shipped = load(Path(__file__).parents[1] / "results")
    assert shipped.problems == ()
    first = [one for one in shipped.records if one.schema == 1]
    assert len(first) >= 8
    for one in first:
        assert (one.groups, one.canaries, one.ceilings, one.night) == ((), (), None, None)
        assert one.method.id == "cuda-graph-hot-1"
        assert all(case.cold is None and case.host is None for case in one.cases if isinstance(case, Speed))
