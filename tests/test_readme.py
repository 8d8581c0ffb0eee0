"""The figures of the README and of the kernels' page are those of the record that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.schema import Speed
from results.store import load

ROOT = Path(__file__).parents[1]
UNITS = {"µs": 1e3, "ms": 1e6}
PAGES = ("README.md", "docs/kernels.md")


TABLE = r"^\| tokens .*\n\|[-|]+\n(?:\|.*\n)+"
RECORD = r"record\s\[`([\w-]+)`\]"


def tables(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Tables whose first column is called tokens: the record named last before it, and rows of cells, the head first.

    The README names its record below the table: there the first one counts.
    """
    for table in re.finditer(TABLE, text, re.MULTILINE):
        before = re.findall(RECORD, text[: table.start()]) or re.findall(RECORD, text)[:1]
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()]
        yield before[-1], rows


def shown(text: str, ns: float) -> str:
    """A time with as many digits as the text has, in the text's unit."""
    number, unit = text.split()
    return f"{ns / UNITS[unit]:.{len(number.partition('.')[2])}f} {unit}"


@pytest.mark.parametrize("page", PAGES)
def test_times_are_the_records(page: str) -> None:
    text = (ROOT / page).read_text()
    records = {one.run_id: one for one in load(ROOT / "results").records}
    found = list(tables(text))
    assert found
    for run_id, (head, _, *rows) in found:
        record = records[run_id]
        assert record.environment.dirty is False
        times = {(c.recurrence, c.tokens): c.median_ns for c in record.cases if isinstance(c, Speed)}
        names = [name for name in (re.fullmatch(r"`([\w-]+)`", cell) for cell in head) if name]
        assert names
        assert len(rows) >= 6
        for row in rows:
            tokens = int(row[0].replace(",", ""))
            ns = [times[name[1], tokens] for name in names]
            assert all(ns)
            assert row[1 : 1 + len(ns)] == [shown(cell, one) for cell, one in zip(row[1:], ns, strict=False) if one]
            if len(row) > 1 + len(ns):  # the last column: how much faster the last is than the first
                assert row[-1] == f"{ns[0] / ns[-1]:.2f}x"  # type: ignore[operator]
