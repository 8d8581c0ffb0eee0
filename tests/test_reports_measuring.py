"""The page's section on the measuring: what was measured beside the hot times, and how far it can be trusted."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from reports import measured as pictures
from reports.measuring import measuring
from reports.page import build
from reports.words import rate
from results.schema import Host, Record
from tests.fabricate import canaries, group, measured, record, speed


def cells(table: Any) -> list[list[tuple[str, str]]]:
    return [[(cell.text, cell.small) for cell in row] for row in table.rows]


def test_a_record_of_the_first_method_has_no_section() -> None:
    assert measuring([record()]) is None
    assert "How good the measurement was" not in build([record()], [], [])


def test_cold_host_and_limit_stand_beside_the_hot_time() -> None:
    found = measuring([measured()])
    assert found is not None
    cold, host, limits = found.beside
    assert cold.columns == ["tokens", "sequential", "chunked"]
    assert cells(cold)[1] == [("2,048", ""), ("1.01 ms", "hot 1.00 ms"), ("517 µs", "hot 512 µs")]
    assert cells(host)[0][1] == ("14.0 µs", "graph 5.20 µs")
    assert cells(limits)[1][1] == ("17%", "11.2 TFLOP/s, 135 GB/s")


def test_an_allocation_is_marked_in_the_host_times() -> None:
    bad = Host(call_ns=1.4e6, replay_ns=5e3, allocations=1, allocated_bytes=9, said="a call makes 1 allocation")
    found = measuring([measured(cases=(speed(host=bad),))])
    assert found is not None
    (table,) = found.beside
    assert (table.rows[0][1].outcome, table.rows[0][1].hint) == ("inconclusive", "a call makes 1 allocation")


def test_the_machine_and_the_limits_are_told() -> None:
    found = measuring([measured()])
    assert found is not None
    assert found.sentences == [
        "The canary fma ran at 60.6 TFLOP/s before the times and at 60.4 TFLOP/s after them (-0.3%).",
        "The canary copy ran at 3.94 TB/s before the times and at 3.93 TB/s after them (-0.3%).",
        "The limits rest on 61.0 TFLOP/s FP32, measured, 1.07 PFLOP/s FP16 on tensor cores, from the datasheet and "
        "4.20 TB/s copied, read and written, measured.",
        "Of 2.0 s of warm-up and samples, the timed calls ran for 80%.",
        "The run took 27.0 s up to its record; the device worked 65% of them: 8.1 s for samples and 9.4 s for checks; "
        "NVML saw a kernel run for 62%.",
    ]


def test_the_night_is_told() -> None:
    own = [
        measured(run_id=f"r{i}", night="n", process=i, groups=(group(aa_ratio=1 + i / 1000),), cases=(speed(),))
        for i in (1, 2, 3)
    ]
    found = measuring(own)
    assert found is not None
    assert found.sentences[-1].startswith("Its night had 3 fresh processes; A/A over all of them: +0.10% to +0.30%;")


def test_a_doubtful_alternation_opens_the_section_and_says_why() -> None:
    steady, doubtful = (build([measured(groups=(one,))], [], []) for one in (group(), group(reasons=("it throttled",))))
    assert re.search(r'<details id="[\w-]+--measuring"><summary>', steady)
    assert re.search(r'<details id="[\w-]+--measuring" open><summary>', doubtful)
    assert '<td class="inconclusive">it throttled</td>' in doubtful
    assert "1 of 1 alternations are inconclusive" in doubtful


def test_the_figures_say_what_they_show() -> None:
    runs = [measured(run_id=f"r{i}", groups=(group(tokens=32), group(aa_ratio=1.004))) for i in (1, 2)]
    aa = pictures.aa(runs, "r2", "p")
    assert "2 token counts; farthest from 0 at 2,048 tokens, +0.40%; beside 1 other run." in aa
    assert "fma: -0.30% to +0.00% of its median over 2 runs" in pictures.canaries(runs, "p")
    assert pictures.canaries([record()], "p") == ""
    assert pictures.aa([measured(groups=(group(aa_ratio=None),))], "20261130T051500Z-0123abcd", "p") == ""


def test_one_token_count_and_one_run_can_be_drawn() -> None:
    one = measured(groups=(group(),), canaries=canaries()[:1])
    assert pictures.aa([one], one.run_id, "p").startswith("<svg")
    assert pictures.canaries([one], "p").startswith("<svg")


def test_the_same_records_give_the_same_bytes() -> None:
    records: list[Record] = [measured(run_id="a"), measured(run_id="b")]
    assert build(records, [], []) == build(records, [], [])


@pytest.mark.parametrize(
    ("value", "text"), [(6.1e13, "61.0 T"), (1.07e15, "1.07 P"), (8.9e11, "890 G"), (5e3, "5.00 k")]
)
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text


def test_inconclusive_times_win_nothing() -> None:
    """They stay in the table; the headline and the crossover rest on green ones alone."""
    steady = measured()
    doubtful = [msgspec.structs.replace(case, outcome="inconclusive", reason="shaky") for case in steady.cases[2:]]
    texts = [build([one], [], []) for one in (steady, measured(cases=(*steady.cases[:2], *doubtful)))]
    assert ["times as fast at 2,048 tokens" in text for text in texts] == [True, False]
    assert ["512 µs" in text for text in texts] == [True, True]
    assert "4 times inconclusive" in texts[1]
