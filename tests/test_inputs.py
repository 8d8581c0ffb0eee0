"""The seeded inputs: prefixes, seeds, families, what the numbers look like."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from kernels import Problem, ProblemError, Shape
from kernels.inputs import BLOCK, FAMILIES, make
from kernels.reference import split

SMALL = Shape(2, 4)
families = pytest.mark.parametrize("family", FAMILIES)


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
        assert not np.isin(getattr(other, name), getattr(first, name)).mean() > 0.01, name


def test_the_families_differ_and_the_head_map_changes_no_number() -> None:
    normal, correlated = (make(SMALL, 40, family) for family in FAMILIES)
    assert not same(normal, correlated)
    assert same(normal, make(Shape(2, 4, "grouped"), 40))


def test_blocks_do_not_repeat() -> None:
    problem = make(SMALL, 2 * BLOCK)
    for array in (problem.qkv, problem.gate, problem.beta):
        assert abs(np.corrcoef(array[:BLOCK].ravel(), array[BLOCK:].ravel())[0, 1]) < 0.05


@families
def test_the_distributions(family: str) -> None:
    problem = make(Shape(16, 48), 300, family)
    q, k, v = split(problem)
    for rows in (q, k):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=-1), 1, atol=1e-5)
    assert v.mean() == pytest.approx(0, abs=0.01)
    assert v.std() == pytest.approx(1, abs=0.01)
    assert problem.state.mean() == pytest.approx(0, abs=1e-3)
    assert problem.state.std() == pytest.approx(0.05, abs=1e-3)
    assert -0.82 <= problem.gate.min() < -0.8
    assert -0.0201 < problem.gate.max() <= -0.02
    assert problem.gate.mean() == pytest.approx(-0.02 - 0.8 / 4, abs=0.01)
    assert 0 < problem.beta.min() < 0.1
    assert 0.9 < problem.beta.max() < 1
    assert problem.beta.mean() == pytest.approx(0.5, abs=0.02)


def test_correlated_neighbours_are_nearly_parallel_and_normal_ones_are_not() -> None:
    for family, low, high in (("normal", -0.05, 0.05), ("correlated", 0.5, 0.99)):
        for rows in split(make(Shape(16, 48), 300, family))[:2]:
            cosines = (rows[1:] * rows[:-1]).sum(axis=-1).mean(axis=0)  # of each head
            assert low < cosines.min(), family
            assert cosines.max() < high, family


@families
def test_every_head_reads_rows_of_its_own(family: str) -> None:
    """So that a wrong head map, or q taken for k, shows."""
    q, k, _ = split(make(Shape(16, 48), 100, family))
    rows = np.concatenate([q, k], axis=1)
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
