"""Times of a profiler beside ours: what it is to see, and what is made of what it saw.

    ncu OPTIONS python -m suite.profile --recurrences sequential,chunked --tokens 32,512,2048

runs plain calls, whose kernels ncu times one by one, each from an idle card to an idle card. What it says of an empty
kernel beyond our time of the same, it says of each of them. With `--graph-profiling graph` among the options, and with
`--calls 20,1680,17,1507` after the program (for the cases of one token count), it runs two graphs of each case, of so
many calls, which ncu times as a whole. Both hold what ncu adds to any graph, 0.1 to 0.2 ms, which their difference does
not; what it adds to each kernel of a graph, that still holds.

    python -m suite.profile --trace --recurrences sequential,chunked --tokens 32,512,2048 --calls 20,19,2,4,1,1

lets CUPTI note when each kernel of the graph ran, which disturbs it least: that is our hot sample, like for like. It
needs torch, for its profiler. `gdn-bench doctor --profile` does all that and prints it beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Calls, or graphs of calls, of each case that the profiler sees."""

BEYOND_NS = 30e6
"""How much longer the second graph takes: what ncu adds to a graph differs by 0.05 to 0.2 ms from one to the next."""

METRIC = "gpu__time_duration.sum"
NCU = (
    *("ncu", "--metrics", METRIC, "--csv", "--print-units", "base"),
    # As they are: a hot cache and the card's own clocks, as our hot samples have them.
    *("--cache-control", "none", "--clock-control", "none", "--profile-from-start", "off"),
)
"""The profiler's command line up to the program; `--log-file FILE` keeps its table apart from the program's output."""

WHOLE_GRAPHS = ("--graph-profiling", "graph")
"""What has ncu time a graph as a whole, and not each of its kernels."""

_UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}


class ProfileError(Exception):
    """The profiler's output is not what it should be; the message says what is missing."""


@dataclass(frozen=True)
class Seen:
    """What the profiler saw of one case.

    Attributes:
        ns: median over the repeats of the sum of the durations of what ran in one, nanoseconds.
        parts: how many durations that are: the kernels of a call, or 1 for a graph.
    """

    ns: float
    parts: int


def back_to_back(kernels: Sequence[tuple[int, int]], calls: int) -> float:
    """Nanoseconds of a call in a graph of calls: from the start of its first kernel to the end of its last, by calls.

    Args:
        kernels: (start, duration) in nanoseconds of the kernels of `REPEATS` replays, in the order of their starts.
        calls: in a graph.

    Returns:
        The median over the replays.

    Raises:
        ProfileError: there are none, or not as many in each replay.
    """
    if not kernels or len(kernels) % (REPEATS * calls):
        raise ProfileError(
            f"CUPTI saw {len(kernels)} kernels in {REPEATS} graphs of {calls} calls; as many are wanted in each call"
        )
    size = len(kernels) // REPEATS
    replays = [kernels[first : first + size] for first in range(0, len(kernels), size)]
    return median((max(start + ns for start, ns in own) - own[0][0]) / calls for own in replays)


@dataclass(frozen=True)
class Ours:
    """Our hot time of one case.

    Attributes:
        ns: median, nanoseconds a call.
        calls: how many calls the graph of a sample has.
    """

    ns: float
    calls: int

    @property
    def graphs(self) -> tuple[int, int]:
        """How many calls the graphs have that ncu times."""
        return self.calls, self.calls + math.ceil(BEYOND_NS / self.ns)


def program(
    recurrences: Sequence[str], tokens: Sequence[int], calls: Sequence[int] = (), traced: bool = False
) -> list[str]:
    """The command that runs the cases, for ncu to start; or, traced, that prints what CUPTI sees of them.

    Args:
        calls: of each case's graph or graphs, in the order of `cases`; empty for plain calls.
    """
    chosen = ["--recurrences", ",".join(recurrences), "--tokens", ",".join(map(str, tokens))]
    graphs = ["--calls", ",".join(map(str, calls))] if calls else []
    return [sys.executable, "-m", "suite.profile", *(["--trace"] if traced else []), *chosen, *graphs]


def cases(recurrences: Sequence[str], tokens: Sequence[int]) -> list[tuple[str, int]]:
    """(recurrence, tokens) in the order in which they run."""
    return [(name, number) for number in tokens for name in recurrences]


def run(recurrences: Sequence[str], tokens: Sequence[int], calls: Sequence[int] = ()) -> None:
    """Run every case `REPEATS` times with a stamp in front, seen by the profiler and in a range; see `program`."""
    import cupy

    from suite.cuda_clock import captured

    stamp = _stamp().call
    expected = cases(recurrences, tokens)
    graphs, rest = divmod(len(calls), len(expected))
    if rest:
        raise ValueError(f"--calls has {len(calls)} numbers; as many for each of the {len(expected)} cases are wanted")
    for index, (name, number) in enumerate(expected):
        work = _work(name, number)
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(3):  # compiled, allocated, and the inputs read
                stamp()
                work.call()
            own = calls[index * graphs : (index + 1) * graphs]
            for once in [captured(stream, work.call, count) for count in own] or [work.call]:
                once()
                stream.synchronize()
                with _seen(work.name):
                    for _ in range(REPEATS):
                        stamp()
                        once()
                    stream.synchronize()


def trace(recurrences: Sequence[str], tokens: Sequence[int], calls: Sequence[int]) -> list[float]:
    """Nanoseconds of a call of each case in its graph, as CUPTI saw it; see `back_to_back`."""
    import cupy
    import torch
    from torch.profiler import ProfilerActivity

    from suite.cuda_clock import captured

    torch.zeros(1, device="cuda")
    found = []
    for (name, number), count in zip(cases(recurrences, tokens), calls, strict=True):
        work = _work(name, number)
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(3):
                work.call()
            replay = captured(stream, work.call, count)
            for _ in range(20):  # the clocks are up
                replay()
            stream.synchronize()
            with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(REPEATS):
                    replay()
                stream.synchronize()
        events = profiler.profiler.kineto_results.events()
        kernels = sorted((one.start_ns(), one.duration_ns()) for one in events if "gdn_" in one.name())
        found.append(back_to_back(kernels, count))
    return found


@contextlib.contextmanager
def _seen(name: str) -> Iterator[None]:
    """What the profiler sees, in a range with this name."""
    from cupy.cuda import nvtx, profiler

    if nvtx.available:
        nvtx.RangePush(name)
    profiler.start()
    yield
    profiler.stop()
    if nvtx.available:
        nvtx.RangePop()


def ours(
    clock: Clock, recurrences: Sequence[str], tokens: Sequence[int], work: Callable[[str, int], Work] | None = None
) -> dict[tuple[str, int], Ours]:
    """Our hot time of each case."""
    found: dict[tuple[str, int], Ours] = {}
    for number in tokens:
        works = [(work or _work)(name, number) for name in recurrences]
        found |= {(name, number): one for name, one in zip(recurrences, _hot(clock, works), strict=True)}
    return found


def ours_empty(clock: Clock, work: Work | None = None) -> Ours:
    """Our hot time of the stamp, see `empty`."""
    (found,) = _hot(clock, [work or _stamp()])
    return found


def _hot(clock: Clock, works: Sequence[Work]) -> list[Ours]:
    plan = PLANS["cuda"]
    sampled = timing.sample(clock, works, plan.hot, plan.cold)
    medians = (float(median(one.ns for one in taken.samples)) for taken in sampled.hot)
    return [Ours(ns, calls) for ns, calls in zip(medians, sampled.calls, strict=True)]


def _stamp() -> Work:
    import cupy

    from suite.cuda_clock import load_kernel

    stamp, place = load_kernel(STAMP), cupy.zeros(2, cupy.uint64)
    return Work(lambda: stamp((1,), (32,), (place, np.int32(0))), name="stamp")


def _work(name: str, tokens: int) -> Work:
    import cupy

    problem, one = make(Shape(), tokens).map(cupy.asarray), recurrence(name)
    out, state = one(problem)
    return Work(lambda: one.enqueue(problem, out, state), name=f"{name}, {tokens} tokens")


def parse(text: str, count: int) -> list[Seen]:
    """What the profiler's table says of what ran, in order: of each case, or of each case's graphs.

    Args:
        text: its CSV, with whatever else it printed.
        count: how many there are; each has `REPEATS` repeats, and each of them a stamp in front.

    Raises:
        ProfileError: there is no table, another number of repeats, or nothing behind a stamp.
    """
    repeats: list[list[float]] = []
    for kernel, ns in _durations(text):
        if kernel.startswith(STAMP.entry):
            repeats.append([])
        elif repeats:
            repeats[-1].append(ns)
    wanted = count * REPEATS
    if len(repeats) != wanted or not all(repeats):
        filled = sum(map(bool, repeats))
        raise ProfileError(f"ncu saw {filled} calls or graphs; {wanted} are expected:\n{text[-2000:]}")
    runs = [repeats[first : first + REPEATS] for first in range(0, wanted, REPEATS)]
    return [Seen(median(sum(one) for one in own), max(map(len, own))) for own in runs]


def empty(text: str) -> float:
    """The median duration of the stamps in the profiler's table, nanoseconds: a kernel that does next to nothing."""
    return median(ns for kernel, ns in _durations(text) if kernel.startswith(STAMP.entry))


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
    parser.add_argument("--calls", default="", help="run graphs of so many calls, as many for each case")
    parser.add_argument("--trace", action="store_true", help="print what CUPTI sees of a graph's calls, as JSON")
    chosen: Any = parser.parse_args(argv)
    tokens, calls = (list(map(int, filter(None, text.split(",")))) for text in (chosen.tokens, chosen.calls))
    names = chosen.recurrences.split(",")
    if chosen.trace:
        print(json.dumps(trace(names, tokens, calls)))
    else:
        run(names, tokens, calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
