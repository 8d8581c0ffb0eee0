"""The graph clock's steps, on a stand-in for CuPy: what is enqueued, in which order, and what is made of it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from suite.clock import Work
from suite.cuda_clock import HOLD_NS, GraphClock, sm_clock
from tests.stand_in import MHZ, Device, stand_in


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def clock(device: Device) -> GraphClock:
    clock = GraphClock(*stand_in(device))
    device.log.clear()
    return clock


def kernel(device: Device, ns: float, cold_ns: float = 0.0) -> Work:
    return Work(
        lambda: device.kernel("call", ns, cold_ns), lambda: device.kernel("reset", 500.0), name="some, 32 tokens"
    )


def test_a_hot_sample_is_the_mean_of_calls_that_last_a_while_together(device: Device, clock: GraphClock) -> None:
    ready = clock.prepare(kernel(device, 20_000.0, cold_ns=9_000.0))
    assert clock.calls(ready) == 20
    device.log.clear()
    sample = clock.sample(ready)
    assert sample.ns == pytest.approx(20_000.0)
    assert sample.fault == ""
    begin = ["[some, 32 tokens, hot", "reset", "hold", "call", "stamp"]
    assert device.log == [*begin, *["call"] * 20, "stamp", "]"]


@pytest.mark.parametrize(("ns", "calls"), [(1_000.0, 64), (390_000.0, 1), (5e6, 1)])
def test_calls_of_a_sample_are_within_bounds(device: Device, clock: GraphClock, ns: float, calls: int) -> None:
    assert clock.calls(clock.prepare(kernel(device, ns))) == calls


def test_a_cold_sample_is_one_call_after_a_flush(device: Device, clock: GraphClock) -> None:
    ready = clock.prepare(kernel(device, 20_000.0, cold_ns=9_000.0))
    assert clock.calls(ready, "cold") == 1
    device.log.clear()
    assert clock.sample(ready, "cold").ns == pytest.approx(29_000.0)
    assert device.log == ["[some, 32 tokens, cold", "reset", "flush", "hold", "stamp", "call", "stamp", "]"]


def test_what_a_second_call_sets_up_does_not_run_behind_a_hold(device: Device, clock: GraphClock) -> None:
    """Such as the graph of a call that comes again: making it waits for the device."""
    calls = []

    def call() -> None:
        calls.append(1)
        if len(calls) == 2:
            device.synchronize()
        device.kernel("call", 20_000.0)

    before = device.ns
    ready = clock.prepare(Work(call))
    assert ready.captured
    assert clock.sample(ready).fault == ""
    assert device.ns - before < HOLD_NS


def test_the_stamps_tell_the_sm_clock(device: Device, clock: GraphClock) -> None:
    assert clock.sample(clock.prepare(kernel(device, 20_000.0))).sm_mhz == pytest.approx(MHZ, rel=1e-3)


def test_sms_that_one_row_of_stamps_lacks_do_not_count() -> None:
    before, after = np.array([100, 1000, 0, 0, 50, 1000], np.uint64), np.array([2100, 2000, 9, 9, 0, 0], np.uint64)
    assert sm_clock(before, after) == pytest.approx(2000.0)
    assert sm_clock(before, np.zeros(6, np.uint64)) is None


def test_a_call_that_waits_for_the_device_makes_a_faulty_sample_and_no_deadlock(
    device: Device, clock: GraphClock
) -> None:
    """It cannot be captured either: it is enqueued plainly, and the clock says so."""
    waits = Work(lambda: (device.kernel("call", 10.0), device.synchronize()), name="waits")  # type: ignore[arg-type,return-value]
    before = device.ns
    ready = clock.prepare(waits)
    assert not ready.captured
    assert "waits is timed without a graph: it cannot be captured" in clock.notes[-1]
    sample = clock.sample(ready)
    assert sample.fault == "the hold ended by its time limit, before the call was enqueued"
    assert device.ns - before < 4 * HOLD_NS


def test_an_error_of_the_call_releases_the_hold(device: Device, clock: GraphClock) -> None:
    ready = clock.prepare(kernel(device, 100.0))
    before = device.ns

    def fails() -> None:
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        clock._sample(fails)
    device.synchronize()
    assert device.ns - before < HOLD_NS
    assert clock.sample(ready).fault == ""


def test_a_graph_that_cannot_be_made_is_replaced_by_plain_calls(device: Device, clock: GraphClock) -> None:
    device.refuses_capture = True
    ready = clock.prepare(kernel(device, 20_000.0))
    assert clock.sample(ready).ns == pytest.approx(20_000.0)
    assert clock.host(ready).replay_ns is None


def test_the_host_time_is_that_of_enqueueing(device: Device, clock: GraphClock) -> None:
    """The call takes 2 ms on the host and 20 us on the device; its graph does not."""

    def call() -> None:
        time.sleep(0.002)
        device.kernel("call", 20_000.0)

    found = clock.host(clock.prepare(Work(call)))
    assert found.call_ns >= 2e6
    assert found.replay_ns is not None
    assert found.replay_ns < 1e6
    assert found.allocations == 0


def test_a_hidden_allocation_is_counted_though_the_call_gives_it_back(device: Device, clock: GraphClock) -> None:
    def call() -> None:
        device.allocate(25_559_040)
        device.kernel("call", 20_000.0)

    found = clock.host(clock.prepare(Work(call)))
    assert (found.allocations, found.allocated_bytes) == (1, 25_559_040)


def test_what_cannot_be_reset_is_said(clock: GraphClock) -> None:
    """Here there is no driver."""
    if not clock.notes:
        pytest.skip("there is a driver here")
    assert clock.notes[0].startswith("persisting lines of the L2 cache are not reset: ")
