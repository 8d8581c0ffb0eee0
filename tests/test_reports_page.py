"""The page: one file that loads nothing, escaped, with the numbers that are stored."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from reports import figures, words
from reports.page import build, report, write, write_report
from results.reference import references
from results.schema import Clocks, Record
from results.store import ResultsError, load, save
from tests import decade
from tests.fabricate import accuracy, determinism, environment, record, speed

TIMES = {32: (18.4, 31.6), 96: (45.0, 43.8), 128: (60.4, 50.2), 2048: (850.0, 470.0), 32_768: (13_510.0, 7450.0)}
"""Microseconds of sequential and chunked at each token count, of pull request #1372."""

HOSTILE = "<script>alert(1)</script>\"'&$x^2$ {{ 7 * 7 }}"


class Page(HTMLParser):
    """The parts of a page that the tests ask for."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.descriptions: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "desc":
            self.descriptions.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += (" " if self._open[-1] == "small" else "") + data
        if self._open and self._open[-1] == "desc":
            self.descriptions[-1] += data

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def night(day: int = 1, scale: float = 1.0, prefix: str = "", extra: tuple[Any, ...] = (), **overrides: Any) -> Record:
    """A run of the recurrences at several token counts, all green."""
    cases: list[Any] = []
    for tokens, times in TIMES.items():
        for name, us in zip(("sequential", "chunked"), times, strict=True):
            cases.append(accuracy(recurrence=prefix + name, tokens=tokens, error_out=3.2e-7))
            cases.append(determinism(recurrence=prefix + name, tokens=tokens))
            cases.append(speed(recurrence=prefix + name, tokens=tokens, median_ns=us * 1000 * scale))
    values: dict[str, Any] = {
        "run_id": f"202611{day:02}T051500Z-0123abcd",
        "started": f"2026-11-{day:02}T05:15:00.000+00:00",
        "cases": (*cases, *extra),
    }
    return record(**values | overrides)


def page(*records: Record, problems: tuple[str, ...] = ()) -> Page:
    return Page(build(records, problems, references()))


def test_the_headline_says_what_is_green_and_where_chunked_wins() -> None:
    found = page(night())
    assert (
        "All 20 checks are green; chunked wins from 92 tokens (90–93) on, 1.81 times as fast at 32,768 tokens."
        in found.words
    )
    assert "above the crossover: 36 tokens of gain (92 to 127) are left unused" in found.words


def test_the_headline_compares_many_recurrences_at_the_end() -> None:
    extra = [speed(recurrence=name, tokens=32_768, median_ns=ns) for name, ns in (("tensor", 1.5e6), ("tuned", 7.5e6))]
    text = page(night(extra=tuple(extra))).words
    assert "at 32,768 tokens tensor is 9.0" in text
    assert " times as fast as sequential, chunked 1.81, tuned 1.8" in text


def test_the_tables_show_what_is_stored() -> None:
    rows = page(night()).rows
    assert ["32", "18.4 µs 18.3–18.5 µs", "31.6 µs 31.5–31.7 µs", "0.58x 0.58–0.59"] in rows
    assert ["32,768", "13.5 ms 13.5–13.6 ms", "7.45 ms 7.43–7.47 ms", "1.81x 1.80–1.82"] in rows
    assert ["2,048", "3.2e-7 / 1.5e-7", "3.2e-7 / 1.5e-7"] in rows
    assert ["chunked", "96", "199", "0", "a" * 10, "b" * 10, "the same bits each time"] in rows
    assert ("title", "a" * 64) in page(night()).attributes


def test_every_figure_says_in_numbers_what_it_shows() -> None:
    found = page(night(1), night(2, scale=1.1))
    assert found.tags.count("svg") == len(found.descriptions) == 5
    assert ("role", "img") in found.attributes
    labels = [value.split() for name, value in found.attributes if name == "aria-labelledby"]
    assert len(labels) == 5
    assert all(set(label) <= set(found.ids) for label in labels)
    assert any("chunked is 0.58 times as fast at 32 tokens and 1.81 at 32,768" in d for d in found.descriptions)
    assert any(
        "sequential took 13.5 ms in the first of 2 runs and 14.9 ms in the last" in d for d in found.descriptions
    )


def test_the_page_loads_nothing() -> None:
    found = page(night(), night(prefix="host-", environment=environment(gpu=None)))
    assert not {"script", "link", "iframe", "img", "object"} & set(found.tags)
    links = [value for name, value in found.attributes if name in ("src", "href", "xlink:href", "data", "srcset")]
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(found.ids)
    text = build([night()], (), references())
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "http" not in text


def test_ids_are_unique() -> None:
    cases = tuple(
        speed(inputs="correlated", tokens=t, recurrence=r) for t in (32, 64) for r in ("sequential", "chunked")
    )
    one, other = (environment(gpu=name) for name in ("NVIDIA A/100", "NVIDIA A-100"))
    records = [
        night(1),
        night(2, extra=cases),
        night(3, environment=one, gpu_key="a/b"),
        night(4, environment=other, gpu_key="a-b"),
    ]
    ids = page(*records).ids
    assert len(ids) == len(set(ids)) > 20


def test_the_same_records_give_the_same_bytes() -> None:
    records = [night(1), night(2, environment=environment(driver="580.1"))]
    assert build(records, ("a",), references()) == build(records, ("a",), references())


def test_hostile_text_stays_text() -> None:
    red = accuracy(recurrence=HOSTILE, tokens=7, outcome="red", reason=HOSTILE, error_out=None)
    slow = speed(recurrence=HOSTILE, tokens=128, inputs=HOSTILE)
    odd = environment(gpu=HOSTILE, driver=HOSTILE, commit=HOSTILE, after=Clocks(throttle=HOSTILE))
    hostile = night(
        extra=(red, slow, speed(recurrence=HOSTILE)),
        environment=odd,
        gpu_key=HOSTILE,
        command=(HOSTILE,),
        notes=(HOSTILE,),
    )
    text = build([hostile, msgspec.structs.replace(hostile, run_id="b")], (HOSTILE,), references())
    found = Page(text)
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in found.words
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert found.words.count("<script>alert(1)</script>") > 8


def test_red_is_first_and_loud() -> None:
    reason = "the output has values that are not finite"
    cases = (
        accuracy(recurrence="chunked", tokens=33, outcome="red", reason=reason, error_out=None, rms_out=None),
        determinism(recurrence="chunked", tokens=600, outcome="red", differing=3, reason="3 of 199 reruns differ"),
        speed(recurrence="chunked", tokens=512, median_ns=None, outcome="red", reason=f"no time: {reason}"),
    )
    found = page(night(extra=cases))
    headline = (
        "2 of 22 checks are red: chunked accuracy at 33 tokens and chunked determinism at 600 tokens; "
        "1 time withheld, as a check is red; chunked wins"
    )
    assert headline in found.words
    assert ("class", "headline red") in found.attributes
    assert ["red", "accuracy of chunked vs fp64", "33", reason, "16x48x128, tiled heads, normal inputs"] in found.rows
    assert ["33", "–", "not finite / 1.5e-7"] in found.rows
    assert ["512", "–", "no time", "–"] in found.rows


def test_a_withheld_time_is_loud_where_no_check_is_stored() -> None:
    found = page(record(cases=(speed(median_ns=None, outcome="red", reason="no time: not finite"),)))
    assert "1 time withheld, as a check is red; no check" in found.words
    assert ("class", "headline red") in found.attributes


def test_the_silence_is_named() -> None:
    cases = (
        accuracy(tokens=65, outcome="inconclusive", reason="too noisy"),
        determinism(recurrence="chunked", tokens=8192, outcome="not measured", reason="too little memory"),
        accuracy(recurrence="chunked", against="sequential", tokens=4099),
    )
    found = page(night(extra=cases, status="partial"))
    assert "21 of 23 checks are green, none is red; 1 is inconclusive; 1 is not measured" in found.words
    assert "the newest run is partial" in found.words
    assert "Inconclusive: 1 accuracy case of sequential at 65 tokens: too noisy." in found.words
    assert "Not measured: 1 determinism case of chunked at 8,192 tokens: too little memory." in found.words
    assert "No check against FP64 at 4,099 tokens" in found.words
    assert ("class", "headline amber") in found.attributes


def test_a_narrower_newest_run_hides_nothing() -> None:
    red = determinism(recurrence="chunked", tokens=600, outcome="red", differing=1, reason="differs")
    first = night(1, extra=(red,))
    found = page(first, record(run_id="later", started="2026-11-02T00:00:00+00:00", cases=(determinism(tokens=96),)))
    assert "1 case red in an earlier run was not repeated" in found.words
    assert (
        "10 cases of earlier runs are not in the runs shown; red among them: chunked determinism at 600 tokens"
        in found.words
    )
    assert f"The newest run has no accuracy and speed cases here; those shown are of run {first.run_id}" in found.words
    assert ("class", "headline red") in found.attributes


def test_shapes_head_maps_and_inputs_are_not_mixed() -> None:
    cases = (speed(tokens=32, shape="16x32x128", median_ns=1e3), speed(tokens=32, head_map="grouped", median_ns=2e3))
    found = page(night(extra=cases))
    heads = [
        found.words.index(head) for head in ("16x48x128, tiled heads, normal", "16x48x128, grouped", "16x32x128, tiled")
    ]
    assert heads == sorted(heads)
    assert [row for row in found.rows if row[0] == "32" and "µs" in row[1]] == [
        ["32", "18.4 µs 18.3–18.5 µs", "31.6 µs 31.5–31.7 µs", "0.58x 0.58–0.59"],
        ["32", "2.00 µs 1.99–2.01 µs"],
        ["32", "1.00 µs 0.997–1.00 µs"],
        ["32", "18.4 µs", "31.6 µs", "0.58x"],
    ]


def test_a_host_run_has_its_own_baseline() -> None:
    host = environment(gpu=None, driver=None, cuda_runtime=None, cupy=None)
    found = page(night(), night(prefix="host-", environment=host))
    assert "host-chunked wins from 92 tokens" in found.words
    assert "The dispatch rule is for GPUs." in found.words
    assert any("host-sequential / host-chunked" in row for row in found.rows)


@pytest.mark.parametrize(
    ("chunked", "said"),
    [
        ((31.6, 70.0, 80.0, 470.0, 7450.0), "is below the crossover: from 128 to "),
        ((31.6, 46.0, 60.3, 470.0, 7450.0), "lies in the interval: it fits"),
        ((10.0, 10.0, 10.0, 470.0, 7450.0), "it is faster from 32 tokens on, the fewest measured"),
        ((31.6, 70.0, 80.0, 900.0, 14e3), "would still choose it from 128 tokens on"),
    ],
)
def test_the_crossover_is_held_against_the_threshold(chunked: tuple[float, ...], said: str) -> None:
    cases = tuple(
        speed(recurrence=name, tokens=tokens, median_ns=us * 1000)
        for (tokens, (base, _)), own in zip(TIMES.items(), chunked, strict=True)
        for name, us in (("sequential", base), ("chunked", own))
    )
    assert said in page(record(cases=cases)).words


def test_published_figures_are_labelled() -> None:
    found = page(night())
    assert "published, RTX 5090" in found.words
    assert any(
        "chunked, published, RTX 5090: 0.58 times as fast at 32 tokens and 1.81 at 32,768" in d
        for d in found.descriptions
    )


def test_runs_and_commands_are_listed() -> None:
    found = page(
        night(1), night(2, environment=environment(dirty=True), status="partial", command=("pytest", "-k", "a b"))
    )
    row = next(row for row in found.rows if row and row[0].startswith("2026-11-02"))
    assert row[1:] == [
        "partial",
        "0",
        "30",
        "0",
        "0123456789 with changes",
        "570.86.15",
        "12.8",
        "13.6.0",
        "cuda-graph-hot-1",
        "pytest -k 'a b'",
    ]


def test_a_run_without_cases_has_a_section() -> None:
    assert "No check of accuracy or determinism is stored" in page(record(cases=())).words


def test_figures_that_are_null_leave_holes() -> None:
    blank = accuracy(
        tokens=5, error_out=None, error_state=None, rms_out=None, rms_state=None, outcome="red", reason="NaN"
    )
    found = page(
        record(cases=(blank, accuracy(tokens=0), accuracy(tokens=1, error_out=0.0))), record(run_id="b", cases=(blank,))
    )
    assert "1 of 1 check is red" in found.words
    assert ["5", "not finite / not finite"] in found.rows


def test_nothing_stored_yet(tmp_path: Path) -> None:
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    found = Page(path.read_text())
    assert "Nothing is stored yet" in found.words
    assert "pytest --benchmark-only" in found.words


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    save(night(), tmp_path)
    (tmp_path / "history" / night().gpu_key / "torn.json").write_text("{")
    found = Page(write_report(tmp_path, tmp_path / "deep" / "a.html").read_text())
    assert "1 file could not be read, and nothing below counts it" in found.words
    assert "torn.json: " in found.words


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cannot be written: .*; name another file"):
        write("new", tmp_path)
    out = write("old", tmp_path / "a.html")
    with pytest.raises(ResultsError):
        write("new", out / "b.html")
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.5, "0.500 µs"),
        (18.44, "18.4 µs"),
        (217, "217 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (13_510, "13.5 ms"),
        (2.5e6, "2.50 s"),
        (None, "–"),
        (0, "0 µs"),
    ],
)
def test_durations(us: float | None, text: str) -> None:
    assert words.duration(us) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.1e-7, "1.1e-7"), (0.0, "0"), (9.96e-8, "1.0e-7"), (float("nan"), "–"), (2.0, "2.0e0")]
)
def test_errors(value: float, text: str) -> None:
    assert words.error(value) == text


def test_lists() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed("abc") == "a, b and c"
    assert words.listed("abcd", most=2) == "a, b and 2 more"
    assert words.tokens([1]) == "1 token"
    assert words.tokens([33, 2]) == "2 and 33 tokens"


# Out of the index


def test_the_page_of_the_index_is_that_of_the_records(tmp_path: Path) -> None:
    decade.write(tmp_path, 12, 2)
    save(record(), tmp_path)
    loaded = load(tmp_path)
    whole = build(loaded.records, loaded.problems, references())
    for _ in range(2):
        assert write_report(tmp_path).read_text() == whole


def test_a_long_history_is_drawn_thinned_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.figures.MOST_POINTS", 20)
    monkeypatch.setattr("reports.page.RECORDS_READ", 5)
    decade.write(tmp_path, 50, 1)
    path, problems, notes, runs = report(tmp_path)
    text = path.read_text()
    assert (problems, runs) == ((), 50)
    assert len(notes) == 1
    assert "50 runs kept" in text
    assert "The newest 5 of 50 runs." in text
    assert "The last 5 of 50 runs, newest first" in text
    assert "A point is the median of consecutive runs" in text
    assert "in the first of 50 runs" in text


def test_thinning_keeps_the_ends_of_the_band_and_the_order() -> None:
    line = pd.DataFrame({"place": range(1000), "median_us": [470.0] * 1000, "low_us": 460.0, "high_us": 480.0})
    line.loc[517, ["low_us", "high_us"]] = [1.0, 999.0]
    drawn = figures._thinned(line)
    assert len(drawn) == figures.MOST_POINTS
    assert drawn["place"].is_monotonic_increasing
    assert (drawn["low_us"].min(), drawn["high_us"].max()) == (1.0, 999.0)
    assert set(drawn["median_us"]) == {470.0}


def test_the_newest_run_with_alternations_is_read_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.page.RECORDS_READ", 2)
    decade.write(tmp_path, 3, 1)
    for number in range(4):
        save(record(run_id=f"z{number}", started=f"2027-01-0{number + 1}T00:00:00Z"), tmp_path)
    assert "Quality of the measurement" in write_report(tmp_path).read_text()
