"""How the tensor-core recurrence cuts a call into spans: one is prepared while the one before it is scanned."""

from kernels.compile import CHUNK

FIRST_SPAN, SPAN_GROWTH, LARGEST_SPAN = 1024, 1.3, 2112
"""Tokens. Nothing runs beside the preparation of the first span, so it is short. A later one may be longer than the one
before it by as much as the preparation, on the SMs that a scan leaves, is faster than the scan: on an H200 39 and 50 us
per 1,024 tokens, and a scan takes 4 us to begin and end. The largest one bounds the scratch."""


def spans(tokens: int) -> list[int]:
    """The first token of each span, and `tokens` at the end; as few spans as their sizes allow.

    Spans begin at multiples of `CHUNK`, and none is longer than `LARGEST_SPAN`.
    """
    ends, size = [0], FIRST_SPAN
    while ends[-1] < tokens:
        ends.append(ends[-1] + size)
        size = min(int(size * SPAN_GROWTH) // CHUNK * CHUNK, LARGEST_SPAN)
    # Shorten all alike: a short last span would cost as much to begin as a long one.
    return [min(-(-end * tokens // (ends[-1] * CHUNK)) * CHUNK, tokens) for end in ends] if tokens else ends
