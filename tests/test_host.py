"""The NumPy recurrences against the FP64 reference, the reference against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import HEAD_MAPS, Problem, ProblemError, Shape, recurrence
from kernels.inputs import FAMILIES, make
from kernels.reference import Errors, error, reference, reference_host

TOKENS = (0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 130, 257)
LIMIT = 2e-6
HOST = ("host-sequential", "host-chunked")
LAYERS = list(FAMILIES)[:2]
"""Inputs as a layer has them; the regimes are in test_regimes.py."""

host = pytest.mark.parametrize("name", HOST)


def check(problem: Problem, limit: float = LIMIT) -> None:
    """Both host recurrences are within the limit of the reference, output and state apart."""
    truths = reference_host(problem)
    for name in HOST:
        for result, truth in zip(recurrence(name)(problem), truths, strict=True):
            assert result.dtype == np.float32
            found = error(result, truth)
            assert found.max <= limit, (name, found)
            assert found.rms <= limit, (name, found)


@pytest.mark.parametrize("family", LAYERS)
@pytest.mark.parametrize(
    "shape",
    [Shape(*heads, head_map) for heads in ((16, 48), (16, 16), (2, 8)) for head_map in HEAD_MAPS],
    ids=lambda shape: f"{shape}-{shape.head_map}",
)
def test_against_the_reference(shape: Shape, family: str) -> None:
    longest = make(shape, max(TOKENS), family)
    for tokens in TOKENS:
        check(longest.head(tokens))


def by_hand() -> tuple[Problem, np.ndarray, np.ndarray]:
    """Two tokens of one head whose numbers are short enough to follow, and the results they must give.

    e0, e1, ... are the unit vectors; a b^T has the key row of a and the value column of b.
    Before: S = 2 e0 e1^T.
    """
    qkv = np.zeros((2, 3, 128), np.float32)
    gate, beta = np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32)
    state = np.zeros((128, 1, 128), np.float32)
    state[0, 0, 1] = 2
    # Token 0: q = e0 + e1, k = e0, v = 3 e1 + e2, decay 1/2, beta 1/2.
    #   S = 1/2 (2 e0 e1^T)            = e0 e1^T
    #   d = 1/2 (v - S^T k)            = 1/2 (3 e1 + e2 - e1) = e1 + 0.5 e2
    #   S = e0 e1^T + k d^T            = 2 e0 e1^T + 0.5 e0 e2^T
    #   S^T q                          = 2 e1 + 0.5 e2
    qkv[0, 0, [0, 1]] = 1
    qkv[0, 1, 0] = 1
    qkv[0, 2, [1, 2]] = 3, 1
    gate[0], beta[0] = math.log(1 / 2), 1 / 2
    # Token 1: q = e1, k = 0.6 e0 + 0.8 e1, v = 1.3 e1 + 0.075 e2, decay 1/4, beta 1.
    #   S = 1/4 (2 e0 e1^T + 0.5 e0 e2^T)           = 0.5 e0 e1^T + 0.125 e0 e2^T
    #   S^T k = 0.6 (0.5 e1 + 0.125 e2)             = 0.3 e1 + 0.075 e2
    #   d = v - S^T k                               = 1.0 e1
    #   S = S + (0.6 e0 + 0.8 e1) (1.0 e1)^T        = 1.1 e0 e1^T + 0.125 e0 e2^T + 0.8 e1 e1^T
    #   S^T q                                       = 0.8 e1
    qkv[1, 0, 1] = 1
    qkv[1, 1, [0, 1]] = 0.6, 0.8
    qkv[1, 2, [1, 2]] = 1.3, 0.075
    gate[1], beta[1] = math.log(1 / 4), 1
    out = np.zeros((2, 1, 128))
    out[0, 0, [1, 2]] = 2 / math.sqrt(128), 0.5 / math.sqrt(128)
    out[1, 0, 1] = 0.8 / math.sqrt(128)
    after = np.zeros((128, 1, 128))
    after[0, 0, [1, 2]] = 1.1, 0.125
    after[1, 0, 1] = 0.8
    return Problem(qkv.reshape(2, -1), gate, beta, state, key_heads=1), out, after


def test_the_reference_by_hand() -> None:
    problem, out, after = by_hand()
    for result, wanted in zip(reference(problem), (out, after), strict=True):
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-7)  # 0.6 and the like are float32 inputs


@host
def test_by_hand(name: str) -> None:
    problem, out, after = by_hand()
    for result, wanted in zip(recurrence(name)(problem), (out, after), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=0, atol=3e-7)


@host
def test_no_token_changes_nothing(name: str) -> None:
    problem = make(Shape(2, 4), 0)
    out, state = recurrence(name)(problem)
    assert out.shape == (0, 4, 128)
    np.testing.assert_array_equal(state, problem.state)


@host
@pytest.mark.parametrize("cut", [1, 31, 32, 64, 77])
def test_the_state_is_carried(name: str, cut: int) -> None:
    problem = make(Shape(2, 8), 130, "correlated")
    out, state = recurrence(name)(problem)
    first, middle = recurrence(name)(problem.head(cut))
    second, after = recurrence(name)(problem.slice(cut, 130, middle))
    if name == "host-sequential":
        np.testing.assert_array_equal(np.concatenate([first, second]), out)
        np.testing.assert_array_equal(after, state)
    assert error(np.concatenate([first, second]), out).max <= 1e-5
    assert error(after, state).max <= 1e-5


@host
def test_reruns_give_the_same_bits(name: str) -> None:
    problem = make(Shape(16, 48), 130, "correlated")
    first, second = (recurrence(name)(problem) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


@host
def test_the_inputs_stay_as_they_were(name: str) -> None:
    problem, untouched = make(Shape(2, 8), 70), make(Shape(2, 8), 70)
    recurrence(name)(problem)
    for array in ("qkv", "gate", "beta", "state"):
        np.testing.assert_array_equal(getattr(problem, array), getattr(untouched, array))


@host
def test_out_and_state_are_written_in_place(name: str) -> None:
    problem = make(Shape(2, 8), 70)
    out = np.full((70, 8, 128), np.nan, np.float32)
    state = problem.state.copy()
    recurrence(name).enqueue(problem, out, state)
    for result, wanted in zip((out, state), recurrence(name)(problem), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("spike", [-316.0, -1e4, -math.inf])
@pytest.mark.parametrize("at", [(0,), (5,), (31,), (37,), (0, 5, 31, 37), tuple(range(20, 50))], ids=str)
def test_small_gates_survive_a_spike(spike: float, at: tuple[int, ...]) -> None:
    problem = make(Shape(2, 8), 70)
    problem.gate[:] = -1e-4
    problem.gate[list(at), ::2] = spike  # every other head, the rest goes on
    check(problem)


def test_a_strong_decay_is_not_cut_short() -> None:
    problem = make(Shape(2, 8), 1)
    problem.gate[:], problem.beta[:] = -80, 0  # exp(-80) = 1.8e-35, still a normal float32
    check(problem)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("gate", [0.0, -1e-4, -0.5])
@pytest.mark.parametrize("family", LAYERS)
def test_the_ends_of_gate_and_beta(gate: float, beta: float, family: str) -> None:
    problem = make(Shape(2, 8), 130, family)
    problem.gate[:], problem.beta[:] = gate, beta
    # 130 times the same decay is 130 times its rounding, up to 3e-8 each. With beta 2 and parallel keys every
    # token turns the last correction round, so that (I + A)^-1 does not fall off and rounding adds up in it.
    check(problem, 4e-5 if beta == 2 else 5e-6)


@host
def test_a_state_that_nothing_touches_stays(name: str) -> None:
    problem = make(Shape(2, 8), 40)
    problem.gate[:], problem.beta[:] = 0, 0
    np.testing.assert_array_equal(recurrence(name)(problem)[1], problem.state)


@pytest.mark.parametrize("family", LAYERS)
def test_a_wrong_head_map_is_far_off(family: str) -> None:
    for tokens in (1, 40):
        problem = make(Shape(16, 48, "tiled"), tokens, family)
        truth = reference_host(problem)
        problem.shape = Shape(16, 48, "grouped")
        for name in HOST:
            for result, wanted in zip(recurrence(name)(problem), truth, strict=True):
                assert error(result, wanted).max > 1e-2


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    tokens=st.integers(0, 70),
    seed=st.integers(0, 2**16),
    family=st.sampled_from(LAYERS),
    head_map=st.sampled_from(HEAD_MAPS),
    data=st.data(),
)
def test_any_gates_and_betas(tokens: int, seed: int, family: str, head_map: str, data: st.DataObject) -> None:
    problem = make(Shape(2, 4, head_map), tokens, family, seed)
    gates = st.lists(
        st.sampled_from([0.0, -1e-6, -1e-4, -0.02, -1.0, -20.0, -316.0, -1e4, -math.inf]),
        min_size=tokens,
        max_size=tokens,
    )
    betas = st.lists(st.floats(0, 2, width=32), min_size=tokens, max_size=tokens)
    problem.gate[:, 1] = data.draw(gates)
    problem.beta[:, ::2] = np.array(data.draw(betas), np.float32)[:, None]
    check(problem, 4e-5)  # beta may be 2 throughout; a slip in the formula is off by 1e-2 and more


def test_errors() -> None:
    truth = np.array([3.0, -4.0])
    assert error(truth, truth) == Errors(0, 0)
    assert error(np.array([3, -4.5], np.float32), truth) == Errors(0.5 / 4, 0.5 / 5)
    assert error(np.empty((0, 4, 128), np.float32), np.empty((0, 4, 128))) == Errors(0, 0)
    assert error(np.zeros(2), np.zeros(2)) == Errors(0, 0)
    assert error(np.ones(2), np.zeros(2)) == Errors(math.inf, math.inf)
    with pytest.raises(ValueError, match=r"result has shape \(1,\); that of the truth, \(2,\), is wanted"):
        error(np.zeros(1), truth)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_not_finite_never_passes(bad: float, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.reference._ERROR_ELEMENTS", 1)  # one row at a time, so a bad one is alone
    truth = np.array([3.0, -4.0, 0.0])
    result = truth.copy()
    result[at] = bad
    for pair in ((result, truth), (truth, result), (result, result)):
        found = error(*pair)
        assert math.isnan(found.max)
        assert math.isnan(found.rms)


def test_errors_of_many_rows_are_those_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.random.default_rng(1).standard_normal((50, 3, 4))
    result = truth + 1e-3 * np.random.default_rng(2).standard_normal(truth.shape)
    whole = error(result, truth)
    monkeypatch.setattr("kernels.reference._ERROR_ELEMENTS", 7 * 12)
    parts = error(result, truth)
    assert parts.max == whole.max == np.abs(result - truth).max() / np.abs(truth).max()
    assert parts.rms == pytest.approx(whole.rms)


@pytest.mark.parametrize("name", ["host-sequential", "host-chunked"])
def test_an_output_of_another_shape_is_refused(name: str) -> None:
    """NumPy would broadcast one token's row over all of them."""
    problem = make(Shape(2, 2), 5)
    with pytest.raises(ProblemError, match=r"out has shape \(1, 2, 128\); \[T, HV, 128\] = \(5, 2, 128\) is wanted"):
        recurrence(name).enqueue(problem, np.empty((1, 2, 128), np.float32), problem.state.copy())
