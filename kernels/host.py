"""The recurrence in NumPy float32, for machines without a GPU: token by token, and in chunks.

Both keep the state as S [HV, key row, value column] while they run, so that a head's products are matrix
products, and follow `kernels.registry.Enqueue`.
"""

from __future__ import annotations

import numpy as np

from kernels.problem import HEAD_DIM, Array, Problem
from kernels.reference import split
from kernels.registry import Recurrence, register

CHUNK = 32
"""Tokens of a chunk of `host-chunked`."""

LOWEST_GATE = -200.0
"""A gate below this is taken for this: exp is 0 in float32 from -104 on, and sums stay finite for -inf."""

SCALE = np.float32(HEAD_DIM**-0.5)


def enqueue_sequential(problem: Problem, out: Array, state: Array) -> None:
    """Token by token, as `kernels.problem` defines it; writes `out` [T, HV, D], updates `state` [D, HV, D]."""
    problem.check_out(out, state)
    heads = problem.shape.key_head_of()
    q, k, v = split(problem)
    S = np.ascontiguousarray(state.transpose(1, 0, 2))
    outer = np.empty_like(S)
    decay = np.exp(problem.gate)
    for t in range(problem.tokens):
        key, query = k[t, heads], q[t, heads]  # [HV, D]
        S *= decay[t, :, None, None]
        delta = problem.beta[t, :, None] * (v[t] - (key[:, None] @ S)[:, 0])
        np.multiply(key[:, :, None], delta[:, None], out=outer)
        S += outer
        out[t] = (query[:, None] @ S)[:, 0] * SCALE
    state[:] = S.transpose(1, 0, 2)


def enqueue_chunked(problem: Problem, out: Array, state: Array) -> None:
    """Chunk by chunk in the WY form; writes `out` [T, HV, D], updates `state` [D, HV, D].

    With C tokens in the chunk, c_t the sum of the gates up to token t and S0 the state before the chunk:
    (I + A) delta = beta (v - e^c S0^T k), A[t, i] = beta_t e^(c_t - c_i) k_t.k_i for i < t;
    out = D^-0.5 (e^c S0^T q + P delta), P[t, i] = e^(c_t - c_i) q_t.k_i for i <= t;
    S = e^(c_C) S0 + sum_t e^(c_C - c_t) k_t delta_t^T.

    Source: Yang, Kautz and Hatamizadeh, arXiv:2412.06464, section 3.3 (there with T = (I + A)^-1).
    """
    problem.check_out(out, state)
    heads = problem.shape.key_head_of()
    q, k, v = split(problem)
    S = np.ascontiguousarray(state.transpose(1, 0, 2))
    for first in range(0, problem.tokens, CHUNK):
        rows = slice(first, first + CHUNK)
        query, key = q[rows].transpose(1, 0, 2), k[rows].transpose(1, 0, 2)  # [HK, C, D]
        value = v[rows].transpose(1, 0, 2)  # [HV, C, D]
        beta = problem.beta[rows].T[..., None]  # [HV, C, 1]
        total, between = _decays(problem.gate[rows])
        transposed = key.transpose(0, 2, 1)
        attention = (query @ transposed)[heads] * between
        overlap = (key @ transposed)[heads] * between * beta
        query, key = query[heads], key[heads]  # [HV, C, D]
        delta = beta * (value - total * (key @ S))
        for t in range(1, delta.shape[1]):  # forward substitution
            delta[:, t] -= (overlap[:, t, None, :t] @ delta[:, :t])[:, 0]
        out[rows] = ((total * (query @ S) + attention @ delta) * SCALE).transpose(1, 0, 2)
        S *= total[:, -1:]
        S += (key * between[:, -1, :, None]).transpose(0, 2, 1) @ delta
    state[:] = S.transpose(1, 0, 2)


def _decays(gate: Array) -> tuple[Array, Array]:
    """The decays of a chunk's gates [C, HV], float32.

    Returns:
        [HV, C, 1], from before the chunk up to token t; [HV, C, C], from token i up to token t, 0 for i > t.

    Sums and differences are float64, so that small gates after a very negative one are not lost in it.
    """
    c = np.maximum(gate, LOWEST_GATE).T.astype(np.float64).cumsum(axis=1)
    later = np.tri(len(gate), dtype=bool)
    between = np.where(later, c[:, :, None] - c[:, None], -np.inf).astype(np.float32)
    return np.exp(c.astype(np.float32))[..., None], np.exp(between)


register(Recurrence("host-sequential", "host", enqueue_sequential))
register(Recurrence("host-chunked", "host", enqueue_chunked))
