"""The CUDA recurrences on a GPU: truth, carried state, long sequences, and what a call may not do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import Problem, ProblemError, Shape, recurrence
from kernels.inputs import make
from kernels.reference import error, reference, reference_host
from suite.clock import Work
from suite.cuda_clock import GraphClock
from suite.sampling import Policy, take, warm_up

# A kernel that hangs must be a failure. pytest-timeout's method "signal", its default, cannot interrupt a call that
# waits for the device: Python runs a signal's handler in the main thread, between two bytecodes. The timer thread of
# the method "thread" needs only the GIL, which CuPy releases while it waits; it prints all stacks and ends the
# process with exit status 1.
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

SHAPES = [
    Shape(),
    Shape(16, 48, "grouped"),
    Shape(16, 16),
    Shape(16, 32, "grouped"),
    Shape(16, 64),
    Shape(2, 12),
    Shape(3, 15, "grouped"),
]


NAMES = ["sequential", "sequential-tuned", "chunked", "tensor", "tensor-sm80", "auto"]


def on_gpu(problem: Problem) -> Problem:
    import cupy

    return problem.map(cupy.asarray)


def same_bits(one: Any, other: Any) -> bool:
    return bool((one.view(np.uint32) == other.view(np.uint32)).all())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s}-{s.head_map}")
@pytest.mark.parametrize("name", NAMES)
def test_every_shape_and_tail_matches_fp64(shape: Shape, name: str) -> None:
    whole = on_gpu(make(shape, 2100))
    for tokens in (0, 1, 31, 32, 33, 65, 2047, 2100):
        problem = whole.head(tokens)
        for got, wanted in zip(recurrence(name)(problem), reference(problem), strict=True):
            assert error(got, wanted).max <= 1.1e-6, tokens


def test_the_references_of_gpu_and_host_agree() -> None:
    problem = make(Shape(2, 6, "grouped"), 70, "correlated")
    for here, there in zip(reference_host(problem), reference(on_gpu(problem)), strict=True):
        np.testing.assert_allclose(there.get(), here, rtol=0, atol=1e-13)


@pytest.mark.parametrize("gate", [0.0, -1e-4, -316.0, -1e4, -np.inf])
@pytest.mark.parametrize(
    ("name", "limit"),
    [("sequential", 1e-5), ("sequential-tuned", 1e-5), ("chunked", 1.1e-6), ("tensor", 2e-6), ("tensor-sm80", 2e-6)],
)
def test_small_gates_survive_after_a_spike(name: str, limit: float, gate: float) -> None:
    """Gates near 0 keep every rounding of the state: token by token, 520 of them add up to 7e-6."""
    problem = make(Shape(), 520)
    problem.gate[:] = -1e-4
    for at in (0, 5, 31):
        problem.gate[at::64] = gate
    here = on_gpu(problem)
    for got, wanted in zip(recurrence(name)(here), reference(here), strict=True):
        assert error(got, wanted).max <= limit


@pytest.mark.parametrize("cut", [1, 7, 32, 1000, 2048, 2049])
def test_state_is_carried_from_call_to_call(cut: int) -> None:
    problem = on_gpu(make(Shape(), 2500))
    for name in NAMES:
        out, state = recurrence(name)(problem)
        first, middle = recurrence(name)(problem.head(cut))
        second, last = recurrence(name)(problem.slice(cut, 2500, middle))
        pieces = ((out[:cut], first), (out[cut:], second), (state, last))
        if name == "sequential" or (name == "chunked" and cut == 2048):
            assert all(same_bits(*pair) for pair in pieces)
        else:
            assert all(error(one, other).max <= 2e-6 for one, other in pieces)


@pytest.mark.parametrize("name", ["sequential", "sequential-tuned", "chunked", "tensor", "tensor-sm80"])
def test_indices_hold_past_two_to_the_31(name: str) -> None:
    """215,040 tokens are 2.2e9 floats of qkv; the same in two calls gives the same bits.

    Not so for tensor, whose spans depend on the length of a call: a span begins with a new scale of the state.
    """
    import cupy

    tokens, piece = 215_040, make(Shape(), 2048)
    copies = tokens // 2048
    assert tokens * Shape().row > 2**31
    if cupy.cuda.Device().mem_info[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free device memory")
    small = on_gpu(piece)
    tile = lambda array: cupy.tile(array, (copies, 1))  # noqa: E731
    problem = Problem(tile(small.qkv), tile(small.gate), tile(small.beta), small.state, 16)
    one = recurrence(name)
    out, state = one(problem)
    same = (lambda got, want: error(got, want).max <= 2e-6) if name.startswith("tensor") else same_bits
    middle, half = small.state, tokens // 2
    for start in (0, half):
        part, middle = one(problem.slice(start, start + half, middle))
        assert same(part[-4096:], out[start + half - 4096 : start + half])
    assert same(middle, state)
    del out, part, problem
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize("name", [*NAMES, "dispatched"])
def test_a_call_returns_before_the_device_is_done(name: str) -> None:
    import cupy

    problem = on_gpu(make(Shape(), 8192))
    one = recurrence(name)
    out, state = one(problem)
    done = cupy.cuda.Event(disable_timing=True)
    cupy.cuda.Device().synchronize()
    one.enqueue(problem, out, state)
    done.record()
    assert not done.done
    cupy.cuda.Device().synchronize()


@pytest.mark.parametrize("name", NAMES)
def test_a_call_allocates_nothing_and_can_be_captured(name: str) -> None:
    import cupy

    problem = on_gpu(make(Shape(), 4099))
    one = recurrence(name)
    out, state = one(problem)
    one.enqueue(problem, out, state)  # a call that comes again may be made a graph, once
    pool = cupy.get_default_memory_pool()
    before = (pool.total_bytes(), pool.used_bytes(), cupy.cuda.Device().mem_info[0])
    one.enqueue(problem, out, state)
    cupy.cuda.Device().synchronize()
    assert before == (pool.total_bytes(), pool.used_bytes(), cupy.cuda.Device().mem_info[0])
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()  # a synchronisation or an allocation is an error from here on
        one.enqueue(problem, out, state)
        stream.end_capture().launch(stream)
        stream.synchronize()


@pytest.mark.parametrize("name", ["tensor", "tensor-sm80"])
def test_a_call_that_comes_again_is_one_graph_with_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    from kernels import tensor

    problem = on_gpu(make(Shape(), 4099))
    one = recurrence(name)
    out, state = one(problem)
    first = out.tobytes(), state.tobytes()

    def refused(*arguments: Any) -> None:
        raise AssertionError("kernels were launched one by one")

    for again in range(3):
        if again == 1:  # the graph is there
            monkeypatch.setattr(tensor, "_enqueue_spans", refused)
        out.fill(np.nan)
        state[...] = problem.state
        one.enqueue(problem, out, state)
        cupy.cuda.Device().synchronize()
        assert (out.tobytes(), state.tobytes()) == first


def test_the_scratch_is_16_9_megabytes_and_kept() -> None:
    problem = on_gpu(make(Shape(), 64))
    recurrence("chunked")(problem)
    sizes = [(scratch.nbytes, scratch.data.ptr) for scratch in recurrence("chunked").scratch()]
    recurrence("chunked")(problem)
    assert sizes == [(scratch.nbytes, scratch.data.ptr) for scratch in recurrence("chunked").scratch()]
    assert 16_908_288 in [size for size, _ in sizes]


def test_the_inputs_stay_as_they_were() -> None:
    host = make(Shape(), 100)
    problem = on_gpu(host)
    for name in NAMES:
        recurrence(name)(problem)
    for name in ("qkv", "gate", "beta", "state"):
        assert same_bits(getattr(problem, name).get(), getattr(host, name))


def test_arrays_of_two_places_are_refused() -> None:
    host = make(Shape(2, 2), 5)
    there = on_gpu(host)
    with pytest.raises(ProblemError, match="one device; they are on qkv: host, gate: cuda:0"):
        Problem(host.qkv, there.gate, host.beta, host.state, 2)
    with pytest.raises(ProblemError, match="qkv lies on host; chunked takes CuPy arrays"):
        recurrence("chunked")(host)
    with pytest.raises(ProblemError, match="qkv lies on cuda:0; host-chunked takes NumPy arrays"):
        recurrence("host-chunked")(there)


@pytest.mark.parametrize("name", [*NAMES, "dispatched"])
def test_a_wrong_output_is_refused_before_anything_runs(name: str) -> None:
    import cupy

    problem = on_gpu(make(Shape(2, 2), 5))
    state = problem.state.copy()
    for out, words in (
        (cupy.empty((4, 2, 128), "f4"), r"out has shape \(4, 2, 128\)"),
        (cupy.empty((5, 2, 128), "f8"), "out has dtype float64"),
        (cupy.empty((5, 2, 256), "f4")[..., ::2], "out has strides"),
        (np.empty((5, 2, 128), "f4"), "out lies on host; it must be on cuda:0"),
    ):
        with pytest.raises(ProblemError, match=words):
            recurrence(name).enqueue(problem, out, state)


def test_without_scratch_the_dispatch_runs_the_sequential_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    import kernels.gpu

    problem = on_gpu(make(Shape(), 256))
    monkeypatch.setenv("STRATA_GDN_CHUNKED", "1")
    asked = recurrence("dispatched")(problem)[0]
    assert same_bits(asked, recurrence("chunked")(problem)[0])

    def full(*arguments: Any) -> None:
        raise cupy.cuda.memory.OutOfMemoryError(1, 2, 3)

    monkeypatch.setattr(kernels.gpu, "_scratch", full)
    assert same_bits(recurrence("dispatched")(problem)[0], recurrence("sequential")(problem)[0])


def test_the_graph_clock_agrees_with_the_wall_over_many_calls() -> None:
    import cupy

    problem = on_gpu(make(Shape(), 2048))
    one = recurrence("sequential")
    out, state = one(problem)
    work = Work(lambda: one.enqueue(problem, out, state), lambda: None)
    policy = Policy(rounds=(20, 20), precision=0.0, budget_s=10.0, warmup_s=0.3)
    clock = GraphClock()
    prepared = [clock.prepare(work)]
    warm_up(clock, prepared, policy)
    (taken,) = take(clock, prepared, policy)
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(200):
        work.call()
    cupy.cuda.Device().synchronize()
    wall_ns = (time.perf_counter() - start) / 200 * 1e9
    assert not taken.dropped
    assert np.median(taken.ns) == pytest.approx(wall_ns, rel=0.03)


@pytest.mark.parametrize("left", [48, 84])
def test_tensor_runs_on_the_multiprocessors_that_another_kernel_leaves(left: int) -> None:
    """In a process of its own: with the streams of other tests, those of this one may share a queue of the device."""
    import cupy

    if (sms := cupy.cuda.Device().attributes["MultiProcessorCount"]) <= left:
        pytest.skip(f"the card has {sms} SMs; more than {left} are wanted")
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("held.py"), str(left)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    for tokens, times in json.loads(ran.stdout).items():
        assert times["sequential"] >= 2 * times["tensor"], (tokens, times)


def test_auto_runs_what_its_table_says_is_fastest() -> None:
    import cupy

    from kernels import auto
    from kernels.gpu import facts
    from kernels.timetable import shipped_tables

    whole = on_gpu(make(Shape(), 8192))
    names = auto.available(whole)
    chosen = auto.rule(shipped_tables(), facts(cupy.cuda.runtime.getDevice()), Shape(), names)
    for tokens in (1, 16, 32, 64, 512, 8192):
        problem = whole.head(tokens)
        picked = recurrence(chosen.recurrence(tokens))(problem)
        assert all(same_bits(one, other) for one, other in zip(recurrence("auto")(problem), picked, strict=True))
