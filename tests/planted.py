"""A recurrence that is slower by a known share: does the suite find it, and what does it say of an unchanged one?

A plugin, which adds the recurrence `sequential-planted`, and the count of what was found:

    PYTHONPATH=tests python -m pytest -p planted --benchmark-only --gdn-processes 21 --gdn-tokens 2048 \\
        --gdn-recurrences sequential,sequential-planted
    python tests/planted.py
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kernels import Problem, Recurrence, recurrence, register
from kernels.compile import compile_source
from kernels.detect import gpu
from results.night import change, nights, speeds
from results.schema import Record
from results.store import default_root, load

NAME, SHARE = "sequential-planted", 50
"""The variant is the plain kernel and then a wait for a fiftieth of what it took: 2 %, and two short launches more."""

FILE = Path(__file__).with_suffix(".cu")


def cubin(arch: int) -> Any:
    """The machine code of the two kernels around the plain one."""
    return compile_source(FILE, arch, {})


@functools.cache
def kernels() -> tuple[Any, Any, Any]:
    """The kernel in front, the one behind, and where the first leaves the time for the second."""
    import cupy

    from kernels.gpu import current_facts

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "planted.cubin"
        file.write_bytes(cubin(current_facts().compute_capability).code)
        module = cupy.RawModule(path=str(file))
        begin, wait = (module.get_function(name) for name in ("planted_begin", "planted_wait"))
        begin.compile()
        wait.compile()
    return begin, wait, cupy.zeros(1, cupy.uint64)


def enqueue(problem: Problem, out: Any, state: Any) -> None:
    """As `sequential`, with the wait; see `kernels.registry.Enqueue`."""
    begin, wait, began = kernels()
    begin((1,), (1,), (began,))
    recurrence("sequential").enqueue(problem, out, state)
    wait((1,), (1,), (began, np.uint64(SHARE)))


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
