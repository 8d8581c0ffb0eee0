"""What a profiler says of the kernels, and of the graphs that we time, beside our times."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from results.store import ResultsError, replace_file
from suite.facts import Environment
from suite.profile import NCU, WHOLE_GRAPHS, Ours, ProfileError, Seen, cases, empty, ours, ours_empty, parse, program

WITHIN, WITHIN_NS, SHORT_TOKENS = 0.02, 1000.0, 512
"""How near ours must be to another's time of the same graph: 2 % from 512 tokens on, a microsecond below. The other is
CUPTI, or ncu where there is no torch."""

Times = Mapping[tuple[str, int], Ours]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case, nanoseconds a call.

    Attributes:
        recurrence, tokens: which.
        kernels: how many a call has.
        calls: how many calls our graph has.
        ncu_kernels_ns: ncu's durations of a plain call's kernels, added up; each of them ran on a card that was idle
            before and after.
        ncu_empty_ns: what ncu finds so many empty kernels to take beyond our time of them; 0 where it is not known.
        ncu_graph_ns: how much longer ncu finds a graph of more calls, by the calls it has more (`Ours.graphs`).
        ncu_added_ns: what ncu's duration of our graph has beyond its calls.
        cupti_ns: from the start of our graph's first kernel to the end of its last, by calls; None without torch.
        ours_ns: our hot time, of that graph.
    """

    recurrence: str
    tokens: int
    kernels: int
    calls: int
    ncu_kernels_ns: float
    ncu_empty_ns: float = 0.0
    ncu_graph_ns: float
    ncu_added_ns: float
    cupti_ns: float | None = None
    ours_ns: float

    @property
    def other_ns(self) -> float:
        """What ours is held to."""
        return self.ncu_graph_ns if self.cupti_ns is None else self.cupti_ns

    @property
    def agrees(self) -> bool:
        apart = abs(self.ours_ns - self.other_ns)
        return apart <= (WITHIN * self.other_ns if self.tokens >= SHORT_TOKENS else WITHIN_NS)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What `gdn-bench doctor --profile` keeps in `results/profiles/<gpu_key>/`.

    Attributes:
        date: UTC, ISO 8601.
        commit, dirty, gpu, driver: as in a record's environment.
        ncu: its version.
        commands: those of ncu, for the kernels and for the graphs, and CUPTI's where there is torch.
        rows: a case each.
    """

    date: str
    commit: str | None
    dirty: bool | None
    gpu: str | None
    driver: str | None
    ncu: str
    commands: tuple[tuple[str, ...], ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Found:
    """The rows, ncu's version and its commands."""

    rows: tuple[Row, ...]
    ncu: str
    commands: tuple[tuple[str, ...], ...]


def profile(recurrences: Sequence[str], tokens: Sequence[int]) -> Found:
    """Ours on this GPU, then ncu's of the kernels and of the graphs, each in a process of its own.

    Raises:
        ProfileError: ncu is missing, fails, or prints something else.
    """
    if shutil.which(NCU[0]) is None:
        raise ProfileError("ncu is not on the PATH; it comes with Nsight Compute, which the CUDA toolkit has")
    from suite.cuda_clock import GraphClock

    expected = cases(recurrences, tokens)
    clock = GraphClock()
    times, nothing = ours(clock, recurrences, tokens), ours_empty(clock)
    kernels = (*NCU, *program(recurrences, tokens))
    counts = [count for case in expected for count in times[case].graphs]
    graphs = (*NCU, *WHOLE_GRAPHS, *program(recurrences, tokens, counts))
    plain = _table(kernels)
    seen = parse(plain, len(expected)), parse(_table(graphs), 2 * len(expected))
    traced = (*program(recurrences, tokens, [times[case].calls for case in expected], traced=True),)
    with_torch = importlib.util.find_spec("torch") is not None
    cupti = _traced(traced) if with_torch else [None] * len(expected)
    found = rows(times, *seen, cupti, empty(plain) - nothing.ns)
    version = subprocess.run([NCU[0], "--version"], capture_output=True, text=True).stdout.split("\n")
    said = next((line for line in version if line.startswith("Version")), "")
    return Found(tuple(found), said, (kernels, graphs, *([traced] if with_torch else [])))


def _traced(command: Sequence[str]) -> list[float]:
    """What CUPTI saw, run by this command."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ProfileError(f"tracing by CUPTI ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _table(command: Sequence[str]) -> str:
    """What ncu writes into its log, run by this command."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        done = subprocess.run([command[0], "--log-file", str(log), *command[1:]], capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
        if done.returncode:
            raise ProfileError(f"ncu ended with {done.returncode}:\n{(text + done.stdout + done.stderr)[-2000:]}")
    return text


def rows(
    times: Times, kernels: Sequence[Seen], graphs: Sequence[Seen], traced: Sequence[float | None], beyond_ns: float
) -> list[Row]:
    """All together, case by case.

    Args:
        times: ours.
        kernels: what ncu saw of a plain call of each, in the same order.
        graphs: what it saw of our graph and of the longer one, of each.
        traced: what CUPTI saw of our graph, of each.
        beyond_ns: ncu's time of an empty kernel less ours.
    """
    found = []
    every = zip(times.items(), kernels, graphs[::2], graphs[1::2], traced, strict=True)
    for (case, one), call, short, long, cupti in every:
        fewer, more = one.graphs
        ns = (long.ns - short.ns) / (more - fewer)
        found.append(
            Row(
                recurrence=case[0],
                tokens=case[1],
                kernels=call.parts,
                calls=one.calls,
                ncu_kernels_ns=call.ns,
                ncu_empty_ns=call.parts * beyond_ns,
                ncu_graph_ns=ns,
                ncu_added_ns=short.ns - ns * one.calls,
                cupti_ns=cupti,
                ours_ns=one.ns,
            )
        )
    return found


def lines(found: Sequence[Row]) -> list[str]:
    """The rows as a table."""
    told = [
        "other timers beside ours, microseconds of a call (medians; caches and clocks as they are): ncu of its kernels",
        "one by one, and less what it says of as many empty ones beyond ours; ncu and CUPTI of our graph of calls back",
        "to back; ours, and its difference from the last of them",
        f"  {'tokens':>7}  {'recurrence':<16} {'ncu, kernels':>14} {'- empty':>9} {'ncu, graph':>14} {'CUPTI':>9} "
        f"{'ours':>9}  apart",
    ]
    for one in found:
        apart, cupti = one.ours_ns - one.other_ns, "-" if one.cupti_ns is None else f"{one.cupti_ns / 1e3:,.2f}"
        told.append(
            f"  {one.tokens:>7,}  {one.recurrence:<16} {one.kernels:>3}: {one.ncu_kernels_ns / 1e3:>9,.2f} "
            f"{(one.ncu_kernels_ns - one.ncu_empty_ns) / 1e3:>9,.2f} "
            f"{one.calls:>3}: {one.ncu_graph_ns / 1e3:>9,.2f} {cupti:>9} {one.ours_ns / 1e3:>9,.2f}  "
            f"{apart / 1e3:+,.2f} ({apart / one.other_ns:+.1%})"
            f"{'' if one.agrees else ': farther apart than they should be'}"
        )
    return told


def keep(found: Found, environment: Environment, root: Path, key: str) -> Path:
    """Keep the rows beside the records; returns the file.

    Raises:
        ResultsError: it cannot be written.
    """
    now = datetime.now(UTC)
    kept = Profile(
        date=now.isoformat(timespec="seconds"),
        commit=environment.commit,
        dirty=environment.dirty,
        gpu=environment.gpu,
        driver=environment.driver,
        ncu=found.ncu,
        # The interpreter by its name: where it lies is nobody's business.
        commands=tuple(tuple("python" if word == sys.executable else word for word in one) for one in found.commands),
        rows=found.rows,
    )
    out = root / "profiles" / key / f"{now:%Y%m%dT%H%M%SZ}.json"
    if out.exists():
        raise ResultsError(f"{out} is there already; a profile is never replaced")
    text = msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n"
    return replace_file(text, out, "profile", "choose another folder with --results")
