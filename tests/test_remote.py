"""The store of records: a folder, fsspec's memory and a real S3-compatible server, started here."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results import remote
from results.remote import Folder, pull, push
from results.store import ResultsError, load, save
from tests.fabricate import record

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of moto's S3 server, in a thread of its own."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    one = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    one.start()
    host, port = one.get_host_and_port()
    yield f"http://{host}:{port}"
    one.stop()


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each kind, empty."""
    if request.param == "folder":
        return str(tmp_path / "store")
    if request.param == "file":
        return f"file://{tmp_path / 'store'}"
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return "memory://store/gdn"
    address = request.getfixturevalue("server")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "FSSPEC_S3_ENDPOINT_URL": address,
    }.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"gdn-{abs(hash(tmp_path)) % 10**9}"
    s3fs.S3FileSystem(endpoint_url=address).mkdir(bucket)
    return f"s3://{bucket}/nightly"


def evidence(root: Path) -> dict[str, int]:
    return {name: size for name, size in Folder(root).sizes().items() if remote.STORED.fullmatch(name)}


def fill(root: Path) -> Path:
    save(record(), root)
    save(record(run_id="stopped", status="partial"), root)
    for name in ("ceilings/nvidia-h200.json", "accepted/nvidia-h200/cuda-graph-2/a.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}\n")
    for name in ("report.html", "index/a.json", "history/.a.json", "accepted/x/.tmp.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("not evidence")
    return root


def names(moved: remote.Moved) -> list[str]:
    assert moved.problems == ()
    return [Path(name).name for name in moved.copied]


EVIDENCE = ["a.json", "nvidia-h200.json", f"{record().run_id}.json", "stopped.partial.json"]


def test_what_is_pushed_comes_back_byte_for_byte(where: str, tmp_path: Path) -> None:
    root = fill(tmp_path / "r")
    assert names(push(root, where)) == EVIDENCE
    assert names(push(root, where)) == []
    assert len(push(root, where, verify=True).there) == len(EVIDENCE)
    back = tmp_path / "back"
    assert names(pull(where, back)) == EVIDENCE
    assert load(back) == load(root)
    for name in evidence(root):
        assert (back / name).read_bytes() == (root / name).read_bytes()
    assert not (back / "report.html").exists()


def test_nothing_in_a_store_is_overwritten(where: str, tmp_path: Path) -> None:
    push(fill(tmp_path / "r"), where)
    other = tmp_path / "other"
    save(record(command=("another",)), other)
    moved = push(other, where)
    assert moved.copied == ()
    (problem,) = moved.problems
    assert f"{record().run_id}.json: is here with " in problem
    assert "nothing was changed" in problem
    back = tmp_path / "back"
    pull(where, back)
    assert record() in load(back).records
    # the other way round as well
    assert len(pull(where, other).problems) == 1
    assert record(command=("another",)) in load(other).records


def test_a_cards_first_peak_rates_stay(where: str, tmp_path: Path) -> None:
    push(fill(tmp_path / "r"), where)
    other = tmp_path / "other" / "ceilings" / "nvidia-h200.json"
    other.parent.mkdir(parents=True)
    other.write_text('{"another": 1}')
    assert push(tmp_path / "other", where).problems == ()
    pull(where, tmp_path / "back")
    assert (tmp_path / "back/ceilings/nvidia-h200.json").read_text() == "{}\n"


def test_a_broken_file_is_named_and_the_others_are_copied(where: str, tmp_path: Path) -> None:
    root = fill(tmp_path / "r")
    folder = root / "history" / record().gpu_key
    (folder / "cut.json").write_bytes((folder / f"{record().run_id}.json").read_bytes()[:300])
    (folder / "named-otherwise.json").write_bytes((folder / f"{record().run_id}.json").read_bytes())
    (folder / "packed-1.zip").write_bytes(b"PK")
    moved = push(root, where)
    assert [Path(name).name for name in moved.copied] == EVIDENCE
    told = [problem.partition(": ") for problem in moved.problems]
    assert [Path(name).name for name, _, _ in told] == ["cut.json", "named-otherwise.json", "packed-1.zip"]
    assert ["is no JSON" in told[0][2], "move it" in told[1][2], "no whole zip" in told[2][2]] == [True] * 3


def test_two_pushers_at_once_agree(where: str, tmp_path: Path) -> None:
    root = fill(tmp_path / "r")
    found: list[remote.Moved] = []
    two = [threading.Thread(target=lambda: found.append(push(root, where))) for _ in range(2)]
    for one in two:
        one.start()
    for one in two:
        one.join()
    assert [one.problems for one in found] == [(), ()]
    pull(where, tmp_path / "back")
    assert load(tmp_path / "back") == load(root)


class Lying(Folder):
    """A store that keeps half of what it is given."""

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data[: len(data) // 2])


def test_what_was_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "store", lambda where, options: Lying(Path(where)))
    moved = push(fill(tmp_path / "r"), str(tmp_path / "store"))
    assert moved.copied == ()
    assert len(moved.problems) == len(EVIDENCE)
    assert all("read back as" in problem for problem in moved.problems)


def test_same_size_and_other_bytes_are_found_when_asked_for(tmp_path: Path) -> None:
    root, where = fill(tmp_path / "r"), tmp_path / "store"
    push(root, str(where))
    file = where / "accepted/nvidia-h200/cuda-graph-2/a.json"
    file.write_text("[]\n")
    assert push(root, str(where)).problems == ()
    assert "nothing was changed" in push(root, str(where), verify=True).problems[0]
    assert file.read_text() == "[]\n"


def test_a_killed_push_leaves_nothing_half_written(tmp_path: Path) -> None:
    root = fill(tmp_path / "r")
    for number in range(20):
        save(record(run_id=f"run-{number}"), root)
    program = (
        "import sys; from pathlib import Path; from results.remote import push; push(Path(sys.argv[1]), sys.argv[2])"
    )
    for delay in range(8):
        where = tmp_path / f"store-{delay}"
        one = subprocess.Popen([sys.executable, "-c", program, str(root), str(where)])
        while not any(where.rglob("*.json")) and one.poll() is None:
            pass
        threading.Event().wait(delay * 0.01)
        one.kill()
        one.wait()
        for name in evidence(where):
            assert (where / name).read_bytes() == (root / name).read_bytes()
        assert push(root, str(where)).problems == ()


@pytest.mark.parametrize("where", ["nosuch://bucket/x", "memory2://x"])
def test_an_unknown_kind_of_store_is_named_with_the_mend(where: str, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"the store \w+://.*gdn-bench\[store\]"):
        push(tmp_path, where)


def test_names_of_a_store_never_lead_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = ["accepted/../../evil.json", "/tmp/evil.json", "accepted//a.json", "index/a.json", "accepted/k/.a.json"]

    class Hostile(Folder):
        def sizes(self) -> dict[str, int]:
            return dict.fromkeys([*evil, "accepted/a/b.json"], 3)

        def read(self, name: str) -> bytes:
            return b"{}\n"

    monkeypatch.setattr(remote, "store", lambda where, options: Hostile(Path(where)))
    assert pull("s3://x", tmp_path / "r").copied == ("accepted/a/b.json",)
    assert [file.name for file in tmp_path.rglob("*.json")] == ["b.json"]


def test_a_store_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Down(Folder):
        def sizes(self) -> dict[str, int]:
            raise TimeoutError("no answer")

    monkeypatch.setattr(remote, "store", lambda where, options: Down(Path(where)))
    with pytest.raises(ResultsError, match="the store s3://x cannot be listed: TimeoutError: no answer"):
        push(tmp_path, "s3://x")


def test_a_record_that_is_newer_than_this_program_is_not_passed_on(tmp_path: Path) -> None:
    root = fill(tmp_path / "r")
    file = root / "history" / record().gpu_key / f"{record().run_id}.json"
    changed: dict[str, Any] = json.loads(file.read_text()) | {"schema": 99}
    file.write_text(json.dumps(changed))
    assert "schema is 99" in push(root, str(tmp_path / "store")).problems[0]
