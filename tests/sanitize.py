"""Every CUDA kernel once, for compute-sanitizer: two shapes, token counts of one chunk, of several, and of tails.

for tool in memcheck racecheck initcheck synccheck; do
    compute-sanitizer --tool $tool --error-exitcode 1 python tests/sanitize.py || break
done
"""

from __future__ import annotations

import sys

import cupy

from kernels import Shape, recurrences
from kernels.inputs import make
from kernels.reference import error, reference


def main() -> int:
    for shape in (Shape(1, 3), Shape(2, 4, "grouped")):
        whole = make(shape, 150).map(cupy.asarray)
        for tokens in (1, 33, 70, 150):
            problem = whole.head(tokens)
            truth = reference(problem)
            for one in recurrences("cuda"):
                if reason := one.unsupported(problem):
                    print(f"{one.name} cannot run here: {reason}")
                    continue
                found = max(error(got, wanted).max for got, wanted in zip(one(problem), truth, strict=True))
                if not found <= 1.1e-6:
                    print(f"{one.name}, {tokens} tokens, {shape}: error {found:.1e}")
                    return 1
    print("every kernel ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
