"""The seeded inputs: prefixes, seeds, families, what the numbers look like."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import numpy as np
import pytest

from kernels import Problem, ProblemError, Shape
from kernels.inputs import BLOCK, FAMILIES, make
from kernels.reference import split

SMALL = Shape(2, 4)
EQUAL = ("equal-keys", "near-equal-keys")
families = pytest.mark.parametrize("family", FAMILIES)


@functools.cache
def large(family: str) -> Problem:
    """A layer's head counts; for reading only."""
    return make(Shape(16, 48), 300, family)


def same(a: Problem, b: Problem) -> bool:
    """Bit for bit."""
    return all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ("qkv", "gate", "beta", "state"))


@families
def test_shorter_inputs_are_the_first_tokens_of_longer_ones(family: str) -> None:
    longest = make(SMALL, 2 * BLOCK + 500, family)
    for tokens in (0, 1, 2, 3, 4, 5, 31, 33, 1000, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 7, 2 * BLOCK + 3):
        assert same(make(SMALL, tokens, family), longest.head(tokens)), tokens


@families
def test_the_same_arguments_give_the_same_bits_and_others_do_not(family: str) -> None:
    first = make(SMALL, 40, family)
    assert same(first, make(SMALL, 40, family, 1372))
    other = make(SMALL, 40, family, seed=1373)
    for name in ("qkv", "gate", "beta", "state"):
        if family in EQUAL and name in ("gate", "beta"):
            continue  # gates may be 0, and beta is 1
        if family == "spikes" and name == "gate":
            continue  # the spikes are the same
        assert not np.isin(getattr(other, name), getattr(first, name)).mean() > 0.01, name


def test_the_families_differ_and_the_head_map_changes_no_number() -> None:
    problems = {family: make(SMALL, 40, family) for family in FAMILIES}
    for one, other in itertools.combinations(FAMILIES, 2):
        assert not np.isin(problems[one].state, problems[other].state).mean() > 0.01, (one, other)
    for family, problem in problems.items():
        assert same(problem, make(Shape(2, 4, "grouped"), 40, family)), family


def test_the_first_families_keep_their_places() -> None:
    """The streams hang on the place, so the inputs of all stored records do."""
    assert list(FAMILIES)[:2] == ["normal", "correlated"]


def test_blocks_do_not_repeat() -> None:
    problem = make(SMALL, 2 * BLOCK)
    for array in (problem.qkv, problem.gate, problem.beta):
        assert abs(np.corrcoef(array[:BLOCK].ravel(), array[BLOCK:].ravel())[0, 1]) < 0.05


@families
def test_q_and_k_are_normalised(family: str) -> None:
    for rows in split(large(family))[:2]:
        lengths = np.linalg.norm(rows, axis=-1)
        if family == "long-rows":
            assert 1e-3 * 0.999 <= lengths.min() < 2e-3
            assert 3 < lengths.max() <= 4 * 1.001
            assert np.log(lengths).mean() == pytest.approx(np.log(1e-3 * 4) / 2, abs=0.3)
        else:
            np.testing.assert_allclose(lengths, 1, atol=1e-5)


@families
def test_v_and_the_state_are_normal(family: str) -> None:
    problem = large(family)
    for array, deviation in ((split(problem)[2], 1.0), (problem.state, 1e4 if family == "large-state" else 0.05)):
        if family == "wide-range":
            deviations = array.std(axis=0) / deviation  # of each value head's columns
            assert 2.0**-20.5 < deviations.min() < 2.0**-19
            assert 2.0**19 < deviations.max() < 2.0**20.5
            array = array / 2.0 ** np.round(np.log2(deviations))
        assert array.mean() == pytest.approx(0, abs=0.02 * deviation)
        assert array.std() == pytest.approx(deviation, rel=0.02)


def test_wide_columns_of_v_and_the_state_are_alike() -> None:
    problem = large("wide-range")
    exponents = [np.round(np.log2(array.std(axis=0))) for array in (split(problem)[2], problem.state / 0.05)]
    np.testing.assert_array_equal(*exponents)
    assert len(np.unique(exponents[0])) == 41


GATES = {  # the least, the largest, the mean
    "weak-gates": (-1.5e-4, -0.5e-4, -1e-4),
    "strong-gates": (-40, 0, -6 * 0.806),
    "spikes": (-np.inf, -0.5e-4, -np.inf),
    "equal-keys": (-0.0151, 0, -0.005),
    "near-equal-keys": (-0.0151, 0, -0.005),
    "positive-gates": (-0.2, 0.1, -0.05),
}


@families
def test_the_gates(family: str) -> None:
    gate = large(family).gate
    least, largest, mean = GATES.get(family, (-0.82, -0.02, -0.02 - 0.8 / 4))
    assert least * (1 + 1e-6) <= gate.min()
    assert gate.max() <= largest + 1e-6 * abs(largest)
    assert gate.mean() == pytest.approx(mean, rel=0.05)
    if family not in GATES:
        assert gate.min() < -0.8
        assert gate.max() > -0.0201
    if family in EQUAL:
        assert (gate == 0).mean() == pytest.approx(0.5, abs=0.02)
        assert gate[gate < 0].max() <= -0.0049


@pytest.mark.parametrize("tokens", [100, 2 * BLOCK + 100])
def test_spikes_stand_where_they_should(tokens: int) -> None:
    gate = make(SMALL, tokens, "spikes").gate
    for head in range(4):
        spiked = np.flatnonzero(gate[:, head] < -1)
        stretches = np.arange(-(-tokens // 64))
        places = stretches * 64 + np.array([0, 5, 31, 37, 63])[(stretches + head) % 5]
        np.testing.assert_array_equal(spiked, places[places < tokens])
        values = np.array([-316, -1e4, -np.inf], np.float32)[(stretches + head) % 3]
        np.testing.assert_array_equal(gate[spiked, head], values[places < tokens])
    rest = gate[gate >= -1]
    assert -1.5e-4 <= rest.min() <= rest.max() <= -0.5e-4


@families
def test_the_betas(family: str) -> None:
    beta = large(family).beta
    if family in EQUAL:
        assert (beta == 1).all()
    elif family == "beta-two":
        assert 0 <= beta.min() < 0.01
        assert 1.99 < beta.max() < 2
        assert beta.mean() == pytest.approx(1, abs=0.02)
    elif family == "long-rows":
        squares = (split(large(family))[1] ** 2).sum(axis=-1)[:, Shape(16, 48).key_head_of()]
        assert beta.min() > 0
        assert 0.8 < (beta * squares).max() <= 1 + 1e-6
    else:
        assert 0 < beta.min() < 0.1
        assert 0.9 < beta.max() < 1
        assert beta.mean() == pytest.approx(0.5, abs=0.02)


def test_equal_keys_are_equal_and_near_equal_ones_nearly() -> None:
    for rows in split(large("equal-keys"))[:2]:
        assert (rows == rows[:1]).all()
    q, k, _ = split(large("near-equal-keys"))
    for lag in (1, 100):
        cosines = (k[lag:] * k[:-lag]).sum(axis=-1)
        assert 0.98 < cosines.min() < cosines.max() < 0.995
        assert cosines.mean() == pytest.approx(0.99, abs=5e-4)
    assert np.abs((q[1:] * q[:-1]).sum(axis=-1).mean(axis=0)).max() < 0.05


def test_correlated_neighbours_are_nearly_parallel_and_normal_ones_are_not() -> None:
    for family, low, high in (("normal", -0.05, 0.05), ("correlated", 0.5, 0.99)):
        for rows in split(large(family))[:2]:
            cosines = (rows[1:] * rows[:-1]).sum(axis=-1).mean(axis=0)  # of each head
            assert low < cosines.min(), family
            assert cosines.max() < high, family


@families
def test_every_head_reads_rows_of_its_own(family: str) -> None:
    """So that a wrong head map, or q taken for k, shows."""
    q, k, _ = split(make(Shape(16, 48), 100, family))
    rows = np.concatenate([q, k], axis=1)
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    cosines = np.einsum("thd,tgd->hg", rows, rows) / len(rows)
    assert np.abs(cosines - np.eye(32)).max() < 0.5


@families
def test_a_thousand_tokens_take_well_under_a_second(family: str) -> None:
    make(Shape(16, 48), 10, family)
    begin = time.perf_counter()
    make(Shape(16, 48), 1024, family)
    assert time.perf_counter() - begin < 3  # 0.3 s on a quiet core


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"family": "gaussian"}, "family is 'gaussian'; it must be one of normal, correlated"),
        ({"tokens": -1}, "tokens is -1; it must be an integer of at least 0"),
        ({"tokens": 3.0}, "tokens is 3.0; it must be an integer of at least 0"),
        ({"tokens": True}, "tokens is True; it must be an integer of at least 0"),
        ({"seed": -1}, "seed is -1; it must be an integer of at least 0"),
    ],
)
def test_a_bad_argument_is_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ProblemError, match=text):
        make(**{"shape": SMALL, "tokens": 3, **arguments})
