"""How good the measurement was, and what beside the hot times was measured: tables and sentences of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reports import figures, words
from reports.tables import Cell, Table
from results.night import aa, nights, spreads
from results.schema import Canary, Group, Record, Speed
from suite.quality import throttling


@dataclass
class Measuring:
    """The page's section on the measuring of one GPU.

    Attributes:
        sentences: on the machine, the limits and the night.
        quality: a row for each alternation.
        beside: cold times, host times and shares of the limit, by recurrence.
        run_id: the run that all but the night is of.
    """

    run_id: str
    sentences: list[str] = field(default_factory=list)
    quality: Table | None = None
    beside: list[Table] = field(default_factory=list)


def measuring(records: Sequence[Record]) -> Measuring | None:
    """The section from the newest run that kept its alternations; None where there is none.

    Args:
        records: of one GPU, oldest first.
    """
    newest = next((one for one in reversed(records) if one.groups), None)
    if newest is None:
        return None
    speed = [case for case in newest.cases if isinstance(case, Speed) and case.median_ns is not None]
    beside = [_cold(speed), _host(speed), _limits(speed)]
    return Measuring(
        newest.run_id,
        [*_machine(newest), *_night(records, newest)],
        _quality(newest.groups, speed),
        [one for one in beside if one is not None],
    )


def _machine(record: Record) -> list[str]:
    said = []
    for name, unit in (("fma", "FLOP/s"), ("copy", "B/s")):
        if told := _canary(record.canaries, name, unit):
            said.append(told)
    if (found := record.ceilings) is not None:
        rates = [
            f"{words.rate(rate)}{unit} {what}"
            for rate, unit, what in (
                (found.fma_flops, "FLOP/s", "FP32, measured"),
                (found.tensor_flops, "FLOP/s", "FP16 on tensor cores, from the datasheet"),
                (found.copy_bytes_per_s, "B/s", "copied, read and written, measured"),
            )
            if rate
        ]
        said.append(f"The limits rest on {words.listed(rates)}.")
    wall, device = (sum(getattr(one, key) for one in record.groups) for key in ("wall_s", "device_s"))
    if wall:
        said.append(f"Of {wall:.1f} s of warm-up and samples, the timed calls ran for {device / wall:.0%}.")
    if (cost := record.cost) is not None and cost.wall_s:
        told = (
            f"The run took {cost.wall_s:.1f} s up to its record; the device worked {cost.share:.0%} of them: "
            f"{cost.timed_s:.1f} s for samples and {cost.checks_s:.1f} s for checks"
        )
        said.append(told + ("." if cost.nvml_share is None else f"; NVML saw a kernel run for {cost.nvml_share:.0%}."))
    return said


def _canary(canaries: Sequence[Canary], name: str, unit: str) -> str:
    """The canary's rate before and after."""
    by_when = {one.when: one for one in canaries if one.name == name and one.times.median_ns}
    rates = {when: one.work / (one.times.median_ns or 1) * 1e9 for when, one in by_when.items()}
    if "before" not in rates:
        return ""
    told = f"The canary {name} ran at {words.rate(rates['before'])}{unit} before the times"
    if "after" in rates:
        told += f" and at {words.rate(rates['after'])}{unit} after them ({rates['after'] / rates['before'] - 1:+.1%})"
    return f"{told}."


def _night(records: Sequence[Record], newest: Record) -> list[str]:
    """The fresh processes of the newest run's night."""
    own = nights(records).get(newest.night or "", [])
    if len(own) < 2:
        return []
    ratios = [value - 1 for one in aa(own) for value in one.values]
    widest = max(spreads(own), key=lambda one: one.width, default=None)
    said = f"Its night had {len(own)} fresh processes"
    if ratios:
        said += f"; A/A over all of them: {min(ratios):+.2%} to {max(ratios):+.2%}"
    if widest is not None:
        said += (
            f"; the medians differed most for {widest.name} at {words.tokens([widest.tokens])}, by {widest.width:.2%}"
        )
    return [f"{said}."]


def _quality(groups: Sequence[Group], speed: Sequence[Speed]) -> Table:
    rows = []
    for group in sorted(groups, key=lambda one: one.tokens):
        own = [case for case in speed if case.tokens == group.tokens]
        dropped = [one for case in own for one in case.dropped]
        kept = sum(len(case.samples_ns) for case in own)
        effects = [case.order_effect for case in own if case.order_effect is not None]
        power = group.after.clocks.power_w
        held = throttling(group.before, group.after)
        stops = dict.fromkeys(case.stop for case in own if case.stop)
        rows.append(
            [
                Cell(f"{group.tokens:,}"),
                Cell(
                    words.ABSENT if group.aa_ratio is None else f"{group.aa_ratio - 1:+.2%}",
                    "" if group.aa_low is None or group.aa_high is None else _ends(group.aa_low, group.aa_high),
                    hint=f"{group.twin_of} under two names",
                ),
                Cell(f"{max(effects, key=abs):+.2%}" if effects else words.ABSENT),
                Cell(words.ABSENT if group.sm_mhz is None else f"{group.sm_mhz:,.0f} MHz"),
                Cell(words.ABSENT if group.clock_spread is None else f"{group.clock_spread:.2%}"),
                Cell(words.ABSENT if power is None else f"{power:,.0f} W", held),
                Cell(f"{kept:,}", words.listed(stops)),
                Cell(f"{len(dropped)}", hint="; ".join(dict.fromkeys(one.reason for one in dropped[:5]))),
                Cell(f"{group.device_s / group.wall_s:.0%}" if group.wall_s else words.ABSENT),
                Cell(
                    "; ".join(group.reasons) or "within its bounds",
                    outcome="inconclusive" if group.reasons else "green",
                ),
            ]
        )
    heads = [
        *("tokens", "A/A", "order effect", "SM clock", "clock spread", "power"),
        *("samples", "dropped", "calls' share", "quality"),
    ]
    caption = "Quality of the measurement, an alternation a row; below the samples, what ended the sampling"
    return Table(caption, heads, rows)


def _ends(low: float, high: float) -> str:
    return f"{low - 1:+.2%} to {high - 1:+.2%}"


def _by_place(speed: Sequence[Speed], caption: str, cell: dict[tuple[int, str], Cell]) -> Table | None:
    """A table of tokens by recurrence; None where it would be empty."""
    if not cell:
        return None
    names = figures.ordered(name for _, name in cell)
    rows = [
        [Cell(f"{tokens:,}"), *(cell.get((tokens, name), Cell(words.ABSENT)) for name in names)]
        for tokens in sorted({tokens for tokens, _ in cell})
    ]
    return Table(caption, ["tokens", *names], rows)


def _cold(speed: Sequence[Speed]) -> Table | None:
    cell = {
        (case.tokens, case.recurrence): Cell(
            words.duration(case.cold.median_ns / 1e3),
            f"hot {words.duration((case.median_ns or 0) / 1e3)}",
            f"{len(case.cold.samples_ns)} samples of one call",
            case.outcome,
        )
        for case in speed
        if case.cold is not None and case.cold.median_ns is not None
    }
    return _by_place(speed, "With a cold L2 cache: median time of a call, below it the hot one", cell)


def _host(speed: Sequence[Speed]) -> Table | None:
    cell = {}
    for case in speed:
        if (host := case.host) is None or host.replay_ns is None:
            continue
        cell[case.tokens, case.recurrence] = Cell(
            words.duration(host.call_ns / 1e3),
            f"graph {words.duration(host.replay_ns / 1e3)}",
            host.said,
            "inconclusive" if host.said else "green",
        )
    return _by_place(speed, "Host time of a call, enqueueing alone, below it the replay of its graph", cell)


def _limits(speed: Sequence[Speed]) -> Table | None:
    cell = {
        (case.tokens, case.recurrence): Cell(
            f"{case.limit_ns / case.median_ns:.0%}",
            f"{words.rate(case.flop / case.median_ns * 1e9)}FLOP/s, {words.rate(case.bytes / case.median_ns * 1e9)}B/s",
            f"limit {words.duration(case.limit_ns / 1e3)}, hot",
        )
        for case in speed
        if case.limit_ns and case.median_ns and case.flop and case.bytes
    }
    return _by_place(speed, "Per cent of the physical limit, hot, below it the rates", cell)
