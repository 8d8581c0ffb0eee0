"""What is made of a profiler's table, and of a machine without one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reports import profile as reported
from reports.cli import main
from reports.profile import Found, Profile, Row, keep, lines, rows
from suite.profile import (
    BEYOND_NS,
    REPEATS,
    Ours,
    ProfileError,
    Seen,
    back_to_back,
    cases,
    empty,
    ours,
    ours_empty,
    parse,
    program,
)
from tests.fabricate import environment
from tests.simulated import Cost, Device, work

HEAD = '"ID","Process ID","Kernel Name","Context","Section Name","Metric Name","Metric Unit","Metric Value"'


def table(calls: list[list[tuple[str, str]]], unit: str = "ns") -> str:
    """ncu's output: the program's, its own remarks, then a row for each kernel and, in front of each call, a stamp."""
    kernels = [one for call in calls for one in (("gdn_stamp", "900"), *call)]
    body = [
        f'"{i}","77","{name}","1","Command line profiler metrics","gpu__time_duration.sum","{unit}","{value}"'
        for i, (name, value) in enumerate(kernels)
    ]
    return "\n".join(["==PROF== Connected to process 77", "some output", HEAD, *body])


def test_what_ran_in_a_repeat_is_added_up_and_the_median_is_taken() -> None:
    one = [[("gdn_sequential", "18,400")]] * (REPEATS - 1) + [[("gdn_sequential", "99,000")]]
    two = [[("gdn_chunked_prepare", "7000"), ("gdn_chunked_scan", "12000.5")]] * REPEATS
    assert parse(table([*one, *two]), 2) == [Seen(18_400.0, 1), Seen(19_000.5, 2)]


def test_the_stamps_in_front_tell_what_an_empty_kernel_takes() -> None:
    assert empty(table([[("k", "7000")]] * REPEATS)) == 900.0
    assert ours_empty(Device({"a": Cost(1_188.0)}), work("a")).ns == pytest.approx(600, rel=0.01)


def test_units_are_read() -> None:
    calls = [[("k", "1.5")]] * REPEATS
    assert parse(table(calls, "us"), 1)[0].ns == 1500.0
    with pytest.raises(ProfileError, match="in 'cycle'; a unit of time is wanted"):
        parse(table(calls, "cycle"), 1)


def test_a_table_that_is_missing_or_short_is_said() -> None:
    with pytest.raises(ProfileError, match="ncu printed no table:\n==ERROR== no permission"):
        parse("==ERROR== no permission", 1)
    with pytest.raises(ProfileError, match=f"ncu saw 1 calls or graphs; {REPEATS} are expected"):
        parse(table([[("k", "1")]]), 1)
    with pytest.raises(ProfileError, match=f"ncu saw {REPEATS - 1} calls or graphs; {REPEATS} are expected"):
        parse(table([[("k", "1")]] * (REPEATS - 1) + [[]]), 1)


def test_the_program_runs_the_cases_in_their_order() -> None:
    plain = ["-m", "suite.profile", "--recurrences", "a,b", "--tokens", "32,512"]
    assert program(["a", "b"], [32, 512])[1:] == plain
    assert program(["a", "b"], [32, 512], [20, 19, 2, 4])[1:] == [*plain, "--calls", "20,19,2,4"]
    traced = program(["a"], [32], [20], traced=True)
    assert traced[1:] == ["-m", "suite.profile", "--trace", "--recurrences", "a", "--tokens", "32", "--calls", "20"]
    assert cases(["a", "b"], [32, 512]) == [("a", 32), ("b", 32), ("a", 512), ("b", 512)]


def test_our_times_are_the_hot_ones() -> None:
    device = Device({"a": Cost(198_000.0), "b": Cost(1_980_000.0)})
    found = ours(device, ["a", "b"], [32], lambda name, tokens: work(name))
    assert {case: one.ns for case, one in found.items()} == {
        ("a", 32): pytest.approx(1e5, rel=0.01),
        ("b", 32): pytest.approx(1e6, rel=0.01),
    }
    assert {one.calls for one in found.values()} == {4}
    assert Ours(20_000.0, 17).graphs == (17, 17 + BEYOND_NS / 20_000)


def test_all_three_are_shown_and_what_is_too_far_from_the_graph_is_marked(tmp_path: Path) -> None:
    """The second is near the kernels' durations and too far from the graph's."""
    kernels = [Seen(18_940.0, 1), Seen(500_000.0, 2)]
    times = {("sequential", 32): Ours(18_100.0, 20), ("chunked", 2048): Ours(500_528.0, 1)}
    counts = [count for one in times.values() for count in one.graphs]
    graphs = [
        Seen(count * ns + 97_000, 1)
        for count, ns in zip(counts, (18_000.0, 18_000.0, 490_000.0, 490_000.0), strict=True)
    ]
    found = rows(times, kernels, graphs, [None, None], 750.0)
    assert [one.ncu_added_ns for one in found] == [pytest.approx(97_000)] * 2
    assert [one.ncu_empty_ns for one in found] == [750, 1500]
    assert [one.agrees for one in found] == [True, False]
    # CUPTI's times are nearer to the truth than ncu's.
    assert [one.agrees for one in rows(times, kernels, graphs, [17_000.0, 500_000.0], 0.0)] == [False, True]
    *_, near, far = lines(found)
    assert near.endswith(" 1:     18.94     18.19  20:     18.00         -     18.10  +0.10 (+0.6%)")
    assert far.endswith("+10.53 (+2.1%): farther apart than they should be")
    commands = (("ncu", sys.executable), ("ncu", "b"))
    file = keep(Found(tuple(found), "Version 1", commands), environment(), tmp_path, "card")
    assert file.parent == tmp_path / "profiles/card"
    kept = msgspec.json.decode(file.read_bytes(), type=Profile)
    assert (kept.rows, kept.ncu, kept.commands, kept.gpu) == (
        tuple(found),
        "Version 1",
        (("ncu", "python"), ("ncu", "b")),
        environment().gpu,
    )


@pytest.mark.parametrize(("tokens", "apart", "agrees"), [(32, 999, True), (32, 1001, False), (512, 1001, True)])
def test_short_calls_are_held_to_a_microsecond(tokens: int, apart: float, agrees: bool) -> None:
    times = {"ncu_kernels_ns": 0.0, "ncu_graph_ns": 1e5, "ncu_added_ns": 0.0, "ours_ns": 1e5 + apart}
    assert Row(recurrence="a", tokens=tokens, kernels=1, calls=1, **times).agrees is agrees


def test_a_traced_call_is_the_span_of_its_graph_by_calls() -> None:
    """Two calls of two kernels in a graph; kernels may overlap, and one replay took longer."""
    replay = [(0, 70), (60, 40), (100, 70), (160, 50)]
    slow = [(start, 3 * ns) for start, ns in replay]
    replays = [slow, *[replay] * (REPEATS - 1)]
    kernels = [(1000 * place + start, ns) for place, own in enumerate(replays) for start, ns in own]
    assert back_to_back(kernels, 2) == 105.0
    with pytest.raises(ProfileError, match=f"CUPTI saw 0 kernels in {REPEATS} graphs of 2 calls"):
        back_to_back([], 2)
    with pytest.raises(ProfileError, match="as many are wanted in each call"):
        back_to_back(kernels[:-1], 2)


def test_without_ncu_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ProfileError, match="ncu is not on the PATH"):
        reported.profile(["sequential"], [32])


def test_without_a_gpu_nothing_is_profiled(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from kernels.detect import Gpu

    monkeypatch.setattr("kernels.detect.gpu", lambda: Gpu(False, "no driver", False))
    assert main(["doctor", "--profile"]) == 4
    assert "there is no GPU to profile: no driver" in capsys.readouterr().err
