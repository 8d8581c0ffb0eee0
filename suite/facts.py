"""What the suite measures: the parts of a record, every key with its type and its unit.

`results/schema.py` puts them together to the record of a run; `docs/schema.md` is written from both.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Outcome = Annotated[
    Literal["green", "red", "inconclusive", "not measured"],
    Meta(description="the verdict: within its limit, wrong or unstable, too noisy to tell, or not run"),
]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a record; unknown keys are refused, so that a newer file is never read wrongly."""


class Method(Struct, frozen=True, kw_only=True):
    """How the times were taken. Another method starts another series."""

    id: Annotated[str, Meta(description="short name of the method, part of the series' name")]
    timer: Annotated[str, Meta(description="the timer: cuda-graph, host or simulated")]
    l2: Annotated[str, Meta(description="state of the L2 cache before a sample: hot (the inputs were just read)")]
    order: Annotated[str, Meta(description="order of the recurrences under comparison: abba")]
    warmup_s: Annotated[Seconds, Meta(description="least time of warm-up before the first sample, seconds")]
    seed: Annotated[int, Meta(description="seed of the inputs")]


class Clocks(Struct, frozen=True, kw_only=True):
    """The card's clocks and temperature at one moment; null where NVML does not tell."""

    sm_mhz: Annotated[int | None, Meta(description="SM clock, MHz")] = None
    memory_mhz: Annotated[int | None, Meta(description="memory clock, MHz")] = None
    temperature_c: Annotated[int | None, Meta(description="GPU temperature, degrees Celsius")] = None
    power_w: Annotated[float | None, Meta(description="power draw, watts")] = None
    throttle: Annotated[str | None, Meta(description="NVML's reasons for the clocks, or an empty text")] = None


class Environment(Struct, frozen=True, kw_only=True):
    """The machine and the software. Only `gpu_key` of the record names a series; this is metadata."""

    gpu: Annotated[str | None, Meta(description="product name as NVML gives it; null on a host run")] = None
    gpu_uuid: Annotated[str | None, Meta(description="UUID of the card")] = None
    sms: Annotated[int | None, Meta(description="streaming multiprocessors")] = None
    memory_mib: Annotated[int | None, Meta(description="device memory, MiB")] = None
    ecc: Annotated[bool | None, Meta(description="whether ECC is on")] = None
    power_limit_w: Annotated[float | None, Meta(description="enforced power limit, watts")] = None
    compute_capability: Annotated[str | None, Meta(description="such as 9.0")] = None
    driver: Annotated[str | None, Meta(description="driver version")] = None
    cuda_runtime: Annotated[str | None, Meta(description="CUDA runtime version, such as 12.9")] = None
    nvrtc: Annotated[str | None, Meta(description="version of the compiler NVRTC")] = None
    cupy: Annotated[str | None, Meta(description="CuPy version")] = None
    cpu: Annotated[str, Meta(description="processor")]
    cores: Annotated[Count, Meta(description="logical processors that the process may use")]
    numpy: Annotated[str, Meta(description="NumPy version")]
    python: Annotated[str, Meta(description="Python version")]
    platform: Annotated[str, Meta(description="operating system, as Python's platform.platform()")]
    commit: Annotated[str | None, Meta(description="git commit of the checkout; null outside one")] = None
    dirty: Annotated[bool | None, Meta(description="whether tracked source differs from the commit")] = None
    before: Annotated[Clocks, Meta(description="clocks before the first case")] = Clocks()
    after: Annotated[Clocks, Meta(description="clocks after the last case")] = Clocks()


class Accuracy(Struct, frozen=True, kw_only=True, tag="accuracy", tag_field="kind"):
    """One recurrence against a reference: max|difference| / max|reference|. Null stands for not finite."""

    recurrence: Annotated[str, Meta(description="the recurrence that was checked")]
    against: Annotated[str, Meta(description="fp64, or the recurrence it was compared with")]
    tokens: Annotated[Count, Meta(description="T")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    inputs: Annotated[str, Meta(description="the family of the inputs")]
    error_out: Annotated[float | None, Meta(description="error of the output")] = None
    error_state: Annotated[float | None, Meta(description="error of the state after the last token")] = None
    rms_out: Annotated[float | None, Meta(description="RMS of the output's difference / RMS of the reference")] = None
    rms_state: Annotated[float | None, Meta(description="the same of the state")] = None
    limit: Annotated[float, Meta(description="the error above which the case is red")]
    outcome: Outcome
    reason: Annotated[str, Meta(description="why the case is not green; empty where it is")] = ""


class Difference(Struct, frozen=True, kw_only=True):
    """The first bit that differed between two runs."""

    array: Annotated[Literal["out", "state"], Meta(description="where")]
    run: Annotated[Count, Meta(description="the rerun that differed, counted from 1")]
    token: Annotated[int | None, Meta(description="token of the element; null in the state")] = None
    row: Annotated[int | None, Meta(description="key row of the element; null in the output")] = None
    head: Annotated[Count, Meta(description="value head of the element")]
    column: Annotated[Count, Meta(description="value column of the element")]
    elements: Annotated[Count, Meta(description="elements of the array that differed in that run")]


class Determinism(Struct, frozen=True, kw_only=True, tag="determinism", tag_field="kind"):
    """Reruns of one call, their bits compared; scratch and output are NaN before every other run."""

    recurrence: Annotated[str, Meta(description="the recurrence that was rerun")]
    tokens: Annotated[Count, Meta(description="T")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    inputs: Annotated[str, Meta(description="the family of the inputs")]
    reruns: Annotated[Count, Meta(description="reruns compared with the first run")] = 0
    differing: Annotated[Count, Meta(description="reruns whose bits differed")] = 0
    first: Annotated[Difference | None, Meta(description="what differed first")] = None
    sha256_out: Annotated[str, Meta(description="SHA-256 of the first run's output bytes")] = ""
    sha256_state: Annotated[str, Meta(description="SHA-256 of the first run's state bytes")] = ""
    outcome: Outcome
    reason: Annotated[str, Meta(description="why the case is not green; empty where it is")] = ""


class Speed(Struct, frozen=True, kw_only=True, tag="speed", tag_field="kind"):
    """The time of one call. A case that is not green has no samples and no times."""

    recurrence: Annotated[str, Meta(description="the recurrence that was timed")]
    tokens: Annotated[Count, Meta(description="T")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    inputs: Annotated[str, Meta(description="the family of the inputs")]
    samples_ns: Annotated[tuple[float, ...], Meta(description="nanoseconds per call, in the order taken")] = ()
    calls_per_sample: Annotated[Count, Meta(description="calls that one sample is the mean of")] = 0
    median_ns: Annotated[float | None, Meta(description="median of the samples, nanoseconds")] = None
    low_ns: Annotated[float | None, Meta(description="lower end of the median's 95 % interval")] = None
    high_ns: Annotated[float | None, Meta(description="upper end of the median's 95 % interval")] = None
    limit_ns: Annotated[float | None, Meta(description="the least time the card's peak rates allow")] = None
    outcome: Outcome
    reason: Annotated[str, Meta(description="why there is no time; empty where there is")] = ""


Case = Accuracy | Determinism | Speed
