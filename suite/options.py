"""The suite's options: what `--gdn-...` selects, checked before anything runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernels import ProblemError, Shape, recurrence, recurrences
from kernels.detect import Gpu
from kernels.inputs import FAMILIES
from kernels.problem import HEAD_DIM
from suite.environment import card_uuid
from suite.lock import DEFAULT_TIMEOUT_S, parse_timeout
from suite.quality import CARD, HOST, Bounds
from suite.sampling import Policy


class OptionError(ValueError):
    """An option has a value that the suite does not take; the message names both and the mend."""


@dataclass(frozen=True)
class Plan:
    """Which token counts a platform is measured at, and how often.

    Attributes:
        speed: token counts that are timed.
        accuracy: token counts whose accuracy is checked.
        fp64_up_to: the greatest token count that is held against FP64.
        determinism: token counts that are rerun.
        reruns: reruns of each, compared with the first run.
        hot: how long to sample with a hot L2 cache; its warm-up is that of the run's first group.
        cold: the same with a cold one.
        host_times: how often the host time of a call is taken.
        bounds: what makes a measurement inconclusive.
    """

    speed: tuple[int, ...]
    accuracy: tuple[int, ...]
    fp64_up_to: int
    determinism: tuple[int, ...]
    reruns: int
    hot: Policy
    cold: Policy
    host_times: int
    bounds: Bounds


_EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257)

PLANS = {
    "cuda": Plan(
        speed=(1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 8192, 32_768),
        accuracy=(*_EDGES, 1000, 2047, 2048, 2049, 4099, 8192, 32_768),
        fp64_up_to=32_768,
        determinism=(130, 200, 600, 1000, 2048, 4099, 8192),
        reruns=199,
        hot=Policy(rounds=(30, 300), precision=0.005, budget_s=0.5, warmup_s=0.5),
        cold=Policy(rounds=(10, 100), precision=0.01, budget_s=0.25),
        host_times=5,
        bounds=CARD,
    ),
    # A NumPy recurrence takes about a millisecond a token: what fits two minutes on two cores.
    "host": Plan(
        speed=(32, 64, 96, 128, 192, 256, 512),
        accuracy=_EDGES,
        fp64_up_to=257,
        determinism=(130, 200),
        reruns=9,
        hot=Policy(rounds=(6, 30), precision=0.02, budget_s=0.7, warmup_s=0.2, warmup_most_s=0.2),
        cold=Policy(rounds=(6, 30), precision=0.02, budget_s=0.7),
        host_times=1,
        bounds=HOST,
    ),
}


@dataclass(frozen=True)
class Options:
    """What this run measures.

    Attributes:
        platform: "cuda" or "host".
        device: CUDA index of the GPU; 0 on the host.
        recurrences: names, in the order of the tables.
        tokens: token counts that replace the plan's, or None.
        shape: head counts and head map.
        families: input families of the checks; the first is timed as well.
        results: the results folder.
        said: one line on a choice that the user did not make, or an empty text.
        processes: how many fresh processes time, after this one has checked; 0: this one times as well.
        night: shared by the processes of one night, or None.
        process: which of the night's processes this is, from 1 on; None in the one that starts them.
        red: recurrences that get no time, as a check of the night was red.
        devices: CUDA indices of several GPUs, each to be measured in a process of its own; else empty.
        lock_timeout_s: seconds to wait for another job on the same card.
    """

    platform: str
    device: int
    recurrences: tuple[str, ...]
    tokens: tuple[int, ...] | None
    shape: Shape
    families: tuple[str, ...]
    results: Path
    said: str = ""
    processes: int = 0
    night: str | None = None
    process: int | None = None
    red: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    lock_timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def plan(self) -> Plan:
        return PLANS[self.platform]

    @property
    def baseline(self) -> str:
        """The recurrence that the others are compared with."""
        return "sequential" if self.platform == "cuda" else "host-sequential"


def _items(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise OptionError(f"{option} is {text!r}; give one or more values, separated by commas")
    return items


def parse_tokens(text: str) -> tuple[int, ...]:
    """Token counts from such as "32,128,2048".

    Raises:
        OptionError: one of them is no positive integer, or there is none.
    """
    for item in _items("--gdn-tokens", text):
        if not item.isascii() or not item.isdecimal() or not 0 < int(item) < 2**31:
            raise OptionError(f"--gdn-tokens has {item!r}; token counts are positive integers, such as 32,128,2048")
    return tuple(dict.fromkeys(int(item) for item in text.split(",")))


def parse_shape(text: str, head_map: str) -> Shape:
    """Head counts from such as "16x48" or "16x48x128" (HK x HV x D).

    Raises:
        OptionError: the text is no shape, or a head count does not fit.
    """
    parts = text.lower().split("x")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() for part in parts):
        raise OptionError(f"--gdn-shape is {text!r}; give HKxHV, such as 16x48")
    if len(parts) == 3 and int(parts[2]) != HEAD_DIM:
        raise OptionError(f"--gdn-shape is {text!r}; the head dimension must be {HEAD_DIM}")
    try:
        return Shape(int(parts[0]), int(parts[1]), head_map)
    except ProblemError as error:
        raise OptionError(f"--gdn-shape is {text!r}: {error}") from error


def parse_recurrences(text: str, platform: str) -> tuple[str, ...]:
    """Names of registered recurrences of the platform.

    Raises:
        OptionError: a name is not registered, or is one of the other platform.
    """
    here = [r.name for r in recurrences(platform)]
    for name in _items("--gdn-recurrences", text):
        if name in here:
            continue
        if name in [r.name for r in recurrences()]:
            wanted = "--gdn-device host" if platform == "cuda" else "a GPU"
            raise OptionError(f"--gdn-recurrences has {name!r}, which needs {wanted}; here there are {', '.join(here)}")
        raise OptionError(f"--gdn-recurrences has {name!r}; here there are {', '.join(here)}")
    return tuple(dict.fromkeys(_items("--gdn-recurrences", text)))


def parse_families(text: str) -> tuple[str, ...]:
    """Names of input families.

    Raises:
        OptionError: one of them is not known.
    """
    for name in _items("--gdn-inputs", text):
        if name not in FAMILIES:
            raise OptionError(f"--gdn-inputs has {name!r}; there are {', '.join(FAMILIES)}")
    return tuple(dict.fromkeys(_items("--gdn-inputs", text)))


def parse_processes(text: str) -> int:
    """How many fresh processes time.

    Raises:
        OptionError: it is no number from 0 to 1000.
    """
    if not text.isascii() or not text.isdecimal() or int(text) > 1000:
        raise OptionError(f"--gdn-processes is {text!r}; give a number from 0 to 1000")
    return int(text)


def parse_lock_timeout(text: str) -> float:
    """Seconds to wait for a card.

    Raises:
        OptionError: it is no number of seconds.
    """
    try:
        return parse_timeout(text)
    except ValueError as error:
        raise OptionError(str(error)) from None


def choose_devices(text: str, found: Gpu) -> tuple[str, tuple[int, ...], str]:
    """(platform, CUDA indices, a line to print) from "auto", "host", "all", or indices and UUIDs with commas.

    Raises:
        OptionError: a GPU is asked for or present and cannot be used, or the text is none of these.
    """
    if text == "host":
        return "host", (0,), ""
    single = text in ("auto", "all")
    if not single and not all(_DEVICE.fullmatch(item) for item in _items("--gdn-device", text)):
        raise OptionError(
            f"--gdn-device is {text!r}; give auto, host, all, or indices or UUIDs of GPUs, such as 0 or 0,1"
        )
    if not found.usable:
        if text == "auto" and not found.present:
            return "host", (0,), f"no GPU: {found.problem}. The NumPy recurrences run instead."
        raise OptionError(f"the GPU cannot be used: {found.problem}. --gdn-device host measures the NumPy recurrences")
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    if single:
        return "cuda", tuple(range(count if text == "all" else 1)), ""
    indices = [_index(item, count) for item in _items("--gdn-device", text)]
    return "cuda", tuple(dict.fromkeys(indices)), ""


_DEVICE = re.compile(r"\d+|GPU-[\w-]+", re.ASCII)


def _index(item: str, count: int) -> int:
    """The CUDA index of a GPU, from its index or its UUID."""
    if item.isdecimal():
        if int(item) >= count:
            raise OptionError(f"--gdn-device is {item}; there are {count} GPUs, counted from 0")
        return int(item)
    known = [card_uuid(device) for device in range(count)]
    if item not in known:
        raise OptionError(f"--gdn-device is {item}; there are {', '.join(str(one) for one in known)}")
    return known.index(item)


def default_recurrences(platform: str) -> tuple[str, ...]:
    return tuple(r.name for r in recurrences(platform) if not recurrence(r.name).minor)
