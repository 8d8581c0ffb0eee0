"""What two runs know of the machine code of a recurrence, so that the cause of another time can be told."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from results.schema import Build, Record

LENGTH = 16
"""Hexadecimal digits of a fingerprint that the index keeps: 64 bits."""

HOST_ONLY = ("numpy", "python")
"""What makes no difference to a kernel's time, and all to that of a recurrence of the host."""

Kernels = Mapping[str, tuple[tuple[str, ...], str, str]]
"""(its recurrences, fingerprint of the source, of the machine code) of each kernel by its name."""


def packed(record: Record) -> str | None:
    """The builds of a record as one short text; None where it has none."""
    found = {
        _name(one): (one.recurrences, one.source_sha256[:LENGTH], one.code_sha256[:LENGTH]) for one in record.builds
    }
    return json.dumps(found, sort_keys=True, separators=(",", ":")) if found else None


def _name(one: Build) -> str:
    """Such as "gdn_tensor_scan (sm_90a, 16x48x128 tiled)"; with another shape it is another kernel."""
    return f"{one.kernel} ({one.arch}, {one.shape} {one.head_map})"


@functools.lru_cache(maxsize=256)
def _unpacked(text: str) -> Kernels:
    return {name: (tuple(users), source, code) for name, (users, source, code) in json.loads(text).items()}


def kernels(run: Mapping[str, Any]) -> Kernels:
    """The kernels of a run's row; none where its record is older than fingerprints."""
    text = run.get("builds")
    return _unpacked(text) if isinstance(text, str) else {}


def facts(
    before: Mapping[str, Any], after: Mapping[str, Any], recurrence: str
) -> tuple[dict[str, object], dict[str, object]]:
    """What `results.judging_cause.between` must know of two runs for the time of a recurrence.

    A run compiles what it launches, so that only the kernels that both have can be compared; with none of these,
    source and machine code are not known.

    Args:
        before, after: rows of `results.series.Series.runs`.
        recurrence: its name, or that of a canary.
    """
    rows: list[dict[str, object]] = [
        {key: value if isinstance(value, str) else None for key, value in run.items()} for run in (before, after)
    ]
    for row in rows:
        if row.get("gpu") is None:
            row["source"] = row.get("launcher")
        else:
            row |= dict.fromkeys(HOST_ONLY)
    old, new = ({n: one for n, one in kernels(run).items() if _runs(one[0], n, recurrence)} for run in (before, after))
    shared = sorted(old.keys() & new.keys())
    if shared:
        for row, own in zip(rows, (old, new), strict=True):
            row["source"] = _told(own, shared, 1, old, new)
            row["machine_code"] = _told(own, shared, 2, old, new)
    return rows[0], rows[1]


def _runs(users: tuple[str, ...], kernel: str, recurrence: str) -> bool:
    return recurrence in users or (not users and kernel.startswith(f"gdn_canary_{recurrence} "))


def _told(own: Kernels, shared: list[str], which: int, old: Kernels, new: Kernels) -> str:
    """The fingerprints of those kernels that differ, or "the same" for both runs."""
    differ = [name for name in shared if old[name][which] != new[name][which]]
    return ", ".join(f"{name} {own[name][which]}" for name in differ) or "the same"


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(kernel, fingerprint before, after) of the kernels whose machine code differs, of those that both runs have.

    Where only one of them has any at all, that is told of the machine code as a whole.
    """
    old, new = kernels(before), kernels(after)
    if bool(old) != bool(new):
        count = [f"of {len(one)} kernels" if one else "unknown" for one in (old, new)]
        return [("machine code", count[0], count[1])]
    return [
        (f"machine code of {name}", old[name][2], new[name][2])
        for name in sorted(old.keys() & new.keys())
        if old[name][2] != new[name][2]
    ]
