"""Series of runs and cases out of the index (`results.index`), which makes years of runs fast to read.

`runs` and `cases` give what `results.frame.frame` of all records gives, and a little more. What a caller must pass on
are problems, a line for each file that cannot be used, and notes, a line for each part of the index that was built
anew: a `Series` has them, and the frames of the functions in `attrs`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from results.faults import MEND
from results.frame import CASE_COLUMNS, RUN_COLUMNS, frame, tuples, typed
from results.index import KINDS, PLACES, RUN_FACTS, Shard, absent, all_runs, joined, no_runs, shards
from results.store import differs, gpu_folders

__all__ = ["CONFIRMS", "KINDS", "RUN_FACTS", "Series", "cases", "night_of", "opened", "problems", "runs"]


_CASE = ("recurrence", "against", "tokens", "shape", "head_map", "inputs")
"""What names a case of a kind."""


CONFIRMS = "confirm-"
"""Nights of this name hold the fresh processes that confirm the run whose name follows."""


def night_of(runs: pd.DataFrame) -> np.ndarray:
    """What each run belongs to: its night, or itself where it has none; a run that confirms belongs to the other's.

    Args:
        runs: columns run_id and night.
    """
    names, nights = list(runs["run_id"]), list(runs["night"])
    found = {
        name: night if isinstance(night, str) else name
        for name, night in zip(names, nights, strict=True)
        if not (isinstance(night, str) and night.startswith(CONFIRMS))
    }
    # One that confirms a run that is not stored stays with its like.
    found |= {
        name: found.get(night.removeprefix(CONFIRMS), night)
        for name, night in zip(names, nights, strict=True)
        if name not in found
    }
    return np.array([found[name] for name in names], object)


@dataclass(frozen=True)
class Series:
    """All that is stored of one GPU.

    Attributes:
        gpu_key: of the card.
        runs: a row per run, columns `RUN_FACTS`, oldest first.
        problems, notes: see above.
        shards: where the cases are.
        places: the row in `runs` of each run of the shards, one after another; -1 where it does not count.
    """

    gpu_key: str
    runs: pd.DataFrame
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    shards: Sequence[Shard] = field(repr=False)
    places: np.ndarray = field(repr=False)

    def _rows(self, kind: str, wanted: np.ndarray, only: Collection[str], newest: bool) -> pd.DataFrame | None:
        """The cases of a kind in the wanted runs, with `run`, the row in `runs`."""
        parts, before = [], 0
        for shard in self.shards:
            place = self.places[before : before + len(shard)]
            before += len(shard)
            counts = (place >= 0) & wanted[place]
            if not counts.any() or (rows := shard.rows(kind, only, counts)) is None:
                continue
            rows["run"] = place[rows["run"].to_numpy()]
            parts.append(_newest(rows.sort_values([*PLACES])) if newest else rows)
        if not parts:
            return None
        found = joined(parts).sort_values([*PLACES], ignore_index=True)
        return _newest(found) if newest else found

    def cases(
        self,
        method_id: str | None = None,
        kinds: Sequence[str] = KINDS,
        newest: bool = False,
        columns: Sequence[str] = (*RUN_COLUMNS, *CASE_COLUMNS),
        run_ids: Collection[str] | None = None,
    ) -> pd.DataFrame:
        """One row per (run, case), oldest first, columns as of `results.frame.frame`.

        Args:
            method_id: the method; all of them where None.
            kinds: accuracy, determinism and speed; fewer are faster.
            newest: of each case, only the newest run that has it.
            columns: which; fewer are faster.
            run_ids: only these runs; fewer are faster.
        """
        chosen = []
        only = {*columns, *_CASE} if newest else {*columns}
        if method_id is None:
            wanted = np.ones(len(self.runs), bool)
        else:
            wanted = (self.runs["method_id"] == method_id).to_numpy(bool)
        if run_ids is not None:
            wanted = wanted & self.runs["run_id"].isin(list(run_ids)).to_numpy(bool)
        for kind in KINDS:
            if kind in kinds and (rows := self._rows(kind, wanted, only, newest)) is not None:
                chosen.append(rows.assign(kind=pd.Series(kind, index=rows.index, dtype="object")))
        if not chosen:
            return typed({name: [] for name in columns})
        table = joined(chosen)
        if len(chosen) > 1:
            table = table.iloc[np.lexsort((table["place"], table["run"]))]
        table = table.reset_index(drop=True)
        run = table["run"].to_numpy()
        found = {}
        for name in columns:
            if name in RUN_COLUMNS:
                found[name] = self.runs[name].take(run).reset_index(drop=True)
            else:
                found[name] = table[name] if name in table else absent(name, len(table))
        return pd.DataFrame(found)


def _newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each case of a kind, the last row."""
    return rows.drop_duplicates([name for name in _CASE if name in rows], keep="last")


def opened(root: Path, gpu_key: str | None = None) -> tuple[list[Series], tuple[str, ...], tuple[str, ...]]:
    """Everything that is stored, GPU by GPU: (series by gpu_key, all problems, all notes).

    Args:
        root: the results folder.
        gpu_key: of one card; all of them where None.
    """
    found, said, notes = [], list[str](), list[str]()
    for folder in gpu_folders(root, said):
        if gpu_key is None or folder.name == gpu_key:
            found.append(_open(root, folder))
    for one in found:
        said += one.problems
        notes += one.notes
    return found, tuple(said), tuple(notes)


def _open(root: Path, folder: Path) -> Series:
    said, notes = list[str](), list[str]()
    parts = shards(root, folder, notes, said)
    runs = all_runs(parts)
    order = _one_of_each(runs, root, said)
    places = np.full(len(runs), -1)
    places[order] = np.arange(len(order))
    runs = runs.iloc[order].reset_index(drop=True)
    for file, wrong in tuples(runs[runs["faults"].notna()], ("file", "faults")):
        said.append(f"{root / file}: {wrong}; {MEND}")
    return Series(folder.name, runs, tuple(said), tuple(notes), parts, places)


def _one_of_each(runs: pd.DataFrame, root: Path, said: list[str]) -> np.ndarray:
    """Rows of the runs, oldest first, one of each run: the complete record, not the draft; the loose, not the packed.

    Two complete records of one run that are not the same become a problem.
    """
    order = np.arange(len(runs))
    double = runs["run_id"].duplicated(keep=False).to_numpy(bool)
    if double.any():
        drop = set[int]()
        for run_id, own in runs[double].groupby("run_id", sort=True):
            complete = own[own["status"] == "complete"]
            kept = (complete if len(complete) else own).iloc[0]
            drop |= {int(row) for row in own.index if row != kept.name}
            for _, other in complete.iterrows():
                if other["digest"] != kept["digest"]:
                    said.append(f"{root / other['file']}: {differs(str(run_id))}")
        order = order[[row not in drop for row in order]]
    return np.asarray(runs.iloc[order].sort_values(["started", "run_id"], kind="stable").index)


def runs(root: Path, gpu_key: str | None = None, method_id: str | None = None) -> pd.DataFrame:
    """One row per run, columns `RUN_FACTS`, oldest first.

    Args:
        root: the results folder.
        gpu_key, method_id: only runs of these; of all where None.
    """
    found, said, notes = opened(root, gpu_key)
    tables = [one.runs if method_id is None else one.runs[one.runs["method_id"] == method_id] for one in found]
    table = joined(tables) if tables else no_runs()
    table = table.sort_values(["started", "run_id"], kind="stable", ignore_index=True)
    table.attrs |= {"problems": said, "notes": notes}
    return table


def cases(root: Path, gpu_key: str, method_id: str | None = None, kinds: Sequence[str] = KINDS) -> pd.DataFrame:
    """One row per (run, case) of one GPU, oldest first, columns as of `results.frame.frame`.

    Args:
        root: the results folder.
        gpu_key: of the card.
        method_id: only runs of this method; of all where None.
        kinds: accuracy, determinism and speed; fewer are faster.
    """
    found, said, notes = opened(root, gpu_key)
    table = found[0].cases(method_id, kinds) if found else frame([])
    table.attrs |= {"problems": said, "notes": notes}
    return table


def problems(root: Path) -> tuple[str, ...]:
    """A line for each stored file that cannot be read, or in which something cannot be right, with the mend."""
    return opened(root)[1]
