"""The figures of docs/measuring.md are those of results/evidence/measuring, and keep the bounds that it names."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import msgspec
import pytest

from reports.profile import Profile
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
        assert (one.environment.commit or "")[:7] in ("ffeb9bc", "3411f5c")
        assert one.environment.dirty is False
        assert one.started[:10] == "2026-11-30"


def test_the_other_timers() -> None:
    (file,) = EVIDENCE.glob("profiles/*/20261130T141816Z.json")
    kept = msgspec.json.decode(file.read_bytes(), type=Profile)
    assert kept.commit is not None
    assert kept.commit.startswith("ffeb9bc")
    cupti = dict(re.findall(r"^(\w+ \d+) kernels .* span/call ([\d.]+) us", (EVIDENCE / "cupti.txt").read_text(), re.M))
    with (EVIDENCE / "cuda-bench.csv").open() as lines:
        bench = {(one["recurrence"], one["tokens"]): float(one["Batch GPU (sec)"]) for one in csv.DictReader(lines)}
    found = rows("| tokens | recurrence | ncu, kernels | ncu, graph | cuda-bench | CUPTI, graph | ours |")
    assert len(found) == len(kept.rows) == 9
    for (tokens, name, *cells), row in zip(found, kept.rows, strict=True):
        number = tokens.replace(",", "")
        assert (name, int(number)) == (row.recurrence, row.tokens)
        batch = bench.get((name, number))
        span = float(cupti[f"{name} {number}"])
        assert cells == [
            *(f"{ns / 1e3:,.2f}" for ns in (row.ncu_kernels_ns, row.ncu_graph_ns)),
            "-" if batch is None else f"{batch * 1e6:,.2f}",
            f"{span:,.2f}",
            f"{row.ours_ns / 1e3:,.2f}",
        ]
        assert msgspec.structs.replace(row, cupti_ns=span * 1e3).agrees


def test_the_command_says_the_same() -> None:
    (file,) = EVIDENCE.glob("profiles/*/20261130T150801Z.json")
    kept = msgspec.json.decode(file.read_bytes(), type=Profile)
    assert (kept.commit or "").startswith("3411f5c")
    found = rows("| tokens | recurrence | ncu, kernels | ncu, graph | CUPTI, graph | ours | ours against CUPTI |")
    assert len(found) == len(kept.rows) == 6
    for (tokens, name, *cells), row in zip(found, kept.rows, strict=True):
        assert (name, int(tokens.replace(",", ""))) == (row.recurrence, row.tokens)
        assert row.cupti_ns is not None
        times = (row.ncu_kernels_ns, row.ncu_graph_ns, row.cupti_ns, row.ours_ns)
        assert cells == [*(f"{ns / 1e3:,.2f}" for ns in times), f"{row.ours_ns / row.cupti_ns - 1:+.1%}"]
        assert row.agrees
    ((kernels, graph),) = re.findall(
        r"([\d.]+) µs from its two kernels added up, .*? and ([\d.]+) µs from its graph", PAGE
    )
    apart = [(row.ncu_kernels_ns - row.ours_ns, row.ncu_graph_ns - row.ours_ns) for row in kept.rows]
    assert (kernels, graph) == tuple(f"{ns / 1e3:.2f}" for ns in apart[1])


def test_a_a(records: dict[str, Record]) -> None:
    found = {one.tokens: one.values for one in aa(night(records, "fresh processes of"))}
    assert all(len(values) == 21 for values in found.values())
    shown = {int(tokens.replace(",", "")): ends for tokens, *ends in rows("| tokens | least | greatest |")}
    assert shown == {tokens: [f"{min(values) - 1:+.2%}", f"{max(values) - 1:+.2%}"] for tokens, values in found.items()}
    for tokens, values in found.items():
        assert all(abs(value - 1) <= (0.005 if tokens >= 512 else 0.015) for value in values)


def test_what_was_planted(records: dict[str, Record]) -> None:
    (said,) = re.findall(r"^> (.*)$", PAGE, re.MULTILINE)
    assert said == planted.count(night(records, "Of"))


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
