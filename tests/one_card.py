"""A pytest plugin, `-p tests.one_card`: the NumPy recurrences are measured as if on a card, which must be held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import suite.devices
from suite.lock import Lock
from suite.options import Options

_take = suite.devices.take


def _of_a_card(options: Options, say: Callable[[str], None], until: ExitStack) -> Lock | None:
    return _take(replace(options, platform="cuda"), say, until)


suite.devices.card_uuid = lambda device: "GPU-0"
suite.devices.take = _of_a_card
