"""The rules that make a measurement inconclusive, each at both sides of its bound."""

from __future__ import annotations

from typing import Any

import pytest

from kernels import Shape
from suite.clock import HostTime, Sample
from suite.facts import Ceilings, Clocks, Look
from suite.limits import SLACK, demand, limit_ns, measured, too_fast
from suite.quality import CARD, HOST, clock_spread, judge_canaries, judge_case, judge_group, judge_host, throttling
from suite.sampling import Taken
from tests.fabricate import canaries, group


def taken(count: int = 30, dropped: int = 0, spread: float = 0.001) -> Taken:
    values = [1000.0 * (1 + spread * (-1) ** i) for i in range(count)]
    bad = [(Sample(1.0), "clock event: 1,410 MHz, the others 1,980")] * dropped
    return Taken([Sample(ns) for ns in values], list(range(count)), bad, "budget")


@pytest.mark.parametrize(
    ("bad", "good", "said"),
    [
        ({"stationary": False}, {"stationary": True}, "times or clocks still moved after 0.5 s of warm-up"),
        ({"aa_ratio": 1.006}, {"aa_ratio": 1.004}, "sequential against itself (A/A) was +0.60%, beyond 0.5%"),
        ({"aa_ratio": 0.994}, {"aa_ratio": 0.996}, "sequential against itself (A/A) was -0.60%, beyond 0.5%"),
        (
            {"tokens": 32, "aa_ratio": 1.016},
            {"tokens": 32, "aa_ratio": 1.014},
            "sequential against itself (A/A) was +1.60%, beyond 1.5%",
        ),
        ({"clock_spread": 0.05}, {"clock_spread": 0.02}, "the SM clock of one recurrence spread over 5.0%, above 3.0%"),
        ({"after": Look(others=2)}, {"after": Look(others=0)}, "2 other processes computed on the card"),
        ({"before": Look(others=1)}, {"before": Look(others=None)}, "1 other process computed on the card"),
        (
            {"after": Look(clocks=Clocks(throttle="power brake"))},
            {"after": Look(clocks=Clocks(throttle=""))},
            "the card held its clocks back: power brake",
        ),
        (
            {"after": Look(throttled_ns=5_000_005)},
            {"after": Look(throttled_ns=5)},
            "the card held its clocks back: for 5 ms",
        ),
    ],
)
def test_each_rule_of_a_group(bad: dict[str, Any], good: dict[str, Any], said: str) -> None:
    (reason,) = judge_group(group(**bad), CARD)
    assert reason.startswith(said)
    assert judge_group(group(**good), CARD) == ()


def test_time_held_back_does_not_count_where_no_sample_shows_it() -> None:
    """As of tensor on an H200, whose clock is lower under that load and steady; a reason that NVML names counts."""
    held = group(after=Look(throttled_ns=381_000_000))
    assert judge_group(held, CARD, steady=False) == ("the card held its clocks back: for 381 ms",)
    assert judge_group(held, CARD, steady=True) == ()
    capped = group(after=Look(clocks=Clocks(throttle="software power cap")))
    assert judge_group(capped, CARD, steady=False) == ("the card held its clocks back: software power cap",)
    assert judge_group(capped, CARD, steady=True) == ()
    both = "software power cap, power brake"
    named = group(after=Look(clocks=Clocks(throttle=both), throttled_ns=381_000_000))
    assert judge_group(named, CARD, steady=True) == ("the card held its clocks back: power brake",)


def test_a_host_is_not_judged_by_a_cards_rules() -> None:
    noisy = group(stationary=False, aa_ratio=1.4, clock_spread=None)
    assert len(judge_group(noisy, CARD)) == 2
    assert judge_group(noisy, HOST) == ()


def test_what_nvml_does_not_tell_is_not_held_against_the_card() -> None:
    assert throttling(Look(), Look(throttled_ns=10**9)) == ""
    assert judge_group(group(before=Look(), after=Look(), clock_spread=None, aa_ratio=None), CARD) == ()


@pytest.mark.parametrize(
    ("bad", "good", "said"),
    [
        (taken(3), taken(4), "3 samples count and 0 were dropped; 4 are wanted"),
        (taken(30, dropped=8), taken(30, dropped=7), "8 of 38 samples were dropped (clock event)"),
        (taken(spread=0.03), taken(spread=0.015), "the median is known to 3.0%, 2.0% is wanted; the budget ran out"),
    ],
)
def test_each_rule_of_a_case(bad: Taken, good: Taken, said: str) -> None:
    assert judge_case(bad, None, CARD) == (said,)
    assert judge_case(good, None, CARD) == ()


@pytest.mark.parametrize(("effect", "count"), [(0.06, 1), (-0.06, 1), (0.04, 0), (None, 0)])
def test_the_order_effect_has_a_bound(effect: float | None, count: int) -> None:
    assert len(judge_case(taken(), effect, CARD)) == count


def test_the_host_time_of_a_call() -> None:
    assert judge_host(HostTime(12e3, 5e3, 0), 10e3) == ""
    assert judge_host(HostTime(1.4e6, None, None), 1e3) == ""  # without graphs there is nothing to compare with
    assert judge_host(HostTime(1.4e6, 5e3, 0), 5e5) == (
        "a plain call costs the host 1,400 us, the replay of its graph 5 us and the device 500 us"
    )
    assert judge_host(HostTime(12e3, 5e3, 2, 4096), 1e6) == (
        "a call makes 2 allocations of 4,096 bytes; a call must not allocate"
    )


def test_the_canary_tells_a_machine_that_changed() -> None:
    assert judge_canaries(canaries(3.3e5, 3.33e5), CARD) == ()
    said, _ = judge_canaries(canaries(3.3e5, 3.4e5), CARD)
    assert said.startswith("the canary fma took +3.0% after the run against before it")
    assert judge_canaries(canaries(3.3e5, 3.4e5)[:1], CARD) == ()


def test_the_ceilings_are_the_canaries_best() -> None:
    both = list(canaries(3.3e5, 3.2e5))
    assert measured(both, "fma") == pytest.approx(2e10 / (3.2e5 * 0.997) * 1e9)
    assert measured(both, "tensor") is None


CEILINGS = Ceilings(fma_flops=60e12, copy_bytes_per_s=4e12, tensor_flops=990e12, l2_bytes=60 * 2**20)


def test_the_work_of_a_call_is_that_of_the_design() -> None:
    """5.5 MFLOP and 65.9 KB a token at the default shape, and the state of 3 MiB in and out."""
    one, two = demand(Shape(), 1), demand(Shape(), 2)
    assert two.flop - one.flop == pytest.approx(5.5e6, rel=0.01)
    assert two.bytes - one.bytes == pytest.approx(65.9e3, rel=0.01)
    assert 2 * one.bytes - two.bytes == 2 * 48 * 128 * 128 * 4


@pytest.mark.parametrize(
    ("tokens", "unit", "l2", "ns"),
    [
        (2048, "fp32", "hot", 6 * 128 * 128 * 48 * 2048 / 60e3),  # the multipliers bound it
        (2048, "tensor", "hot", (demand(Shape(), 2048).bytes - 60 * 2**20) / 4e3),  # what the cache cannot hold
        (2048, "tensor", "cold", demand(Shape(), 2048).read_bytes / 4e3),  # all that is read
        (2048, "", "cold", demand(Shape(), 2048).read_bytes / 4e3),
        (32, "", "hot", 6 * 128 * 128 * 48 * 32 / 990e3),
    ],
)
def test_the_limit_is_the_greater_of_work_and_traffic(tokens: int, unit: str, l2: str, ns: float) -> None:
    assert limit_ns(demand(Shape(), tokens), CEILINGS, unit, l2) == pytest.approx(ns)


def test_without_ceilings_there_is_no_limit() -> None:
    assert limit_ns(demand(Shape(), 32), None, "", "hot") is None
    assert limit_ns(demand(Shape(), 32), Ceilings(), "fp32", "cold") is None
    assert too_fast(1.0, None) == ""


def test_a_time_below_the_limit_by_more_than_the_slack_cannot_be() -> None:
    assert too_fast(1000 * (1 - SLACK) + 1, 1000.0) == ""
    assert "0.90 us is below what the card can do, 1.00 us" in too_fast(900.0, 1000.0)


def test_the_spread_of_the_clocks_is_that_of_one_recurrence() -> None:
    """Two steady ones at different clocks spread by nothing; a moving one counts, its dropped samples too."""
    light = Taken([Sample(1.0, 1980.0)] * 20)
    heavy = Taken([Sample(1.0, 1740.0)] * 20)
    assert clock_spread([light, heavy]) == (1860.0, 0.0)
    moving = Taken([Sample(1.0, 1740.0)] * 18, dropped=[(Sample(1.0, 1400.0), "clock event")] * 2)
    assert clock_spread([light, moving])[1] == pytest.approx(340 / 1740)
    assert clock_spread([Taken([Sample(1.0)])]) == (None, None)
