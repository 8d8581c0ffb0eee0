"""Kernel times of a profiler beside ours: the calls that it is to see, and what is made of what it saw.

    ncu OPTIONS python -m suite.profile --recurrences sequential,chunked --tokens 32,512,2048

runs them; `gdn-bench doctor --profile` does that and prints both.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from kernels import Shape, recurrence
from kernels.compile import STAMP
from kernels.inputs import make
from suite import timing
from suite.clock import Clock, Work
from suite.options import PLANS

REPEATS = 9
"""Calls of each case that the profiler sees."""

METRIC = "gpu__time_duration.sum"
NCU = (
    *("ncu", "--metrics", METRIC, "--csv", "--print-units", "base"),
    # As they are: a hot cache and the card's own clocks, as our hot samples have them.
    *("--cache-control", "none", "--clock-control", "none", "--profile-from-start", "off"),
)
"""The profiler's command line up to the program; `--log-file FILE` keeps its table apart from the program's output."""

_UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}


class ProfileError(Exception):
    """The profiler's output is not what it should be; the message says what is missing."""


@dataclass(frozen=True)
class Kernels:
    """What the profiler saw of one case.

    Attributes:
        ns: median over the calls of the sum of the durations of a call's kernels.
        kernels: how many of them a call has.
    """

    ns: float
    kernels: int


def program(recurrences: Sequence[str], tokens: Sequence[int]) -> list[str]:
    """The command that runs the calls, for the profiler to start."""
    chosen = ["--recurrences", ",".join(recurrences), "--tokens", ",".join(map(str, tokens))]
    return [sys.executable, "-m", "suite.profile", *chosen]


def cases(recurrences: Sequence[str], tokens: Sequence[int]) -> list[tuple[str, int]]:
    """(recurrence, tokens) in the order in which they run."""
    return [(name, number) for number in tokens for name in recurrences]


def run(recurrences: Sequence[str], tokens: Sequence[int]) -> None:
    """Run every case `REPEATS` times with a stamp in front of each call, seen by the profiler and in a range."""
    import cupy

    from suite.cuda_clock import load_kernel

    stamp, place = load_kernel(STAMP), cupy.zeros(2, cupy.uint64)

    def mark() -> None:
        stamp((1,), (32,), (place, np.int32(0)))

    for name, number in cases(recurrences, tokens):
        work = _work(name, number)
        for _ in range(3):  # compiled, allocated, and the inputs read
            mark()
            work.call()
        cupy.cuda.Device().synchronize()
        if cupy.cuda.nvtx.available:
            cupy.cuda.nvtx.RangePush(work.name)
        cupy.cuda.profiler.start()
        for _ in range(REPEATS):
            mark()
            work.call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        if cupy.cuda.nvtx.available:
            cupy.cuda.nvtx.RangePop()


def ours(
    clock: Clock, recurrences: Sequence[str], tokens: Sequence[int], work: Callable[[str, int], Work] | None = None
) -> dict[tuple[str, int], float]:
    """Our hot time of each case, nanoseconds."""
    plan, found = PLANS["cuda"], {}
    for number in tokens:
        works = [(work or _work)(name, number) for name in recurrences]
        sampled = timing.sample(clock, works, plan.hot, plan.cold)
        for name, taken in zip(recurrences, sampled.hot, strict=True):
            found[name, number] = float(median(one.ns for one in taken.samples))
    return found


def _work(name: str, tokens: int) -> Work:
    import cupy

    problem, one = make(Shape(), tokens).map(cupy.asarray), recurrence(name)
    out, state = one(problem)
    return Work(lambda: one.enqueue(problem, out, state), name=f"{name}, {tokens} tokens")


def parse(text: str, expected: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Kernels]:
    """What the profiler's table says of each case.

    Args:
        text: its CSV, with whatever else it printed.
        expected: the cases in order; each has `REPEATS` calls, and each call a stamp in front.

    Raises:
        ProfileError: there is no table, or another number of calls.
    """
    calls: list[list[float]] = []
    for kernel, ns in _durations(text):
        if kernel.startswith(STAMP.entry):
            calls.append([])
        elif calls:
            calls[-1].append(ns)
    if len(calls) != len(expected) * REPEATS:
        raise ProfileError(f"ncu saw {len(calls)} calls; {len(expected) * REPEATS} are expected:\n{text[-2000:]}")
    found = {}
    for place, case in enumerate(expected):
        own = calls[place * REPEATS : (place + 1) * REPEATS]
        found[case] = Kernels(median(sum(call) for call in own), max(map(len, own)))
    return found


def _durations(text: str) -> Iterable[tuple[str, float]]:
    """(kernel, nanoseconds) of each row of ncu's table."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise ProfileError(f"ncu printed no table:\n{text[-2000:]}")
    for row in csv.DictReader(lines[first:]):
        if row.get("Metric Name") == METRIC:
            value, unit = str(row["Metric Value"]).replace(",", ""), str(row["Metric Unit"])
            if unit not in _UNITS:
                raise ProfileError(f"ncu gives {METRIC} in {unit!r}; a unit of time is wanted")
            yield str(row["Kernel Name"]), float(value) * _UNITS[unit]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the calls; a profiler starts this."""
    parser = argparse.ArgumentParser(prog="python -m suite.profile", description=__doc__)
    parser.add_argument("--recurrences", default="sequential,chunked")
    parser.add_argument("--tokens", default="32,512,2048")
    chosen: Any = parser.parse_args(argv)
    run(chosen.recurrences.split(","), [int(number) for number in chosen.tokens.split(",")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
