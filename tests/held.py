"""python tests/held.py LEFT: times in ms of recurrences while another kernel holds all but LEFT of the SMs, as JSON."""

from __future__ import annotations

import json
import sys
import time

import cupy
import numpy as np

from kernels import Problem, Shape, recurrence
from kernels.inputs import make
from kernels.reference import error, reference

SPIN = r"""
extern "C" __global__ void spin(int* started, volatile int* release, long long limit) {
    const long long start = clock64();
    atomicAdd(started, 1);
    while (!*release && clock64() - start < limit) __nanosleep(1000);
}
"""
LIMIT = np.int64(10_000_000_000)  # clocks, about 5 s, after which a block ends by itself


class Holder:
    """Holds SMs by blocks with all of an SM's shared memory.

    Args:
        held: SMs to hold.

    Raises:
        TimeoutError: The blocks do not run within 2 s.
        RuntimeError: They ended before they were let go.
    """

    def __init__(self, held: int) -> None:
        self.held, self.flags = held, cupy.zeros(2, cupy.int32)  # blocks that run; whether they may end
        self.spin = cupy.RawKernel(SPIN, "spin")
        self.shared = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        self.spin.max_dynamic_shared_size_bytes = self.shared
        self.stream, self.other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def __enter__(self) -> None:
        self.flags.fill(0)
        cupy.cuda.Device().synchronize()
        flags = (self.flags[:1], self.flags[1:])
        self.spin((self.held,), (32,), (*flags, LIMIT), shared_mem=self.shared, stream=self.stream)
        patience = time.monotonic() + 2
        while (running := int(self.flags.get(stream=self.other)[0])) < self.held:
            if time.monotonic() > patience:
                raise TimeoutError(f"{running} of {self.held} blocks hold an SM")

    def __exit__(self, *_: object) -> None:
        ended = self.stream.done
        with self.other:
            self.flags[1:].fill(1)
        self.stream.synchronize()
        if ended:
            raise RuntimeError("the SMs were let go before the recurrence was done")


def held_time(holder: Holder, name: str, problem: Problem) -> float:
    """Milliseconds of one call while the SMs are held; its results are held to 1.1e-6."""
    one, stream = recurrence(name), cupy.cuda.Stream(non_blocking=True)
    out, state = one(problem)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    with holder, stream:
        one.enqueue(problem, out, state)  # once, to be past what a first call costs
        state[...] = problem.state
        start.record()
        one.enqueue(problem, out, state)
        end.record()
        end.synchronize()
    found = max(error(got, wanted).max for got, wanted in zip((out, state), reference(problem), strict=True))
    if not found <= 1.1e-6:
        raise ArithmeticError(f"{name}, {problem.tokens} tokens: error {found:.1e}")
    return float(cupy.cuda.get_elapsed_time(start, end))


def main(left: int) -> None:
    holder = Holder(cupy.cuda.Device().attributes["MultiProcessorCount"] - left)
    whole = make(Shape(), 2048).map(cupy.asarray)
    names = ("sequential", "tensor")
    print(json.dumps({t: {name: held_time(holder, name, whole.head(t)) for name in names} for t in (512, 2048)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
