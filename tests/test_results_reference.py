"""What ships with the results: the published figures and the schema's document."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.document import schema_markdown
from results.reference import references

ROOT = Path(__file__).parents[1]


def test_the_published_figures_are_the_sources() -> None:
    (one,) = references()
    assert (one.gpu, one.sms, one.shape) == ("NVIDIA GeForce RTX 5090", 170, "16x48x128")
    assert "#1372" in one.source
    assert len(one.accuracy) == 16
    assert len(one.speed) == 14
    errors = {(e.recurrence, e.against, e.tokens): (e.error_out, e.error_state) for e in one.accuracy}
    assert errors["sequential", "fp64", 1] == (1.7e-7, 9.5e-8)
    assert errors["chunked", "fp64", 4099] == (1.05e-6, 2.8e-7)
    assert errors["chunked", "sequential", 32768] == (9.0e-7, 4.8e-7)
    assert ("chunked", "fp64", 32768) not in errors


@pytest.mark.parametrize(
    ("tokens", "gain"), [(32, 0.58), (96, 1.03), (128, 1.20), (512, 1.67), (2048, 1.81), (8192, 1.81), (32768, 1.82)]
)
def test_the_published_times_give_the_published_gains(tokens: int, gain: float) -> None:
    times = {one.recurrence: one.median_us for one in references()[0].speed if one.tokens == tokens}
    # The times are rounded to as little as two digits.
    assert times["sequential"] / times["chunked"] == pytest.approx(gain, abs=0.011)


def test_the_schemas_document_is_what_the_schema_yields() -> None:
    written = (ROOT / "docs/schema.md").read_text()
    assert written == schema_markdown(), "run: python -m results.document > docs/schema.md"


def test_the_document_has_every_part_and_key() -> None:
    text = schema_markdown()
    parts = ["Record", "Method", "Environment", "Clocks", "Accuracy", "Determinism", "Difference", "Speed"]
    for part in [*parts, "Times", "Dropped", "Host", "Look", "Group", "Canary", "Ceilings"]:
        assert f"\n## {part}\n" in text
    for key in ("schema", "gpu_key", "samples_ns", "sha256_out", "kind", "throttle", "aa_ratio", "samples_mhz"):
        assert f"| `{key}` |" in text
