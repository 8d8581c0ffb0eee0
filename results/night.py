"""What the fresh processes of one night say together: the run, not the sample, is the unit of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from results.schema import Group, Record, Speed

CHANGE = 0.01
"""Relative difference of two processes' medians from which on a time counts as changed. A/A over fresh processes
stays within half of it."""


@dataclass(frozen=True)
class Spread:
    """One figure over the processes of a night.

    Attributes:
        name: the recurrence, or whose A/A it is.
        tokens: T.
        values: one of each process, in order; seconds are nanoseconds, A/A is a ratio.
    """

    name: str
    tokens: int
    values: tuple[float, ...]

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def width(self) -> float:
        """The greatest over the least, less 1."""
        return max(self.values) / min(self.values) - 1


@dataclass(frozen=True)
class Change:
    """One recurrence's time in two processes.

    Attributes:
        seconds: the later time over the earlier one.
        cycles: the same in cycles of the SM clock; None where a clock is not known.
        verdict: "same", "slower", "faster", or "clock event": changed in seconds and not in cycles.
    """

    seconds: float
    cycles: float | None
    verdict: str


def nights(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The complete records of each night's timing processes, in the order of the processes."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.night is not None and record.process is not None and record.status == "complete":
            found.setdefault(record.night, []).append(record)
    for own in found.values():
        own.sort(key=lambda record: record.process or 0)
    return found


def speeds(record: Record, name: str, tokens: int) -> Speed | None:
    """The time of a recurrence in a record, or None where it has none."""
    fit = (
        case for case in record.cases if isinstance(case, Speed) and (case.recurrence, case.tokens) == (name, tokens)
    )
    return next((case for case in fit if case.median_ns is not None), None)


def spreads(records: Sequence[Record]) -> list[Spread]:
    """The median of each recurrence and token count, over the processes."""
    every = [case for record in records for case in record.cases if isinstance(case, Speed)]
    places = sorted({(case.tokens, case.recurrence) for case in every})
    found = []
    for tokens, name in places:
        cases = [speeds(record, name, tokens) for record in records]
        values = tuple(case.median_ns for case in cases if case is not None and case.median_ns is not None)
        if values:
            found.append(Spread(name, tokens, values))
    return found


def aa(records: Sequence[Record]) -> list[Spread]:
    """The A/A ratio at each token count, over the processes."""
    groups: dict[tuple[int, str], list[Group]] = {}
    for group in (group for record in records for group in record.groups):
        groups.setdefault((group.tokens, group.twin_of), []).append(group)
    found = []
    for (tokens, name), own in sorted(groups.items()):
        values = tuple(group.aa_ratio for group in own if group.aa_ratio is not None)
        if values:
            found.append(Spread(name, tokens, values))
    return found


def change(before: Speed, after: Speed, floor: float = CHANGE) -> Change:
    """Whether a time differs between two processes.

    Args:
        before, after: both with a median.
        floor: the least relative difference that counts.

    Raises:
        ValueError: one of them has no time.
    """
    if before.median_ns is None or after.median_ns is None:
        raise ValueError("both cases must have a time")
    seconds = after.median_ns / before.median_ns
    cycles = None
    if before.samples_mhz and after.samples_mhz:
        cycles = seconds * median(after.samples_mhz) / median(before.samples_mhz)
    if abs(seconds - 1) <= floor:
        verdict = "same"
    elif cycles is not None and abs(cycles - 1) <= floor:
        verdict = "clock event"
    else:
        verdict = "slower" if seconds > 1 else "faster"
    return Change(seconds, cycles, verdict)


def summary(records: Sequence[Record]) -> list[str]:
    """A night in lines: the A/A ratio and the medians over the processes, at each token count."""
    lines = [f"{len(records)} processes"]
    for one in aa(records):
        low, high = min(one.values) - 1, max(one.values) - 1
        lines.append(f"A/A of {one.name} at {one.tokens:,} tokens: {low:+.2%} to {high:+.2%}")
    for one in spreads(records):
        lines.append(
            f"{one.name} at {one.tokens:,} tokens: {one.middle / 1e3:,.2f} us, {one.width:.2%} from the least to the "
            "greatest"
        )
    return lines
