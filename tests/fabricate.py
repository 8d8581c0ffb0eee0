"""Records made up for tests. Whatever a test does not give has a sensible value."""

from __future__ import annotations

from typing import Any

from results.schema import Accuracy, Determinism, Environment, Method, Record, Speed
from results.store import gpu_key

_PLACE: dict[str, Any] = {
    "recurrence": "sequential",
    "tokens": 2048,
    "shape": "16x48x128",
    "head_map": "tiled",
    "inputs": "normal",
    "outcome": "green",
}

METHOD = Method(id="cuda-graph-hot-1", timer="cuda-graph", l2="hot", order="abba", warmup_s=0.5, seed=1372)


def environment(**overrides: Any) -> Environment:
    """An H200's, unless `gpu=None` makes it a host's."""
    values: dict[str, Any] = {
        "gpu": "NVIDIA H200",
        "gpu_uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "sms": 132,
        "memory_mib": 143_771,
        "ecc": True,
        "power_limit_w": 700.0,
        "compute_capability": "9.0",
        "driver": "570.86.15",
        "cuda_runtime": "12.8",
        "nvrtc": "12.8",
        "cupy": "13.6.0",
        "cpu": "Intel(R) Xeon(R) Platinum 8480+",
        "cores": 16,
        "numpy": "2.4.0",
        "python": "3.12.0",
        "platform": "Linux-6.8.0-x86_64-with-glibc2.39",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
    }
    return Environment(**values | overrides)


def speed(**overrides: Any) -> Speed:
    """A green time of 470 us; `median_ns` moves the samples and the interval with it."""
    median = overrides.get("median_ns", 470_000.0)
    values: dict[str, Any] = {"median_ns": median, "calls_per_sample": 1}
    if median is not None:
        values |= {
            "samples_ns": tuple(median * (1 + share / 1000) for share in (-2, 2, -1, 1, 0, -3, 3)),
            "low_ns": median * 0.997,
            "high_ns": median * 1.003,
        }
    return Speed(**_PLACE | values | overrides)


def accuracy(**overrides: Any) -> Accuracy:
    """A green error of some 1e-7 against FP64."""
    values: dict[str, Any] = {
        "against": "fp64",
        "error_out": 3.2e-7,
        "error_state": 1.5e-7,
        "rms_out": 2.0e-7,
        "rms_state": 1.0e-7,
        "limit": 1e-4,
    }
    return Accuracy(**_PLACE | values | overrides)


def determinism(**overrides: Any) -> Determinism:
    """199 green reruns."""
    values: dict[str, Any] = {"reruns": 199, "sha256_out": "a" * 64, "sha256_state": "b" * 64}
    return Determinism(**_PLACE | values | overrides)


def record(**overrides: Any) -> Record:
    """A complete run with one case of each kind; its `gpu_key` is that of its environment."""
    values: dict[str, Any] = {
        "run_id": "20261130T051500Z-0123abcd",
        "status": "complete",
        "started": "2026-11-30T05:15:00.000+00:00",
        "finished": "2026-11-30T05:17:00.000+00:00",
        "command": ("pytest", "--benchmark-only"),
        "method": METHOD,
        "environment": environment(),
        "cases": (accuracy(), determinism(), speed()),
    }
    values |= overrides
    values.setdefault("gpu_key", gpu_key(values["environment"]))
    return Record(**values)
