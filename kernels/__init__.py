"""Gated DeltaNet recurrences: problems, implementations, references and dispatch.

>>> import numpy as np
>>> from kernels import Problem, recurrence
>>> zeros = np.zeros
>>> problem = Problem(
...     qkv=zeros((3, 10240), np.float32), gate=zeros((3, 48), np.float32), beta=zeros((3, 48), np.float32),
...     state=zeros((128, 48, 128), np.float32), key_heads=16,
... )
>>> out, state = recurrence("host-sequential")(problem)
>>> out.shape
(3, 48, 128)
"""

import kernels.host  # noqa: F401  (registers the NumPy recurrences)
from kernels import registry
from kernels.detect import load_recurrences
from kernels.problem import HEAD_DIM, HEAD_MAPS, Problem, ProblemError, Shape
from kernels.registry import Recurrence

# The CUDA recurrences are looked for on the first question, as that takes CuPy and a context on the GPU: who reads what
# was measured needs neither.


def register(recurrence: Recurrence) -> Recurrence:
    """See `kernels.registry.register`."""
    load_recurrences()
    return registry.register(recurrence)


def recurrence(name: str) -> Recurrence:
    """See `kernels.registry.recurrence`."""
    load_recurrences()
    return registry.recurrence(name)


def recurrences(platform: str | None = None) -> list[Recurrence]:
    """See `kernels.registry.recurrences`."""
    load_recurrences()
    return registry.recurrences(platform)


__all__ = [
    "HEAD_DIM",
    "HEAD_MAPS",
    "Problem",
    "ProblemError",
    "Recurrence",
    "Shape",
    "recurrence",
    "recurrences",
    "register",
]
