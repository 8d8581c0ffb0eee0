"""Fresh processes: each leaves a record of its own, and all of a night can be put together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.night import aa, change, nights, spreads, summary
from results.schema import Record, Speed
from results.store import load
from suite.lock import Lock
from suite.processes import arguments, new_night, said
from tests.fabricate import group, record, speed
from tests.test_suite import suite

OURS = ["--gdn-night=n", "--gdn-process=2", "--gdn-red=a,b"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--benchmark-only", "--gdn-processes", "10", "-q"], ["--benchmark-only", "-q"]),
        (["--gdn-processes=10", "-k", "2048"], ["-k", "2048"]),
        (["--benchmark-json", "a.json", "-p", "mine"], ["-p", "mine"]),
        (["--benchmark-json=a.json", "suite"], ["suite"]),
    ],
)
def test_a_process_gets_the_users_options(given: list[str], kept: list[str]) -> None:
    assert arguments(given, "n", 2, ["a", "b"]) == [*kept, *OURS]


def test_no_two_nights_share_a_name() -> None:
    assert new_night() != new_night()


def test_a_process_is_told_in_a_line() -> None:
    output = "....\n=== gdn-bench ===\n4 cases: 4 green\nrecord: /r/x.json\nreport: /r/report.html\n"
    assert said(0, output) == "4 cases: 4 green; record: /r/x.json"
    assert said(3, "") == "exit code 3"


def night(*medians: float, ratio: float = 1.001) -> list[Record]:
    """Records of a night whose processes had these medians, in nanoseconds."""
    return [
        record(
            run_id=f"r{place}",
            night="n",
            process=place,
            cases=(speed(median_ns=ns),),
            groups=(group(aa_ratio=ratio),),
        )
        for place, ns in enumerate(medians, 1)
    ]


def test_a_nights_processes_are_put_in_order_and_partial_ones_left_out() -> None:
    one, two, three = night(1e6, 1.01e6, 1.02e6)
    stopped = record(run_id="x", night="n", process=4, status="partial")
    checks = record(run_id="c", night="n", process=None)
    found = nights([three, stopped, one, checks, two, record(run_id="alone")])
    assert {name: [r.run_id for r in own] for name, own in found.items()} == {"n": ["r1", "r2", "r3"]}


def test_a_night_is_summed_up_by_its_processes() -> None:
    own = night(1e6, 1.01e6, 1.02e6)
    (spread,) = spreads(own)
    assert (spread.name, spread.tokens, spread.middle) == ("sequential", 2048, 1.01e6)
    assert spread.width == pytest.approx(0.02)
    (ratios,) = aa(own)
    assert ratios.values == (1.001, 1.001, 1.001)
    assert summary(own) == [
        "3 processes",
        "A/A of sequential at 2,048 tokens: +0.10% to +0.10%",
        "sequential at 2,048 tokens: 1,010.00 us, 2.00% from the least to the greatest",
    ]


def clocked(ns: float, mhz: float) -> Speed:
    return speed(median_ns=ns, samples_mhz=(mhz,) * 7)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (clocked(1e6, 1980), clocked(1.009e6, 1980), "same"),
        (clocked(1e6, 1980), clocked(1.02e6, 1980), "slower"),
        (clocked(1.02e6, 1980), clocked(1e6, 1980), "faster"),
        (clocked(1e6, 1980), clocked(1.1e6, 1800), "clock event"),
        (clocked(1e6, 1980), clocked(1.1e6, 1980), "slower"),
        (speed(median_ns=1e6), speed(median_ns=1.1e6), "slower"),
    ],
)
def test_a_change_between_two_processes(before: Speed, after: Speed, verdict: str) -> None:
    assert change(before, after).verdict == verdict


def test_a_night_of_two_processes_leaves_three_records(tmp_path: Path) -> None:
    small = ("--gdn-tokens", "3", "--gdn-shape", "1x1", "--gdn-recurrences=host-chunked", "-q")
    done = suite(tmp_path, *small, "--gdn-processes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    checks, one, two = load(tmp_path).records
    assert len({found.night for found in (checks, one, two)}) == 1
    assert checks.night is not None
    assert [found.process for found in (checks, one, two)] == [None, 1, 2]
    assert not any(isinstance(case, Speed) for case in checks.cases)
    assert all(isinstance(case, Speed) for found in (one, two) for case in found.cases)
    assert "process 2 of 2: 1 cases: 1 green; record: " in done.stdout
    assert f"night {checks.night}: 2 processes" in done.stdout
    assert f"night {checks.night}: host-chunked at 3 tokens: " in done.stdout


def test_of_a_red_check_of_the_night_no_process_has_a_time(tmp_path: Path) -> None:
    small = ("--gdn-tokens", "3", "--gdn-shape", "1x1", "--gdn-recurrences=host-chunked", "-q")
    done = suite(tmp_path, *small, "--gdn-night=n", "--gdn-process=1", "--gdn-red=host-chunked")
    assert done.returncode == 1
    (found,) = load(tmp_path).records
    assert [(case.outcome, case.reason) for case in found.cases] == [
        ("red", "no time: a check of this night was red; the night's first record tells which")
    ]


@pytest.mark.parametrize("text", ["-1", "x", "1001", ""])
def test_a_bad_number_of_processes_is_named(tmp_path: Path, text: str) -> None:
    done = suite(tmp_path, f"--gdn-processes={text}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"--gdn-processes is {text!r}; give a number from 0 to 1000" in done.stdout + done.stderr


def test_two_cards_leave_a_record_each_from_processes_that_see_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    small = ("--gdn-tokens", "3", "--gdn-shape", "1x1", "--gdn-recurrences=host-chunked", "-q")
    done = suite(tmp_path, "-p", "tests.two_cards", "--gdn-device", "0,1", *small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "seen").read_text() == "GPU-0 GPU-0\nGPU-1 GPU-1\n"
    assert len(load(tmp_path).records) == 2
    for card in (0, 1):
        assert f"GPU {card}: 7 cases: 7 green; record: " in done.stdout


def test_of_two_cards_one_that_fails_makes_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    done = suite(tmp_path, "-p", "tests.two_cards", "--gdn-device=0,1", "--gdn-recurrences=nosuch", "-q")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


ONE = ("-p", "tests.one_card", "--gdn-tokens=3", "--gdn-shape=1x1", "--gdn-recurrences=host-chunked", "-q")


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lock:
    """The card's lock, not held yet."""
    monkeypatch.setenv("GDN_LOCK_DIR", str(tmp_path))
    return Lock("GPU-0")


def test_a_run_waits_for_its_card_and_fails_where_it_may_not(tmp_path: Path, held: Lock) -> None:
    held.acquire(0)
    done = suite(tmp_path, *ONE, "--gdn-lock-timeout=1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"gdn-bench: GPU-0 is held by process {os.getpid()} " in done.stdout
    assert f"ERROR: GPU-0 is held by process {os.getpid()} " in done.stdout + done.stderr
    assert load(tmp_path).records == ()
    held.release()
    assert suite(tmp_path, *ONE, "--gdn-lock-timeout=0").returncode == 0
    held.acquire(0)  # the run gave it free


@pytest.mark.parametrize(("chosen", "processes"), [((), [None, 1]), (("-k", "speed"), [1])])
def test_the_processes_of_a_night_share_the_card_of_the_one_that_started_them(
    tmp_path: Path, held: Lock, monkeypatch: pytest.MonkeyPatch, chosen: tuple[str, ...], processes: list[int | None]
) -> None:
    """They know it by the lock that is handed on, also where the first has nothing to measure itself."""
    monkeypatch.setenv("HELD_FILE", str(tmp_path / "held"))
    done = suite(tmp_path, *ONE, *chosen, "--gdn-processes=1", "--gdn-lock-timeout=0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record.process for record in load(tmp_path).records] == processes
    assert (tmp_path / "held").read_text().split() == ["False", "True"]
    held.acquire(0)
