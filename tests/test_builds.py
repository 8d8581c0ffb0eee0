"""The cause of another time: fabricated records with fingerprints of their kernels, and older ones without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from results import series
from results.builds import differing, facts, kernels, packed
from results.compare import Comparison, compare
from results.judging_cause import between
from results.schema import Build
from results.store import load, save
from tests.fabricate import build, environment, record
from tests.nights import checks, confirming, keep, night, times

SCAN, SMALL = build("c"), build("d", kernel="gdn_small")
CANARY = build("e", kernel="gdn_canary_fma", recurrences=())


def row(*builds: Build, **more: Any) -> dict[str, Any]:
    return {"gpu": "NVIDIA H200", "builds": packed(record(builds=builds)), "commit": "a", "launcher": "l"} | more


@pytest.mark.parametrize(
    ("before", "after", "kind", "reason"),
    [
        (row(SCAN), row(SCAN, driver="580"), "machine", "the machine code is the same"),
        (row(SCAN), row(build("x"), commit="b"), "compiler", "the source is the same and the machine code is another"),
        (row(SCAN), row(build("x", "t"), commit="b"), "source", "the source changed, and the machine code with it"),
        (row(SCAN), row(build("c", "t"), commit="b"), "machine", "the machine code is the same"),
        (row(SCAN), row(SCAN, launcher="m"), "source", "the machine code is the same, and the code that launches it"),
        (row(SCAN), row(build("x"), launcher="m"), "unknown", "changed with the code that launches it"),
        (row(SCAN), row(SMALL), "machine", "the commit and the compiler are the same, the machine code is not known"),
        (row(), row(SCAN, commit="b"), "source", "the commit changed"),
    ],
)
def test_the_cause_follows_from_what_both_runs_know(before: Any, after: Any, kind: str, reason: str) -> None:
    found = between(*facts(before, after, "chunked"))
    assert (found.kind, reason in found.reason) == (kind, True), found.reason


def test_kernels_of_others_and_kernels_that_only_one_has_do_not_count() -> None:
    other, changed = (build(code, kernel="gdn_sequential", recurrences=("sequential",)) for code in "xy")
    assert between(*facts(row(SCAN, SMALL, other), row(SCAN, changed), "chunked")).kind == "machine"
    assert between(*facts(row(SCAN, other), row(SCAN, changed), "sequential")).kind == "compiler"
    before, after = facts(row(SCAN, SMALL), row(SCAN, build("x", kernel="gdn_small")), "chunked")
    assert before["machine_code"] == "gdn_small (sm_90, 16x48x128 tiled) d000000000000000"
    assert after["machine_code"] == "gdn_small (sm_90, 16x48x128 tiled) x000000000000000"


def test_a_canary_has_machine_code_of_its_own() -> None:
    assert between(*facts(row(CANARY), row(CANARY), "fma")).reason == "the machine code is the same"
    assert "not known" in between(*facts(row(CANARY), row(CANARY), "copy")).reason


def test_on_the_host_the_package_is_the_source_and_numpy_the_compiler() -> None:
    host = {"gpu": None, "launcher": "l", "commit": "a", "numpy": "2.4"}
    assert between(*facts(host, host | {"commit": "b", "launcher": "m"}, "host-chunked")).kind == "source"
    assert between(*facts(host, host | {"commit": "b"}, "host-chunked")).kind == "machine"
    found = between(*facts(host, host | {"numpy": "2.5"}, "host-chunked"))
    assert (found.kind, "numpy 2.4 → 2.5" in found.reason) == ("compiler", True)
    assert "numpy" not in between(*facts(row(SCAN, numpy="2.4"), row(SCAN, numpy="2.5"), "chunked")).changed


def test_what_differs_is_named_by_kernel_and_unknown_where_one_has_nothing() -> None:
    assert differing(row(SCAN, SMALL), row(SCAN, SMALL)) == []
    (one,) = differing(row(SCAN, SMALL), row(build("x"), SMALL))
    assert one == (
        "machine code of gdn_chunked_scan (sm_90, 16x48x128 tiled)",
        "c000000000000000",
        "x000000000000000",
    )
    assert differing(row(), row(SCAN, SMALL)) == [("machine code", "unknown", "of 2 kernels")]
    assert differing(row(), row()) == []


# In a comparison


def forty(root: Path, old: tuple[Build, ...], new: tuple[Build, ...], **change: Any) -> Comparison:
    """30 accepted nights, and 8 slower ones with other builds, the last one confirmed."""
    for number in range(38):
        slow = number >= 30
        given = environment(commit=f"{number:040x}", launcher="l", **(change if slow else {}))
        cases = (*checks(), *times(number, 1.08 if slow else 1.0))
        keep(root, night(number, cases, environment=given, builds=new if slow else old), accepted=not slow)
    for made in confirming(load(root).records[-1], 1.08):
        save(made, root)
    return compare(root)


@pytest.mark.parametrize(
    ("new", "change", "kind", "told"),
    [
        (build("c"), {"driver": "580.1"}, "machine", "the machine code is the same; driver 570.86.15 → 580.1"),
        (build("x"), {"nvrtc": "12.9"}, "compiler", "the source is the same and the machine code is another; nvrtc"),
    ],
)
def test_the_comparison_tells_machine_from_compiler(
    tmp_path: Path, new: Build, change: dict[str, str], kind: str, told: str
) -> None:
    found = forty(tmp_path, (build("c"),), (new,), **change)
    assert found.exit_code == 1
    steps = [one for one in found.changes if one.what.startswith("speed of chunked")]
    assert {one.cause for one in steps} == {kind}
    assert all(told in one.reason for one in steps)
    slower = [case for case in found.cases if case.verdict == "slower"]
    assert slower
    assert all(kind in case.cause and told in case.cause for case in slower)
    assert any(name.startswith("machine code of gdn_chunked_scan") for name, *_ in found.environment) == (
        kind != "machine"
    )


def test_old_records_without_fingerprints_are_read_and_say_that_it_is_not_known(tmp_path: Path) -> None:
    found = forty(tmp_path, (), (build("c"),), driver="580.1")
    assert kernels(series.runs(tmp_path).iloc[0].to_dict()) == {}
    steps = [one for one in found.changes if one.what.startswith("speed of chunked")]
    assert steps
    assert all("the machine code is not known" in one.reason for one in steps)
    assert ("machine code", "unknown", "of 1 kernels") in found.environment


def test_a_compiler_that_changed_its_mind_is_told_as_the_page_says() -> None:
    """Two shipped records of one source and one NVRTC."""
    root = Path(__file__).parents[1]
    page = (root / "docs/judging.md").read_text()
    ((first, second, *times),) = re.findall(
        r"`(\d+T\w+-\w+)` and `(\d+T\w+-\w+)` have one each\. .*? take ([\d.]+) and ([\d.]+) µs", page
    )
    runs = series.runs(root / "results").set_index("run_id")
    before, after = (runs.loc[name].to_dict() for name in (first, second))
    assert before["nvrtc"] == after["nvrtc"] == "13.0"
    ((kernel, old, new),) = differing(before, after)
    assert kernel.startswith("machine code of gdn_chunked_scan (sm_90,")
    assert old != new
    assert kernels(before).keys() == kernels(after).keys()
    assert all(one[1] == kernels(after)[name][1] for name, one in kernels(before).items())
    alike = after | {"launcher": before["launcher"], "commit": before["commit"]}
    assert between(*facts(before, alike, "chunked")).kind == "compiler"
    cases = series.cases(root / "results", before["gpu_key"])
    own = cases[(cases["recurrence"] == "chunked") & cases["run_id"].isin([first, second])]
    bits = own.dropna(subset="sha256_out").groupby(["tokens", "shape", "head_map", "inputs"])["sha256_out"].agg(list)
    assert all(len(one) == 2 and len({*one}) == 1 for one in bits)
    medians = own[(own["kind"] == "speed") & (own["tokens"] == 2048)].set_index("run_id")["median_us"]
    assert [f"{medians[name]:.1f}" for name in (first, second)] == times
