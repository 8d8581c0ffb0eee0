"""The lock of a card: one job at a time, in real processes, and free again however its owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suite import devices, lock
from tests.fabricate import options

UUID = "GPU-00000000-1111"

HOLD = f"""
import subprocess, sys, time
from suite.lock import Lock
one = Lock({UUID!r})
one.acquire(0)
if "child" in sys.argv:
    sleep = [sys.executable, "-c", "import time; time.sleep(30)"]
    print(subprocess.Popen(sleep, pass_fds=(one.descriptor,) if "pass" in sys.argv else ()).pid, flush=True)
else:
    print("held", flush=True)
time.sleep(30)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_LOCK_DIR", str(tmp_path / "locks"))
    (tmp_path / "locks").mkdir()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def begin(program: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]))
        return running[-1]

    yield begin
    for one in running:
        one.kill()
        one.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_job_fails_with_the_owners_process_number(start: Callable[..., subprocess.Popen[str]]) -> None:
    owner = start(HOLD)
    assert line(owner) == "held"
    with pytest.raises(lock.LockError, match=rf"held by process {owner.pid} \(since .*--gdn-lock-timeout"):
        lock.Lock(UUID).acquire(0)
    lock.Lock("GPU-another").acquire(0)  # another card is free


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_dies_with_its_owner(start: Callable[..., subprocess.Popen[str]], end: signal.Signals) -> None:
    owner = start(HOLD)
    line(owner)
    owner.send_signal(end)
    owner.wait()
    held = lock.Lock(UUID)
    held.acquire(0)
    assert str(os.getpid()) in held.file.read_text()


def test_a_second_job_waits_with_progress_and_goes_on(start: Callable[..., subprocess.Popen[str]]) -> None:
    owner = start(HOLD)
    line(owner)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        owner.kill()

    begin = time.monotonic()
    lock.Lock(UUID).acquire(20, say)
    assert time.monotonic() - begin < 10
    assert said == [f"{UUID} is held by {said[0].partition(' by ')[2].partition(';')[0]}; waiting, 0 of 20 s"]
    assert f"process {owner.pid} " in said[0]


@pytest.mark.parametrize("passed", [True, False])
def test_the_card_stays_held_while_a_process_that_was_given_it_runs(
    start: Callable[..., subprocess.Popen[str]], passed: bool
) -> None:
    owner = start(HOLD, "child", *(["pass"] if passed else []))
    child = int(line(owner))
    try:
        owner.kill()
        owner.wait()
        if passed:
            with pytest.raises(lock.LockError, match="held by"):
                lock.Lock(UUID).acquire(0)
        else:
            lock.Lock(UUID).acquire(0)
    finally:
        os.kill(child, signal.SIGKILL)
    if passed:
        lock.Lock(UUID).acquire(5)


def test_of_many_at_once_one_holds_it_at_a_time(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from suite.lock import Lock
for _ in range(20):
    one = Lock({UUID!r}); one.acquire(30)
    inside = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)  # fails if another is inside
    time.sleep(0.001); os.close(inside); os.unlink(sys.argv[1]); one.release()
print("done")
"""
    many = [start(program, str(tmp_path / "inside")) for _ in range(4)]
    assert [line(one) for one in many] == ["done"] * 4


def test_an_unusable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GDN_LOCK_DIR", str(tmp_path / "file"))
    with pytest.raises(lock.LockError, match=r"file/gdn-bench-GPU-00000000-1111\.lock .*GDN_LOCK_DIR"):
        lock.Lock(UUID).acquire(0)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock.lock_file(UUID).symlink_to(victim)
    with pytest.raises(lock.LockError, match="cannot be used"):
        lock.Lock(UUID).acquire(0)
    assert victim.read_text() == "precious"


def test_idle_processes_are_counted_and_dead_ones_are_not(start: Callable[..., subprocess.Popen[str]]) -> None:
    idle = f"import time\nfrom suite.lock import idle\nwith idle({UUID!r}):\n print(1, flush=True)\n time.sleep(30)"
    one, two = start(idle), start(idle)
    line(one), line(two)
    assert (lock.idle_processes(UUID), lock.idle_processes("GPU-another")) == (2, 0)
    one.kill()
    one.wait()
    assert lock.idle_processes(UUID) == 1
    assert len(list(lock.folder().glob("*.idle-*"))) == 1
    with lock.idle(UUID), lock.idle(None):
        assert lock.idle_processes(UUID) == 2
    assert lock.idle_processes(UUID) == 1


# The run's use of it


@pytest.fixture
def uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "card_uuid", lambda device: None if device == 9 else f"GPU-{device}")


@pytest.mark.usefixtures("uuids")
def test_a_run_takes_its_card_and_says_that_it_is_idle_on_the_first() -> None:
    with ExitStack() as until:
        held = devices.take(options(device=1), print, until)
        assert held is not None
        assert held.uuid == "GPU-1"
        assert (lock.idle_processes("GPU-0"), lock.idle_processes("GPU-1")) == (1, 0)
        with pytest.raises(lock.LockError):
            devices.take(options(device=1, lock_timeout_s=0), print, until)
    assert lock.idle_processes("GPU-0") == 0
    lock.Lock("GPU-1").acquire(0)


@pytest.mark.usefixtures("uuids")
def test_no_lock_on_the_host_without_a_uuid_or_where_the_parent_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as until:
        assert devices.take(options(platform="host"), print, until) is None
        assert devices.take(options(device=9), print, until) is None
        held = devices.take(options(), print, until)
        assert held is not None
        for name, value in held.inherited.items():
            monkeypatch.setenv(name, value)
        assert devices.take(options(), print, until) is None
        assert devices.take(options(device=2), print, until) is not None  # another card is another matter


@pytest.mark.usefixtures("uuids")
def test_each_card_has_a_process_that_sees_it_alone() -> None:
    given = ["--benchmark-only", "--gdn-device", "0,9", "--gdn-processes=2", "--junitxml=a.xml"]
    kept = ["--benchmark-only", "--gdn-processes=2"]
    assert devices.commands(given, (0, 9)) == [
        ([*kept, "--gdn-device=GPU-0"], {"CUDA_VISIBLE_DEVICES": "GPU-0"}),
        ([*kept, "--gdn-device=9"], {}),
    ]


@pytest.mark.usefixtures("uuids")
def test_the_cards_are_measured_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        calls.append((command[-1], how["env"]["CUDA_VISIBLE_DEVICES"], lock.idle_processes("GPU-0")))
        return subprocess.CompletedProcess(command, len(calls) - 1, "4 cases: 4 green\nrecord: /r/x.json\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    given = type("Given", (), {"args": ("--gdn-device=0,1",), "dir": Path.cwd()})
    config: Any = type("Config", (), {"invocation_params": given})
    assert devices.measure_each(config, options(devices=(0, 1)), None) == [0, 1]
    assert calls == [("--gdn-device=GPU-0", "GPU-0", 1), ("--gdn-device=GPU-1", "GPU-1", 1)]
