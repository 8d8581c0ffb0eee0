"""Is a recurrence right, and are its bits the same on every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from kernels import Problem, Recurrence
from kernels.problem import HEAD_DIM, Array
from kernels.reference import Errors, error
from suite.bits import Comparison
from suite.facts import Accuracy, Determinism, Difference

FP64_LIMIT = 1e-5
"""Largest error against FP64 of a recurrence that computes in FP32. Those here stay near 1e-6; bf16 ones, at
2e-3 and more, do not pass."""

PAIR_LIMIT = 1e-4
"""Largest error of one FP32 recurrence against another (the limit of the seed's `gdn_rec_parity`)."""


def limit(against: str) -> float:
    """The error above which a comparison is red."""
    return FP64_LIMIT if against == "fp64" else PAIR_LIMIT


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def accuracy(
    name: str,
    against: str,
    problem: Problem,
    family: str,
    result: tuple[Array, Array],
    truth: tuple[Array, Array],
) -> Accuracy:
    """Compare (out, state) of a recurrence with a truth, output and state apart."""
    bound = limit(against)
    errors: list[Errors] = [error(one, other) for one, other in zip(result, truth, strict=True)]
    reasons = [
        f"the {what} has values that are not finite"
        if not np.isfinite(found.max)
        else f"the {what}'s error is {found.max:.2e}, above {bound:.0e}"
        for what, found in zip(("output", "state"), errors, strict=True)
        if not found.max <= bound
    ]
    return Accuracy(
        recurrence=name,
        against=against,
        tokens=problem.tokens,
        shape=str(problem.shape),
        head_map=problem.shape.head_map,
        inputs=family,
        error_out=_finite(errors[0].max),
        error_state=_finite(errors[1].max),
        rms_out=_finite(errors[0].rms),
        rms_state=_finite(errors[1].rms),
        limit=bound,
        outcome="red" if reasons else "green",
        reason="; ".join(reasons),
    )


def _on_host(array: Array) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    import cupyx

    copied: np.ndarray = array.get(out=cupyx.empty_pinned(array.shape, array.dtype))  # ten times as fast as pageable
    return copied


def sha256(array: np.ndarray) -> str:
    """SHA-256 of the array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _first_difference(found: np.ndarray, problem: Problem) -> Difference | None:
    """The first difference of the first run that has one, of the output before the state."""
    places = np.argwhere(found[:, :, 0] > 0)
    if not len(places):
        return None
    run, array = (int(i) for i in places[0])
    elements, flat = (int(i) for i in found[run, array])
    one, head, column = np.unravel_index(flat, (problem.tokens if array == 0 else HEAD_DIM, *problem.state.shape[1:]))
    return Difference(
        array="out" if array == 0 else "state",
        run=run + 1,
        token=int(one) if array == 0 else None,
        row=int(one) if array == 1 else None,
        head=int(head),
        column=int(column),
        elements=elements,
    )


def determinism(
    recurrence: Recurrence,
    problem: Problem,
    family: str,
    reruns: int,
    progress: Callable[[str], None] = lambda text: None,
    digests: bool = True,
    busy: AbstractContextManager[None] | None = None,
) -> Determinism:
    """Rerun the call and compare bits; scratch and output are filled with NaN before every other run.

    A kernel that reads what nothing wrote, or leaves an element unwritten, then differs from its first run.

    Args:
        recurrence: what is called.
        problem: its inputs.
        family: theirs.
        reruns: calls after the first.
        progress: is told what is enqueued.
        digests: whether the SHA-256 of the first run's results is wanted; of many tokens it takes longer than reruns.
        busy: is entered around the reruns, see `suite.cost.Busy.span`.
    """
    first_out, first_state = recurrence(problem)
    out, state = first_out.copy(), problem.state.copy()
    compared = Comparison((first_out, first_state), reruns)
    with ThreadPoolExecutor(2) as pool:  # the digests are made while the device reruns
        sums = [pool.submit(sha256, _on_host(array)) for array in (first_out, first_state) if digests]
        with busy or nullcontext():
            for run in range(1, reruns + 1):
                state[...] = problem.state
                if run % 2:
                    out.fill(np.nan)
                    for scratch in recurrence.scratch():
                        scratch.fill(np.nan)
                recurrence.enqueue(problem, out, state)
                compared.note(run - 1, (out, state))
                progress(f"determinism of {recurrence.name} at {problem.tokens} tokens: rerun {run} of {reruns}")
        sha256_out, sha256_state = [one.result() for one in sums] or ("", "")
    differences = compared.found()
    differing, found = int(differences[:, :, 0].any(axis=1).sum()), _first_difference(differences, problem)
    finite = bool(np.isfinite(first_out.sum()) and np.isfinite(first_state.sum()))
    reasons = []
    if found is not None:
        where = f"token {found.token}" if found.array == "out" else f"row {found.row}"
        reasons.append(
            f"{differing} of {reruns} reruns differ; first in run {found.run}, {found.array}, {where}, "
            f"head {found.head}, column {found.column} ({found.elements} elements)"
        )
    if not finite:
        reasons.append("the first run has values that are not finite")
    return Determinism(
        recurrence=recurrence.name,
        tokens=problem.tokens,
        shape=str(problem.shape),
        head_map=problem.shape.head_map,
        inputs=family,
        reruns=reruns,
        differing=differing,
        first=found,
        sha256_out=sha256_out,
        sha256_state=sha256_state,
        outcome="red" if reasons else "green",
        reason="; ".join(reasons),
    )
