"""A planted slowdown of 2 % is found between fresh processes, and an unchanged kernel is not called changed.

On a simulated device: each process has a bias of its own, as fresh processes have, and noise within it. The same on
a GPU takes `tests/planted.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from results.night import change
from results.schema import Record, Speed
from suite import timing
from suite.options import PLANS
from tests import planted
from tests.fabricate import record, speed
from tests.simulated import Cost, Device, work
from tests.test_compile import needs_nvrtc

COSTS = {"sequential": Cost(2_004_000.0), planted.NAME: Cost(2_004_000.0 * 1.02)}


def process(number: int, bias: float, **disturbance: float) -> Record:
    """A record of one process on the simulated device."""
    device = Device(COSTS, seed=number, process=bias, noise=0.002, outliers=(0.05, 1.3), **disturbance)  # type: ignore[arg-type]
    plan = PLANS["cuda"]
    sampled = timing.sample(device, [work(name) for name in COSTS], plan.hot, plan.cold, now=device.now)
    cases: list[Speed] = []
    for name, taken in zip(COSTS, sampled.hot, strict=True):
        found = timing.times(taken, 4)
        cases.append(
            speed(
                recurrence=name,
                median_ns=found.median_ns,
                samples_ns=found.samples_ns,
                samples_mhz=found.samples_mhz,
                low_ns=found.low_ns,
                high_ns=found.high_ns,
            )
        )
    return record(run_id=f"r{number}", night="n", process=number, cases=tuple(cases))


def test_two_per_cent_are_found_and_nothing_else() -> None:
    """Processes that differ by 0.2 %, as much as A/A over fresh processes may."""
    records = [process(number, bias=0.002) for number in range(1, 22)]
    said = planted.count(records)
    found, unchanged = said.split("; an unchanged ")
    assert int(found.split("found in ")[1].split(" of 20 pairs")[0]) >= 19, said
    assert int(unchanged.split("changed in ")[1].split(" of 40")[0]) <= 1, said


def test_a_machine_of_other_clocks_is_a_clock_event_and_no_change() -> None:
    fast, slow = process(1, 0.0), process(2, 0.0, mhz=1755.0)
    pair = [next(case for case in one.cases if isinstance(case, Speed)) for one in (fast, slow)]
    found = change(*pair)
    assert found.verdict == "clock event"
    assert found.seconds == pytest.approx(1980 / 1755, rel=0.003)
    assert found.cycles == pytest.approx(1.0, abs=0.003)


@needs_nvrtc
def test_the_wait_compiles_for_any_card() -> None:
    for arch in (75, 90, 120):
        assert set(planted.cubin(arch).resources) == {"planted_begin", "planted_wait"}


def test_without_such_a_night_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["planted.py", "--results", str(tmp_path)])
    assert planted.main() == 4
