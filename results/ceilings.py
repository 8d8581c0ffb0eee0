"""Where a card's peak rates are kept: `<root>/ceilings/<gpu_key>.json`, measured once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from results.schema import Ceilings
from results.store import ResultsError, replace_file


def path_of(root: Path, key: str) -> Path:
    """The file of a card.

    Args:
        root: the results folder.
        key: its `gpu_key`.
    """
    return root / "ceilings" / f"{key}.json"


def load_ceilings(root: Path, key: str) -> Ceilings | None:
    """The card's rates, or None where they were not measured yet.

    Raises:
        ResultsError: the file cannot be read; it is named, with the mend.
    """
    file = path_of(root, key)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Ceilings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultsError(f"{file}: {error}; restore it, or remove it so that the next run measures anew") from None


def keep_ceilings(found: Ceilings, root: Path, key: str) -> Path | None:
    """Keep the rates of a card that has none yet; returns the file, or None where there was one.

    Raises:
        ResultsError: it cannot be written.
    """
    file = path_of(root, key)
    if file.exists():
        return None
    text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
    return replace_file(text, file, "file of ceilings", "mend it or choose another with --gdn-results=DIR")
