"""Comparisons as text, Markdown, JSON and JUnit XML."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from reports import words
from results.compare import FINE, NOT_COMPARABLE, NOTHING, REGRESSION, WRONG, Comparison
from results.crossing import Tracked
from results.steps import Step
from results.verdicts import Case

MEANING = {
    FINE: "fine",
    REGRESSION: "slower",
    WRONG: "wrong or not deterministic",
    NOTHING: "nothing or not enough was measured",
    NOT_COMPARABLE: "not comparable",
}
WORST_FIRST = (WRONG, REGRESSION, NOT_COMPARABLE, NOTHING, FINE)

MOST = 60
"""Rows of a table in Markdown: a comment on a pull request holds 65,536 characters."""

QUIET = ("same", "new")
"""Verdicts that are counted and not listed."""


def exit_code(found: Sequence[Comparison]) -> int:
    """The worst of all."""
    codes = {one.exit_code for one in found}
    return next((code for code in WORST_FIRST if code in codes), NOTHING)


def render(found: Sequence[Comparison], how: str) -> str:
    """The comparisons in a format: text, markdown, json or junit."""
    return {"text": text, "markdown": markdown, "json": as_json, "junit": junit}[how](found)


def text(found: Sequence[Comparison]) -> str:
    """A few lines for each card, the worst case first."""
    return "\n\n".join("\n".join(_text(one)) for one in found) + "\n"


def _text(one: Comparison) -> Iterator[str]:
    yield f"{title(one)}: {headline(one)}"
    yield from (f"  {line}" for line in _against(one))
    yield f"  {census(one)}"
    for case in listed(one):
        yield f"  {case.verdict:<12}  {case.name}{_place(case, one)}: {case.told}"
    for verdict, reason, number in one.census.unjudged:
        if verdict in QUIET:
            yield f"  {verdict:<12}  {words.count(number, 'case')}: {reason}"
    yield from (f"  {line}" for line in beside(one))


def title(one: Comparison) -> str:
    """Which card and run it is."""
    if one.gpu_key is None:
        return "no run"
    run = f"{one.gpu_key}, {one.run_id} of {one.started}"
    if len(one.runs) > 1:
        run += f" and {words.count(len(one.runs) - 1, 'process', 'processes')} more of its night"
    return f"{run}, commit {words.commit(one.commit, one.dirty)}"


def headline(one: Comparison) -> str:
    """What the exit code means, with the verdicts that it comes from."""
    worst = [f"{number:,} {verdict}" for verdict, number in one.census.verdicts.items() if verdict not in QUIET]
    said = MEANING[one.exit_code].upper() if one.exit_code else MEANING[FINE]
    return f"{said} (exit code {one.exit_code})" + (f"; {words.listed(worst)}" if worst else "")


def _against(one: Comparison) -> Iterator[str]:
    if one.said:
        yield one.said
    if one.baseline is not None:
        because = f", {one.baseline.because!r}" if one.baseline.because else ""
        runs = words.count(one.accepted, "accepted run")
        yield f"against {one.baseline.run_id}, accepted {words.utc(one.baseline.accepted)}{because}; {runs} in all"


def census(one: Comparison) -> str:
    """How many of how many cases were judged."""
    counts = [f"{number:,} {verdict}" for verdict, number in one.census.verdicts.items()]
    told = f": {words.listed(counts)}" if counts else ""
    return f"{one.census.judged:,} of {words.count(one.census.cases, 'case')} judged{told}"


def listed(one: Comparison) -> list[Case]:
    """The cases that are not only counted."""
    return [case for case in one.cases if case.verdict not in QUIET or case.bits_changed]


def _place(case: Case, one: Comparison) -> str:
    """Shape, head map and inputs, where the cases differ in them."""
    places = {(other.shape, other.head_map, other.inputs) for other in one.cases}
    return f" ({case.shape}, {case.head_map}, {case.inputs} inputs)" if len(places) > 1 else ""


def beside(one: Comparison) -> Iterator[str]:
    """What else there is to tell: the environment, the crossovers, the history, notes and problems."""
    for name, old, new in one.environment:
        yield f"changed since the baseline: {name} {old} → {new}"
    for crossed in one.crossovers:
        yield crossing(crossed)
    for step in one.changes:
        yield stepped(step)
    yield from (f"note: {note}" for note in one.notes)
    yield from (f"cannot be used, and was left as it is: {problem}" for problem in one.problems)


def crossing(one: Tracked) -> str:
    """A crossover with its history, its alarm and the threshold for this card."""
    said = f"crossover of {one.recurrence} with {one.baseline}: {one.now.describe()}"
    if one.before:
        said += f"; in the baseline {one.before[-1][1].describe()}"
        known = [math.ceil(found.tokens) for _, found in one.before if found.tokens is not None]
        if len(known) > 1:
            said += f"; {min(known):,} to {max(known):,} over {len(known)} accepted runs"
    if one.note:
        said += f"; {one.note}"
    if one.threshold is not None and one.recommended is not None:
        said += f"; recommended for this card: from {one.recommended:,} tokens on"
    return f"ALARM: {one.alarm}; {said}" if one.alarm else said


def stepped(one: Step) -> str:
    """A change of level: where, how large, how sure, between which commits, and what changed there."""
    commits = " → ".join(words.commit(name, False) for name in one.commits)
    return (
        f"{one.kind} of the {one.what}: {one.ratio - 1:+.2%}, p {one.p:.1g}, between {one.first} and {one.last} "
        f"(commits {commits}): {one.cause}, {one.reason}"
    )


# Markdown


def markdown(found: Sequence[Comparison]) -> str:
    """For a comment on a pull request or a step's summary of GitHub Actions."""
    return "\n".join(line for one in found for line in (*_markdown(one), ""))


def _markdown(one: Comparison) -> Iterator[str]:
    yield f"### gdn-bench: {_escaped(headline(one))}"
    yield ""
    yield f"{_escaped(title(one))}  "
    yield from (f"{_escaped(line)}  " for line in _against(one))
    yield _escaped(census(one))
    rows = listed(one)
    if rows:
        yield ""
        yield "| verdict | case | now | accepted | change | reason |"
        yield "|---|---|--:|--:|--:|---|"
        yield from (_row(case, one) for case in rows[:MOST])
        if len(rows) > MOST:
            yield f"| | {len(rows) - MOST:,} more | | | | |"
    alarms = [crossed for crossed in one.crossovers if crossed.alarm]
    for crossed in alarms:
        yield from ("", "> [!WARNING]", f"> {_escaped(crossing(crossed))}")
    others = [line for line in beside(one) if not line.startswith("ALARM")]
    if others:
        yield from ("", "<details><summary>Environment, crossovers and history</summary>", "")
        yield from (f"- {_escaped(line)}" for line in others[:MOST])
        if len(others) > MOST:
            yield f"- {len(others) - MOST:,} more"
        yield from ("", "</details>")


def _row(case: Case, one: Comparison) -> str:
    change = words.ABSENT
    if case.ratio is not None and case.low is not None and case.high is not None:
        change = f"{case.ratio - 1:+.2%} ({case.low - 1:+.1%} to {case.high - 1:+.1%})"
    figures = [_figure(case, value) for value in (case.value, case.baseline)]
    bold = f"**{case.verdict}**" if case.verdict in ("wrong", "unstable", "slower", "missing") else case.verdict
    name = _escaped(case.name + _place(case, one))
    reason = case.told if len(case.told) <= 400 else f"{case.told[:400]}…"
    return f"| {bold} | {name} | {' | '.join(figures)} | {change} | {_escaped(reason)} |"


def _figure(case: Case, value: float | None) -> str:
    if value is None:
        return words.ABSENT
    return words.duration(value) if case.kind == "speed" else words.error(value)


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is: one line, no table's bar, no tag, no emphasis, nobody mentioned."""
    line = " ".join(text.split())
    line = re.sub(r"([\\`*_|\[\]#~])", r"\\\1", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


# JSON and JUnit


def as_json(found: Sequence[Comparison]) -> str:
    """Everything, as one object: exit_code, meaning, and comparisons with the attributes of `Comparison`."""
    code = exit_code(found)
    values = {"exit_code": code, "meaning": MEANING[code], "comparisons": [_plain(one) for one in found]}
    return json.dumps(values, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """The value of JSON's types; what is not finite becomes null."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def junit(found: Sequence[Comparison]) -> str:
    """A suite for each card, a test for each case; what was not judged is skipped, with its reason."""
    root = ElementTree.Element("testsuites", name="gdn-bench")
    for one in found:
        suite = ElementTree.SubElement(root, "testsuite", name=_printable(one.gpu_key or "no run"))
        tests = [_whole(one), *(_test(case) for case in one.cases)]
        suite.extend(tests)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(sum(test.find(tag) is not None for test in tests)))
        suite.set("tests", str(len(tests)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _whole(one: Comparison) -> ElementTree.Element:
    """The comparison as a whole, which can fail without any case that does."""
    test = ElementTree.Element("testcase", classname="gdn-bench", name="comparison")
    told = _printable("; ".join([headline(one), one.said, *one.problems]))
    if one.exit_code in (NOTHING, NOT_COMPARABLE):
        ElementTree.SubElement(test, "error", message=told)
    return test


def _test(case: Case) -> ElementTree.Element:
    place = f"{case.shape}, {case.head_map}, {case.inputs} inputs"
    test = ElementTree.Element("testcase", classname=f"gdn-bench.{case.kind}", name=_printable(f"{case.name}, {place}"))
    tags = {"slower": "failure", "wrong": "error", "unstable": "error", "missing": "error"}
    tags |= dict.fromkeys(("inconclusive", "not measured", "new"), "skipped")
    if case.verdict in tags:
        ElementTree.SubElement(test, tags[case.verdict], message=_printable(f"{case.verdict}: {case.told}"))
    else:
        ElementTree.SubElement(test, "system-out").text = _printable(f"{case.verdict}: {case.told}")
    return test


def _printable(text: str) -> str:
    """Without the characters that XML 1.0 does not allow."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
