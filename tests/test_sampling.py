"""When to sample what, on a simulated device whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suite.clock import HostTime
from suite.sampling import Policy, Taken, host_time, order_effect, paired, take, warm_up
from tests.simulated import Cost, Device, work

TWO = {"one": Cost(1_980_000.0), "two": Cost(1_980_000.0)}
FIXED = Policy(rounds=(40, 40), precision=0.0, budget_s=1e9)


def sampled(device: Device, names: list[str], policy: Policy, l2: str = "hot") -> list[Taken]:
    return take(device, [device.prepare(work(name)) for name in names], policy, l2, device.now)


def medians(taken: list[Taken]) -> list[float]:
    return [float(np.median(one.ns)) for one in taken]


def test_samples_go_forwards_then_backwards() -> None:
    device = Device()
    sampled(device, ["a", "b", "c"], Policy((4, 4), 0.0, 1e9))
    assert device.order == list("abccbaabccba")


def test_linear_drift_leaves_the_ratio_alone() -> None:
    """One after the other, the second would look 4 % slower; in ABBA order both meet the same drift."""
    one, two = sampled(Device(TWO, noise=0.0, drift=0.25), ["one", "two"], FIXED)
    assert one.ns[-1] / one.ns[0] > 1.05
    assert np.mean(two.ns) / np.mean(one.ns) == pytest.approx(1.0, abs=1e-4)
    assert paired(one, two) == pytest.approx((1.0, 1.0, 1.0), abs=2e-3)


def test_sampling_ends_once_every_median_is_known_well_enough() -> None:
    quiet = sampled(Device(TWO, noise=0.001), ["one", "two"], Policy((10, 1000), 0.005, 1e9))
    assert {one.stop for one in quiet} == {"precision"}
    assert len(quiet[0].samples) == 10
    noisy = sampled(Device(TWO, noise=0.02), ["one", "two"], Policy((10, 1000), 0.005, 1e9))
    assert {one.stop for one in noisy} == {"precision"}
    assert 20 < len(noisy[0].samples) < 1000
    assert all(one.half_width <= 0.005 for one in noisy)
    assert medians(noisy) == pytest.approx([1e6, 1e6], rel=0.015)


def test_it_says_what_ran_out() -> None:
    """A millisecond a call, four calls a sample: 0.1 s for each of two is some 25 rounds."""
    short = sampled(Device(TWO, noise=0.2), ["one", "two"], Policy((10, 1000), 0.001, 0.1))
    assert {one.stop for one in short} == {"budget"}
    assert 22 <= len(short[0].samples) <= 26
    few = sampled(Device(TWO, noise=0.2), ["one", "two"], Policy((10, 12), 0.001, 1e9))
    assert {one.stop for one in few} == {"rounds"}
    assert len(few[0].samples) == 12


def test_the_least_rounds_are_taken_whatever_the_budget() -> None:
    few = sampled(Device(TWO), ["one", "two"], Policy((6, 100), 0.0, 0.0))
    assert [len(one.samples) for one in few] == [6, 6]


def test_warm_up_goes_on_until_the_clocks_are_up() -> None:
    device = Device(TWO, ramp_s=0.6)
    ready = [device.prepare(work(name)) for name in TWO]
    found = warm_up(device, ready, Policy((2, 2), 0.005, 1.0, warmup_s=0.05), "hot", device.now)
    assert found.stationary
    assert device.clock_now() > 0.99 * device.mhz
    assert found.samples == len(device.order)


def test_without_a_ramp_the_warm_up_takes_its_least_time() -> None:
    device = Device(TWO)
    ready = [device.prepare(work(name)) for name in TWO]
    found = warm_up(device, ready, Policy((2, 2), 0.005, 1.0, warmup_s=0.2), "hot", device.now)
    assert found.stationary
    assert 0.2 <= found.seconds < 0.25


def test_a_warm_up_that_finds_no_rest_ends_and_says_so() -> None:
    device = Device(TWO, drift=2.0, noise=0.0005)
    ready = [device.prepare(work(name)) for name in TWO]
    found = warm_up(device, ready, Policy((2, 2), 0.005, 1.0, warmup_most_s=0.5), "hot", device.now)
    assert not found.stationary
    assert 0.5 <= found.seconds < 0.55


def test_a_change_in_seconds_that_is_none_in_cycles_is_a_clock_event() -> None:
    """A fifth of the rounds runs at 1,410 MHz: 40 % longer in seconds, the same in cycles."""
    device = Device(TWO, throttled=[(0.1, 0.17, 1410.0)])
    one, two = sampled(device, ["one", "two"], FIXED)
    assert len(one.dropped) + len(two.dropped) >= 10
    for sample, reason in one.dropped:
        assert sample.sm_mhz == 1410.0
        assert reason.startswith("clock event: 1,410 MHz, the others 1,980; +4")
        assert reason.endswith("% in cycles")
        assert abs(float(reason.split("; ")[1].split(", ")[1].split("%")[0])) < 1.0
    assert medians([one, two]) == pytest.approx([1e6, 1e6], rel=0.002)
    assert len(one.samples) == len(one.rounds) == 40 - len(one.dropped)


def test_works_that_run_at_different_clocks_lose_no_sample() -> None:
    """An H200 runs at 1.73 GHz under the load of tensor cores and at 1.98 GHz under other work."""
    device = Device({"light": Cost(), "heavy": Cost(load=0.88)})
    light, heavy = sampled(device, ["light", "heavy"], FIXED)
    assert not light.dropped
    assert not heavy.dropped
    assert heavy.mhz == pytest.approx(1742.4)


def test_a_slow_sample_at_the_usual_clock_is_kept() -> None:
    """Nothing is dropped for its time: the median copes with outliers, and the record shows them."""
    (one,) = sampled(Device(TWO, outliers=(0.1, 3.0)), ["one"], FIXED)
    assert not one.dropped
    assert one.ns.max() > 2.5e6
    assert np.median(one.ns) == pytest.approx(1e6, rel=0.003)


def test_a_faulty_sample_does_not_count() -> None:
    bad, good = sampled(Device({"bad": Cost(fault="held too long")}), ["bad", "good"], FIXED)
    assert (len(bad.samples), {reason for _, reason in bad.dropped}) == (0, {"held too long"})
    assert len(good.samples) == 40


def test_without_sm_clocks_nothing_is_dropped() -> None:
    one, _ = sampled(Device(TWO, blind=True, throttled=[(0.1, 0.2, 1410.0)]), ["one", "two"], FIXED)
    assert not one.dropped
    assert one.mhz.size == 0


def test_the_order_effect_is_what_was_planted() -> None:
    """Whatever comes right after `one` takes 3 % longer: `two` in forward rounds alone."""
    device = Device({"two": Cost(after={"one": 1.03})})
    one, two = sampled(device, ["one", "two"], FIXED)
    assert order_effect(one, two) == pytest.approx(0.03, abs=0.003)
    plain = sampled(Device(TWO), ["one", "two"], FIXED)
    assert order_effect(*plain) == pytest.approx(0.0, abs=0.003)


def test_no_round_in_common_gives_no_ratio() -> None:
    bad, good = sampled(Device({"bad": Cost(fault="held too long")}), ["bad", "good"], FIXED)
    assert paired(bad, good) is None
    assert order_effect(bad, good) is None


def test_cold_samples_are_asked_for_as_such() -> None:
    (hot,), (cold,) = (sampled(Device(TWO), ["one"], FIXED, l2) for l2 in ("hot", "cold"))
    assert np.median(cold.ns) - np.median(hot.ns) == pytest.approx(20_000, rel=0.1)


@pytest.mark.parametrize("planted", [0.02, -0.02])
def test_a_planted_change_is_measured_as_what_it_is(planted: float) -> None:
    device = Device({"one": Cost(), "two": Cost(1_980_000 * (1 + planted))}, ramp_s=0.3, outliers=(0.05, 1.5))
    ready = [device.prepare(work(name)) for name in ("one", "two")]
    policy = Policy((30, 300), 0.005, 1.0, warmup_s=0.3)
    warm_up(device, ready, policy, "hot", device.now)
    ratio: Any = paired(*take(device, ready, policy, "hot", device.now))
    assert ratio[0] == pytest.approx(1 + planted, abs=0.003)
    assert ratio[1] <= 1 + planted + 0.003
    assert abs(ratio[0] - 1) > 0.015


def test_host_times_are_medians_and_allocations_those_of_every_call() -> None:
    device = Device({"one": Cost(call_ns=1_400_000, allocations=1, allocated_bytes=25_559_040)})
    found = host_time(device, device.prepare(work("one")), 9)
    assert 1_400_000 <= found.call_ns < 1_600_000
    assert found.replay_ns is not None
    assert found.replay_ns < 6_000
    assert (found.allocations, found.allocated_bytes) == (1, 25_559_040)


def test_what_only_a_first_call_allocates_is_not_held_against_it() -> None:
    """Scratch that is made once and kept."""

    class Once(Device):
        def host(self, prepared: Any) -> HostTime:
            self.time += 1.0
            return HostTime(12e3, 5e3, int(self.time == 1.0), 4096 * int(self.time == 1.0))

    device = Once()
    found = host_time(device, device.prepare(work("one")), 5)
    assert (found.allocations, found.allocated_bytes) == (0, 0)
