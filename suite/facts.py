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
    l2: Annotated[
        str, Meta(description="state of the L2 cache before a sample: hot (the inputs were just read), or both apart")
    ]
    order: Annotated[str, Meta(description="order of the recurrences under comparison: abba")]
    warmup_s: Annotated[Seconds, Meta(description="least time of warm-up before the first sample, seconds")]
    seed: Annotated[int, Meta(description="seed of the inputs")]
    precision: Annotated[
        float | None, Meta(description="relative half-width of the median's interval at which sampling ended")
    ] = None
    budget_s: Annotated[float | None, Meta(description="seconds of sampling for each recurrence of a group")] = None


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
    launcher: Annotated[
        str | None, Meta(description="SHA-256 of the Python and the tables of kernels/, which launch the kernels")
    ] = None
    before: Annotated[Clocks, Meta(description="clocks before the first case")] = Clocks()
    after: Annotated[Clocks, Meta(description="clocks after the last case")] = Clocks()


class Build(Struct, frozen=True, kw_only=True):
    """A kernel that was compiled for a run: which source, and which machine code it became."""

    kernel: Annotated[str, Meta(description="its name")]
    file: Annotated[str, Meta(description="its source in kernels/cuda")]
    arch: Annotated[str, Meta(description="what it was compiled for, such as sm_90a")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    recurrences: Annotated[
        tuple[str, ...], Meta(description="those of the run that launch it; none where it is of the measuring")
    ] = ()
    source_sha256: Annotated[str, Meta(description="SHA-256 of the source, all it includes and its constants")]
    code_sha256: Annotated[str, Meta(description="SHA-256 of the machine code: the cubin's .text sections")]


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


class Dropped(Struct, frozen=True, kw_only=True):
    """A sample that does not count. No sample is dropped for its time."""

    ns: Annotated[float, Meta(description="nanoseconds per call")]
    sm_mhz: Annotated[float | None, Meta(description="SM clock while it was taken, MHz")] = None
    reason: Annotated[str, Meta(description="why it does not count")]


class Times(Struct, frozen=True, kw_only=True):
    """Samples of one call in one state of the L2 cache, and their median."""

    samples_ns: Annotated[tuple[float, ...], Meta(description="nanoseconds per call, in the order taken")] = ()
    samples_mhz: Annotated[
        tuple[float, ...], Meta(description="SM clock beside each sample, MHz; empty where it cannot be told")
    ] = ()
    calls_per_sample: Annotated[Count, Meta(description="calls that one sample is the mean of")] = 0
    median_ns: Annotated[float | None, Meta(description="median of the samples, nanoseconds")] = None
    low_ns: Annotated[float | None, Meta(description="lower end of the median's 95 % interval")] = None
    high_ns: Annotated[float | None, Meta(description="upper end of the median's 95 % interval")] = None
    stop: Annotated[str, Meta(description="what ended the sampling: precision, budget or rounds")] = ""
    dropped: Annotated[tuple[Dropped, ...], Meta(description="samples that do not count")] = ()


class Host(Struct, frozen=True, kw_only=True):
    """What a call costs the host: enqueueing alone, on an idle device. No device timer sees it."""

    call_ns: Annotated[float, Meta(description="median time of a plain call, nanoseconds")]
    replay_ns: Annotated[
        float | None, Meta(description="median time of the replay of a graph of one call; null without graphs")
    ] = None
    allocations: Annotated[
        int | None, Meta(description="allocations of device memory that every call makes; null if not counted")
    ] = None
    allocated_bytes: Annotated[Count, Meta(description="bytes that these ask for")] = 0
    said: Annotated[str, Meta(description="what is wrong with it, or an empty text")] = ""


class Speed(Struct, frozen=True, kw_only=True, tag="speed", tag_field="kind"):
    """The time of one call, with the L2 cache hot and cold. A case that is red or not measured has no times.

    An inconclusive one has: its reason says why they are not to be relied on.
    """

    recurrence: Annotated[str, Meta(description="the recurrence that was timed")]
    tokens: Annotated[Count, Meta(description="T")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    inputs: Annotated[str, Meta(description="the family of the inputs")]
    samples_ns: Annotated[tuple[float, ...], Meta(description="nanoseconds per call, in the order taken")] = ()
    samples_mhz: Annotated[
        tuple[float, ...], Meta(description="SM clock beside each sample, MHz; empty where it cannot be told")
    ] = ()
    calls_per_sample: Annotated[Count, Meta(description="calls that one sample is the mean of")] = 0
    median_ns: Annotated[float | None, Meta(description="median of the samples, nanoseconds")] = None
    low_ns: Annotated[float | None, Meta(description="lower end of the median's 95 % interval")] = None
    high_ns: Annotated[float | None, Meta(description="upper end of the median's 95 % interval")] = None
    stop: Annotated[str, Meta(description="what ended the sampling: precision, budget or rounds")] = ""
    dropped: Annotated[tuple[Dropped, ...], Meta(description="samples that do not count")] = ()
    order_effect: Annotated[
        float | None, Meta(description="how much longer it takes after the baseline than before it; 0.01 is 1 %")
    ] = None
    cold: Annotated[Times | None, Meta(description="the same with a cold L2 cache; null where there is no such")] = None
    host: Annotated[Host | None, Meta(description="the host's time; null where it was not taken")] = None
    flop: Annotated[float | None, Meta(description="floating-point operations of a call")] = None
    bytes: Annotated[float | None, Meta(description="bytes that a call must read or write once")] = None
    limit_ns: Annotated[float | None, Meta(description="the least time the card's peak rates allow")] = None
    cold_limit_ns: Annotated[float | None, Meta(description="the same with a cold L2 cache")] = None
    outcome: Outcome
    reason: Annotated[str, Meta(description="why the case is not green; empty where it is")] = ""


Case = Accuracy | Determinism | Speed


class Look(Struct, frozen=True, kw_only=True):
    """The card at one moment, as NVML sees it."""

    clocks: Annotated[Clocks, Meta(description="clocks, temperature, power, throttling")] = Clocks()
    others: Annotated[int | None, Meta(description="other processes that compute on the card")] = None
    throttled_ns: Annotated[
        int | None, Meta(description="time since boot that the card was held back for power or heat, nanoseconds")
    ] = None


class Group(Struct, frozen=True, kw_only=True):
    """The recurrences of one token count, which were sampled in alternation, and the quality of that."""

    tokens: Annotated[Count, Meta(description="T")]
    shape: Annotated[str, Meta(description="HKxHVxD")]
    head_map: Annotated[str, Meta(description="tiled or grouped")]
    inputs: Annotated[str, Meta(description="the family of the inputs")]
    recurrences: Annotated[tuple[str, ...], Meta(description="those sampled, in forward order")]
    warmup_s: Annotated[Seconds, Meta(description="what the warm-up took, seconds")]
    stationary: Annotated[bool, Meta(description="whether times and clocks had come to rest when it ended")]
    wall_s: Annotated[Seconds, Meta(description="what warm-up and sampling took, seconds")]
    device_s: Annotated[Seconds, Meta(description="time within `wall_s` that the timed calls ran, seconds")]
    twin_of: Annotated[str, Meta(description="the recurrence that was measured twice under two names (A/A)")]
    twin: Annotated[Times, Meta(description="the twin's samples, hot")]
    aa_ratio: Annotated[float | None, Meta(description="twin / original, median over the rounds")] = None
    aa_low: Annotated[float | None, Meta(description="lower end of its 95 % interval")] = None
    aa_high: Annotated[float | None, Meta(description="upper end of its 95 % interval")] = None
    sm_mhz: Annotated[float | None, Meta(description="median SM clock of the samples, MHz")] = None
    clock_spread: Annotated[
        float | None,
        Meta(description="95th less 5th percentile of one recurrence's SM clocks over their median; the largest"),
    ] = None
    before: Annotated[Look, Meta(description="the card before the first sample")] = Look()
    after: Annotated[Look, Meta(description="the card after the last sample")] = Look()
    reasons: Annotated[tuple[str, ...], Meta(description="why all its cases are inconclusive; empty where not")] = ()


class Canary(Struct, frozen=True, kw_only=True):
    """A fixed piece of work that has nothing to do with the recurrences: a slower one is a slower machine."""

    name: Annotated[str, Meta(description="fma (a loop of multiply-adds) or copy (in device memory)")]
    when: Annotated[Literal["before", "after"], Meta(description="the first speed case, or the last")]
    work: Annotated[float, Meta(description="floating-point operations, or bytes read and written")]
    times: Annotated[Times, Meta(description="its samples, hot")]


class Cost(Struct, frozen=True, kw_only=True):
    """What the run cost until its record was written, and for how much of that the device worked."""

    wall_s: Annotated[Seconds, Meta(description="since the process was started, seconds")]
    timed_s: Annotated[Seconds, Meta(description="of these, what the calls of all samples ran, by the timer")]
    checks_s: Annotated[
        Seconds, Meta(description="what the device took for the checks, by events around what was enqueued for each")
    ]
    nvml_share: Annotated[
        float | None, Meta(description="share of `wall_s` in which a kernel ran, as NVML sampled it")
    ] = None

    @property
    def share(self) -> float:
        """Share of the wall time in which the device worked."""
        return (self.timed_s + self.checks_s) / self.wall_s if self.wall_s else 0.0


class Ceilings(Struct, frozen=True, kw_only=True):
    """Peak rates of a card: measured once, then kept in `results/ceilings/<gpu_key>.json`. Null: not known."""

    fma_flops: Annotated[float | None, Meta(description="FP32 FLOP/s of the canary's loop, measured")] = None
    copy_bytes_per_s: Annotated[float | None, Meta(description="bytes/s read and written, of its copy, measured")] = (
        None
    )
    tensor_flops: Annotated[float | None, Meta(description="FP16 tensor-core FLOP/s, dense, of the datasheet")] = None
    tensor_source: Annotated[str, Meta(description="where that is from")] = ""
    l2_bytes: Annotated[int | None, Meta(description="size of the L2 cache")] = None
    measured: Annotated[str, Meta(description="UTC, ISO 8601")] = ""
    commit: Annotated[str | None, Meta(description="git commit that measured them")] = None
