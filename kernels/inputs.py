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
    "weak-gates": "gates about -1e-4, so that the state keeps everything",
    "strong-gates": "gates -6 softplus(normal), so that the state forgets within a few tokens",
    "spikes": "weak gates, and one of -316, -1e4 or -inf in every 64 tokens",
    "equal-keys": "each head's k, and its q, is the same for every token; beta 1, gates 0 or about -0.01",
    "near-equal-keys": "each head's keys have a cosine of 0.99; beta 1, gates 0 or about -0.01",
    "large-state": "an initial state of standard deviation 1e4",
    "wide-range": "value columns, of v and of the state, scaled by powers of two from 2^-20 to 2^20",
    "long-rows": "q and k of length 1e-3 to 4; beta |k|^2 at most 1, so that nothing grows",
    "beta-two": "beta uniform in [0, 2): a token may turn what the state held for its key round",
    "positive-gates": "gates uniform in [-0.2, 0.1), so that some make the state larger",
}
"""The inputs there are. The streams hang on a name's place, so a new one goes to the end.

The first two look like a layer's; the others, the regimes, are each hard in one respect. In all, the recurrence
is stable: the state stays bounded however many tokens there are.
"""

BLOCK = 1024
"""Tokens that share their streams."""

NORM_EPS = 1e-6
"""Added to the sum of squares of the L2 norm, as in transformers' `l2norm` and flash-linear-attention."""

SPIKES = (-316.0, -1e4, -np.inf)
"""Gates of "spikes": exp is 0 in float32, -316 and -1e4 also cancel in a sum of gates, and -inf cannot be summed."""

SPIKE_STRETCH = 64
"""Tokens with one spike. Stretch n of value head h has its spike at place n + h, cyclic, of `SPIKE_PLACES`."""

SPIKE_PLACES = (0, 5, 31, 37, 63)
"""The ends and the middle of chunks of 32 and of 64 tokens. Five places and three spikes: 15 pairs."""

COSINE = 0.99
"""Of two keys of a head in "near-equal-keys", about."""

SHORTEST, LONGEST = 1e-3, 4.0
"""Length of q and k in "long-rows"; the logarithm is uniform."""

LARGEST_EXPONENT = 20
"""Of two, in the scales of "wide-range"."""

_ROWS, _GATES, _STATE, _DIRECTIONS, _LENGTHS, _EXPONENTS = range(6)


def make(shape: Shape, tokens: int, family: str = "normal", seed: int = 1372) -> Problem:
    """Inputs of one layer, NumPy float32.

    Args:
        shape: head counts and head map; the map does not change the numbers.
        tokens: T, at least 0.
        family: one of `FAMILIES`. But for what its description says, gate = -0.02 - 0.8 u^3 with u uniform in
            [0, 1), beta is the sigmoid of a normal number, q and k are normalised normal rows, v is normal and
            the state is 0.05 times normal.
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
    state *= np.float32(1e4 if family == "large-state" else 0.05)
    directions = stream(_DIRECTIONS).standard_normal((both, HEAD_DIM), np.float32)
    exponents = np.zeros((heads, HEAD_DIM), np.int64)
    if family == "wide-range":
        exponents = stream(_EXPONENTS).integers(-LARGEST_EXPONENT, LARGEST_EXPONENT, exponents.shape, endpoint=True)
    scales = np.ldexp(np.float32(1), exponents)
    state *= scales

    def fill(block: int) -> None:
        rows = slice(block * BLOCK, min((block + 1) * BLOCK, tokens))
        count = rows.stop - rows.start
        # Drawn token after token, so fewer rows are the first of more. u and the logit are two draws, so whole.
        stream(_ROWS, block).standard_normal(out=qkv[rows], dtype=np.float32)
        gates = stream(_GATES, block)
        u = gates.random((BLOCK, heads), np.float32)
        logit = gates.standard_normal((BLOCK, heads), np.float32)
        gate[rows] = _gates(family, u, gates, rows.start)[:count]
        beta[rows] = _betas(family, logit, gates)[:count]
        queries_and_keys = qkv[rows, : both * HEAD_DIM].reshape(count, both, HEAD_DIM)
        if family == "correlated":
            queries_and_keys[:] = _convolved(queries_and_keys, directions)
        elif family == "equal-keys":
            queries_and_keys[:] = directions
        elif family == "near-equal-keys":
            # Noise of length r around a direction of length 1: the cosine of two is 1 / (1 + r^2).
            keys = queries_and_keys[:, shape.key_heads :]
            keys *= np.float32(np.sqrt((1 / COSINE - 1) / HEAD_DIM))
            keys += _normalised(directions[shape.key_heads :])
        queries_and_keys[:] = _normalised(queries_and_keys)
        if family == "long-rows":
            # One length a token for all keys: which of them a value head reads hangs on the head map.
            u = stream(_LENGTHS, block).random((BLOCK, shape.key_heads + 1), np.float32)[:count]
            lengths = np.float32(SHORTEST) * np.float32(LONGEST / SHORTEST) ** u
            queries_and_keys[:, : shape.key_heads] *= lengths[:, 1:, None]
            queries_and_keys[:, shape.key_heads :] *= lengths[:, :1, None]
            beta[rows] /= np.maximum(lengths[:, :1] ** 2, 1)
        values = qkv[rows, both * HEAD_DIM :].reshape(count, heads, HEAD_DIM)
        values *= scales  # exact, as powers of two are

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(-(-tokens // BLOCK))))
    return Problem(qkv, gate, beta, state, shape.key_heads, shape.head_map)


def _normalised(rows: np.ndarray) -> np.ndarray:
    """The rows [..., D], each divided by its length."""
    squares = np.einsum("...d,...d->...", rows, rows)
    normalised: np.ndarray = rows / np.sqrt(squares + np.float32(NORM_EPS))[..., None]
    return normalised


def _gates(family: str, u: np.ndarray, draws: np.random.Generator, first: int) -> np.ndarray:
    """The gates of a block that starts at token `first`, from u uniform in [0, 1) [BLOCK, HV]."""
    if family in ("weak-gates", "spikes"):
        weak = np.float32(-1e-4) * (u + np.float32(0.5))
        return _spiked(weak, first) if family == "spikes" else weak
    if family == "strong-gates":
        strong: np.ndarray = np.float32(-6) * np.logaddexp(draws.standard_normal(u.shape, np.float32), np.float32(0))
        return strong
    if family in ("equal-keys", "near-equal-keys"):
        return np.where(u < 0.5, np.float32(0), np.float32(-0.01) * (2 * u - np.float32(0.5)))
    if family == "positive-gates":
        return np.float32(-0.2) + np.float32(0.3) * u
    return np.float32(-0.02) - np.float32(0.8) * u**3


def _spiked(gates: np.ndarray, first: int) -> np.ndarray:
    """The gates with one spike per `SPIKE_STRETCH` tokens and value head."""
    for head in range(gates.shape[1]):
        for start in range(0, len(gates), SPIKE_STRETCH):
            n = (first + start) // SPIKE_STRETCH + head
            gates[start + SPIKE_PLACES[n % len(SPIKE_PLACES)], head] = SPIKES[n % len(SPIKES)]
    return gates


def _betas(family: str, logit: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """The betas of a block, from normal numbers [BLOCK, HV]."""
    if family in ("equal-keys", "near-equal-keys"):
        return np.ones_like(logit)
    if family == "beta-two":
        return 2 * draws.random(logit.shape, np.float32)
    sigmoid: np.ndarray = 1 / (1 + np.exp(-logit))
    return sigmoid


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
