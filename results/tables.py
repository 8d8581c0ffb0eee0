"""From a stored record to the table of times that `auto` chooses by."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernels.auto import NEVER, Rule
from kernels.inputs import FAMILIES
from kernels.timetable import AutoError, Source, Table
from results.schema import Record, Speed
from results.store import ResultsError, replace_file


def choose_record(records: Sequence[Record], run_id: str | None = None) -> Record | None:
    """The newest complete record of a GPU that has a speed case, or that of a run; None where there is none.

    Args:
        records: oldest first.
        run_id: the run that is meant, or None.

    Raises:
        ResultsError: there is no such run, or it is not complete, or a host's.
    """
    if run_id is None:
        fit = (one for one in reversed(records) if one.status == "complete" and one.environment.gpu)
        return next((one for one in fit if any(isinstance(case, Speed) for case in one.cases)), None)
    found = next((one for one in records if one.run_id == run_id), None)
    if found is None:
        raise ResultsError(f"--run is {run_id!r}, which is not stored; name a record of the history, without .json")
    if found.status != "complete":
        raise ResultsError(f"--run is {run_id!r}, which is partial: it was stopped; name a complete one")
    if not found.environment.gpu:
        raise ResultsError(f"--run is {run_id!r}, which is of a host; name one of a GPU")
    return found


def table_of(record: Record) -> Table:
    """The table of a complete record of a GPU: its green times of the default family of inputs.

    Raises:
        ResultsError: a case is red, there is no such time, or the card or its shape is not known.
    """
    mend = "measure again or name another record with --run"
    if red := [case for case in record.cases if case.outcome == "red"]:
        first, count = red[0], f"{len(red)} red case{'' if len(red) == 1 else 's'}"
        what = f"{type(first).__name__.lower()} of {first.recurrence} at {first.tokens:,} tokens: {first.reason}"
        raise ResultsError(f"{record.run_id} has {count}, first {what}; {mend}")
    family = next(iter(FAMILIES))
    cases = [
        case
        for case in record.cases
        if isinstance(case, Speed)
        and (case.outcome, case.inputs) == ("green", family)
        and case.median_ns is not None
        and case.recurrence not in NEVER
    ]
    if not cases:
        raise ResultsError(f"{record.run_id} has no green time of {family} inputs; {mend}")
    shapes = list(dict.fromkeys((case.shape, case.head_map) for case in cases))
    if len(shapes) > 1:
        raise ResultsError(f"{record.run_id} has times of the shapes {shapes}; a table is of one; {mend}")
    median_ns: dict[str, dict[int, float]] = {}
    for case in cases:
        assert case.median_ns is not None
        median_ns.setdefault(case.recurrence, {})[case.tokens] = case.median_ns
    e = record.environment
    try:
        (shape, head_map), capability = shapes[0], _capability(e.compute_capability)
        key_heads, value_heads = _head_counts(shape)
        return Table(
            gpu=e.gpu or "",
            sms=e.sms or 0,
            compute_capability=capability,
            key_heads=key_heads,
            value_heads=value_heads,
            head_map=head_map,
            source=Source(
                commit=e.commit or "unknown",
                date=f"{datetime.fromisoformat(record.started).astimezone(UTC):%Y-%m-%d}",
                record=record.run_id,
                command=shlex.join(record.command) or "unknown",
                dirty=bool(e.dirty),
            ),
            median_ns=median_ns,
        )
    except AutoError as error:
        raise ResultsError(f"{record.run_id}: {error}; {mend}") from error


def _capability(text: str | None) -> int:
    """90 from "9.0"; the minor version has one digit."""
    if not re.fullmatch(r"\d+\.\d", text or ""):
        raise AutoError(f"compute_capability is {text!r}; it must be such as '9.0'")
    return int((text or "").replace(".", ""))


def _head_counts(text: str) -> tuple[int, int]:
    """(16, 48) from "16x48x128"."""
    found = re.fullmatch(r"(\d+)x(\d+)x\d+", text)
    if not found:
        raise AutoError(f"shape is {text!r}; it must be such as '16x48x128'")
    return int(found[1]), int(found[2])


def crossovers(table: Table) -> list[str]:
    """A line for each token count from which on another recurrence is the fastest, all of the table running."""
    most = max(max(times) for times in table.median_ns.values())
    return [
        f"from {max(tokens, 1):>6,} tokens  {name}{'' if tokens <= most else '  (beyond what was measured)'}"
        for tokens, name in Rule(tuple(table.median_ns), table, "").steps()
    ]


def write(table: Table, out: Path) -> Path:
    """Write a table, whole or not at all; one that was there is replaced.

    Raises:
        ResultsError: it cannot be done.
    """
    return replace_file(table.to_json(), out, "table", "name another file with --out")
