"""How a comparison is shown: golden texts, and formats that others' parsers read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reports.comparison import MOST, exit_code, junit, markdown, render, text
from results.accepted import Acceptance
from results.compare import Comparison, census
from results.crossing import Tracked
from results.statistics import Crossover
from results.steps import Step
from results.verdicts import Case

GOLDEN = Path(__file__).parent / "golden"


def case(verdict: str, reason: str, kind: str = "speed", name: str = "chunked", **overrides: object) -> Case:
    against = "fp64" if kind == "accuracy" else ""
    place = ("16x48x128", "tiled", "normal")
    return Case(kind, name, against, 2048, *place, verdict=verdict, reason=reason, **overrides)  # type: ignore[arg-type]


def comparison(**overrides: object) -> Comparison:
    """A night on which everything happens."""
    cases = (
        case("wrong", "error 3.0e-02 > 1e-05", "accuracy", "tensor", value=3e-2),
        case("unstable", "3 of 199 reruns differ", "determinism", "tensor"),
        case("slower", "+5.10%, outside ±2.00% of 30 runs, 5 processes say so", value=411.0, baseline=391.0,
             ratio=1.051, low=1.04, high=1.062, p=1e-6, processes=5, accepted=30, confirmed=True,
             cause="compiler: the source is the same and the machine code is another"),
        case("faster", "-9.00%, outside ±2.00% of 30 runs", name="sequential-tuned", value=310.0, baseline=340.0,
             ratio=0.91, low=0.9, high=0.92, p=1e-9, processes=5, accepted=30, confirmed=True),
        case("missing", "it is in the baseline, run-0, and not in this run", name="auto"),
        case("inconclusive", "the card held its clocks back: | thermal", name="tensor-sm80"),
        case("not measured", "needs <sm_90>", name="wgmma"),
        case("new", "no accepted run has a time of it", name="peer"),
        case("same", "199 reruns gave the same bits: the bits changed since the baseline, and are stable",
             "determinism", bits_changed=True),
        case("same", "+0.10%, within ±2.00% of 30 runs", name="sequential", value=1001.0, baseline=1000.0,
             ratio=1.001, low=0.995, high=1.007, p=0.7),
    )  # fmt: skip
    before = (("run-0", Crossover(97.0, 95.0, 101.0)), ("run-1", Crossover(99.0, 96.0, 103.0)))
    values: dict[str, object] = {
        "state": "judged",
        "said": "",
        "exit_code": 3,
        "gpu_key": "nvidia-h200-132sm-140gib-ecc-700w",
        "method_id": "cuda-graph-2",
        "run_id": "20261130T021700Z-0123abcd",
        "started": "2026-11-30 02:17 UTC",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "status": "complete",
        "gpu": "NVIDIA H200",
        "gpu_uuid": "GPU-0",
        "runs": ("20261130T021700Z-0123abcd", "a", "b"),
        "baseline": Acceptance(
            run_id="run-1", gpu_key="g", method_id="m", accepted="2026-11-29T02:30:00+00:00", because="it is exact now"
        ),
        "accepted": 30,
        "cases": cases,
        "census": census(cases),
        "crossovers": (
            Tracked("chunked", "sequential", "16x48x128", "tiled", "normal", Crossover(150.0, 146.0, 155.0), before,
                    128, 155, "the crossover of chunked left the dispatch threshold of 128",
                    "the dispatch threshold of 128 is below it"),
            Tracked("tensor", "sequential", "16x48x128", "tiled", "normal", Crossover(None, reason="faster from 1 on"),
                    (), None, 1, "", ""),
        ),
        "changes": (
            Step("speed of chunked at 2,048 tokens", "step", 1.051, 1e-7, "run-7", "run-8", ("a" * 40, "b" * 40),
                 "compiler", "the source is the same and the machine code is another; nvrtc 12.8 → 12.9"),
        ),
        "environment": (("driver", "570.86.15", "580.1"),),
        "notes": ("the card held its clocks back: | thermal",),
        "problems": ("results/history/x.json: is no JSON",),
    }  # fmt: skip
    return Comparison(**values | overrides)  # type: ignore[arg-type]


@pytest.mark.parametrize(("how", "suffix"), [("text", "txt"), ("markdown", "md"), ("json", "json"), ("junit", "xml")])
def test_golden(how: str, suffix: str) -> None:
    """Each format as it is; to take a wanted change over, write what `render` gives to the file."""
    assert render([comparison()], how) == (GOLDEN / f"comparison.{suffix}").read_text()


def test_a_quiet_night_is_short() -> None:
    cases = (case("same", "+0.10%"),)
    quiet = comparison(
        exit_code=0, cases=cases, census=census(cases), crossovers=(), changes=(), environment=(), notes=(),
        problems=(), runs=("20261130T021700Z-0123abcd",),
    )  # fmt: skip
    assert text([quiet]) == (
        "nvidia-h200-132sm-140gib-ecc-700w, 20261130T021700Z-0123abcd of 2026-11-30 02:17 UTC, commit 0123456789: "
        "fine (exit code 0)\n"
        "  against run-1, accepted 2026-11-29 02:30 UTC, 'it is exact now'; 30 accepted runs in all\n"
        "  1 of 1 case judged: 1 same\n"
    )
    assert "<details>" not in markdown([quiet])


def test_nothing_measured_is_told_in_every_format() -> None:
    none = Comparison("nothing measured", "no run is stored in results", 4)
    assert "no run: NOTHING OR NOT ENOUGH WAS MEASURED (exit code 4)\n  no run is stored" in text([none])
    assert "exit code 4" in markdown([none])
    assert json.loads(render([none], "json"))["exit_code"] == 4
    (whole,) = ElementTree.fromstring(junit([none])).iter("testcase")
    assert whole.find("error") is not None


def test_what_a_reason_holds_cannot_break_out_of_the_markdown() -> None:
    evil = case("wrong", "a | b\n\n# c <script> @someone `x` [l](http://e) *b*")
    shown = markdown([comparison(cases=(evil,), census=census((evil,)))])
    (row,) = [line for line in shown.splitlines() if "**wrong**" in line]
    assert row.count(" | ") == 5
    for what in ("<script>", "@someone", "\n# c", "[l]("):
        assert what not in shown


def test_a_comment_stays_within_githubs_limit() -> None:
    many = tuple(case("slower", "x" * 1000) for _ in range(5_000))
    shown = markdown([comparison(cases=many, census=census(many), notes=("n",) * 1000)])
    assert len(shown) < 65_536
    assert f"{5000 - MOST:,} more" in shown


def test_what_is_not_finite_is_null_in_json() -> None:
    odd = case("slower", "", ratio=float("nan"), high=float("inf"))
    (shown,) = json.loads(render([comparison(cases=(odd,))], "json"))["comparisons"]
    assert (shown["cases"][0]["ratio"], shown["cases"][0]["high"]) == (None, None)


def test_junit_counts_and_survives_control_characters() -> None:
    bad = case("wrong", "byte \x00 and \x1b[0m")
    (suite,) = ElementTree.fromstring(junit([comparison(cases=(*comparison().cases, bad))]))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "12",
        "failures": "1",
        "errors": "4",
        "skipped": "3",
    }


@pytest.mark.parametrize(
    ("codes", "worst"), [((0, 0), 0), ((0, 4), 4), ((4, 5), 5), ((5, 1), 1), ((1, 3), 3), ((0, 1, 4), 1), ((), 4)]
)
def test_of_several_cards_the_worst_counts(codes: tuple[int, ...], worst: int) -> None:
    assert exit_code([comparison(exit_code=code) for code in codes]) == worst
