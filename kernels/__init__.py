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
from kernels.detect import load_recurrences
from kernels.problem import HEAD_DIM, HEAD_MAPS, Problem, ProblemError, Shape
from kernels.registry import Recurrence, recurrence, recurrences, register

load_recurrences()

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
