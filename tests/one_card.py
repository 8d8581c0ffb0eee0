"""A pytest plugin, `-p tests.one_card`: the NumPy recurrences are measured as if on a card, which must be held.

Each process adds a line to the file that HELD_FILE names, if it does: whether its parent holds the card for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import suite.devices
from suite.lock import Lock, held_by_parent
from suite.options import Options

_take = suite.devices.take


def _of_a_card(options: Options, say: Callable[[str], None], until: ExitStack) -> Lock | None:
    if name := os.environ.get("HELD_FILE"):
        with Path(name).open("a") as file:
            print(held_by_parent("GPU-0"), file=file)
    return _take(replace(options, platform="cuda"), say, until)


suite.devices.card_uuid = lambda device: "GPU-0"
suite.devices.take = _of_a_card
