"""What there is here: the device, the software, which recurrence the dispatch takes, and where results go."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernels import Shape, recurrences
from kernels.auto import available, rule
from kernels.detect import gpu
from kernels.dispatch import DeviceFacts, DispatchError, choose
from kernels.inputs import make
from kernels.timetable import AutoError, Table, shipped_tables
from results import series
from results.store import gpu_key
from suite.environment import collect
from suite.facts import Environment
from suite.options import PLANS

AUTO_TOKENS = (1, 16, 32, 64, 128, 512, 2048, 8192, 32_768)
"""Token counts that the choice of `auto` is shown at: from a decode step to a long prompt."""


def doctor(root: Path) -> int:
    """Print what there is; returns the exit code.

    Args:
        root: the results folder.

    Raises:
        ResultsError: the results folder cannot be read.
    """
    found = gpu()
    environment, _ = collect(0 if found.usable else None)
    lines = [*device_lines(environment, found.problem), "", *recurrence_lines(), ""]
    code = 0
    if found.usable:
        from kernels.gpu import facts

        try:
            lines += [*dispatch_lines(facts(0), os.environ), ""]
        except DispatchError as error:
            print(f"gdn-bench: {error}", file=sys.stderr)
            code = 2
        try:
            lines += [*auto_lines(shipped_tables(), facts(0), available(make(Shape(), 1))), ""]
        except AutoError as error:
            print(f"gdn-bench: {error}", file=sys.stderr)
            code = 2
    else:
        lines += ["dispatch: none, as it is for GPUs", "auto: none, as it is for GPUs", ""]
    runs = series.runs(root)
    problems = runs.attrs["problems"]
    lines += [
        f"results    {root}",
        f"history    {root / 'history' / gpu_key(environment)}",
        f"stored     {len(runs)} runs, {len(problems)} files that cannot be used",
    ]
    print("\n".join(lines))
    for problem in problems:
        print(f"gdn-bench: {' '.join(problem.split())}", file=sys.stderr)
    return code or (5 if problems else 0)


def device_lines(environment: Environment, problem: str) -> list[str]:
    """The device and the software, a line each."""
    e = environment
    device: list[tuple[str, str | None]]
    if e.gpu is None:
        device = [("device", f"host: {e.cpu}, {e.cores} logical processors"), ("no GPU", problem)]
    else:
        device = [
            ("device", f"{e.gpu}, {e.sms} SMs, compute capability {e.compute_capability}, {e.memory_mib:,} MiB"),
            ("driver", e.driver),
            ("CUDA", f"runtime {e.cuda_runtime}, NVRTC {e.nvrtc}"),
            ("CuPy", e.cupy),
        ]
    commit = f"{e.commit or 'unknown'}{', with changes' if e.dirty else ''}"
    software = [("NumPy", e.numpy), ("Python", e.python), ("commit", commit)]
    return [f"{name:<10} {value}" for name, value in (*device, *software)]


def recurrence_lines() -> list[str]:
    """Each registered recurrence, and whether it runs here."""
    problem = make(Shape(), 1, "normal", 0)
    lines = ["recurrences"]
    for one in recurrences():
        # What a recurrence refuses depends on the device and the head counts, not on where the arrays lie.
        refusal = one.unsupported(problem)
        lines.append(f"  {one.name:<16} {one.platform:<5} {f'cannot run: {refusal}' if refusal else 'runs'}")
    return lines


def dispatch_lines(device: DeviceFacts, environ: Mapping[str, str]) -> list[str]:
    """The dispatch's choice at each timed token count, as the environment is and as if chunked were asked for.

    Raises:
        DispatchError: a variable of the dispatch has a value that is not known.
    """
    asked = {**environ, "STRATA_GDN_CHUNKED": "1"}
    settings = {"dispatch, as the environment is": environ}
    if environ.get("STRATA_GDN_CHUNKED") != "1":
        settings["dispatch, with STRATA_GDN_CHUNKED=1"] = asked
    lines = []
    for title, setting in settings.items():
        lines.append(title)
        for tokens in PLANS["cuda"].speed:
            choice = choose(device, tokens, setting)
            lines.append(f"  {tokens:>6,} tokens  {choice.recurrence:<10}  {choice.reason}")
    return lines


def auto_lines(tables: Iterable[Table], device: DeviceFacts, names: Sequence[str]) -> list[str]:
    """What `auto` rests on here for the default shape, and its choice at some token counts.

    Args:
        tables: those there are.
        device: facts of the card.
        names: the recurrences that run on it.

    Raises:
        AutoError: there is none.
    """
    found = rule(tables, device, Shape(), names)
    lines = [f"auto: {found.basis}"]
    for tokens in AUTO_TOKENS:
        choice = found.choose(tokens)
        lines.append(f"  {tokens:>6,} tokens  {choice.recurrence:<16}  {choice.reason}")
    return lines
