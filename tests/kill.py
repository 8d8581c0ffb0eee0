"""Kills whatever writes to a results folder at random moments: python -m tests.kill [--kills 1000] [--seed 7]

One or two processes at once write records, accept, compact, merge or read through the index, each acknowledging what
is done; then they are killed (SIGKILL), every other time exactly between two steps that touch a file. What was
complete before, and all that was acknowledged, must be there with the same bytes, nothing may be broken, and the next
process must be able to go on.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from results import series
from results.accepted import accept, acceptances, check_acceptances
from results.compact import compact
from results.history import check
from results.merge import merge
from results.store import load, read_bytes, save
from tests.fabricate import record

LATER = datetime(2999, 1, 1, tzinfo=UTC)
KEY, METHOD = record().gpu_key, record().method.id
KILLS_PER_FOLDER = 20
Say = Callable[[str], None]


def write(root: Path, name: str, say: Say) -> None:
    for number in range(10_000):
        for status in ("partial", "complete"):
            save(record(run_id=f"{name}-{number}", status=status), root)
        say(f"run {name}-{number}")


def accepting(root: Path, name: str, say: Say) -> None:
    runs = [one.run_id for one in load(root).records if one.status == "complete"]
    for number in range(10_000):
        one = accept(root, runs[number % len(runs)], f"{name}-{number}")
        say(f"accepted {one.because}")


def compacting(root: Path, name: str, say: Say) -> None:
    for number in range(10_000):
        done = compact(root, LATER)
        assert not [line for line in done.problems if "went away" not in line], done.problems
        say("compacted")
        for more in range(3):
            save(record(run_id=f"{name}-{number}-{more}", started=f"20{10 + number % 80}-01-01T00:00:00Z"), root)
            say(f"run {name}-{number}-{more}")


def merging(root: Path, name: str, say: Say) -> None:
    sources = sorted((root.parent / "sources").iterdir())
    random.Random(name).shuffle(sources)
    for source in sources:
        done = merge(root, [source])
        assert not done.problems + done.conflicts, done
        for file in sorted((source / "history" / KEY).glob("*.json")):
            say(f"run {file.stem}")
    os._exit(0)


def indexing(root: Path, name: str, say: Say) -> None:
    for number in range(10_000):
        assert not series.opened(root)[1]
        say("indexed")
        save(record(run_id=f"{name}-{number}", started=f"20{10 + number % 80}-01-01T00:00:00Z"), root)
        say(f"run {name}-{number}")


STEPS = ("open", "os.link", "os.remove", "os.rename", "os.truncate")
"""Python's audit events of the steps between which a kill may fall."""

JOBS = {"write": write, "accept": accepting, "compact": compacting, "merge": merging, "index": indexing}


def die_at(root: Path, step: int) -> None:
    """Kill this process right before the `step`-th time that it changes or opens something below a folder."""
    left, below = step, f"{root}{os.sep}"

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS and any(str(one).startswith(below) for one in arguments[:2]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def start(job: str, root: Path, name: str, step: int) -> tuple[int, int]:
    """(process id, where it acknowledges) of a process that does a job until it is killed, or kills itself."""
    receive, send = os.pipe()
    child = os.fork()
    if child:
        os.close(send)
        return child, receive
    if step:
        die_at(root, step)
    try:
        JOBS[job](root, name, lambda text: os.write(send, f"{text}\n".encode()) and None)
    except BaseException as error:
        os.write(send, f"failed {job}: {type(error).__name__}: {' '.join(str(error).split())}\n".encode())
    os._exit(1)


def kill(jobs: list[str], root: Path, name: str, delay: float, step: int) -> list[str]:
    """Start jobs, kill them after a while, and return what they acknowledged.

    Args:
        jobs: of `JOBS`.
        root: the results folder.
        name: begins every name that they give.
        delay: seconds after which they are killed; with a step, the most that they get.
        step: 0, or the number of the step at which each kills itself.
    """
    running = [start(job, root, f"{name}{place}", step) for place, job in enumerate(jobs)]
    said = []
    end = time.monotonic() + delay
    for child, _ in running:
        while time.monotonic() < end:
            if step and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.001 if step else max(0.0, end - time.monotonic()))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for _, receive in running:
        with open(receive) as file:
            said += file.read().splitlines(keepends=True)
    return [line.strip() for line in said if line.endswith("\n")]


class Folder:
    """A results folder under attack, and what must be in it."""

    def __init__(self, root: Path, random: random.Random) -> None:
        self.root, self.random = root, random
        self.runs: dict[str, bytes] = {}
        self.accepted: set[str] = set()
        for number in range(8):
            save(record(run_id=f"first-{number}", started=f"2026-01-0{number + 1}T00:00:00Z"), root)
        self.look([])

    def look(self, said: list[str]) -> None:
        """Compare what is there with what must be."""
        failed = [line for line in said if line.startswith("failed")]
        assert not failed, failed
        loaded = load(self.root)
        assert loaded.problems == (), loaded.problems
        found = {one.run_id: one for one in loaded.records}
        told = {line.split()[1] for line in said if line.startswith("run ")}
        for run_id in told | self.runs.keys():
            assert run_id in found, f"{run_id} is lost"
            assert found[run_id].status == "complete", f"{run_id} is a draft again"
        for run_id, one in found.items():
            if one.status == "complete":
                data = read_bytes(self.root, KEY, run_id)
                assert self.runs.setdefault(run_id, data) == data, f"{run_id} has changed"
        self.accepted |= {line.split()[1] for line in said if line.startswith("accepted ")}
        there = [one.because for one in acceptances(self.root, KEY, METHOD)]
        assert self.accepted <= set(there), f"{self.accepted - set(there)} are lost"
        assert len(there) == len(set(there)), "an acceptance is there twice"
        self.accepted |= set(there)
        assert check_acceptances(self.root) == []

    def finish(self) -> None:
        """Everything still works, and the index says what the records say."""
        compact(self.root, LATER)
        merge(self.root, sorted((self.root.parent / "sources").iterdir()))
        self.look([])
        table, wrong = check(self.root)
        assert wrong == [], wrong
        assert sorted(table["run_id"]) == sorted(one.run_id for one in load(self.root).records)


def sources(root: Path) -> bytes:
    """Make folders to merge from, some of them compacted; returns all their bytes."""
    if not root.exists():
        for number in range(6):
            for run in range(12):
                save(
                    record(run_id=f"merged-{number}-{run}", started=f"200{number}-01-01T00:00:00Z"), root / f"{number}"
                )
            if number % 2:
                compact(root / f"{number}", LATER)
    return b"".join(file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file())


def attack(work: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so often; returns how many kills met each job, and how many met one that had got something done."""
    chance, counts = random.Random(seed), Counter[str]()
    untouched = sources(work / "sources")
    folder = Folder(work / "0", chance)
    for number in range(kills):
        if number and number % KILLS_PER_FOLDER == 0:
            folder.finish()
            folder = Folder(work / f"{number}", chance)
        jobs = chance.choices(list(JOBS), k=chance.choice((1, 1, 2)))
        step = round(500 ** chance.random()) if number % 2 else 0
        said = kill(jobs, folder.root, f"k{number}x", 5.0 if step else chance.uniform(0, 0.12), step)
        folder.look(said)
        counts.update(jobs)
        counts["kills"] += 1
        counts["of them between two steps"] += step > 0
        counts["of them with two at once"] += len(jobs) == 2
        counts["of them after something was done"] += bool(said)
        counts["acknowledged"] += len(said)
    folder.finish()
    counts["temporary files left by kills"] = sum(1 for file in work.rglob(".*") if file.is_file())
    assert sources(work / "sources") == untouched, "a source of a merge has changed"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        counts = attack(Path(work), arguments.kills, arguments.seed)
    for what, number in counts.items():
        print(f"{number:6,}  {what}")
    print(f"nothing that was complete is lost or changed, after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
