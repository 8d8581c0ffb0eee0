"""`auto` takes the recurrence whose measured time is the least, never one that does not run, and says why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import Shape
from kernels.auto import DEFAULT_MIN_TOKENS, Rule, available, interpolated, pick, rule
from kernels.dispatch import CHUNKED_MIN_TOKENS, DeviceFacts
from kernels.inputs import make
from kernels.registry import Recurrence
from kernels.timetable import FOLDER, AutoError, Source, Table, read_table, read_tables

H200 = DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472)
T4 = DeviceFacts("Tesla T4", 40, 75, 65_536, 65_536)
SOURCE = Source("abc1234def", "2026-11-30", "20261130T051500Z-0123abcd", "pytest --benchmark-only")
TIMES = {
    "sequential-tuned": {32: 9_000.0, 64: 15_900.0, 128: 30_000.0},
    "tensor": {32: 12_000.0, 64: 14_200.0, 128: 18_600.0},
}
ALL = ("sequential", "sequential-tuned", "chunked", "tensor")


def table(**overrides: Any) -> Table:
    values: dict[str, Any] = {
        "gpu": "NVIDIA H200",
        "sms": 132,
        "compute_capability": 90,
        "key_heads": 16,
        "value_heads": 48,
        "head_map": "tiled",
        "source": SOURCE,
        "median_ns": TIMES,
    }
    return Table(**values | overrides)


def test_the_fastest_at_a_measured_count_with_both_times_and_the_source() -> None:
    choice = pick([table()], H200, Shape(), 64, ("sequential-tuned", "tensor"))
    assert choice.recurrence == "tensor"
    assert choice.reason == (
        "tensor takes 14.2 us at 64 tokens on NVIDIA H200, sequential-tuned 15.9 (table of 2026-11-30, commit abc1234)"
    )
    assert pick([table()], H200, Shape(), 32, ALL).recurrence == "sequential-tuned"


def test_between_measured_counts_the_times_are_linear_and_called_about() -> None:
    choice = pick([table()], H200, Shape(), 48, ALL)
    assert choice.recurrence == "sequential-tuned"
    assert "takes about 12.4 us at 48 tokens on NVIDIA H200, tensor 13.1 " in choice.reason
    assert choice.reason.endswith("commit abc1234; it lacks sequential, chunked)")


def test_fewer_tokens_than_measured_take_the_time_of_the_least() -> None:
    assert interpolated({32: 9.0, 64: 15.0}, 0) == interpolated({32: 9.0, 64: 15.0}, 1) == 9.0
    assert "about 9.0 us at 1 token on" in pick([table()], H200, Shape(), 1, ALL).reason


@pytest.mark.parametrize(
    ("times", "tokens", "expected"),
    [
        ({32: 9.0, 64: 15.0, 128: 31.0}, 256, 63.0),  # the last two's slope, 0.25
        ({32: 9.0, 64: 8.0}, 1000, 8.0),  # a time that falls by noise does not go on to fall
        ({64: 16.0}, 128, 32.0),
        ({64: 16.0}, 32, 16.0),
    ],
)
def test_more_tokens_than_measured_go_on_with_the_last_slope(
    times: dict[int, float], tokens: int, expected: float
) -> None:
    assert interpolated(times, tokens) == pytest.approx(expected)


def test_a_recurrence_that_does_not_run_here_is_never_picked() -> None:
    choice = pick([table()], H200, Shape(), 128, ("sequential", "sequential-tuned"))
    assert choice.recurrence == "sequential-tuned"
    assert "no other one of the table runs here" in choice.reason


def test_what_chooses_itself_is_never_picked() -> None:
    fast = table(median_ns={**TIMES, "auto": {32: 1.0}, "dispatched": {32: 1.0}})
    assert pick([fast], H200, Shape(), 32, (*ALL, "auto", "dispatched")).recurrence == "sequential-tuned"
    with pytest.raises(AutoError, match=r"available is \['auto'\]; auto needs one"):
        pick([], H200, Shape(), 32, ("auto",))
    with pytest.raises(AutoError, match=r"available is \[\]"):
        pick([], H200, Shape(), 32, ())


def test_the_build_that_tensor_takes_itself_is_never_picked() -> None:
    both = table(median_ns={**TIMES, "tensor-sm80": {32: 1.0}})
    assert pick([both], H200, Shape(), 32, (*ALL, "tensor-sm80")).recurrence == "sequential-tuned"
    assert pick([], H200, Shape(), 64, ("tensor-sm80", *ALL)).recurrence == "tensor"


@pytest.mark.parametrize(
    "device",
    [T4, replace(H200, sms=114), replace(H200, compute_capability=100), replace(H200, name="NVIDIA H100")],
)
def test_another_card_takes_the_default_and_says_how_to_make_a_table(device: DeviceFacts) -> None:
    choice = pick([table()], device, Shape(), 32, ALL)
    assert choice.recurrence == "sequential-tuned"
    assert "no table of 16x48 tiled heads for " in choice.reason
    assert "pytest --benchmark-only, then gdn-bench table, makes one" in choice.reason


def test_another_shape_takes_the_default_and_says_so() -> None:
    choice = pick([table()], H200, Shape(16, 32, "grouped"), 64, ALL)
    assert choice.recurrence == "tensor"
    assert "no table of 16x32 grouped heads for NVIDIA H200 with 132 SMs and compute capability 9.0" in choice.reason
    assert "only of 16x48 tiled heads" in choice.reason
    assert "pytest --benchmark-only --gdn-shape 16x32 --gdn-head-map grouped, then" in choice.reason


def test_a_table_of_none_that_runs_here_is_as_good_as_none() -> None:
    choice = pick([table()], H200, Shape(), 4096, ("sequential", "chunked"))
    assert choice.recurrence == "chunked"
    assert "table of 2026-11-30, commit abc1234, has none of sequential, chunked; " in choice.reason


@pytest.mark.parametrize(
    ("names", "tokens", "expected"),
    [
        (ALL, DEFAULT_MIN_TOKENS, "tensor"),
        (ALL, DEFAULT_MIN_TOKENS - 1, "sequential-tuned"),
        (ALL[:3], CHUNKED_MIN_TOKENS, "chunked"),
        (ALL[:3], CHUNKED_MIN_TOKENS - 1, "sequential-tuned"),
        (ALL[:2], 4096, "sequential-tuned"),
        (ALL[:1], 4096, "sequential"),
        (("tensor",), 1, "tensor"),
        (("mine",), 64, "mine"),
    ],
)
def test_the_default(names: tuple[str, ...], tokens: int, expected: str) -> None:
    choice = pick([], T4, Shape(), tokens, names)
    assert choice.recurrence == expected
    assert f"{tokens:,} token" in choice.reason


def test_the_table_of_the_shape_is_taken_of_several() -> None:
    other = table(value_heads=32, median_ns={"sequential": {32: 1.0}})
    assert pick([other, table()], H200, Shape(), 32, ALL).recurrence == "sequential-tuned"
    assert pick([other, table()], H200, Shape(16, 32), 32, ALL).recurrence == "sequential"


COUNTS = st.lists(st.integers(1, 40_000), min_size=1, max_size=8, unique=True)
NS = st.floats(1e3, 1e8)


@given(st.data(), COUNTS, st.sets(st.sampled_from(ALL), min_size=1))
def test_at_every_measured_count_no_other_is_faster_by_2_percent(
    data: st.DataObject, counts: list[int], names: set[str]
) -> None:
    """In fact by nothing: the time of what is picked is the least of those that run here."""
    times = {name: {tokens: data.draw(NS) for tokens in counts} for name in ALL}
    here = tuple(sorted(names))
    found = rule([table(median_ns=times)], H200, Shape(), here)
    for tokens in counts:
        least = min(times[name][tokens] for name in here)
        for name in (found.choose(tokens).recurrence, found.recurrence(tokens)):
            assert name in here
            assert times[name][tokens] == least


@given(st.data(), st.integers(0, 60_000))
def test_the_fast_way_and_the_one_with_reasons_agree(data: st.DataObject, tokens: int) -> None:
    times = {name: {count: data.draw(NS) for count in data.draw(COUNTS)} for name in ALL}
    made = table(median_ns=times)
    found = rule([made], H200, Shape(), ALL)
    slow, fast = found.choose(tokens).recurrence, found.recurrence(tokens)
    one, other = (interpolated(made.median_ns[name], tokens) for name in (slow, fast))
    assert one == pytest.approx(other, rel=1e-9)  # where two are equally fast, rounding decides


@pytest.mark.parametrize("names", [ALL, ALL[:3], ALL[:2], ("tensor",)])
def test_the_fast_way_of_the_default(names: tuple[str, ...]) -> None:
    found = rule([], T4, Shape(), names)
    assert [found.recurrence(t) for t in range(300)] == [found.choose(t).recurrence for t in range(300)]


def test_the_steps_are_those_of_the_times() -> None:
    # Equal at 32 + 32 * 3/4.7 = 52.4 tokens.
    assert Rule(ALL, table(), "").steps() == [(0, "sequential-tuned"), (53, "tensor")]


def test_what_runs_here_and_chooses_nothing_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    def enqueue(*arguments: Any) -> None: ...

    made = [
        Recurrence("sequential", "cuda", enqueue),
        Recurrence("chunked", "cuda", enqueue, unsupported=lambda problem: "too small a card"),
        Recurrence("tensor-sm80", "cuda", enqueue, minor=True),
        Recurrence("dispatched", "cuda", enqueue, minor=True),
        Recurrence("reference", "cuda", enqueue, minor=True),
        Recurrence("auto", "cuda", enqueue),
    ]
    monkeypatch.setattr("kernels.auto.recurrences", lambda platform: made if platform == "cuda" else [])
    assert available(make(Shape(2, 4), 1)) == ("sequential",)


# Files


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / table().file_name
    assert file.name == "nvidia-h200-132sm-cc90-16x48-tiled.json"
    file.write_text(table().to_json())
    assert read_table(file) == table()
    assert read_tables(tmp_path) == (table(),)
    assert read_tables(tmp_path / "none") == ()


def test_counts_are_put_in_order() -> None:
    assert list(table(median_ns={"tensor": {64: 2.0, 32: 1.0}}).median_ns["tensor"]) == [32, 64]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("colour",), 1, "the file has the unknown field colour = 1; known are gpu, sms"),
        (("source", "host"), "a", "source has the unknown field host = 'a'"),
        (("source",), None, "source is None; it must be an object"),
        (("source", "date"), "yesterday", "source.date is 'yesterday'; it must be a day such as 2026-11-30"),
        (("source", "commit"), "", "source.commit is ''; it must be a text"),
        (("source", "dirty"), 1, "source.dirty is 1; it must be true or false"),
        (("gpu",), "", "gpu is ''; it must be the card's product name"),
        (("sms",), 132.0, "sms is 132.0; it must be a positive integer"),
        (("compute_capability",), "9.0", "compute_capability is '9.0'; it must be a positive integer"),
        (("key_heads",), True, "key_heads is True; it must be a positive integer"),
        (("value_heads",), 47, "value_heads is 47, no multiple of key_heads = 16"),
        (("head_map",), "both", "head_map is 'both'; it must be one of tiled, grouped"),
        (("median_ns",), {}, "median_ns is {}; it must be an object with times of at least one recurrence"),
        (("median_ns", "tensor"), {}, "median_ns.tensor is {}; it must be an object with a time"),
        (("median_ns", "tensor", "32"), -1.0, "median_ns.tensor.32 is -1.0; it must be a positive and finite"),
        (("median_ns", "tensor", "32"), 0, "median_ns.tensor.32 is 0; it must be"),
        (("median_ns", "tensor", "32"), float("nan"), "median_ns.tensor.32 is nan; it must be"),
        (("median_ns", "tensor", "32"), float("inf"), "median_ns.tensor.32 is inf; it must be"),
        (("median_ns", "tensor", "32"), 10**400, "median_ns.tensor.32 is 1000"),
        (("median_ns", "tensor", "32"), "9", "median_ns.tensor.32 is '9'; it must be"),
        (("median_ns", "tensor", "0"), 9.0, "a token count of median_ns.tensor is '0'; it must be an integer from 1"),
        (("median_ns", "tensor", "1e3"), 9.0, "a token count of median_ns.tensor is '1e3'; it must be"),
        (("median_ns", "tensor", "9999999999"), 9.0, "a token count of median_ns.tensor is 9999999999; it must be"),
    ],
)
def test_a_bad_table_is_named_with_field_value_and_mend(
    tmp_path: Path, path: tuple[str, ...], value: object, message: str
) -> None:
    raw = json.loads(table().to_json())
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "a.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(AutoError) as caught:
        read_table(file)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert str(caught.value).endswith("; gdn-bench table makes it anew")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "the file is []; it must be an object"),
        ("{}", "the file has no field gpu; it must have gpu, sms"),
        ('{"gpu": 1, "gpu": 2}', "gpu is there twice, as 1 and 2"),
        ("[" * 100_000, "nested too deeply"),
        ("\udcff", "codec can't decode"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AutoError) as caught:
        read_table(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_a_missing_file_and_two_of_one_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(AutoError, match="b.json: No such file"):
        read_table(tmp_path / "b.json")
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(table().to_json())
    with pytest.raises(AutoError, match=r"b.json and a.json are both of NVIDIA H200 and 16x48 tiled heads; remove one"):
        read_tables(tmp_path)


def test_the_shipped_tables_are_read_and_named_by_what_they_are_of() -> None:
    files = sorted(FOLDER.glob("*.json"))
    assert [file.name for file in files] == [one.file_name for one in read_tables(FOLDER)]
