"""What a recurrence is, and the table of those there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.compile import Source
from kernels.problem import Array, Problem, ProblemError

Enqueue = Callable[[Problem, Array, Array], None]
"""(problem, out, state): read problem's qkv, gate and beta, enter with `state`; write `out`, update `state`.

On a GPU it puts its work on CuPy's current stream and returns: no synchronisation, no allocation.
"""


@dataclass(frozen=True)
class Recurrence:
    """One implementation of the recurrence.

    Attributes:
        name: what `--gdn-recurrences` and the records call it.
        platform: "cuda" or "host", the arrays it takes.
        enqueue: the in-place, allocation-free call that gets timed; see `Enqueue`.
        unsupported: why it cannot run on the current device, or None where it can.
        scratch: the scratch arrays it keeps on the current device, for the checks to fill with NaN.
        unit: what does its multiplications, "fp32" or "tensor" (cores), for the physical limit; an empty text leaves
            it open, and the limit is that of the faster.
        sources: the CUDA sources that it runs on the current device, so that a record can tell its machine code; none
            where it has no such, or on the host.
        minor: whether it is left out unless it is asked for by name.
    """

    name: str
    platform: str
    enqueue: Enqueue
    unsupported: Callable[[Problem], str | None] = lambda problem: None
    scratch: Callable[[], list[Array]] = list
    sources: Callable[[], tuple[Source, ...]] = tuple
    minor: bool = False
    unit: str = ""

    def __call__(self, problem: Problem) -> tuple[Array, Array]:
        """Run on the problem and return (out [T, HV, D], state [D, HV, D]); the inputs stay as they were.

        Raises:
            ProblemError: the problem lies on the other platform, or this device cannot run the recurrence.
        """
        if problem.on_gpu != (self.platform == "cuda"):
            wanted = "CuPy" if self.platform == "cuda" else "NumPy"
            raise ProblemError(f"qkv lies on {problem.device}; {self.name} takes {wanted} arrays")
        if reason := self.unsupported(problem):
            raise ProblemError(f"{self.name} cannot run here: {reason}")
        out = _like(problem.qkv)((problem.tokens, problem.shape.value_heads, 128), dtype=np.float32)
        state = problem.state.copy()
        self.enqueue(problem, out, state)
        return out, state


def _like(array: Array) -> Callable[..., Array]:
    if isinstance(array, np.ndarray):
        return np.empty
    import cupy

    empty: Callable[..., Array] = cupy.empty
    return empty


_TABLE: dict[str, Recurrence] = {}


def register(recurrence: Recurrence) -> Recurrence:
    """Add a recurrence, so that every check, benchmark and plot applies to it.

    Raises:
        ValueError: the name is taken, or the platform or the unit is none of those there are.
    """
    if recurrence.platform not in ("cuda", "host"):
        raise ValueError(f"platform is {recurrence.platform!r}; it must be 'cuda' or 'host'")
    if recurrence.unit not in ("", "fp32", "tensor"):
        raise ValueError(f"unit is {recurrence.unit!r}; it must be 'fp32', 'tensor' or empty")
    if recurrence.name in _TABLE:
        raise ValueError(f"name is {recurrence.name!r}, which is registered already; choose another")
    _TABLE[recurrence.name] = recurrence
    return recurrence


def recurrence(name: str) -> Recurrence:
    """The recurrence of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in _TABLE:
        raise ValueError(f"recurrence is {name!r}; there are {', '.join(_TABLE)}")
    return _TABLE[name]


def recurrences(platform: str | None = None) -> list[Recurrence]:
    """All registered recurrences, or those of one platform, in order of registration."""
    return [r for r in _TABLE.values() if platform in (None, r.platform)]
