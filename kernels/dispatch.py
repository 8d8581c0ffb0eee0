"""Which recurrence an engine runs, as a pure function with a reason.

The rule is that of the engine the seed's kernels come from (pull request #1372, "DeltaNet recurrence:
STRATA_GDN_CHUNKED=1"): the chunked recurrence only if asked for, only where it wins, only where it fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernels.compile import SCAN, scan_shared_bytes
from kernels.problem import Shape

CHUNKED_MIN_TOKENS = 128
"""Below about 100 tokens the two launches cost more than they save (the seed's `kGdnChunkedMin`)."""

CHUNKED_MIN_CC = 80
"""cp.async came with compute capability 8.0."""

CHUNKED_MIN_SHARED = 95_948
"""Opt-in shared memory per block that the seed's scan asks for, bytes (93.7 KB)."""


class DispatchError(ValueError):
    """An environment variable of the dispatch has a value that it does not know."""


@dataclass(frozen=True)
class DeviceFacts:
    """What the dispatch asks of a device.

    Attributes:
        name: product name.
        sms: streaming multiprocessors.
        compute_capability: 90 for 9.0.
        shared_per_block: opt-in shared memory per block, bytes.
        shared_per_sm: shared memory of a multiprocessor, bytes.
        scratch: whether the chunked pair's scratch could be allocated.
    """

    name: str
    sms: int
    compute_capability: int
    shared_per_block: int
    shared_per_sm: int
    scratch: bool = True


@dataclass(frozen=True)
class Choice:
    """The recurrence that runs, and why."""

    recurrence: str
    reason: str


def emulated(device: DeviceFacts, environ: Mapping[str, str]) -> DeviceFacts:
    """The device as `STRATA_EMULATE_CC` makes it look: another compute capability and opt-in shared memory.

    Raises:
        DispatchError: the variable is set and is no integer from 75 to 119.
    """
    text = environ.get("STRATA_EMULATE_CC", "")
    if not text:
        return device
    if not text.isdecimal() or not 75 <= int(text) <= 119:
        raise DispatchError(
            f"STRATA_EMULATE_CC is {text!r}; it must be a compute capability from 75 to 119, such as 86, or unset"
        )
    capability = int(text)
    known = {75: 65_536, 80: 166_912}
    shared = known.get(capability, min(device.shared_per_block, 101_376))
    return replace(device, compute_capability=capability, shared_per_block=shared)


def _asked_for(environ: Mapping[str, str]) -> bool:
    text = environ.get("STRATA_GDN_CHUNKED", "")
    if text not in ("", "0", "1"):
        raise DispatchError(f"STRATA_GDN_CHUNKED is {text!r}; it must be 1 (chunked), 0 or unset")
    return text == "1"


def scan_sms(device: DeviceFacts, shape: Shape) -> int:
    """SMs on which all blocks of the scan run at once; each walks every chunk, so a second wave would double
    the time."""
    heads = SCAN.heads(shape)
    blocks = shape.key_heads * (shape.group // heads) * 8
    # Blocks of one or two heads are compiled so that two fit an SM; CUDA takes 1 KB more of each.
    two_fit = heads < 3 and 2 * (scan_shared_bytes(heads) + 1024) <= device.shared_per_sm
    return -(-blocks // (2 if two_fit else 1))


def choose(device: DeviceFacts, tokens: int, environ: Mapping[str, str], shape: Shape | None = None) -> Choice:
    """The recurrence for a prompt chunk of `tokens` tokens on this device, and the reason.

    Args:
        device: facts of the card.
        tokens: T.
        environ: `STRATA_GDN_CHUNKED` and `STRATA_EMULATE_CC` are read from it.
        shape: head counts; the default shape where None.

    Raises:
        DispatchError: one of the variables has a value that is not known.
    """
    asked = _asked_for(environ)
    device = emulated(device, environ)
    needed = scan_sms(device, shape or Shape())
    refusals = (
        (not asked, "chunked is opt-in: STRATA_GDN_CHUNKED is not 1"),
        (tokens < CHUNKED_MIN_TOKENS, f"{tokens} tokens, chunked starts at {CHUNKED_MIN_TOKENS}"),
        (
            device.compute_capability < CHUNKED_MIN_CC,
            f"compute capability {device.compute_capability}, chunked needs {CHUNKED_MIN_CC} (cp.async)",
        ),
        (device.sms < needed, f"{device.sms} SMs, the scan needs {needed} in one wave"),
        (
            device.shared_per_block < CHUNKED_MIN_SHARED,
            f"{device.shared_per_block:,} bytes of opt-in shared memory, the scan needs {CHUNKED_MIN_SHARED:,}",
        ),
        (not device.scratch, "the scratch of the chunked pair could not be allocated"),
    )
    for refused, reason in refusals:
        if refused:
            return Choice("sequential", reason)
    return Choice("chunked", f"{tokens} tokens on {device.sms} SMs, and STRATA_GDN_CHUNKED is 1")
