"""Thresholds for each case, from `[tool.gdn-bench]` of a pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results.judging import DEFAULT, Thresholds
from results.store import ResultsError

TABLE = "tool.gdn-bench"


@dataclass(frozen=True)
class Rules:
    """The thresholds of every case.

    Attributes:
        default: of a case that no pattern fits.
        cases: (pattern, what it changes), in the order of the file; of several that fit, the later one counts.
    """

    default: Thresholds = DEFAULT
    cases: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def of(self, case: str) -> Thresholds:
        """The thresholds of a case by its name, such as "tensor/2048"."""
        found = self.default
        for pattern, changes in self.cases:
            if fnmatchcase(case, pattern):
                found = replace(found, **changes)
        return found


def rules(table: Mapping[str, Any]) -> Rules:
    """The rules of the table: the fields of `Thresholds`, and in `cases` the same for each pattern of names.

    Raises:
        ResultsError: a key is not known, or a value is not one that it can have.
    """
    own = {key: value for key, value in table.items() if key != "cases"}
    default = _changed(DEFAULT, own, TABLE)
    cases = table.get("cases", {})
    if not isinstance(cases, Mapping):
        raise ResultsError(f"[{TABLE}] cases is {cases!r}; it must be a table of patterns, such as 'tensor/*'")
    found = []
    for pattern, changes in cases.items():
        place = f'{TABLE}.cases."{pattern}"'
        if not isinstance(changes, Mapping):
            raise ResultsError(f"[{TABLE}] cases has {pattern!r} = {changes!r}; it must be a table of thresholds")
        if "q" in changes:
            raise ResultsError(f"[{place}] has q, which is of all the cases of a night; set it in [{TABLE}]")
        _changed(default, changes, place)
        found.append((str(pattern), dict(changes)))
    return Rules(default, tuple(found))


def read_rules(path: Path) -> Rules:
    """The rules of a pyproject.toml; the default ones where there is no such file or it has no such table.

    Raises:
        ResultsError: the file cannot be read, or `rules` refuses what is in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Rules()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from error
    try:
        found = tomllib.loads(text).get("tool", {}).get("gdn-bench", {})
    except tomllib.TOMLDecodeError as error:
        raise ResultsError(f"{path} is not valid TOML: {error}") from error
    try:
        return rules(found)
    except ResultsError as error:
        raise ResultsError(f"{path}: {error}") from error


def _changed(default: Thresholds, changes: Mapping[str, Any], place: str) -> Thresholds:
    known = [one.name for one in fields(Thresholds)]
    for key, value in changes.items():
        if key not in known:
            raise ResultsError(f"[{place}] has {key!r}, which is not known; known are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ResultsError(f"[{place}] {key} is {value!r}; it must be a number")
    try:
        return replace(default, **changes)
    except ValueError as error:
        raise ResultsError(f"[{place}] {error}") from error
