"""Every CUDA kernel, for compute-sanitizer (docs/kernels.md): token counts of one chunk, of several, and of tails."""

from __future__ import annotations

import sys
from unittest import mock

import cupy

from kernels import Shape, recurrences
from kernels.compile import Source
from kernels.inputs import make
from kernels.reference import error, reference

plain = Source.defines


def lanes_arrive(source: Source, shape: Shape) -> dict[str, int]:
    """As released, but that every lane arrives at a barrier by itself: racecheck follows lanes, not warps."""
    return {**plain(source, shape), "GDN_LANES_ARRIVE": 1}


def main() -> int:
    whole = make(Shape(2, 6), 150).map(cupy.asarray)
    for tokens in (1, 33, 70, 150):
        problem = whole.head(tokens)
        truth = reference(problem)
        for one in recurrences("cuda"):
            if reason := one.unsupported(problem):
                print(f"{one.name} cannot run here: {reason}")
                continue
            found = max(error(got, wanted).max for got, wanted in zip(one(problem), truth, strict=True))
            if not found <= 1.1e-6:
                print(f"{one.name}, {tokens} tokens: error {found:.1e}")
                return 1
    print("every kernel ran")
    return 0


if __name__ == "__main__":
    with mock.patch.object(Source, "defines", lanes_arrive if sys.argv[1:] == ["racecheck"] else plain):
        sys.exit(main())
