"""The figures of docs/measuring.md are those of results/evidence/measuring, and keep the bounds that it names."""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
import pytest

from reports.profile import Profile, Row
from results.night import aa, nights
from results.schema import Record
from results.store import load
from tests import planted

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "results/evidence/measuring"
PAGE = (ROOT / "docs/measuring.md").read_text()


def rows(head: str) -> list[list[str]]:
    """The cells of the page's table with this head."""
    (table,) = re.findall(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in table.splitlines()]


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    loaded = load(EVIDENCE)
    assert not loaded.problems
    return {one.run_id: one for one in loaded.records}


def night(records: dict[str, Record], before: str) -> list[Record]:
    """The night that the page names behind these words."""
    (name,) = re.findall(rf"{before} (night-\w+-\w+)", PAGE)
    return nights(records.values())[name]


def test_all_is_of_the_card_and_the_commits_that_the_page_names(records: dict[str, Record]) -> None:
    for one in records.values():
        assert (one.environment.gpu, one.environment.driver) == ("NVIDIA H200", "580.159.04")
        assert (one.environment.commit or "")[:7] in ("ffeb9bc", "4f88e58", "9ee9cc7")
        assert one.environment.dirty is False
        assert one.started[:10] == "2026-11-30"


def profiles(commit: str, recurrence: str) -> list[Profile]:
    """The kept profiles of a commit whose first row is of the recurrence, all of this commit as it is."""
    kept = [msgspec.json.decode(file.read_bytes(), type=Profile) for file in sorted(EVIDENCE.glob("profiles/*/*.json"))]
    found = [one for one in kept if (one.commit or "").startswith(commit) and one.rows[0].recurrence == recurrence]
    assert not any(one.dirty for one in found)
    return found


@functools.cache
def bench() -> dict[tuple[str, int], float]:
    """Nanoseconds of a call in cuda-bench's graphs."""
    with (EVIDENCE / "cuda-bench.csv").open() as lines:
        every = [one for one in csv.DictReader(lines) if one["calls"] != "0"]
    return {
        (one["recurrence"], int(one["tokens"])): float(one["Batch GPU (sec)"]) * 1e9 / int(one["calls"])
        for one in every
    }


TIMERS: dict[str, Callable[[Row], float]] = {
    "ncu, kernels": lambda row: row.ncu_kernels_ns,
    "ncu, kernels less empty ones": lambda row: row.ncu_kernels_ns - row.ncu_empty_ns,
    "ncu, graph": lambda row: row.ncu_graph_ns,
    "CUPTI, graph": lambda row: row.cupti_ns or math.nan,
    "cuda-bench, graph": lambda row: bench()[row.recurrence, row.tokens],
    "ours": lambda row: row.ours_ns,
}


def test_the_other_timers() -> None:
    own = profiles("bebdcae", "sequential")
    assert len(own) == 5
    others = "ncu, kernels | less empty ones | ncu, graph | CUPTI, graph | cuda-bench, graph"
    found = rows(f"| tokens | recurrence | {others} | ours |")
    places = list(zip(*(one.rows for one in own), strict=True))
    assert len(found) == len(places) == 6
    for (tokens, name, *cells), place in zip(found, places, strict=True):
        assert {(name, int(tokens.replace(",", "")))} == {(row.recurrence, row.tokens) for row in place}
        assert cells == [f"{median(map(timer, place)) / 1e3:,.2f}" for timer in TIMERS.values()]


def test_the_other_timers_are_within_the_bounds() -> None:
    every = [row for one in profiles("bebdcae", "sequential") for row in one.rows]
    assert all(row.agrees for row in every)
    long = [abs(row.ours_ns / timer(row) - 1) for row in every if row.tokens >= 512 for timer in TIMERS.values()]
    assert max(long) <= 0.02
    assert f"no time of any profile is more than {max(long):.1%}".replace("%", " %") in PAGE
    apart = {name: ends for name, *ends in rows("| | least | greatest |")}
    for name, timer in TIMERS.items():
        if name != "ours":
            short = [(timer(row) - row.ours_ns) / 1e3 for row in every if row.tokens == 32]
            assert apart[name] == [f"{min(short):+.2f}", f"{max(short):+.2f}"]
    for name in ("ncu, kernels less empty ones", "CUPTI, graph", "cuda-bench, graph"):
        assert all(abs(float(end)) <= 1 for end in apart[name])


def test_the_timers_of_the_others() -> None:
    (own,) = profiles("b20cf0d", "sequential-tuned")
    found = rows("| tokens | recurrence | ncu, graph | CUPTI, graph | ours | ours against CUPTI |")
    assert len(found) == len(own.rows)
    for (tokens, name, *cells), row in zip(found, own.rows, strict=True):
        assert (name, int(tokens.replace(",", ""))) == (row.recurrence, row.tokens)
        assert row.cupti_ns is not None
        times = [f"{ns / 1e3:,.2f}" for ns in (row.ncu_graph_ns, row.cupti_ns, row.ours_ns)]
        assert cells == [*times, f"{row.ours_ns / row.cupti_ns - 1:+.1%}"]
        assert row.agrees


def test_a_a(records: dict[str, Record]) -> None:
    found = {one.tokens: one.values for one in aa(night(records, "fresh processes of"))}
    assert all(len(values) == 21 for values in found.values())
    shown = {int(tokens.replace(",", "")): ends for tokens, *ends in rows("| tokens | least | greatest |")}
    assert shown == {tokens: [f"{min(values) - 1:+.2%}", f"{max(values) - 1:+.2%}"] for tokens, values in found.items()}
    for tokens, values in found.items():
        assert all(abs(value - 1) <= (0.005 if tokens >= 512 else 0.015) for value in values)


def test_what_was_planted(records: dict[str, Record]) -> None:
    (said,) = re.findall(r"^> (.*)$", PAGE, re.MULTILINE)
    assert said == planted.count(night(records, "fresh processes of"))


def test_the_devices_share() -> None:
    ((run_id, wall, share, nvml),) = re.findall(
        r"record `([\w-]+)` of the history, .*?`pytest --benchmark-only`.*?: ([\d.]+) s up to its record, "
        r"of which the device worked "
        r"(\d+) %; NVML saw a kernel run for (\d+) %",
        PAGE,
    )
    cost = {one.run_id: one for one in load(ROOT / "results").records}[run_id].cost
    assert cost is not None
    assert cost.nvml_share is not None
    assert (wall, share, nvml) == (f"{cost.wall_s:.1f}", f"{100 * cost.share:.0f}", f"{100 * cost.nvml_share:.0f}")
    assert min(cost.share, cost.nvml_share) >= 0.6
    ((wall, share, nvml),) = re.findall(r"With the report, ([\d.]+) s: (\d+) % and (\d+) %", PAGE)
    last = (EVIDENCE / "last-lines.txt").read_text()
    assert f"\n{wall} s, of which the device worked {share}%; a kernel ran for {nvml}%, says NVML\n" in last
    ((wall, nvml),) = re.findall(r"a run took ([\d.]+) s, and NVML saw a kernel run for (\d+) %", PAGE)
    before = (EVIDENCE / "wall-time-before.txt").read_text()
    ((wall_before, mean),) = re.findall(r"wall since plugin ([\d.]+) s(?:.*\n)*nvml samples \d+ mean ([\d.]+)", before)
    assert (wall, nvml) == (f"{float(wall_before):.1f}", f"{float(mean):.0f}")


def test_a_recurrence_more(records: dict[str, Record]) -> None:
    """Every recurrence adds to a whole run about what the device works for it."""
    runs = [one for one in records.values() if (one.environment.commit or "").startswith("4f88e58")]
    runs.sort(key=lambda one: one.run_id)
    found = rows("| recurrences | of a run, s | the device worked, s |")
    assert len(found) == len(runs) == 4
    for (count, wall, worked), run in zip(found, runs, strict=True):
        assert int(count) == len({case.recurrence for case in run.cases})
        assert run.cost is not None
        assert (wall, worked) == (f"{run.cost.wall_s:.1f}", f"{run.cost.timed_s + run.cost.checks_s:.1f}")
