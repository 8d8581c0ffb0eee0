"""The one place that adapts to pytest-benchmark: samples taken elsewhere become its rounds.

pytest-benchmark asks a timer before and after each round and takes the difference. `device_time` answers with the
samples of the device clock, so its table, JSON, storage and comparison all show device time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suite.facts import Speed

_answers: Iterator[float] = iter(())


def device_time() -> float:
    """Seconds; 0 before a round and the round's sample after it."""
    return next(_answers)


def report(benchmark: Any, speed: Speed) -> None:
    """Give pytest-benchmark's fixture the samples of a case as its rounds."""
    global _answers
    _answers = iter([seconds for ns in speed.samples_ns for seconds in (0.0, ns * 1e-9)])
    # Groups are sorted as texts: leading blanks put 128 before 1024.
    benchmark.group = f"{speed.tokens:>7} tokens, {speed.shape} {speed.head_map}"
    benchmark.extra_info.update(
        recurrence=speed.recurrence,
        tokens=speed.tokens,
        calls_per_sample=speed.calls_per_sample,
        median_ns=speed.median_ns,
        low_ns=speed.low_ns,
        high_ns=speed.high_ns,
        cold_ns=speed.cold.median_ns if speed.cold else None,
        host_ns=speed.host.call_ns if speed.host else None,
        limit_ns=speed.limit_ns,
    )
    benchmark.pedantic(lambda: None, rounds=len(speed.samples_ns))


def no_times(benchmark: Any) -> None:
    """A check asks for the fixture so that `--benchmark-only` keeps it; it has no rounds and wants no warning."""
    benchmark._mode = "check"
