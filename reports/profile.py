"""The kernels' own durations, as a profiler sees them, beside our times."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from results.store import ResultsError, replace_file
from suite.facts import Environment
from suite.profile import NCU, Kernels, ProfileError, cases, ours, parse, program

WITHIN, WITHIN_NS, SHORT_TOKENS = 0.02, 1000.0, 512
"""How near the two must be: 2 % from 512 tokens on, a microsecond below."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case: the sum of its kernels' durations, and our hot time, nanoseconds."""

    recurrence: str
    tokens: int
    kernels: int
    ncu_ns: float
    ours_ns: float

    @property
    def agrees(self) -> bool:
        apart = abs(self.ours_ns - self.ncu_ns)
        return apart <= (WITHIN * self.ncu_ns if self.tokens >= SHORT_TOKENS else WITHIN_NS)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What `gdn-bench doctor --profile` keeps in `results/profiles/<gpu_key>/`."""

    date: str
    commit: str | None
    dirty: bool | None
    driver: str | None
    command: tuple[str, ...]
    rows: tuple[Row, ...]


def profile(recurrences: Sequence[str], tokens: Sequence[int]) -> tuple[list[Row], list[str]]:
    """(rows, the profiler's command) of the recurrences on this GPU: ours first, then under ncu in its own process.

    Raises:
        ProfileError: ncu is missing, fails, or prints something else.
    """
    if shutil.which(NCU[0]) is None:
        raise ProfileError("ncu is not on the PATH; it comes with Nsight Compute, which the CUDA toolkit has")
    from suite.cuda_clock import GraphClock

    times = ours(GraphClock(), recurrences, tokens)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [*NCU, "--log-file", str(log), *program(recurrences, tokens)]
        done = subprocess.run(command, capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
        if done.returncode:
            raise ProfileError(f"ncu ended with {done.returncode}:\n{(text + done.stdout + done.stderr)[-2000:]}")
    seen = parse(text, cases(recurrences, tokens))
    return rows(times, seen), [part for part in command if part not in ("--log-file", str(log))]


def rows(times: Mapping[tuple[str, int], float], seen: Mapping[tuple[str, int], Kernels]) -> list[Row]:
    """Both together, case by case."""
    return [
        Row(
            recurrence=name,
            tokens=tokens,
            kernels=found.kernels,
            ncu_ns=found.ns,
            ours_ns=times[name, tokens],
        )
        for (name, tokens), found in seen.items()
    ]


def lines(found: Sequence[Row]) -> list[str]:
    """The rows as a table."""
    head = f"  {'tokens':>7}  {'recurrence':<16}  {'kernels':>7}  {'ncu':>11}  {'ours, hot':>11}  difference"
    told = ["kernel times of ncu beside ours (median of the calls; caches and clocks as they are)", head]
    for one in found:
        apart = one.ours_ns - one.ncu_ns
        told.append(
            f"  {one.tokens:>7,}  {one.recurrence:<16}  {one.kernels:>7}  {one.ncu_ns / 1e3:>8,.2f} us  "
            f"{one.ours_ns / 1e3:>8,.2f} us  {apart / 1e3:+,.2f} us, {apart / one.ncu_ns:+.1%}"
            f"{'' if one.agrees else '  (farther apart than they should be)'}"
        )
    return told


def keep(found: Sequence[Row], command: Sequence[str], environment: Environment, root: Path, key: str) -> Path:
    """Keep the rows beside the records; returns the file.

    Raises:
        ResultsError: it cannot be written.
    """
    now = datetime.now(UTC)
    kept = Profile(
        date=now.isoformat(timespec="seconds"),
        commit=environment.commit,
        dirty=environment.dirty,
        driver=environment.driver,
        command=tuple(command),
        rows=tuple(found),
    )
    out = root / "profiles" / key / f"{now:%Y%m%dT%H%M%SZ}.json"
    if out.exists():
        raise ResultsError(f"{out} is there already; a profile is never replaced")
    text = msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n"
    return replace_file(text, out, "profile", "choose another folder with --results")
