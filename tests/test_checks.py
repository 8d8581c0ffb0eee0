"""The checks find what they are for: planted faults of the kinds that rewrites have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels import Problem, Recurrence, Shape, recurrence
from kernels.inputs import make
from kernels.reference import reference
from suite import checks
from suite.clock import HostClock
from suite.environment import collect
from suite.facts import Speed
from suite.options import Options
from suite.run import Item, Run, items

SHAPE = Shape(2, 4)


@pytest.fixture
def problem() -> Problem:
    return make(SHAPE, 40)


def planted(fault: Callable[[Problem, Any, Any, int], None], scratch: list[Any] | None = None) -> Recurrence:
    """host-sequential with a fault that runs after it; the fault gets the number of the call."""
    calls = iter(range(10_000))

    def enqueue(problem: Problem, out: Any, state: Any) -> None:
        before = out.copy()
        recurrence("host-sequential").enqueue(problem, out, state)
        fault(problem, before, (out, state), next(calls))

    return Recurrence("planted", "host", enqueue, scratch=lambda: scratch or [])


def judge(one: Recurrence, problem: Problem) -> Any:
    return checks.accuracy("planted", "fp64", problem, "normal", one(problem), reference(problem))


def test_the_unchanged_recurrence_is_green_and_its_figures_are_kept(problem: Problem) -> None:
    case = judge(planted(lambda *a: None), problem)
    assert case.outcome == "green"
    assert 0 < case.error_out < 1e-6
    assert 0 < case.error_state < 1e-6


def test_a_wrong_head_map_is_red(problem: Problem) -> None:
    other = Problem(problem.qkv, problem.gate, problem.beta, problem.state, 2, "grouped")
    case = checks.accuracy("x", "fp64", problem, "normal", recurrence("host-chunked")(other), reference(problem))
    assert case.outcome == "red"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_single_value_that_is_not_finite_is_red_with_no_figure(problem: Problem, value: float) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[1][3, 1, 5] = value

    case = judge(planted(fault), problem)
    assert case.outcome == "red"
    assert case.error_state is None
    assert "the state has values that are not finite" in case.reason


def test_bf16_accuracy_is_red(problem: Problem) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0].view(np.uint32)[...] &= 0xFFFF0000

    assert judge(planted(fault), problem).outcome == "red"


def test_a_flipped_bit_is_found_with_its_place(problem: Problem) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        if call == 4:
            result[0].view(np.uint32)[17, 2, 99] ^= 1

    case = checks.determinism(planted(fault), problem, "normal", 9)
    assert case.outcome == "red"
    assert case.differing == 1
    assert case.first is not None
    assert (case.first.array, case.first.run, case.first.token, case.first.head, case.first.column) == (
        "out",
        4,
        17,
        2,
        99,
    )
    assert "first in run 4, out, token 17, head 2, column 99" in case.reason


def test_a_flipped_bit_of_the_state_is_found(problem: Problem) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[1].view(np.uint32)[7, 3, 1] ^= call > 0

    case = checks.determinism(planted(fault), problem, "normal", 5)
    assert case.differing == 5
    assert case.first is not None
    assert (case.first.array, case.first.row, case.first.head, case.first.column) == ("state", 7, 3, 1)


def test_an_output_that_is_not_written_is_found(problem: Problem) -> None:
    """The element keeps what stood there: the first run's memory, then NaN."""

    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0][0, 0, 0] = before[0, 0, 0] if call else 1.0

    case = checks.determinism(planted(fault), problem, "normal", 2)
    assert case.differing == 2


def test_a_read_of_scratch_that_nothing_wrote_is_found(problem: Problem) -> None:
    scratch = np.zeros(4, np.float32)

    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0][5, 1, 1] += scratch[2]

    case = checks.determinism(planted(fault, [scratch]), problem, "normal", 4)
    assert case.outcome == "red"


def test_equal_bits_are_green_with_a_hash_of_the_bytes(problem: Problem) -> None:
    case = checks.determinism(recurrence("host-sequential"), problem, "normal", 3)
    assert case.outcome == "green"
    import hashlib

    out, state = recurrence("host-sequential")(problem)
    assert case.sha256_out == hashlib.sha256(out.tobytes()).hexdigest()
    assert case.sha256_state == hashlib.sha256(state.tobytes()).hexdigest()


def test_a_check_before_a_time_has_no_digests_and_finds_the_same(problem: Problem) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0].view(np.uint32)[17, 2, 99] ^= call == 2

    quick, full = (checks.determinism(planted(fault), problem, "normal", 3, digests=wanted) for wanted in (False, True))
    assert (quick.sha256_out, quick.sha256_state) == ("", "")
    assert quick.first == full.first
    assert quick.first is not None
    assert quick.first.run == 2


# A run: what is red gets no time


@pytest.fixture
def run(tmp_path: Any) -> Run:
    options = Options("host", 0, ("host-sequential", "planted"), (40,), SHAPE, ("normal",), tmp_path)
    run = Run(options, collect(None)[0], HostClock())
    run.planned = [item for kind in ("accuracy", "determinism", "speed") for item in items(kind, options)]
    return run


def timed(run: Run, monkeypatch: pytest.MonkeyPatch, one: Recurrence) -> dict[str, Speed]:
    monkeypatch.setitem(__import__("kernels.registry", fromlist=["_TABLE"])._TABLE, "planted", one)
    return {item.recurrence: run.speed(item) for item in run.planned if item.kind == "speed"}


def test_a_wrong_recurrence_gets_no_time_and_the_others_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0][...] *= 1.001

    cases = timed(run, monkeypatch, planted(fault))
    assert cases["planted"].outcome == "red"
    assert cases["planted"].samples_ns == ()
    assert cases["planted"].median_ns is None
    assert cases["host-sequential"].outcome == "green"
    assert len(cases["host-sequential"].samples_ns) >= run.options.plan.hot.rounds[0]


def test_an_unstable_recurrence_gets_no_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        result[0].view(np.uint32)[0, 0, 0] ^= call % 2

    assert timed(run, monkeypatch, planted(fault))["planted"].outcome == "red"


def test_a_red_check_anywhere_in_the_run_withholds_the_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    item = Item("determinism", "planted", 40, "normal")
    red = checks.determinism(planted(lambda p, b, r, call: r[1].fill(call)), make(SHAPE, 3), "normal", 2)
    run.add(red)
    case = timed(run, monkeypatch, planted(lambda *a: None))["planted"]
    assert item.recurrence == case.recurrence
    assert "no time: determinism is red at 3 tokens" in case.reason


def test_what_cannot_run_here_is_not_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(planted(lambda *a: None), unsupported=lambda problem: "it needs 9,000 SMs")
    case = timed(run, monkeypatch, one)["planted"]
    assert (case.outcome, case.reason) == ("not measured", "it needs 9,000 SMs")


def test_a_full_device_is_not_measured_with_the_mend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(problem: Problem, before: Any, result: Any, call: int) -> None:
        raise MemoryError("Out of memory allocating 1,024 bytes")

    case = timed(run, monkeypatch, planted(fault))["planted"]
    assert case.outcome == "not measured"
    assert "out of memory at 40 tokens: Out of memory allocating 1,024 bytes; free the device" in case.reason


def test_the_measured_recurrences_share_one_alternation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = timed(run, monkeypatch, planted(lambda *a: None))
    assert len(cases["planted"].samples_ns) == len(cases["host-sequential"].samples_ns)
