"""The graph clock on a GPU: what it must see, and what it must not wait for."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from kernels import Recurrence, Shape, recurrence
from kernels.inputs import make
from suite.canary import works
from suite.clock import Work
from suite.cuda_clock import HOLD_NS, GraphClock
from suite.environment import collect
from suite.options import PLANS
from suite.sampling import host_time, take, warm_up

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]


@pytest.fixture(scope="module")
def clock() -> GraphClock:
    return GraphClock()


def work(one: Recurrence, tokens: int) -> Work:
    import cupy

    problem = make(Shape(), tokens).map(cupy.asarray)
    out, state = one(problem)
    return Work(lambda: one.enqueue(problem, out, state), name=f"{one.name}, {tokens} tokens")


@pytest.mark.parametrize("name", ["sequential", "chunked"])
def test_cold_takes_longer_than_hot_and_both_have_an_sm_clock(clock: GraphClock, name: str) -> None:
    ready, plan = [clock.prepare(work(recurrence(name), 128))], PLANS["cuda"]
    assert warm_up(clock, ready, plan.hot).stationary
    (hot,), (cold,) = take(clock, ready, plan.hot), take(clock, ready, plan.cold, "cold")
    assert np.median(cold.ns) > np.median(hot.ns)
    assert hot.stop == "precision"
    _, nvml = collect(0)
    assert nvml is not None
    most = nvml.most_sm_mhz()
    for taken in (hot, cold):
        assert len(taken.mhz) == len(taken.samples)
        assert most is None or 0.3 * most < np.median(taken.mhz) <= 1.02 * most


def test_a_call_that_waits_for_the_device_is_no_deadlock(clock: GraphClock) -> None:
    import cupy

    one = recurrence("sequential")

    def enqueue(problem: Any, out: Any, state: Any) -> None:
        one.enqueue(problem, out, state)
        cupy.cuda.get_current_stream().synchronize()

    start = time.monotonic()
    ready = clock.prepare(work(Recurrence("waits", "cuda", enqueue), 32))
    assert not ready.captured
    assert "the hold ended by its time limit" in clock.sample(ready).fault
    assert time.monotonic() - start < 10 * HOLD_NS * 1e-9
    # The clock is as good as before.
    assert clock.sample(clock.prepare(work(one, 32))).fault == ""


def test_a_hidden_allocation_is_found(clock: GraphClock) -> None:
    """Taken from the pool and given back in every call, as the seed's authors had it for a while."""
    import cupy

    one = recurrence("sequential")

    def enqueue(problem: Any, out: Any, state: Any) -> None:
        scratch = cupy.empty(25_559_040, cupy.uint8)
        one.enqueue(problem, out, state)
        del scratch

    plain, planted = (
        host_time(clock, clock.prepare(work(found, 128)), 5) for found in (one, Recurrence("x", "cuda", enqueue))
    )
    assert (plain.allocations, plain.allocated_bytes) == (0, 0)
    assert (planted.allocations, planted.allocated_bytes) == (1, 25_559_040)


def test_a_slow_enqueueing_is_seen_by_the_host_time_alone(clock: GraphClock) -> None:
    one = recurrence("sequential")

    def enqueue(problem: Any, out: Any, state: Any) -> None:
        time.sleep(0.0014)
        one.enqueue(problem, out, state)

    ready = [clock.prepare(work(found, 512)) for found in (one, Recurrence("x", "cuda", enqueue))]
    warm_up(clock, ready, PLANS["cuda"].hot)
    plain, slow = take(clock, ready, PLANS["cuda"].hot)
    assert np.median(slow.ns) == pytest.approx(np.median(plain.ns), rel=0.01)
    assert host_time(clock, ready[1], 5).call_ns > 1.4e6 > 10 * host_time(clock, ready[0], 5).call_ns


def test_the_canaries_run_near_what_the_card_can_do(clock: GraphClock) -> None:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    fma, copy = works("cuda", properties["multiProcessorCount"])
    ready = [clock.prepare(one) for _, _, one in (fma, copy)]
    warm_up(clock, ready, PLANS["cuda"].hot)
    rates = [
        amount / np.median(one.ns)
        for (_, amount, _), one in zip((fma, copy), take(clock, ready, PLANS["cuda"].hot), strict=True)
    ]
    bus = (
        2 * properties["memoryClockRate"] * 1e3 * properties["memoryBusWidth"] / 8 * 1e-9
        if properties.get("memoryClockRate")
        else None
    )
    assert rates[0] > 0
    assert bus is None or 0.5 * bus < rates[1] <= bus
