"""`auto`: the recurrence that was measured to be the fastest at a token count, as a pure function with a reason.

The times are those of a table, one for a card and a shape, which `gdn-bench table` makes from a run's record. A card
or a shape without a table gets a stated default.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernels.dispatch import CHUNKED_MIN_TOKENS, Choice, DeviceFacts
from kernels.problem import Problem, Shape
from kernels.registry import recurrences
from kernels.timetable import TOKENS_END, AutoError, Table, heads, token_count

DEFAULT_MIN_TOKENS = 48
"""Without a table: tokens from which `tensor` is taken. Fewer do not fill its chunks."""

NEVER = ("auto", "dispatched", "tensor-sm80")
"""Recurrences that are no choice: two choose one themselves, and the third is what `tensor` runs where it has to."""


def available(problem: Problem) -> tuple[str, ...]:
    """The CUDA recurrences that `auto` may take for this problem's shape on the current device, as registered."""
    return tuple(
        one.name
        for one in recurrences("cuda")
        if one.name not in NEVER and not one.minor and one.unsupported(problem) is None
    )


def interpolated(times: Mapping[int, float], tokens: int) -> float:
    """The time at a token count, from the times at ascending ones, in their unit.

    Linear in tokens between two measured counts. Below the least, its time: a launch costs what it costs. Above
    the greatest, the slope of the last two goes on, at least 0; of a single count, the time per token does.
    """
    if tokens in times:
        return times[tokens]
    counts = list(times)
    least = counts[0]
    if tokens < least:
        return times[least]
    if len(counts) == 1:
        return times[least] / least * tokens
    place = min(bisect_right(counts, tokens), len(counts) - 1)
    left, right = counts[place - 1], counts[place]
    slope = (times[right] - times[left]) / (right - left)
    if tokens > right:
        return times[right] + max(slope, 0.0) * (tokens - right)
    return times[left] + slope * (tokens - left)


@dataclass(frozen=True)
class Rule:
    """How `auto` chooses on one card, for one shape; made by `rule`.

    Attributes:
        names: what may be chosen; at equal times, the first.
        table: the times, of at least one of `names`; None where the default holds.
        basis: what the choice rests on, in words.
    """

    names: tuple[str, ...]
    table: Table | None
    basis: str

    def recurrence(self, tokens: int) -> str:
        """The recurrence at T = `tokens`, at least 0. Fast after the first call, which costs milliseconds."""
        starts, names = self._steps
        return names[bisect_right(starts, tokens) - 1]

    def choose(self, tokens: int) -> Choice:
        """The recurrence at T = `tokens`, at least 0, with the reason in short: without the basis."""
        return self._default(tokens) if self.table is None else self._fastest(self.table, tokens)

    @functools.cached_property
    def _steps(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token counts from which on another recurrence is chosen, the first 0, and which."""
        if self.table is None:
            knots = {DEFAULT_MIN_TOKENS, CHUNKED_MIN_TOKENS}
        else:
            knots = {tokens for times in self.table.median_ns.values() for tokens in times}
        ordered = sorted({0, *knots, TOKENS_END})
        steps = [(0, self.choose(0).recurrence)]
        for low, high in pairwise(ordered):
            self._between(low, high, steps)
        starts, names = zip(*steps, strict=True)
        return starts, names

    def _between(self, low: int, high: int, steps: list[tuple[int, str]]) -> None:
        """Append the steps in (low, high]. All times are linear there: what is fastest at both ends is so between."""
        first, last = (self.choose(tokens).recurrence for tokens in (low, high))
        if first == last:
            return
        if high - low == 1:
            steps.append((high, last))
            return
        self._between(low, (low + high) // 2, steps)
        self._between((low + high) // 2, high, steps)

    def steps(self) -> list[tuple[int, str]]:
        """(token count, recurrence) at each count from which on another one is chosen, from 0 tokens on."""
        return list(zip(*self._steps, strict=True))

    def _fastest(self, table: Table, tokens: int) -> Choice:
        measured = [name for name in self.names if name in table.median_ns]
        times = {name: interpolated(table.median_ns[name], tokens) for name in measured}
        best, *others = sorted(measured, key=times.__getitem__)
        shown = [best, *others[:1]]
        about = "" if all(tokens in table.median_ns[name] for name in shown) else "about "
        reason = f"{best} takes {about}{_us(times[best])} us at {token_count(tokens)} on {table.gpu}"
        rest = f", {others[0]} {_us(times[others[0]])}" if others else ", and no other one of the table runs here"
        return Choice(best, reason + rest)

    def _default(self, tokens: int) -> Choice:
        for name, least in (("tensor", DEFAULT_MIN_TOKENS), ("chunked", CHUNKED_MIN_TOKENS)):
            if name in self.names and tokens >= least:
                return Choice(name, f"{token_count(tokens)}, the default is {name} from {least} on")
        name = next((one for one in ("sequential-tuned", "sequential") if one in self.names), self.names[0])
        return Choice(name, f"{token_count(tokens)}, the default is {name} where nothing chunked pays or runs")


def rule(tables: Iterable[Table], device: DeviceFacts, shape: Shape, available: Sequence[str]) -> Rule:
    """How `auto` chooses on this card for this shape.

    Args:
        tables: those there are.
        device: facts of the card.
        shape: head counts and head map.
        available: the recurrences that run here.

    Raises:
        AutoError: nothing is available.
    """
    names = tuple(one for one in dict.fromkeys(available) if one not in NEVER)
    if not names:
        raise AutoError(
            f"available is {list(available)!r}; auto needs one recurrence that runs here, such as sequential"
        )
    own = [table for table in tables if table.is_of(device)]
    table = next((one for one in own if one.shape == shape), None)
    options = "" if shape == Shape() else f" --gdn-shape {shape.key_heads}x{shape.value_heads}"
    options += "" if shape.head_map == Shape().head_map else f" --gdn-head-map {shape.head_map}"
    make = f"pytest --benchmark-only{options}, then gdn-bench table, makes one"
    if table is None:
        card = f"{device.name} with {device.sms} SMs and compute capability {device.compute_capability / 10}"
        others = f", only of {', '.join(heads(one.shape) for one in own)}" if own else ""
        return Rule(names, None, f"no table of {heads(shape)} for {card}{others}; {make}")
    source, lacking = table.source, [name for name in names if name not in table.median_ns]
    said = f"table of {source.date}, commit {source.commit[:7]}{' with changes' if source.dirty else ''}"
    if len(lacking) == len(names):
        return Rule(names, None, f"{said}, has none of {', '.join(names)}; {make}")
    return Rule(names, table, said + (f"; it lacks {', '.join(lacking)}" if lacking else ""))


def pick(tables: Iterable[Table], device: DeviceFacts, shape: Shape, tokens: int, available: Sequence[str]) -> Choice:
    """The fastest of the available recurrences at T = `tokens`, at least 0, and the reason; see `rule`.

    Raises:
        AutoError: nothing is available.
    """
    found = rule(tables, device, shape, available)
    choice = found.choose(tokens)
    return Choice(choice.recurrence, f"{choice.reason} ({found.basis})")


def _us(ns: float) -> str:
    return f"{ns / 1000:,.{1 if ns < 99_950 else 0}f}"
