"""Nights made up for tests of the comparison: a small card with two recurrences, whose every figure is known."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from results.accepted import accept
from results.compare import Comparison, compare
from results.schema import Case, Record
from results.store import save
from tests.fabricate import METHOD, accuracy, canaries, determinism, environment, group, record, speed

FIRST = datetime(2026, 1, 1, 2, 17, tzinfo=UTC)
UUID = environment().gpu_uuid
TOKENS = (64, 128, 256, 2048)
ENOUGH = 12
"""Accepted nights, more than a band needs."""


def times(seed: int, factor: float = 1.0, noise: float = 0.004, **overrides: Any) -> tuple[Case, ...]:
    """Speed cases: sequential 0.5 us a token, chunked the same at 128 tokens and growing with the root."""
    rng = np.random.default_rng(seed)
    found = []
    for tokens in TOKENS:
        for name, us in (("sequential", 0.5 * tokens), ("chunked", 0.5 * np.sqrt(tokens * 128.0))):
            slower = factor if name == "chunked" else 1.0
            ns = float(us * 1e3 * slower * (1 + noise * rng.standard_normal()))
            found.append(speed(recurrence=name, tokens=tokens, median_ns=ns, **overrides))
    return tuple(found)


def checks(bits: str = "a", error: float = 3.2e-7) -> tuple[Case, ...]:
    return tuple(
        case
        for name in ("sequential", "chunked")
        for case in (
            accuracy(recurrence=name, error_out=error),
            determinism(recurrence=name, sha256_out=bits * 64),
        )
    )


def night(number: int, cases: tuple[Case, ...] | None = None, **overrides: Any) -> Record:
    """The run of a night, counted from 0."""
    started = FIRST + timedelta(days=number)
    values: dict[str, Any] = {
        "run_id": f"{started:%Y%m%dT%H%M%SZ}-{number:08x}",
        "started": started.isoformat(),
        "finished": (started + timedelta(minutes=4)).isoformat(),
        "method": METHOD,
        "environment": environment(commit=f"{number:040x}"),
        "cases": (*checks(), *times(number)) if cases is None else cases,
        "groups": tuple(group(tokens=tokens) for tokens in TOKENS),
        "canaries": canaries(),
    }
    return record(**values | overrides)


def nights(root: Path, number: int) -> None:
    """So many accepted nights, from 0 on; copied, as every acceptance looks at all that is there."""
    shutil.copytree(_made(number), root, dirs_exist_ok=True)


@functools.cache
def _made(number: int) -> str:
    folder = tempfile.mkdtemp(prefix="gdn-bench-nights-")
    atexit.register(shutil.rmtree, folder)
    for one in range(number):
        keep(Path(folder), night(one))
    return folder


def confirming(run: Record, factor: float, processes: int = 4) -> list[Record]:
    """The fresh processes that confirm a run, ten minutes apart, all of whose times of chunked are so much slower."""
    found = []
    for number in range(1, processes + 1):
        started = datetime.fromisoformat(run.started) + timedelta(minutes=10 * number)
        given = {"run_id": f"{run.run_id[:-2]}c{number}", "night": f"confirm-{run.run_id}", "process": number}
        made = night(0, times(100 + number, factor), environment=run.environment, **given)
        found.append(structs.replace(made, started=started.isoformat()))
    return found


def keep(root: Path, made: Record, accepted: bool = True, because: str = "") -> Record:
    save(made, root)
    if accepted:
        accept(root, made.run_id, because)
    return made


def judged(root: Path, *cases: Any, **overrides: Any) -> Comparison:
    """Tonight, the night after `ENOUGH` accepted ones."""
    nights(root, ENOUGH)
    keep(root, night(ENOUGH, cases=cases or None, **overrides), accepted=False)
    return compare(root)
