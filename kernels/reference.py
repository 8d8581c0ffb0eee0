"""The truth: the recurrence in FP64, token by token, and the distance of a result from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.problem import HEAD_DIM, Array, Problem

_ERROR_ELEMENTS = 1 << 22
"""Elements that `error` widens to float64 at a time (32 MB)."""


def reference(problem: Problem) -> tuple[Array, Array]:
    """The recurrence in FP64, where the problem's arrays are.

    Returns:
        out [T, HV, D] and the state after the last token [D, HV, D], float64, on the problem's device.
    """
    if problem.on_gpu:
        from kernels.gpu import reference_gpu

        return reference_gpu(problem)
    return reference_host(problem)


def reference_host(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence in FP64 on NumPy arrays: out [T, HV, D] and state [D, HV, D], float64.

    It follows the definition in `kernels.problem` line by line; the heads go side by side.
    """
    heads = problem.shape.key_head_of()
    q, k, v = split(problem)
    S = problem.state.transpose(1, 0, 2).astype(np.float64)  # [HV, key row, value column]
    out = np.empty((problem.tokens, problem.shape.value_heads, HEAD_DIM), np.float64)
    decay = np.exp(problem.gate.astype(np.float64))
    for t in range(problem.tokens):
        key = k[t, heads].astype(np.float64)[:, None]  # [HV, 1, D]
        query = q[t, heads].astype(np.float64)[:, None]
        S *= decay[t, :, None, None]
        delta = problem.beta[t, :, None, None] * (v[t, :, None] - key @ S)
        S += key.transpose(0, 2, 1) * delta
        out[t] = (query @ S)[:, 0] / np.sqrt(HEAD_DIM)
    return out, np.ascontiguousarray(S.transpose(1, 0, 2))


def split(problem: Problem) -> tuple[Array, Array, Array]:
    """Views of qkv: q [T, HK, D], k [T, HK, D] and v [T, HV, D]."""
    rows = problem.qkv.reshape(problem.tokens, problem.shape.row // HEAD_DIM, HEAD_DIM)
    keys = problem.shape.key_heads
    return rows[:, :keys], rows[:, keys : 2 * keys], rows[:, 2 * keys :]


@dataclass(frozen=True)
class Errors:
    """How far a result is from the truth; NaN where either holds a number that is not finite.

    Attributes:
        max: max|result - truth| / max|truth|.
        rms: rms(result - truth) / rms(truth), which also sees errors in the small parts.
    """

    max: float
    rms: float


def error(result: Array, truth: Array) -> Errors:
    """The errors of a result, computed in float64; NumPy or CuPy arrays, both alike.

    NaN compares false with every threshold, so a result that is not finite passes no `error <= threshold`.
    Empty arrays have no error. Where the truth is all zero, the error is 0 for an equal result and else inf.

    Raises:
        ValueError: the shapes differ.
    """
    if result.shape != truth.shape:
        raise ValueError(f"result has shape {result.shape}; that of the truth, {truth.shape}, is wanted")
    if truth.size == 0:
        return Errors(0.0, 0.0)
    rows = max(1, _ERROR_ELEMENTS // (truth.size // len(truth)))
    parts = []
    with np.errstate(invalid="ignore"):  # inf - inf is the NaN that is wanted
        for start in range(0, len(truth), rows):
            wanted = truth[start : start + rows].astype(np.float64)
            gap = result[start : start + rows].astype(np.float64) - wanted
            parts.append((abs(gap).max(), abs(wanted).max(), (gap**2).sum(), (wanted**2).sum()))
    # Numbers are asked for once all is enqueued, so that a device does not wait for the host in between.
    gaps, peaks, gap_squares, squares = np.array([[float(one) for one in part] for part in parts]).T
    return Errors(
        max=_ratio(float(gaps.max()), float(peaks.max())),
        rms=_ratio(float(np.sqrt(gap_squares.sum())), float(np.sqrt(squares.sum()))),
    )


def _ratio(gap: float, scale: float) -> float:
    if not (np.isfinite(gap) and np.isfinite(scale)):
        return float("nan")
    if gap == 0:
        return 0.0
    return gap / scale if scale else float("inf")
