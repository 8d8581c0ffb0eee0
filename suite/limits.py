"""The least time that a card's peak rates allow for a call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kernels.problem import HEAD_DIM, Shape
from suite.facts import Canary, Ceilings, Environment

SLACK = 0.05
"""A time this much below the limit is an error: the ceilings are measured, and known to a few per cent."""

TENSOR_FLOP_PER_CLOCK = {75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024}
"""Dense FP16 FLOP per clock and SM of the tensor cores, by compute capability: NVIDIA's whitepapers of Turing,
Ampere (GA100, GA102), Ada, Hopper, Blackwell (B200, RTX), peak rate over SMs and boost clock."""


@dataclass(frozen=True)
class Demand:
    """What a call must do, at the least.

    Attributes:
        flop: floating-point operations, as counted for a rate: 7 D^2 a token and value head.
        least_flop: of these, what no form of the recurrence leaves out: the three products with the state, 6 D^2.
            The chunked form scales the state once a chunk and not once a token.
        read_bytes: inputs and state, each once.
        write_bytes: output and state, each once.
    """

    flop: float
    least_flop: float
    read_bytes: float
    write_bytes: float

    @property
    def bytes(self) -> float:
        return self.read_bytes + self.write_bytes


def demand(shape: Shape, tokens: int) -> Demand:
    """The work of one call of T tokens."""
    products = float(HEAD_DIM * HEAD_DIM * shape.value_heads * tokens)
    state = 4.0 * HEAD_DIM * HEAD_DIM * shape.value_heads
    return Demand(
        flop=7 * products,
        least_flop=6 * products,
        read_bytes=4.0 * tokens * (shape.row + 2 * shape.value_heads) + state,
        write_bytes=4.0 * tokens * shape.value_heads * HEAD_DIM + state,
    )


def limit_ns(wanted: Demand, ceilings: Ceilings | None, unit: str, l2: str) -> float | None:
    """The least time of a call in nanoseconds: FLOP over the rate of the unit that does them, or bytes over bandwidth.

    Args:
        wanted: the call's work.
        ceilings: the card's; None where they are not known.
        unit: "fp32" or "tensor"; "" stands for the faster.
        l2: "cold": all that is read comes from device memory, and what is written may stay in the cache. "hot": of
            all that is touched, the cache may hold its own size.
    """
    if ceilings is None:
        return None
    fma, tensor = ceilings.fma_flops, ceilings.tensor_flops
    rate = {"fp32": fma, "tensor": tensor}.get(unit) if unit else (max(fma, tensor) if fma and tensor else None)
    through = wanted.read_bytes if l2 == "cold" else max(0.0, wanted.bytes - (ceilings.l2_bytes or 0))
    times = [wanted.least_flop / rate] if rate else []
    times += [through / ceilings.copy_bytes_per_s] if ceilings.copy_bytes_per_s else []
    return max(times) * 1e9 if times and max(times) > 0 else None


def too_fast(ns: float, limit: float | None) -> str:
    """Why a time cannot be, or an empty text."""
    if limit is None or ns >= limit * (1 - SLACK):
        return ""
    return (
        f"{ns / 1e3:,.2f} us is below what the card can do, {limit / 1e3:,.2f} us: either the call does not do its "
        "work, or the timer is wrong"
    )


def ceilings(canaries: list[Canary], environment: Environment, l2_bytes: int | None, mhz: int | None) -> Ceilings:
    """The card's peak rates, of its canaries and the datasheet.

    Args:
        canaries: timed on it just now, at its full clocks.
        environment: names the card.
        l2_bytes: size of its L2 cache.
        mhz: its highest SM clock.
    """
    e = environment
    capability = int((e.compute_capability or "0").replace(".", ""))
    per_clock = TENSOR_FLOP_PER_CLOCK.get(capability)
    tensor = per_clock * e.sms * mhz * 1e6 if per_clock and e.sms and mhz else None
    return Ceilings(
        fma_flops=measured(canaries, "fma"),
        copy_bytes_per_s=measured(canaries, "copy"),
        tensor_flops=tensor,
        tensor_source=f"{per_clock} FLOP per clock and SM (NVIDIA's whitepaper), {e.sms} SMs, {mhz} MHz"
        if tensor
        else "",
        l2_bytes=l2_bytes,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=e.commit,
    )


def measured(canaries: list[Canary], name: str) -> float | None:
    """The rate of a canary per second at the near end of its best median's interval; None where it did not run."""
    rates = [one.work / one.times.low_ns * 1e9 for one in canaries if one.name == name and one.times.low_ns]
    return max(rates, default=None)
