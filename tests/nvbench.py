"""The recurrences timed by NVIDIA's cuda-bench: `pip install cuda-bench[cu13]`, then

    PYTHONPATH=. python tests/nvbench.py --csv FILE

Its batch times are of what is enqueued one after the other, so they hold what a plain call costs the host where that is
longer than the device needs for it, as for the two launches of `chunked` at 32 tokens. So it is given graphs as well:
of the calls that the axis says, and 0 is a plain call.
"""

from __future__ import annotations

import sys
from typing import Any

from suite.cuda_clock import captured
from suite.profile import _work


def gdn(state: Any) -> None:
    import cupy

    work, calls = _work(state.get_string("recurrence"), state.get_int64("tokens")), state.get_int64("calls")
    for _ in range(3):
        work.call()
    cupy.cuda.Device().synchronize()
    with cupy.cuda.ExternalStream(state.get_stream().addressof()) as stream:
        once = captured(stream, work.call, calls) if calls else work.call

    def launch(one: Any) -> None:
        with cupy.cuda.ExternalStream(one.get_stream().addressof()):
            once()

    state.exec(launch, batched=True, sync=False)


if __name__ == "__main__":
    import cuda.bench

    benchmark = cuda.bench.register(gdn)
    benchmark.add_string_axis("recurrence", ["sequential", "chunked"])
    benchmark.add_int64_axis("tokens", [32, 512, 2048])
    benchmark.add_int64_axis("calls", [0, 20])
    cuda.bench.run_all_benchmarks(sys.argv)
