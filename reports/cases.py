"""Which cases the page shows, of all that are stored for one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from kernels.inputs import FAMILIES
from kernels.problem import Shape

SERIES = ["shape", "head_map", "inputs"]
"""What a table never mixes."""

CASE = ["kind", "recurrence", "against", "tokens", *SERIES]
"""What names a case."""

DEFAULT = (str(Shape()), Shape().head_map)


def newest_of_each(everything: pd.DataFrame, runs: Sequence[str]) -> pd.DataFrame:
    """For each kind and series, the cases of the newest run that has some.

    Args:
        everything: all cases, or the newest of each.
        runs: the names of the runs, oldest first.
    """
    order = {run_id: place for place, run_id in enumerate(runs)}
    age = everything["run_id"].map(order)
    groups = [everything[column] for column in ("kind", *SERIES)]
    rows = everything[age == age.groupby(groups).transform("max")]
    return rows.drop_duplicates(CASE, keep="last").sort_values("tokens", kind="stable")


def not_repeated(everything: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """Cases that only runs before the shown ones have, as they were last."""
    last = everything.drop_duplicates(CASE, keep="last")
    known = set(_names(shown))
    return last.loc[[case not in known for case in _names(last)]]


def _names(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows[CASE].fillna("").itertuples(index=False, name=None))


def rank(place: tuple[str, ...]) -> tuple[Any, ...]:
    """The default shape first, and the families of inputs in their order."""
    shape, head_map, inputs = place
    families = list(FAMILIES)
    family = families.index(inputs) if inputs in families else len(families)
    return (shape != DEFAULT[0], head_map != DEFAULT[1], shape, head_map, family, inputs)


def at(rows: pd.DataFrame, place: tuple[str, ...]) -> pd.DataFrame:
    return rows[(rows[SERIES] == list(place)).all(axis=1)]


def title(place: Sequence[str]) -> str:
    shape, head_map, inputs = place
    return f"{shape}, {head_map} heads, {inputs} inputs"


def places(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """The (shape, head map, inputs) there are, the default first."""
    return sorted({tuple(place) for place in rows[SERIES].itertuples(index=False)}, key=rank)
