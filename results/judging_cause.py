"""Which part of the environment changed where a level changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SOURCE = ("source", "commit")
"""What names the source, the better one first: a commit may leave the source of a kernel as it is."""
CODE = ("machine_code", "fingerprint")
"""What names the machine code."""
LAUNCHER = "launcher"
"""The code that launches the machine code."""
TOOLS = ("nvrtc", "cupy", "cuda", "cuda_runtime", "numpy", "python")
"""What makes machine code of source; the last two count on the host alone."""
MACHINE = ("gpu_uuid", "driver", "power_limit_w", "platform", "cpu")
"""What runs it."""


@dataclass(frozen=True)
class Cause:
    """What may have changed a level.

    Attributes:
        kind: "machine", "compiler", "source" or "unknown".
        changed: what differs: name to (before, after).
        commits: the last commit of the old level for certain, and the first of the new one.
        reason: in words.
        canary: a canary changed there in the same direction, which excuses the code.
    """

    kind: str
    changed: Mapping[str, tuple[object, object]]
    commits: tuple[str | None, str | None]
    reason: str
    canary: bool = False


def between(before: Mapping[str, object], after: Mapping[str, object], canary: bool = False) -> Cause:
    """Say what changed from one run to another, of which one has another time.

    The same machine code and another time is the machine. Another machine code of the same source is the compiler.

    Args:
        before, after: what is known of the runs: any of `SOURCE`, `CODE`, `LAUNCHER`, `TOOLS` and `MACHINE`; None
            or missing: unknown.
        canary: whether a canary changed there in the same direction.
    """
    changed = {
        name: (before[name], after[name])
        for name in (*SOURCE, *CODE, LAUNCHER, *TOOLS, *MACHINE)
        if before.get(name) is not None and after.get(name) is not None and before[name] != after[name]
    }
    commits = tuple(None if (found := run.get("commit")) is None else str(found) for run in (before, after))
    kind, reason = _kind(changed, _first(before, after, CODE), _first(before, after, SOURCE))
    if canary:
        kind, reason = "machine", "a canary changed there as well"
    others = [f"{name} {old} → {new}" for name, (old, new) in changed.items() if name in (*TOOLS, *MACHINE)]
    if others:
        reason += f"; {', '.join(others)}"
    return Cause(kind, changed, (commits[0], commits[1]), reason, canary)


def _first(before: Mapping[str, object], after: Mapping[str, object], names: Sequence[str]) -> str | None:
    """The first of the names that both runs know."""
    return next((name for name in names if before.get(name) is not None and after.get(name) is not None), None)


def _kind(changed: Mapping[str, object], code: str | None, source: str | None) -> tuple[str, str]:
    if code is not None and code not in changed:
        if LAUNCHER in changed:
            return "source", "the machine code is the same, and the code that launches it changed"
        return "machine", "the machine code is the same"
    tools = [name for name in TOOLS if name in changed]
    if source is not None and source not in changed:
        if code is not None and LAUNCHER in changed:
            return "unknown", f"the {source} is the same, and the machine code changed with the code that launches it"
        if code is not None:
            return "compiler", f"the {source} is the same and the machine code is another"
        if tools:
            return "compiler", f"the {source} is the same, the compiler changed, the machine code is not known"
        return "machine", f"the {source} and the compiler are the same, the machine code is not known"
    if source is None:
        return "unknown", "neither source nor machine code is known" if code is None else "the source is not known"
    if tools:
        return "unknown", f"the {source} and the compiler changed together"
    if code is None and any(name in changed for name in MACHINE):
        return "unknown", f"the {source} and the machine changed together, the machine code is not known"
    return "source", f"the {source} changed" + ("" if code is None else ", and the machine code with it")
