"""Fixed work that has nothing to do with the recurrences, timed by the same clock: it tells a slower machine from
slower code, and on a GPU it measures the two ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.compile import CANARY_COPY, CANARY_FMA
from suite.clock import Work
from suite.cuda_clock import load_kernel

COPY_BYTES = 2**28
"""Size of the copied buffer on a GPU, bytes: several times any L2 cache."""

FMA_STEPS, THREADS, BLOCKS_PER_SM = 4096, 256, 8


def works(platform: str, device_sms: int | None = None) -> list[tuple[str, float, Work]]:
    """(name, work of a call, call) of each canary; the work is FLOP for "fma", bytes read and written for "copy".

    Args:
        platform: "cuda" or "host".
        device_sms: SMs of the card.

    Raises:
        MemoryError: there is no room for the buffers.
    """
    return _host() if platform == "host" else _cuda(device_sms or 1)


def _host() -> list[tuple[str, float, Work]]:
    array, factor = np.ones(2**14, np.float32), np.float32(0.5)
    source = np.ones(2**22, np.float32)
    target = np.empty_like(source)

    def fma() -> None:
        for _ in range(64):
            np.multiply(array, factor, out=array)
            np.add(array, factor, out=array)

    def copy() -> None:
        target[:] = source

    return [
        ("fma", 2.0 * 64 * array.size, Work(fma, name="canary fma")),
        ("copy", 2.0 * source.nbytes, Work(copy, name="canary copy")),
    ]


def _cuda(sms: int) -> list[tuple[str, float, Work]]:
    import cupy

    blocks = sms * BLOCKS_PER_SM
    fma, copy = load_kernel(CANARY_FMA), load_kernel(CANARY_COPY)
    once = blocks * THREADS * 4  # float4 that one turn of the loop copies
    count = COPY_BYTES // 16 // once * once
    source, target = (cupy.ones(count * 4, cupy.float32) for _ in range(2))
    found = cupy.zeros(1, cupy.float32)

    def enqueue(kernel: Any, *arguments: Any) -> None:
        kernel((blocks,), (THREADS,), arguments)

    return [
        (
            "fma",
            16.0 * FMA_STEPS * blocks * THREADS,
            Work(lambda: enqueue(fma, found, np.float32(0.5), np.int32(FMA_STEPS)), name="canary fma"),
        ),
        (
            "copy",
            32.0 * count,
            Work(lambda: enqueue(copy, target, source, np.int64(count)), name="canary copy"),
        ),
    ]
