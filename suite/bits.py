"""Do arrays have the same bits run after run: the device compares, and is asked once, after the last run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.compile import COMPARE
from kernels.problem import Array

NOWHERE = np.iinfo(np.uint64).max
"""The place of the first difference where there is none."""

BLOCKS, THREADS = 1024, 256


class Comparison:
    """Arrays that are rewritten run after run against what they held first.

    To ask the device after each run would let it wait for the host: it notes what differs, and `found` reads that.

    Args:
        firsts: float32 arrays of the first run, contiguous, NumPy's or CuPy's.
        runs: how many more there are.
    """

    def __init__(self, firsts: Sequence[Array], runs: int) -> None:
        self._firsts = firsts
        self._on_gpu = not isinstance(firsts[0], np.ndarray)
        self._notes: Array = np.zeros((runs, len(firsts), 2), np.uint64)
        self._notes[:, :, 1] = NOWHERE
        if self._on_gpu:
            import cupy

            self._notes = cupy.asarray(self._notes)

    def note(self, run: int, arrays: Sequence[Array]) -> None:
        """Compare the arrays of a run, counted from 0; on a GPU this is enqueued on CuPy's current stream."""
        for place, (array, first) in enumerate(zip(arrays, self._firsts, strict=True)):
            if self._on_gpu:
                from suite.cuda_clock import load_kernel

                arguments = (array, first, np.int64(array.size), self._notes[run, place])
                load_kernel(COMPARE)((BLOCKS,), (THREADS,), arguments)
                continue
            differs = array.view(np.uint32) != first.view(np.uint32)
            if differs.any():
                self._notes[run, place] = np.count_nonzero(differs), differs.argmax()

    def found(self) -> np.ndarray:
        """uint64 [runs, arrays, 2]: how many elements differed, and the flat index of the first or `NOWHERE`."""
        notes: np.ndarray = self._notes.get() if self._on_gpu else self._notes
        return notes
