"""A pytest plugin, `-p tests.two_cards`: a machine with two cards, on which the NumPy recurrences are measured.

A process that sees one of them alone is on the host as far as the suite is concerned, and notes which card it was.
"""

from __future__ import annotations

import os
from pathlib import Path

import suite.devices
import suite.options
from kernels.detect import Gpu


def _choose(text: str, found: Gpu) -> tuple[str, tuple[int, ...], str]:
    if text == "0,1":
        return "host", (0, 1), ""
    with Path(os.environ["SEEN"]).open("a") as file:
        print(text, os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
    return "host", (0,), ""


suite.options.choose_devices = _choose
suite.devices.card_uuid = lambda device: f"GPU-{device}"
