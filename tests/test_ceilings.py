"""A card's peak rates are measured once and then kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.ceilings import keep_ceilings, load_ceilings, path_of
from results.schema import Ceilings
from results.store import ResultsError

FOUND = Ceilings(fma_flops=6e13, copy_bytes_per_s=4.2e12, tensor_flops=9.9e14, l2_bytes=62_914_560)


def test_the_first_are_kept_and_never_replaced(tmp_path: Path) -> None:
    assert load_ceilings(tmp_path, "card") is None
    assert keep_ceilings(FOUND, tmp_path, "card") == path_of(tmp_path, "card")
    assert keep_ceilings(Ceilings(fma_flops=1.0), tmp_path, "card") is None
    assert load_ceilings(tmp_path, "card") == FOUND
    assert load_ceilings(tmp_path, "other") is None


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    file = path_of(tmp_path, "card")
    file.parent.mkdir()
    file.write_text('{"fma_flops": "fast"}')
    with pytest.raises(ResultsError, match=r"card.json: .*fma_flops.*; restore it, or remove it"):
        load_ceilings(tmp_path, "card")
