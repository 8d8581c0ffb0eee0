"""Fresh processes that settle what one run leaves open: the same cases again, the same night, on the same card."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from results.compare import Asked, Comparison
from results.series import CONFIRMS
from results.store import ResultsError
from results.verdicts import rule_name
from suite.environment import card_uuid, commit
from suite.lock import idle
from suite.processes import said

CHECKOUT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Process:
    """One fresh process: its command and what it needs in its environment besides."""

    command: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]


def plan(root: Path, found: Comparison, asked: Asked) -> list[Process]:
    """The processes that would settle the suspicious cases; none where there are none.

    All recurrences of the run are sampled again at those token counts, in the same alternation.
    """
    processes = []
    places = dict.fromkeys((case.shape, case.head_map, case.inputs) for case in found.suspicious)
    number = sum(1 for name in found.runs if name != found.run_id)
    for place in places:
        here = [c for c in found.cases if c.kind == "speed" and (c.shape, c.head_map, c.inputs) == place]
        open_ = [case for case in here if case.suspicious]
        wanted = [asked.rules.of(rule_name(c.recurrence, c.tokens)).confirm - c.processes for c in open_]
        names = dict.fromkeys(c.recurrence for c in here if c.verdict not in ("missing", "not measured"))
        red = dict.fromkeys(c.recurrence for c in here if c.verdict in ("wrong", "unstable"))
        shape, head_map, inputs = place
        device = "host" if found.gpu is None else found.gpu_uuid or "0"
        for _ in range(max([*wanted, 0])):
            number += 1
            command = (
                *(sys.executable, "-m", "pytest", "--benchmark-only"),
                f"--gdn-device={device}",
                f"--gdn-tokens={','.join(str(n) for n in sorted({case.tokens for case in open_}))}",
                f"--gdn-recurrences={','.join(names)}",
                f"--gdn-shape={shape}",
                f"--gdn-head-map={head_map}",
                f"--gdn-inputs={inputs}",
                f"--gdn-results={root.absolute()}",
                f"--gdn-night={CONFIRMS}{found.run_id}",
                f"--gdn-process={number}",
                f"--gdn-red={','.join(red)}",
            )
            alone = (("CUDA_VISIBLE_DEVICES", found.gpu_uuid),) if found.gpu and found.gpu_uuid else ()
            processes.append(Process(command, alone))
    return processes


def confirm(root: Path, found: Comparison, asked: Asked, say: Callable[[str], None]) -> int:
    """Run the fresh processes one after the other; returns how many left a record.

    Args:
        root: the results folder.
        found: the comparison that leaves cases open.
        asked: what it was asked for.
        say: told what each process found.

    Raises:
        ResultsError: this checkout is not what the run measured, or there is none.
    """
    processes = plan(root, found, asked)
    if not processes:
        return 0
    if not (CHECKOUT / "conftest.py").exists():
        raise ResultsError(f"--confirm measures, which needs a checkout of gdn-bench; there is none at {CHECKOUT}")
    if (here := commit()) != (found.commit, found.dirty):
        now, then = (f"{name or 'unknown'}{' with changes' if dirty else ''}" for name, dirty in (here, _of(found)))
        raise ResultsError(
            f"--confirm would measure commit {now}, and run {found.run_id} is of {then}; check that one out"
        )
    done = 0
    with idle(card_uuid(0)) if "cupy" in sys.modules and found.gpu else nullcontext():
        for number, one in enumerate(processes, 1):
            ended = subprocess.run(
                one.command, cwd=CHECKOUT, env=os.environ | dict(one.environ), capture_output=True, text=True
            )
            say(f"process {number} of {len(processes)}: {said(ended.returncode, ended.stdout)}")
            if "record: " in ended.stdout:
                done += 1
            else:
                say(" ".join(f"{ended.stdout[-1000:]} {ended.stderr[-1000:]}".split()))
    return done


def _of(found: Comparison) -> tuple[str | None, bool | None]:
    return found.commit, found.dirty
