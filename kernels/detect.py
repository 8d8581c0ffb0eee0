"""Whether there is a GPU that the CUDA recurrences can use, and if not, why."""

from __future__ import annotations

import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """What was found.

    Attributes:
        usable: the CUDA recurrences can run.
        problem: why they cannot; empty where they can.
        present: the driver knows a card, so that an unusable one is a fault of the installation.
    """

    usable: bool
    problem: str
    present: bool


def _cards() -> int:
    """Cards that the driver knows, without CUDA."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


@functools.cache
def gpu() -> Gpu:
    """Look for a usable GPU; asked once a process."""
    present = _cards() > 0
    mend = "install it with pip install -e '.[cuda12]' or '.[cuda13]', whichever the driver supports"
    try:
        import cupy
    except ImportError as error:
        return Gpu(False, f"CuPy cannot be imported ({error}); {mend}", present)
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        built = cupy.cuda.runtime.runtimeGetVersion() // 1000
        text = f"CuPy {cupy.__version__} for CUDA {built} finds no device ({error})"
        return Gpu(False, f"{text}; {mend}" if present else text, present)
    if count == 0:
        return Gpu(False, "CUDA lists no device; is CUDA_VISIBLE_DEVICES set?", present)
    try:
        cupy.cuda.nvrtc.getVersion()
        cupy.empty(1, cupy.float32).fill(0)
    except Exception as error:  # any failure of the driver, the compiler wheel or the memory means the same here
        reason = " ".join(str(error).split())
        return Gpu(False, f"CUDA cannot be used ({type(error).__name__}: {reason}); {mend}", present)
    return Gpu(True, "", True)


@functools.cache
def load_recurrences() -> Gpu:
    """Register the CUDA recurrences where they can run, once a process; returns what was found."""
    found = gpu()
    if found.usable:
        import kernels.gpu
        import kernels.tensor  # noqa: F401  (both register on import)
    return found
