"""What cannot be right in a record that can be read: a time of 0, a case twice, a green case without its figure,
another card's data. No verdict is built on such a record; it is named with the mend."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from results.schema import Accuracy, Case, Record, Speed, Times
from results.store import gpu_key

MEND = "restore the record, or remove it in a commit that says why"
IMPORTED = "pytest-benchmark-"
"""Methods of imported records begin so: the card was named by whoever imported them."""


def faults(record: Record) -> list[str]:
    """What cannot be right, each with the name of the field, its value and what is wanted; none in a good record."""
    return [*_card(record), *_twice(record), *(said for case in record.cases for said in _case(case)), *_beside(record)]


def _card(record: Record) -> Iterator[str]:
    """A record of one card in the history of another one."""
    own = gpu_key(record.environment)
    if record.gpu_key != own and not record.method.id.startswith(IMPORTED):
        yield f"gpu_key is {record.gpu_key!r}, and its environment is that of {own!r}: data of another card"


def _twice(record: Record) -> Iterator[str]:
    counts = Counter((_said(case), case.shape, case.head_map, case.inputs) for case in record.cases)
    for (said, *_), count in counts.items():
        if count > 1:
            yield f"{said} is there {count} times; once is wanted"


def _said(case: Case) -> str:
    against = f" against {case.against}" if isinstance(case, Accuracy) else ""
    return f"the {type(case).__name__.lower()} of {case.recurrence}{against} at {case.tokens:,} tokens"


def _case(case: Case) -> Iterator[str]:
    green = case.outcome == "green"
    if isinstance(case, Speed):
        yield from _times(case, f"of {_said(case)}", green)
        if case.cold is not None:
            yield from _times(case.cold, f"of {_said(case)} with a cold cache", False)
    elif isinstance(case, Accuracy):
        for name in ("error_out", "error_state") if green else ():
            value = getattr(case, name)
            if value is None or not 0 <= value <= case.limit:
                yield f"{name} of {_said(case)} is {_number(value)}; a green one is a number up to {case.limit:g}"
    elif green and (case.differing or not case.reruns or not (case.sha256_out and case.sha256_state)):
        told = "" if case.sha256_out and case.sha256_state else ", and a fingerprint is missing"
        yield f"{_said(case)} is green, and {case.differing} of {case.reruns} reruns differ{told}"


def _times(times: Times | Speed, where: str, wanted: bool) -> Iterator[str]:
    """A time must be above 0; one that is `wanted` must be there."""
    if wanted and times.median_ns is None:
        yield f"median_ns {where} is missing; a green one has a time"
    for name in ("median_ns", "low_ns", "high_ns"):
        value = getattr(times, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            yield f"{name} {where} is {value:g}; a time must be above 0"
    if bad := [value for value in times.samples_ns if not (math.isfinite(value) and value > 0)]:
        yield f"a sample {where} is {bad[0]:g} ns; a time must be above 0"


def _beside(record: Record) -> Iterator[str]:
    for one in record.canaries:
        yield from _times(one.times, f"of the canary {one.name} {one.when} the times", False)
    for group in record.groups:
        if group.aa_ratio is not None and not (math.isfinite(group.aa_ratio) and group.aa_ratio > 0):
            yield f"aa_ratio at {group.tokens:,} tokens is {group.aa_ratio:g}; a ratio must be above 0"


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"
