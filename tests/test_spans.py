"""Cutting a call into spans."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kernels.compile import CHUNK
from kernels.spans import FIRST_SPAN, LARGEST_SPAN, spans


@pytest.mark.parametrize("tokens", [1, 31, 33, 1024, 1025, 2048, 4099, 8192, 32_768, 1_000_003])
def test_spans_cover_all_tokens_once(tokens: int) -> None:
    ends = spans(tokens)
    assert ends[0] == 0
    assert ends[-1] == tokens
    sizes = [later - earlier for earlier, later in pairwise(ends)]
    assert all(0 < size <= LARGEST_SPAN for size in sizes)
    assert all(end % CHUNK == 0 for end in ends[:-1])
    assert sizes[0] <= FIRST_SPAN


def test_no_tokens_are_no_span() -> None:
    assert spans(0) == [0]


def test_no_span_is_a_mere_rest() -> None:
    """One token more than a span holds makes two of about a half, not a full one and a span of one token."""
    ends = spans(FIRST_SPAN + 1)
    assert len(ends) == 3
    assert ends[1] > FIRST_SPAN // 3


def test_long_calls_take_the_fewest_spans() -> None:
    assert len(spans(8192)) - 1 == 5  # 1024, 1312, 1696, 2112, 2112 at most
