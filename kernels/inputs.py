"""Seeded inputs: the same numbers for the same arguments on every machine with the same NumPy.

Every block of 1024 tokens draws from streams of its own, so blocks are made in parallel, and the inputs of T
tokens are the first T tokens of any longer ones, bit for bit. (NumPy may change what a distribution draws from
one feature release to the next, its policy NEP 19, so the NumPy version belongs beside a result.)
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kernels.problem import HEAD_DIM, Problem, ProblemError, Shape

FAMILIES = {
    "normal": "independent normal rows; q and k L2-normalised per head",
    "correlated": "q and k as a layer's short convolution and SiLU leave them: neighbours nearly parallel",
}

BLOCK = 1024
"""Tokens that share their streams."""

NORM_EPS = 1e-6
"""Added to the sum of squares of the L2 norm, as in transformers' `l2norm` and flash-linear-attention."""

_ROWS, _GATES, _STATE, _DIRECTIONS = range(4)


def make(shape: Shape, tokens: int, family: str = "normal", seed: int = 1372) -> Problem:
    """Inputs of one layer, NumPy float32.

    Args:
        shape: head counts and head map; the map does not change the numbers.
        tokens: T, at least 0.
        family: one of `FAMILIES`. In both, gate = -0.02 - 0.8 u^3 with u uniform in [0, 1), beta is the
            sigmoid of a normal number, v is normal and the state is 0.05 times normal.
        seed: at least 0.

    Returns:
        The problem; its first tokens depend on neither `tokens` nor the number of threads.

    Raises:
        ProblemError: an argument is not as above; the message names it.
    """
    for name, value in (("tokens", tokens), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ProblemError(f"{name} is {value!r}; it must be an integer of at least 0")
    if family not in FAMILIES:
        raise ProblemError(f"family is {family!r}; it must be one of {', '.join(FAMILIES)}")

    def stream(part: int, block: int = 0) -> np.random.Generator:
        key = (list(FAMILIES).index(family), part, block)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))

    heads, both = shape.value_heads, 2 * shape.key_heads
    qkv = np.empty((tokens, shape.row), np.float32)
    gate = np.empty((tokens, heads), np.float32)
    beta = np.empty((tokens, heads), np.float32)
    state = stream(_STATE).standard_normal((HEAD_DIM, heads, HEAD_DIM), np.float32)
    state *= np.float32(0.05)
    directions = stream(_DIRECTIONS).standard_normal((both, HEAD_DIM), np.float32)

    def fill(block: int) -> None:
        rows = slice(block * BLOCK, min((block + 1) * BLOCK, tokens))
        count = rows.stop - rows.start
        # Drawn token after token, so fewer rows are the first of more. u and the logit are two draws, so whole.
        stream(_ROWS, block).standard_normal(out=qkv[rows], dtype=np.float32)
        gates = stream(_GATES, block)
        u = gates.random((BLOCK, heads), np.float32)
        logit = gates.standard_normal((BLOCK, heads), np.float32)
        gate[rows] = (np.float32(-0.02) - np.float32(0.8) * u**3)[:count]
        beta[rows] = (1 / (1 + np.exp(-logit)))[:count]
        queries_and_keys = qkv[rows, : both * HEAD_DIM].reshape(count, both, HEAD_DIM)
        if family == "correlated":
            queries_and_keys[:] = _convolved(queries_and_keys, directions)
        squares = np.einsum("thd,thd->th", queries_and_keys, queries_and_keys)
        queries_and_keys /= np.sqrt(squares + np.float32(NORM_EPS))[..., None]

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(-(-tokens // BLOCK))))
    return Problem(qkv, gate, beta, state, shape.key_heads, shape.head_map)


def _convolved(noise: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """SiLU of a direction per head plus the mean of the last 4 tokens' noise: [T, heads, D] to the same.

    The convolution starts anew in each block, as it does at the start of a sequence.
    """
    x = noise.copy()
    for lag in (1, 2, 3):
        x[lag:] += noise[:-lag]
    x *= np.float32(0.25)
    x += directions
    silu: np.ndarray = x / (1 + np.exp(-x))
    return silu
