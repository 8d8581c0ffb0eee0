"""Published figures that ship as labelled reference sets: shown beside what is measured, never compared with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

FOLDER = Path(__file__).parent / "reference"


class PublishedSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published time."""

    recurrence: str
    tokens: Annotated[int, Meta(gt=0)]
    median_us: Annotated[float, Meta(gt=0)]


class PublishedAccuracy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Published errors, max|difference| / max|reference|; null where none were given."""

    recurrence: str
    against: str
    tokens: Annotated[int, Meta(gt=0)]
    error_out: float | None
    error_state: float | None


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of published figures: whose, of which card, and from where."""

    label: str
    gpu: str
    sms: int
    shape: str
    source: str
    speed: tuple[PublishedSpeed, ...]
    accuracy: tuple[PublishedAccuracy, ...]


def references() -> tuple[Reference, ...]:
    """The reference sets that ship with the project.

    Raises:
        msgspec.ValidationError: a file does not hold what `Reference` says.
    """
    return tuple(msgspec.json.decode(file.read_bytes(), type=Reference) for file in sorted(FOLDER.glob("*.json")))
