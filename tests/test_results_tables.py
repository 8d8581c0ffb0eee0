"""The table that `auto` chooses by holds the green times of one record, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernels import Shape
from kernels.dispatch import DeviceFacts
from kernels.timetable import Source
from results.store import ResultsError
from results.tables import choose_record, crossovers, table_of
from tests.fabricate import accuracy, environment, record, speed


def cases(**times: float) -> tuple[Any, ...]:
    """Speed cases; `tensor_64=14_200` is tensor at 64 tokens."""
    places = ((name.rpartition("_"), ns) for name, ns in times.items())
    return tuple(speed(recurrence=name, tokens=int(count), median_ns=ns) for (name, _, count), ns in places)


def test_the_table_of_a_record_holds_its_green_times_of_the_first_family() -> None:
    unused = (
        speed(recurrence="tensor", tokens=128, outcome="not measured", reason="memory", median_ns=None),
        speed(recurrence="tensor", tokens=256, outcome="inconclusive"),
        speed(recurrence="tensor", tokens=512, inputs="correlated"),
        speed(recurrence="auto", tokens=64),
    )
    timed = cases(tensor_64=14_200.0, tensor_32=12_000.0, sequential_32=9_000.0)
    found = table_of(record(cases=(accuracy(), *timed, *unused)))
    assert found.median_ns == {"tensor": {32: 12_000.0, 64: 14_200.0}, "sequential": {32: 9_000.0}}
    assert found.is_of(DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472))
    assert found.shape == Shape()
    assert found.source == Source(
        environment().commit or "", "2026-11-30", "20261130T051500Z-0123abcd", "pytest --benchmark-only"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"cases": (speed(), speed(tokens=64, outcome="red", reason="NaN", median_ns=None))}, "has 1 red case, first "),
        ({"cases": (speed(), accuracy(outcome="red", reason="far"))}, "accuracy of sequential at 2,048 tokens: far"),
        ({"cases": (speed(inputs="correlated"),)}, "has no green time of normal inputs"),
        ({"cases": (speed(), speed(shape="2x4x128"))}, "a table is of one"),
        ({"cases": (speed(shape="large"),)}, "shape is 'large'"),
        ({"environment": environment(compute_capability=None)}, "compute_capability is None"),
        ({"environment": environment(sms=None)}, "sms is 0"),
    ],
)
def test_a_record_that_gives_no_table_is_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultsError, match=r"20261130T051500Z-0123abcd.*name another record with --run") as caught:
        table_of(record(**overrides))
    assert message in str(caught.value)


def test_the_newest_complete_record_of_a_gpu_with_times_is_taken() -> None:
    old, new = record(run_id="old"), record(run_id="new")
    rest = (
        record(run_id="checks", cases=(accuracy(),)),
        record(run_id="partial", status="partial"),
        record(run_id="host", environment=environment(gpu=None)),
    )
    assert choose_record((old, new, *rest)) is new
    assert choose_record(rest) is None
    assert choose_record((old, new, *rest), "old") is old
    for name, message in (("none", "not stored"), ("partial", "is partial"), ("host", "of a host")):
        with pytest.raises(ResultsError, match=f"--run is '{name}'.*{message}"):
            choose_record((old, new, *rest), name)


def test_crossovers_beyond_what_was_measured_are_marked() -> None:
    timed = cases(tuned_32=9_000.0, tuned_64=15_900.0, tensor_32=12_000.0, tensor_64=14_200.0)
    made = table_of(record(cases=timed))
    assert crossovers(made) == ["from      1 tokens  tuned", "from     53 tokens  tensor"]
    late = replace(made, median_ns={"a": {32: 1.0, 64: 3.0}, "b": {32: 4.0, 64: 4.0}})
    assert crossovers(late)[1] == "from     81 tokens  b  (beyond what was measured)"
