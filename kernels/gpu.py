"""The CUDA recurrences of FP32 multiplications, and how kernels are loaded; those of tensor cores are in tensor.py."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from kernels.compile import (
    CHUNK,
    PREPARE,
    PREPARED_FLOATS,
    REFERENCE,
    SCAN,
    SEQUENTIAL,
    SEQUENTIAL_TUNED,
    SUPER_BLOCK,
    TENSOR_SOURCES,
    Source,
    compiled,
    scan_shared_bytes,
    tensor_shared_bytes,
)
from kernels.dispatch import DeviceFacts, choose
from kernels.problem import HEAD_DIM, Array, Problem, ProblemError, Shape
from kernels.registry import Recurrence, register


@functools.cache
def facts(device: int) -> DeviceFacts:
    """Facts of a device, by its CUDA index."""
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    return DeviceFacts(
        name=properties["name"].decode(),
        sms=properties["multiProcessorCount"],
        compute_capability=properties["major"] * 10 + properties["minor"],
        shared_per_block=properties["sharedMemPerBlockOptin"],
        shared_per_sm=properties["sharedMemPerMultiprocessor"],
    )


def current_facts() -> DeviceFacts:
    """Facts of CuPy's current device."""
    return facts(cupy.cuda.runtime.getDevice())


@functools.cache
def loaded(source: Source, shape: Shape, device: int) -> Any:
    """The loaded kernel; its shared-memory attribute is set here, once."""
    code = compiled(source, shape, facts(device).compute_capability).code
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(code)
        kernel = cupy.RawModule(path=str(cubin)).get_function(source.entry)
        kernel.compile()
    if shared := _shared_bytes(source, shape):
        kernel.max_dynamic_shared_size_bytes = shared
    return kernel


def _shared_bytes(source: Source, shape: Shape) -> int:
    """Dynamic shared memory that a block of the kernel asks for."""
    if source is SCAN:
        return scan_shared_bytes(SCAN.heads(shape))
    return tensor_shared_bytes(source) if source in TENSOR_SOURCES else 0


class Scratch:
    """Float32 scratch of a recurrence: allocated on the first use for a shape on a device, and kept.

    Calls on one device share it, so they must be ordered: one stream at a time.

    Args:
        dimensions: those of the array, from the shape.
    """

    def __init__(self, dimensions: Callable[[Shape], tuple[int, ...]]) -> None:
        self._dimensions = dimensions
        self._kept: dict[tuple[Shape, int], Any] = {}

    def __call__(self, shape: Shape, device: int) -> Any:
        """The array for a shape on a device, by its CUDA index."""
        if (shape, device) not in self._kept:
            self._kept[shape, device] = cupy.empty(self._dimensions(shape), cupy.float32)
        return self._kept[shape, device]

    def here(self) -> list[Any]:
        """All arrays on the current device."""
        here = cupy.cuda.runtime.getDevice()
        return [array for (_, device), array in self._kept.items() if device == here]


# The chunked pair's: 16.9 MB for the default shape.
_scratch = Scratch(lambda shape: (SUPER_BLOCK // CHUNK * shape.value_heads * PREPARED_FLOATS,))


def scan_unsupported(scan: Source, shape: Shape) -> str | None:
    """Why a scan cannot run on the current device, for want of instructions or of shared memory; None where it can."""
    device, needed = current_facts(), _shared_bytes(scan, shape)
    if reason := scan.unsupported(device.compute_capability):
        return f"the scan {reason}"
    have = device.shared_per_block
    return None if have >= needed else f"opt-in shared memory is {have:,} bytes a block; {needed:,} are wanted"


def checked_device(problem: Problem, out: Array, state: Array) -> int:
    """The current device, once all arrays of a call are found to fit and to lie there."""
    problem.check_out(out, state)
    device = int(cupy.cuda.runtime.getDevice())
    if problem.device != f"cuda:{device}":
        raise ProblemError(f"qkv lies on {problem.device}; the current device is cuda:{device}, make it the other one")
    return device


def _enqueue_sequential(problem: Problem, out: Array, state: Array) -> None:
    shape, device = problem.shape, checked_device(problem, out, state)
    if problem.tokens == 0:
        return
    blocks = shape.key_heads * (shape.group // SEQUENTIAL.heads(shape)) * (HEAD_DIM // 32)
    loaded(SEQUENTIAL, shape, device)(
        (blocks,), (128,), (problem.qkv, problem.gate, problem.beta, state, out, np.int32(problem.tokens))
    )


TUNED_MIN_TOKENS = 6
"""Fewer go to the plain kernel, which has less to set up: on an H200 it takes 3.2 us at one token, and the tuned one
4.4 us; at 5 tokens it is 4.9 and 5.1 us, at 6 tokens 5.4 and 5.2 us."""

TUNED_THREADS = 256
"""Threads of its block (`THREADS` in sequential_tuned.cu): four warps with the state and four that prepare."""


def _enqueue_sequential_tuned(problem: Problem, out: Array, state: Array) -> None:
    if problem.tokens < TUNED_MIN_TOKENS:
        _enqueue_sequential(problem, out, state)
        return
    shape, device = problem.shape, checked_device(problem, out, state)
    heads = SEQUENTIAL_TUNED.heads(shape)
    blocks = shape.key_heads * (shape.group // heads) * (HEAD_DIM // 16)
    loaded(SEQUENTIAL_TUNED, shape, device)(
        (blocks,), (TUNED_THREADS,), (problem.qkv, problem.gate, problem.beta, state, out, np.int32(problem.tokens))
    )


def _enqueue_chunked(problem: Problem, out: Array, state: Array) -> None:
    shape, device = problem.shape, checked_device(problem, out, state)
    prepare, scan = loaded(PREPARE, shape, device), loaded(SCAN, shape, device)
    scratch, heads, tokens = _scratch(shape, device), SCAN.heads(shape), problem.tokens
    blocks = shape.key_heads * (shape.group // heads) * (HEAD_DIM // 16)
    for first in range(0, tokens, SUPER_BLOCK):
        chunks = -(-min(SUPER_BLOCK, tokens - first) // CHUNK)
        span = (np.int32(first), np.int32(tokens))
        prepare((chunks * shape.key_heads,), (128,), (problem.qkv, problem.gate, problem.beta, scratch, *span))
        scan(
            (blocks,),
            (256,),
            (problem.qkv, scratch, state, out, *span),
            shared_mem=scan_shared_bytes(heads),
        )


def _enqueue_dispatched(problem: Problem, out: Array, state: Array) -> None:
    """What an engine does: `choose`, and the sequential kernel where the scratch cannot be had."""
    choice = choose(current_facts(), problem.tokens, os.environ, problem.shape)
    if choice.recurrence == "chunked":
        try:
            _scratch(problem.shape, cupy.cuda.runtime.getDevice())
        except cupy.cuda.memory.OutOfMemoryError:
            _enqueue_sequential(problem, out, state)
            return
        _enqueue_chunked(problem, out, state)
    else:
        _enqueue_sequential(problem, out, state)


def reference_gpu(problem: Problem) -> tuple[Array, Array]:
    """The recurrence token by token in FP64 on the GPU: (out [T, HV, D], state [D, HV, D]), float64."""
    shape = problem.shape
    out = cupy.empty((problem.tokens, shape.value_heads, HEAD_DIM), cupy.float64)
    state = problem.state.astype(cupy.float64)
    if problem.tokens:
        kernel = loaded(REFERENCE, shape, cupy.cuda.runtime.getDevice())
        arguments = (problem.qkv, problem.gate, problem.beta, state, out, np.int32(problem.tokens))
        kernel((shape.value_heads * (HEAD_DIM // 16),), (256,), arguments)
    return out, state


register(Recurrence("sequential", "cuda", _enqueue_sequential, sources=lambda: (SEQUENTIAL,), unit="fp32"))
register(
    Recurrence(
        "sequential-tuned",
        "cuda",
        _enqueue_sequential_tuned,
        sources=lambda: (SEQUENTIAL_TUNED, SEQUENTIAL),
        unit="fp32",
    )
)
register(
    Recurrence(
        "chunked",
        "cuda",
        _enqueue_chunked,
        unsupported=lambda problem: scan_unsupported(SCAN, problem.shape),
        scratch=_scratch.here,
        sources=lambda: (PREPARE, SCAN),
        unit="fp32",
    )
)
register(
    Recurrence(
        "dispatched",
        "cuda",
        _enqueue_dispatched,
        scratch=_scratch.here,
        sources=lambda: (SEQUENTIAL, PREPARE, SCAN),
        minor=True,
        unit="fp32",
    )
)
