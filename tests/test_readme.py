"""The README's figures are those of the record that it names."""

from __future__ import annotations

import re
from pathlib import Path

from results.schema import Speed
from results.store import load

ROOT = Path(__file__).parents[1]
UNITS = {"µs": 1e3, "ms": 1e6}


def test_the_readmes_times_are_the_records() -> None:
    text = (ROOT / "README.md").read_text()
    (run_id,) = set(re.findall(r"record \[`([\w-]+)`\]", text))
    loaded = load(ROOT / "results")
    (record,) = (one for one in loaded.records if one.run_id == run_id)
    assert record.environment.dirty is False
    times = {(c.recurrence, c.tokens): c.median_ns for c in record.cases if isinstance(c, Speed)}
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) (\S+) \| ([\d.]+) (\S+) \| ([\d.]+)x \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for count, first, first_unit, second, second_unit, gain in rows:
        pair = [times[name, int(count.replace(",", ""))] for name in ("sequential", "chunked")]
        for shown, unit, ns in ((first, first_unit, pair[0]), (second, second_unit, pair[1])):
            assert ns is not None
            digits = len(shown.partition(".")[2])
            assert f"{ns / UNITS[unit]:.{digits}f}" == shown
        assert f"{pair[0] / pair[1]:.2f}" == gain  # type: ignore[operator]
