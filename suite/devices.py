"""Several cards: which are meant, and one process for each, which sees that card alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from suite import lock
from suite.environment import card_uuid
from suite.options import Options
from suite.processes import run_pytest, without


def take(options: Options, say: Callable[[str], None], until: ExitStack) -> lock.Lock | None:
    """Hold the run's card; None on the host, where the card has no UUID, and where the parent holds it.

    This process has a context on the first card that it sees. While it waits there, or measures another card, it says
    that it is idle there.

    Args:
        say: told who holds the card.
        until: its end gives the card free.

    Raises:
        LockError: another job holds it for longer than the options allow.
    """
    if options.platform == "host":
        return None
    if options.device:
        until.enter_context(lock.idle(card_uuid(0)))
    uuid = card_uuid(options.device)
    if uuid is None or lock.held_by_parent(uuid):
        return None
    held = lock.Lock(uuid)
    with lock.idle(None if options.device else uuid):
        held.acquire(options.lock_timeout_s, say)
    until.callback(held.release)
    return held


def commands(given: Sequence[str], devices: Sequence[int]) -> list[tuple[list[str], dict[str, str]]]:
    """(options, environment variables) of each card's process.

    A process gets its card by UUID, so that the record's command line names the card, and sees no other one, so that
    its context is on that card alone. A card without a UUID is named by its index.
    """
    found: list[tuple[list[str], dict[str, str]]] = []
    kept = without(given, ("--gdn-device",))
    for device in devices:
        uuid = card_uuid(device)
        if uuid is None:
            found.append(([*kept, f"--gdn-device={device}"], {}))
        else:
            found.append(([*kept, f"--gdn-device={uuid}"], {"CUDA_VISIBLE_DEVICES": uuid}))
    return found


def measure_each(config: pytest.Config, options: Options, reporter: Any) -> list[int]:
    """Measure one card after the other, each in a process of its own; returns their exit codes."""
    with lock.idle(card_uuid(0)):  # this process's own context
        asked = commands(config.invocation_params.args, options.devices)
        return [
            run_pytest(config, own, f"GPU {device}", reporter, os.environ | extra)
            for device, (own, extra) in zip(options.devices, asked, strict=True)
        ]
