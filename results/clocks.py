"""Whether a card held its clocks back during a run."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from results.schema import Case, Group, Look, Record, Speed, Times
from suite.quality import throttling
from suite.sampling import CLOCK_EVENT


def held_back(record: Record) -> str:
    """Why the card held its clocks back before, in or after the run; empty where it did not.

    As in the judging of a group, the power's cap does not count where each recurrence kept to one SM clock: it is the
    usual clock of a heavy kernel then, and is still named right after one.
    """
    e = record.environment
    steady = [_steady(record.cases, group) for group in record.groups]
    told = [throttling(Look(clocks=e.before), Look(clocks=e.after), bool(steady) and all(steady))]
    told += [throttling(group.before, group.after, own) for group, own in zip(record.groups, steady, strict=True)]
    return ", ".join(dict.fromkeys(filter(None, told)))


def _steady(cases: Iterable[Case], group: Group) -> bool:
    """Whether all samples of the group have an SM clock and none was dropped for another one."""
    place = attrgetter("tokens", "shape", "head_map", "inputs")
    own = [case for case in cases if isinstance(case, Speed) and place(case) == place(group)]
    times: list[Times | Speed] = [one for case in own for one in (case, case.cold) if one is not None]
    away = any(CLOCK_EVENT in sample.reason for one in times for sample in one.dropped)
    return bool(times) and not away and all(len(one.samples_mhz) == len(one.samples_ns) for one in times)
