"""Fresh processes: what is measured in one process says little about the next one."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from suite.lock import Lock
from suite.options import Options

FILES = ("--benchmark-json", "--junit-xml", "--junitxml")


def new_night() -> str:
    """A name that no other night has, such as night-20261130T051500Z-3f9a."""
    return f"night-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def without(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """The options less those of these names, and less the files that every process would write anew."""
    kept, skip = [], False
    for argument in given:
        if skip:
            skip = False
        elif argument.partition("=")[0] in (*names, *FILES):
            skip = "=" not in argument
        else:
            kept.append(argument)
    return kept


def arguments(given: Sequence[str], night: str, process: int, red: Sequence[str]) -> list[str]:
    """The options of one fresh process: those that the user gave, without the number of processes.

    Files that every process would write anew, such as that of --benchmark-json, are left out.
    """
    kept = without(given, ("--gdn-processes",))
    return [*kept, f"--gdn-night={night}", f"--gdn-process={process}", f"--gdn-red={','.join(red)}"]


def time_in_fresh_processes(
    config: pytest.Config, options: Options, red: Sequence[str], reporter: Any, held: Lock | None = None
) -> list[int]:
    """Time in one process after the other; returns their exit codes.

    Args:
        config: pytest's, for the command line as it was given.
        options: the suite's.
        red: recurrences of which a check was red.
        reporter: pytest's terminal, or None.
        held: the card's lock, which each process keeps as well.
    """
    kept = (held.descriptor,) if held is not None and held.descriptor is not None else ()
    environ = os.environ | (held.inherited if held is not None else {})
    codes = []
    for process in range(1, options.processes + 1):
        asked = arguments(config.invocation_params.args, options.night or "", process, red)
        codes.append(run_pytest(config, asked, f"process {process} of {options.processes}", reporter, environ, kept))
    return codes


def run_pytest(
    config: pytest.Config,
    asked: Sequence[str],
    name: str,
    reporter: Any,
    environ: Mapping[str, str],
    kept: Sequence[int] = (),
) -> int:
    """Run the suite once more, in a process of its own; returns its exit code.

    Args:
        config: pytest's, for the folder that it was started in.
        asked: the process's options.
        name: what to call it in the line that tells how it ended.
        reporter: pytest's terminal, or None.
        environ: its environment.
        kept: file descriptors that it is given.
    """
    command = [sys.executable, "-m", "pytest", *asked]
    done = subprocess.run(
        command, cwd=config.invocation_params.dir, capture_output=True, text=True, env=environ, pass_fds=kept
    )
    if reporter is not None:
        reporter.write_line(f"\n{name}: {said(done.returncode, done.stdout)}")
        if done.returncode:
            reporter.write_line(f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.returncode


def said(code: int, output: str) -> str:
    """What a process's output comes down to: its cases, its record and, where it is not 0, its exit code."""
    cases = re.search(r"^\d+ cases: .*$", output, re.MULTILINE)
    record = re.search(r"^record: .*$", output, re.MULTILINE)
    parts = [found[0] for found in (cases, record) if found]
    return "; ".join([*parts, *([f"exit code {code}"] if code else [])]) or "nothing was measured"
