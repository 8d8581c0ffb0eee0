"""Is a recurrence right, and are its bits the same on every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import Problem, Recurrence
from kernels.problem import Array
from kernels.reference import Errors, error
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


def sha256(array: Array) -> str:
    """SHA-256 of the array's bytes in C order."""
    host = array if isinstance(array, np.ndarray) else array.get()
    return hashlib.sha256(np.ascontiguousarray(host).data).hexdigest()


def _differing(array: Array, first: Array) -> Any:
    return array.view(np.uint32) != first.view(np.uint32)


def _first_difference(what: str, run: int, differs: Any) -> Difference:
    flat = differs.reshape(-1)
    one, head, column = (int(i) for i in np.unravel_index(int(flat.argmax()), differs.shape))
    return Difference(
        array="out" if what == "out" else "state",
        run=run,
        token=one if what == "out" else None,
        row=one if what == "state" else None,
        head=head,
        column=column,
        elements=int(flat.sum()),
    )


def determinism(
    recurrence: Recurrence,
    problem: Problem,
    family: str,
    reruns: int,
    progress: Callable[[str], None] = lambda text: None,
) -> Determinism:
    """Rerun the call and compare bits; scratch and output are filled with NaN before every other run.

    A kernel that reads what nothing wrote, or leaves an element unwritten, then differs from its first run.
    """
    first_out, first_state = recurrence(problem)
    out, state = first_out.copy(), problem.state.copy()
    differing, found = 0, None
    for run in range(1, reruns + 1):
        state[...] = problem.state
        if run % 2:
            out.fill(np.nan)
            for scratch in recurrence.scratch():
                scratch.fill(np.nan)
        recurrence.enqueue(problem, out, state)
        masks = {"out": _differing(out, first_out), "state": _differing(state, first_state)}
        changed = [what for what, mask in masks.items() if bool(mask.any())]
        differing += bool(changed)
        if changed and found is None:
            found = _first_difference(changed[0], run, masks[changed[0]])
        progress(f"determinism of {recurrence.name} at {problem.tokens} tokens: rerun {run} of {reruns}")
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
        sha256_out=sha256(first_out),
        sha256_state=sha256(first_state),
        outcome="red" if reasons else "green",
        reason="; ".join(reasons),
    )
