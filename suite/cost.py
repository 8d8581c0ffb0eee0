"""What a run costs, and for how much of that the device works: a suite that mostly waits is a poor one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_IMPORTED = time.monotonic()


def process_age() -> float:
    """Seconds since this process was started; since this module was imported where the system does not tell."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        return up - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


class Busy:
    """Seconds that the device needed for pieces of work that are enqueued without waiting for it.

    Args:
        platform: "cuda", whose work is timed by events on CuPy's current stream, or "host", by the wall clock.
    """

    def __init__(self, platform: str) -> None:
        self._cuda = platform == "cuda"
        self.seconds = 0.0

    @contextlib.contextmanager
    def span(self) -> Iterator[None]:
        """Count what is enqueued within; on a GPU it is waited for at the end."""
        if not self._cuda:
            start = time.monotonic()
            yield
            self.seconds += time.monotonic() - start
            return
        import cupy

        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        yield
        stop.record()
        stop.synchronize()
        self.seconds += float(cupy.cuda.get_elapsed_time(start, stop)) * 1e-3
