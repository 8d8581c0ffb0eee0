"""Records made up for tests. Whatever a test does not give has a sensible value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernels import Shape
from results.schema import (
    Accuracy,
    Build,
    Canary,
    Ceilings,
    Clocks,
    Cost,
    Determinism,
    Environment,
    Group,
    Host,
    Look,
    Method,
    Record,
    Speed,
    Times,
)
from results.store import gpu_key
from suite.options import Options

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


def times(median_ns: float, mhz: float = 1980.0, **overrides: Any) -> Times:
    """Seven samples around a median."""
    values: dict[str, Any] = {
        "samples_ns": tuple(median_ns * (1 + share / 1000) for share in (-2, 2, -1, 1, 0, -3, 3)),
        "samples_mhz": (mhz,) * 7,
        "calls_per_sample": 1,
        "median_ns": median_ns,
        "low_ns": median_ns * 0.997,
        "high_ns": median_ns * 1.003,
        "stop": "precision",
    }
    return Times(**values | overrides)


def group(**overrides: Any) -> Group:
    """A quiet alternation of two recurrences at 2048 tokens."""
    quiet = Look(clocks=Clocks(sm_mhz=1980, power_w=412.0, throttle=""), others=0, throttled_ns=7)
    values: dict[str, Any] = {
        **{name: _PLACE[name] for name in ("tokens", "shape", "head_map", "inputs")},
        "recurrences": ("sequential", "chunked"),
        "warmup_s": 0.5,
        "stationary": True,
        "wall_s": 1.0,
        "device_s": 0.8,
        "twin_of": "sequential",
        "twin": times(470_000.0),
        "aa_ratio": 1.001,
        "aa_low": 0.9995,
        "aa_high": 1.0025,
        "sm_mhz": 1980.0,
        "clock_spread": 0.001,
        "before": quiet,
        "after": quiet,
    }
    return Group(**values | overrides)


def build(
    code: str, source: str = "s", kernel: str = "gdn_chunked_scan", recurrences: tuple[str, ...] = ("chunked",)
) -> Build:
    """A kernel of chunked, with fingerprints that begin with these letters."""
    return Build(
        kernel=kernel,
        file=f"{kernel.removeprefix('gdn_')}.cu",
        arch="sm_90",
        shape="16x48x128",
        head_map="tiled",
        recurrences=recurrences,
        source_sha256=source.ljust(64, "0"),
        code_sha256=code.ljust(64, "0"),
    )


def canaries(before: float = 3.3e5, after: float = 3.31e5) -> tuple[Canary, ...]:
    """Both canaries before and after a run, with the FMA's times in nanoseconds."""
    return tuple(
        Canary(name=name, when=when, work=work, times=times(ns * scale))  # type: ignore[arg-type]
        for when, ns in (("before", before), ("after", after))
        for name, work, scale in (("fma", 2e10, 1.0), ("copy", 5.2e8, 0.4))
    )


def measured(tokens: tuple[int, ...] = (32, 2048), **overrides: Any) -> Record:
    """A record of the second method: hot and cold times, host times, limits, alternations and canaries."""
    cases = tuple(
        speed(
            recurrence=name,
            tokens=number,
            median_ns=ns * number,
            cold=times(ns * number + 5e3),
            host=Host(call_ns=14_000.0, replay_ns=5_200.0, allocations=0),
            flop=5.5e6 * number,
            bytes=6.6e4 * number,
            limit_ns=82.0 * number,
            cold_limit_ns=82.0 * number,
            stop="precision",
        )
        for number in tokens
        for name, ns in (("sequential", 490.0), ("chunked", 250.0))
    )
    values: dict[str, Any] = {
        "method": Method(
            id="cuda-graph-2", timer="cuda-graph", l2="hot and cold", order="abba", warmup_s=0.5, seed=1372
        ),
        "cases": (accuracy(), determinism(), *cases),
        "groups": tuple(group(tokens=number) for number in tokens),
        "canaries": canaries(),
        "cost": Cost(wall_s=27.0, timed_s=8.1, checks_s=9.45, nvml_share=0.62),
        "ceilings": Ceilings(
            fma_flops=6.1e13, copy_bytes_per_s=4.2e12, tensor_flops=1.07e15, l2_bytes=62_914_560, measured="2026-11-30"
        ),
    }
    return record(**values | overrides)


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


def options(**overrides: Any) -> Options:
    """The options of a run of the default cases on a GPU."""
    values: dict[str, Any] = {
        "platform": "cuda",
        "device": 0,
        "recurrences": ("sequential", "chunked"),
        "tokens": None,
        "shape": Shape(),
        "families": ("normal",),
        "results": Path("results"),
    }
    return Options(**values | overrides)
