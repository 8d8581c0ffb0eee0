"""The recurrences timed by NVIDIA's cuda-bench: `pip install cuda-bench[cu13]`, then

    PYTHONPATH=. python tests/nvbench.py --csv FILE

Its batch times are of plain calls one after the other, so they hold what calls cost the host where that is longer than
the device needs for them, as for the two launches of `chunked` at 32 tokens.
"""

from __future__ import annotations

import sys
from typing import Any

from suite.profile import _work


def gdn(state: Any) -> None:
    import cupy

    work = _work(state.get_string("recurrence"), state.get_int64("tokens"))
    for _ in range(3):
        work.call()
    cupy.cuda.Device().synchronize()

    def launch(one: Any) -> None:
        with cupy.cuda.ExternalStream(one.get_stream().addressof()):
            work.call()

    state.exec(launch, batched=True, sync=False)


if __name__ == "__main__":
    import cuda.bench

    benchmark = cuda.bench.register(gdn)
    benchmark.add_string_axis("recurrence", ["sequential", "chunked"])
    benchmark.add_int64_axis("tokens", [32, 512, 2048])
    cuda.bench.run_all_benchmarks(sys.argv)
