"""From samples to cases, on a simulated device: what disturbs it makes a case inconclusive, never green or red."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels import Shape, recurrence
from kernels.inputs import make
from reports.page import build
from results.keep import Keeper
from results.store import load
from suite import checks, options, timing
from suite.environment import collect
from suite.facts import Ceilings, Clocks, Look, Speed
from suite.options import Options
from suite.run import Item, Run, items
from tests.simulated import Cost, Device, with_bit_flips, work

NAMES = ("host-sequential", "host-chunked")
COSTS = {
    "host-sequential": Cost(1_980_000.0),
    "host-chunked": Cost(990_000.0),
    "canary fma": Cost(600_000.0),
    "canary copy": Cost(600_000.0),
}

Measure = Callable[..., tuple[Run, list[Speed]]]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Time both host recurrences on a device, with a card's rules; they are called only to be checked."""
    plan = replace(options.PLANS["cuda"], reruns=2)
    monkeypatch.setitem(options.PLANS, "host", plan)

    def run(device: Device, tokens: tuple[int, ...] = (600,), ceilings: Ceilings | None = None) -> Any:
        monkeypatch.setattr("suite.run.Run._red", lambda self, item: "")
        chosen = Options("host", 0, NAMES, tokens, Shape(1, 1), ("normal",), tmp_path)
        nvml: Any = device
        found = Run(chosen, collect(None)[0], device, nvml, now=device.now, ceilings=ceilings)
        found.planned = items("speed", chosen)
        cases = [found.speed(item) for item in found.planned]
        found.finish()
        return found, cases

    return run


def test_a_quiet_device_is_green_and_its_truth_is_found(measure: Measure) -> None:
    run, (one, two) = measure(Device(COSTS, ramp_s=0.2))
    assert [case.outcome for case in (one, two)] == ["green", "green"]
    assert one.median_ns == pytest.approx(1e6, rel=0.005)
    assert two.median_ns == pytest.approx(5e5, rel=0.005)
    assert (one.stop, two.stop) == ("precision", "precision")
    assert len(one.samples_mhz) == len(one.samples_ns) >= 30
    assert set(one.samples_mhz) == {1980.0}
    assert one.cold is not None
    assert one.cold.median_ns == pytest.approx(1.02e6, rel=0.005)
    assert one.host is not None
    assert one.host.said == ""
    assert one.order_effect is None
    assert two.order_effect == pytest.approx(0.0, abs=0.005)
    assert not run.notes


def test_the_twin_is_the_baseline_in_the_same_alternation(measure: Measure) -> None:
    run, _ = measure(Device(COSTS))
    (group,) = run.groups
    assert group.recurrences == NAMES
    assert group.twin_of == "host-sequential"
    assert group.aa_ratio == pytest.approx(1.0, abs=0.003)
    assert group.aa_low is not None
    assert group.aa_high is not None
    assert group.aa_low <= group.aa_ratio <= group.aa_high
    assert len(group.twin.samples_ns) == 30
    assert 0.6 < group.device_s / group.wall_s <= 1.0


def test_a_lower_clock_that_is_steady_is_no_throttling_though_nvml_counts_time(measure: Measure) -> None:
    class Loaded(Device):
        def look(self) -> Look:
            return Look(clocks=Clocks(throttle=""), others=0, throttled_ns=round(self.time * 1e9))

    _, cases = measure(Loaded(COSTS | {"host-chunked": Cost(990_000.0, load=0.87)}))
    assert [case.outcome for case in cases] == ["green", "green"]
    _, cases = measure(Loaded(COSTS, blind=True))
    assert {case.outcome for case in cases} == {"inconclusive"}


def test_the_run_tells_what_it_cost_and_the_devices_share(measure: Measure) -> None:
    device = Device(COSTS)
    run, _ = measure(device)
    cost = run.cost()
    assert cost.timed_s == pytest.approx(device.busy_ns * 1e-9)
    assert cost.timed_s > sum(one.device_s for one in run.groups) > 0
    assert 0 < cost.wall_s < 3600
    assert cost.share == pytest.approx((cost.timed_s + cost.checks_s) / cost.wall_s)


def test_the_canaries_run_before_and_after_and_tell_a_slower_machine(measure: Measure) -> None:
    run, _ = measure(Device(COSTS))
    assert [(one.name, one.when) for one in run.canaries] == [
        (name, when) for when in ("before", "after") for name in ("fma", "copy")
    ]
    assert not run.notes
    slower, _ = measure(Device(COSTS, drift=0.06, noise=0.0005))
    assert any(note.startswith("the canary fma took +") for note in slower.notes)


@pytest.mark.parametrize(
    ("disturbance", "said"),
    [
        ({"throttled": [(1.3, 9.0, 1410.0)]}, "the card held its clocks back: software power cap"),
        ({"throttled": [(1.3, 1.31, 1410.0)]}, "the card held its clocks back: for 10 ms"),
        ({"contended": [(1.0, 9.0, 1.5)]}, "1 other process computed on the card"),
        ({"noise": 0.4, "process": 0.0}, "the median is known to"),
        ({"process": 0.03, "seed": 3}, "host-sequential against itself (A/A) was"),
        ({"drift": 3.0, "noise": 0.0005}, "times or clocks still moved after 3."),
    ],
)
def test_what_disturbs_the_measurement_makes_it_inconclusive(
    measure: Measure, disturbance: dict[str, Any], said: str
) -> None:
    _, cases = measure(Device(COSTS, **disturbance))
    assert {case.outcome for case in cases} == {"inconclusive"}
    assert any(said in case.reason for case in cases), [case.reason for case in cases]
    assert all(case.median_ns for case in cases)  # kept, and marked


def test_a_recurrence_that_depends_on_the_order_is_inconclusive(measure: Measure) -> None:
    """The baseline takes 8 % longer after host-chunked, as it runs in backward rounds; its twin in forward ones."""
    slow = {**COSTS, "host-sequential": Cost(1_980_000.0, after={"host-chunked": 1.08})}
    run, (_, two) = measure(Device(slow))
    assert two.order_effect == pytest.approx(0.08, abs=0.005)
    assert two.outcome == "inconclusive"
    assert "% after the baseline against before it, beyond 5.0%" in two.reason
    assert run.groups[0].aa_ratio == pytest.approx(1.0, abs=0.003)  # ABBA: both directions count alike


def test_samples_that_all_fail_leave_no_time(measure: Measure) -> None:
    _, (one, two) = measure(Device({**COSTS, "host-chunked": Cost(fault="the hold ended by its time limit")}))
    assert one.outcome == "green"
    assert two.outcome == "inconclusive"
    assert two.median_ns is None
    assert two.reason.endswith("were dropped (the hold ended by its time limit); 4 are wanted")


def test_a_hidden_allocation_is_found_by_the_host_time_and_by_its_count(measure: Measure) -> None:
    """1.4 ms a call, 44 ms a prompt of 32 layers: the device's times are those of before."""
    planted = Cost(990_000.0, call_ns=1_400_000.0, allocations=1, allocated_bytes=25_559_040)
    _, (one, two) = measure(Device({**COSTS, "host-chunked": planted}))
    assert two.median_ns == pytest.approx(5e5, rel=0.005)
    assert one.host is not None
    assert two.host is not None
    assert one.host.said == ""
    assert "a call makes 1 allocation of 25,559,040 bytes; a call must not allocate" in two.host.said
    assert two.host.call_ns >= 1_400_000 > 100 * two.host.replay_ns  # type: ignore[operator]


def test_an_allocation_that_nothing_counts_shows_in_the_host_time(measure: Measure) -> None:
    _, (_, two) = measure(Device({**COSTS, "host-chunked": Cost(990_000.0, call_ns=1_400_000.0)}))
    assert two.host is not None
    assert two.host.said.startswith("a plain call costs the host 1,4")


def test_a_time_below_the_physical_limit_is_an_error_and_no_record(measure: Measure) -> None:
    """A card of 1 TFLOP/s needs 59 us for 600 tokens of one head; 0.5 ms is no error, 20 us is one."""
    ceilings = Ceilings(fma_flops=1e12, copy_bytes_per_s=1e12, tensor_flops=1e12, l2_bytes=2**20)
    fast = {**COSTS, "host-chunked": Cost(40_000.0)}
    _, (one, two) = measure(Device(fast), ceilings=ceilings)
    assert one.outcome == "green"
    assert one.limit_ns == pytest.approx(6 * 128 * 128 * 600 * 1e-3)
    assert two.outcome == "red"
    assert (two.samples_ns, two.median_ns) == ((), None)
    assert "us is below what the card can do, 58.98 us" in two.reason


def test_a_device_that_flips_bits_is_not_deterministic() -> None:
    one = with_bit_flips(recurrence("host-sequential"), share=0.2)
    case = checks.determinism(one, make(Shape(1, 1), 9), "normal", 30)
    assert case.outcome == "red"
    assert 0 < case.differing < 30
    steady = with_bit_flips(recurrence("host-sequential"), share=0.0)
    assert checks.determinism(steady, make(Shape(1, 1), 9), "normal", 3).outcome == "green"


def test_only_the_first_group_warms_up_for_long(measure: Measure) -> None:
    run, _ = measure(Device(COSTS), tokens=(32, 600))
    assert run.groups[0].warmup_s >= 0.5 > 5 * run.groups[1].warmup_s
    assert Item("speed", "host-chunked", 600, "normal") not in run._timed


def test_the_record_of_a_disturbed_run_is_stored_and_shown(measure: Measure, tmp_path: Path) -> None:
    run, cases = measure(Device(COSTS, throttled=[(1.3, 1.4, 1410.0)], outliers=(0.05, 2.0)), tokens=(32, 600))
    Keeper(run, tmp_path).finish(complete=True)
    loaded = load(tmp_path)
    assert loaded.problems == ()
    (record,) = loaded.records
    assert list(record.cases) == [case for case in run.cases if isinstance(case, Speed)] == cases
    assert [group.tokens for group in record.groups] == [32, 600]
    assert (record.method.id, record.method.l2, record.method.precision) == ("simulated-2", "hot and cold", 0.005)
    page = build(loaded.records, (), ())
    assert "the card held its clocks back" in page
    assert "How good the measurement was" in page


def test_a_recurrence_more_costs_time_in_proportion() -> None:
    """The calls of a group run for most of its time, however many recurrences it has."""
    plan, seconds = options.PLANS["cuda"], {}
    for number in (2, 4, 8):
        device = Device({}, noise=0.001)
        works = [work(str(place)) for place in range(number)]
        found = timing.sample(device, works, replace(plan.hot, warmup_s=0.0), plan.cold, now=device.now)
        seconds[number] = found.wall_s
        assert found.device_s > 0.6 * found.wall_s
    assert seconds[4] == pytest.approx(2 * seconds[2], rel=0.05)
    assert seconds[8] == pytest.approx(4 * seconds[2], rel=0.05)
