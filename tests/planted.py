"""A kernel that is slower by a known share, to see whether the suite finds it, and what it says of an unchanged one.

A plugin, which adds the recurrence `sequential-planted`, and the count of what was found:

    PYTHONPATH=tests python -m pytest -p planted --benchmark-only --gdn-processes 21 --gdn-tokens 2048 \\
        --gdn-recurrences sequential,sequential-planted
    python tests/planted.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kernels import Problem, Recurrence, Shape, register
from kernels.compile import CUDA_SOURCES, SEQUENTIAL, compile_source
from kernels.detect import gpu
from results.night import change, nights, speeds
from results.schema import Record
from results.store import default_root, load

NAME, SHARE = "sequential-planted", 50
"""The variant waits, once it is done, for a fiftieth of what it took: 2 %."""

BEGIN, END = "    __shared__ __align__(16) Batch stage[2];\n", "\n}\n"


def source(share: int = SHARE) -> str:
    """The sequential kernel with the wait."""
    text = (CUDA_SOURCES / SEQUENTIAL.file).read_text()
    if text.count(BEGIN) != 1 or not text.endswith(END):
        raise ValueError(f"{SEQUENTIAL.file} has changed; say anew where the wait goes")
    wait = f"""\
    const long long took = clock64() - began;
    while (clock64() - began < took + took / {share}) {{
    }}"""
    return text.replace(BEGIN, f"    const long long began = clock64();\n{BEGIN}").removesuffix(END) + f"\n{wait}{END}"


def cubin(arch: int, shape: Shape, share: int = SHARE) -> Any:
    """The machine code of the variant."""
    with tempfile.TemporaryDirectory() as folder:
        for header in CUDA_SOURCES.glob("*.cuh"):
            (Path(folder) / header.name).write_text(header.read_text())
        file = Path(folder) / "planted.cu"
        file.write_text(source(share))
        return compile_source(file, arch, SEQUENTIAL.defines(shape))


_kernels: dict[Shape, Any] = {}


def enqueue(problem: Problem, out: Any, state: Any) -> None:
    """As `sequential`, with the wait; see `kernels.registry.Enqueue`."""
    import cupy

    from kernels.gpu import current_facts

    shape = problem.shape
    if shape not in _kernels:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "planted.cubin"
            file.write_bytes(cubin(current_facts().compute_capability, shape).code)
            _kernels[shape] = cupy.RawModule(path=str(file)).get_function(SEQUENTIAL.entry)
            _kernels[shape].compile()
    blocks = shape.key_heads * (shape.group // SEQUENTIAL.heads(shape)) * 4
    arguments = (problem.qkv, problem.gate, problem.beta, state, out, np.int32(problem.tokens))
    _kernels[shape]((blocks,), (128,), arguments)


def count(records: Sequence[Record], tokens: int = 2048) -> str:
    """How many planted changes were found, and how many that are none, between neighbouring processes of a night."""
    plain, slow = ([speeds(one, name, tokens) for one in records] for name in ("sequential", NAME))
    planted = [change(a, b).verdict for a, b in zip(plain, slow[1:], strict=False) if a and b]
    same = [change(a, b).verdict for row in (plain, slow) for a, b in pairwise(row) if a and b]
    ratios = [change(a, b).seconds - 1 for a, b in zip(plain, slow, strict=True) if a and b]
    spread = f", {min(ratios):+.2%} to {max(ratios):+.2%} within a process" if ratios else ""
    return (
        f"the planted slowdown was found in {planted.count('slower')} of {len(planted)} pairs{spread}; an unchanged "
        f"kernel was called changed in {len(same) - same.count('same')} of {len(same)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=default_root())
    parser.add_argument("--night", help="default: the last one that has the variant")
    chosen = parser.parse_args()
    every = nights(load(chosen.results).records)
    own = {name: found for name, found in every.items() if any(speeds(one, NAME, 2048) for one in found)}
    if not own or chosen.night not in (None, *own):
        print(f"no such night with {NAME} is stored in {chosen.results}", file=sys.stderr)
        return 4
    night = chosen.night or list(own)[-1]
    print(f"{night}: {count(own[night])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
elif gpu().usable:
    register(Recurrence(NAME, "cuda", enqueue, minor=True))
