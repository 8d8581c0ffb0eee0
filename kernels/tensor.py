"""The tensor-core recurrence on the GPU, in two builds, and `auto`, which chooses among all recurrences."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from kernels import auto
from kernels.compile import (
    CHUNK,
    TENSOR_PREPARE,
    TENSOR_SCAN,
    TENSOR_SCAN_WGMMA,
    TENSOR_SMALL,
    TENSOR_SMALL_WGMMA,
    Source,
    tensor_chunk_bytes,
    tensor_output_groups,
    tensor_shared_bytes,
)
from kernels.gpu import Scratch, checked_device, current_facts, facts, loaded, scan_unsupported
from kernels.problem import Array, Problem, Shape
from kernels.registry import Recurrence, recurrence, recurrences, register
from kernels.spans import LARGEST_SPAN, spans
from kernels.timetable import shipped_tables


@dataclass(frozen=True)
class Build:
    """The kernels of one build.

    Attributes:
        scan: the walk over prepared chunks.
        small: all in one launch, for at most `small_tokens` tokens.
    """

    scan: Source
    small: Source

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (1 + tensor_output_groups(self.scan))

    @property
    def small_tokens(self) -> int:
        """Tokens up to which one launch does all."""
        return CHUNK * tensor_output_groups(self.small)

    @property
    def sources(self) -> tuple[Source, ...]:
        return TENSOR_PREPARE, self.scan, self.small

    def unsupported(self, problem: Problem) -> str | None:
        """Why it cannot run on the current device, or None where it can."""
        return scan_unsupported(self.scan, problem.shape)


SM80 = Build(TENSOR_SCAN, TENSOR_SMALL)
SM90A = Build(TENSOR_SCAN_WGMMA, TENSOR_SMALL_WGMMA)


def _best_build() -> Build:
    return SM90A if current_facts().compute_capability == SM90A.scan.only_arch else SM80


# Room for the prepared chunks of two spans.
_rooms = Scratch(lambda shape: (2, LARGEST_SPAN // CHUNK * tensor_chunk_bytes(shape) // 4))


@functools.cache
def _side(device: int) -> tuple[Any, Any, Any]:
    """A second stream of the device, and the events that fork to it and join it."""
    event = functools.partial(cupy.cuda.Event, disable_timing=True)
    return cupy.cuda.Stream(non_blocking=True), event(), event()


def _enqueue(build: Build, problem: Problem, out: Array, state: Array) -> None:
    """One launch: a kernel where one does all, else a graph; the first time for these arrays what the graph holds."""
    shape, device, tokens = problem.shape, checked_device(problem, out, state), problem.tokens
    if tokens > build.small_tokens:
        _graphs(build, problem, out, state, device)
    elif tokens:
        arguments = (problem.qkv, problem.gate, problem.beta, state, out, np.int32(tokens))
        loaded(build.small, shape, device)(
            (2 * shape.value_heads,), (build.threads,), arguments, shared_mem=tensor_shared_bytes(build.small)
        )


def _enqueue_spans(build: Build, problem: Problem, out: Array, state: Array, device: int) -> None:
    """Prepare a span, scan it, and prepare the next one meanwhile."""
    shape, tokens = problem.shape, problem.tokens
    grid, block, shared = (2 * shape.value_heads,), (build.threads,), tensor_shared_bytes(build.scan)
    inputs = (problem.qkv, problem.gate, problem.beta)
    prepare, scan = loaded(TENSOR_PREPARE, shape, device), loaded(build.scan, shape, device)
    rooms, (side, fork, join) = _rooms(shape, device), _side(device)
    here = cupy.cuda.get_current_stream()
    ends = spans(tokens)

    def chunks(index: int) -> int:
        return -(-(ends[index + 1] - ends[index]) // CHUNK)

    def prepare_span(index: int, stream: Any) -> None:
        span = (rooms[index % 2], np.int32(ends[index]), np.int32(tokens))
        prepare((chunks(index) * shape.key_heads,), (128,), (*inputs, *span), stream=stream)

    prepare_span(0, here)
    for index, start in enumerate(ends[:-1]):
        more = index + 2 < len(ends)
        if more:
            fork.record(here)
        span = (np.int32(start), np.int32(tokens), np.int32(chunks(index)))
        scan(grid, block, (problem.qkv, rooms[index % 2], state, out, *span), shared_mem=shared)
        if more:
            side.wait_event(fork)
            prepare_span(index + 1, side)
            join.record(side)
            here.wait_event(join)


class _Graphs:
    """Calls that come again with the same arrays, as graphs: to launch one costs the host less than all its kernels."""

    MOST = 64

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Any] = OrderedDict()  # None for a call that came once

    def __call__(self, build: Build, problem: Problem, out: Array, state: Array, device: int) -> None:
        here = cupy.cuda.get_current_stream()
        if here.is_capturing():
            _enqueue_spans(build, problem, out, state, device)
            return
        arrays = (problem.qkv, problem.gate, problem.beta, out, state)
        key = (build, problem.shape, device, problem.tokens, *(array.data.ptr for array in arrays))
        came_before, graph = key in self._kept, self._kept.pop(key, None)
        if came_before and graph is None:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                stream.begin_capture()
                _enqueue_spans(build, problem, out, state, device)
                graph = stream.end_capture()
        if graph is None:
            _enqueue_spans(build, problem, out, state, device)
        else:
            graph.launch(here)
        self._kept[key] = graph
        if len(self._kept) > self.MOST:
            self._kept.popitem(last=False)


_graphs = _Graphs()


def _enqueue_best(problem: Problem, out: Array, state: Array) -> None:
    _enqueue(_best_build(), problem, out, state)


_RULES: dict[tuple[Shape, int], auto.Rule] = {}


def _enqueue_auto(problem: Problem, out: Array, state: Array) -> None:
    """The fastest recurrence by this card's table; the tuned sequential one where the scratch cannot be had."""
    shape, device = problem.shape, int(cupy.cuda.runtime.getDevice())
    if (shape, device) not in _RULES:
        _RULES[shape, device] = auto.rule(shipped_tables(), facts(device), shape, auto.available(problem))
    chosen = recurrence(_RULES[shape, device].recurrence(problem.tokens))
    try:
        chosen.enqueue(problem, out, state)
    except cupy.cuda.memory.OutOfMemoryError:
        recurrence("sequential-tuned").enqueue(problem, out, state)


register(
    Recurrence(
        "tensor",
        "cuda",
        _enqueue_best,
        unsupported=lambda problem: _best_build().unsupported(problem),
        scratch=_rooms.here,
        sources=lambda: _best_build().sources,
        unit="tensor",
    )
)
register(
    Recurrence(
        "tensor-sm80",
        "cuda",
        functools.partial(_enqueue, SM80),
        unsupported=SM80.unsupported,
        scratch=_rooms.here,
        sources=lambda: SM80.sources,
        minor=True,
        unit="tensor",
    )
)


def _all_sources() -> tuple[Source, ...]:
    """Those of every recurrence that `auto` may choose."""
    others = [one for one in recurrences("cuda") if one.name not in auto.NEVER]
    return tuple(dict.fromkeys(source for one in others for source in one.sources()))


register(Recurrence("auto", "cuda", _enqueue_auto, scratch=_rooms.here, sources=_all_sources))
