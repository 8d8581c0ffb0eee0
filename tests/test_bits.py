"""Bits compared run after run: what differs, where first, and that a GPU says the same as the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suite.bits import NOWHERE, Comparison

FIRST = np.arange(5 * 7 * 128, dtype=np.float32).reshape(5, 7, 128)


def compared(module: Any) -> np.ndarray:
    """Three runs of an output and a state: equal, one bit of the state and NaN for NaN, and two elements of both."""
    out, state = module.asarray(FIRST), module.asarray(FIRST[:2])
    state[1, 1, 1] = np.nan
    notes = Comparison((out, state), 3)
    notes.note(0, (out.copy(), state.copy()))
    other = state.copy()
    other.view(np.uint32)[1, 6, 127] ^= 1
    notes.note(1, (out, other))
    third, fourth = out.copy(), state.copy()
    third[4, 0, 5], third[0, 2, 3], fourth[1, 0, 0] = 9e9, 9e9, 9e9
    fourth.view(np.uint32)[0, 0, 0] ^= 1 << 31  # -0; CuPy would write 0 for it
    notes.note(2, (third, fourth))
    return notes.found()


EXPECTED = [
    [[0, NOWHERE], [0, NOWHERE]],
    [[0, NOWHERE], [1, 2 * 7 * 128 - 1]],
    [[2, 2 * 128 + 3], [2, 0]],
]


def test_differences_are_counted_with_the_place_of_the_first() -> None:
    assert compared(np).tolist() == EXPECTED


@pytest.mark.gpu
def test_a_gpu_finds_the_same_differences() -> None:
    import cupy

    assert compared(cupy).tolist() == EXPECTED
