"""Baselines: which run a card and a method are judged against. They move by `accept` alone.

Each acceptance is a file of its own, `<root>/accepted/<gpu_key>/<time>-<run_id>.json`, which is never changed; the
newest one of a method is its baseline, and the others are how it came to be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from results import series
from results.clocks import held_back
from results.faults import MEND, faults
from results.schema import Accuracy, Determinism, Record, Speed
from results.store import RESTORE, NotStoredError, ResultsError, gpu_folders, loose_names, put, read, read_file

STAMP = "%Y%m%dT%H%M%S%fZ"


class Acceptance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The act of making a run the baseline of its card and method.

    Attributes:
        run_id, gpu_key, method_id: of the run.
        accepted: UTC, ISO 8601.
        because: why, in the words of who did it; empty where nothing spoke against the run.
        despite: what spoke against it.
    """

    run_id: Annotated[str, Meta(min_length=1)]
    gpu_key: Annotated[str, Meta(min_length=1)]
    method_id: Annotated[str, Meta(min_length=1)]
    accepted: str
    because: str = ""
    despite: tuple[str, ...] = ()


def acceptances(root: Path, gpu_key: str, method_id: str) -> list[Acceptance]:
    """The acceptances of a card and a method, oldest first; the last one names the baseline.

    Raises:
        ResultsError: a file cannot be read; it is named, with the mend. A baseline is not guessed.
    """
    folder, said = root / "accepted" / gpu_key, list[str]()
    names = loose_names(folder, said)
    if said:
        raise ResultsError(said[0])
    found = []
    for name in names:
        one = _read(file := f"{folder}/{name}")
        if one.gpu_key != gpu_key:
            raise ResultsError(f"{file}: gpu_key is {one.gpu_key!r}; move it to the folder of that name")
        if one.method_id == method_id:
            found.append((datetime.fromisoformat(one.accepted), name, one))
    return [one for _, _, one in sorted(found, key=lambda item: item[:2])]


_ACCEPTANCE = msgspec.json.Decoder(Acceptance)


def _read(file: str | Path) -> Acceptance:
    try:
        one = _ACCEPTANCE.decode(read_file(file))
        if datetime.fromisoformat(one.accepted).tzinfo is None:
            raise ValueError(f"accepted is {one.accepted!r}, which has no time zone")
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise ResultsError(f"{file}: {error}; {RESTORE.replace('the history', 'the folder')}") from None
    return one


def check_acceptances(root: Path) -> list[str]:
    """A line for each acceptance that cannot be read, or whose run is not stored."""
    said = []
    for file in sorted((root / "accepted").glob("*/*.json")):
        if file.name[0] == ".":
            continue
        try:
            one = _read(file)
            read(root, one.gpu_key, one.run_id)
        except ResultsError as error:
            told = str(error)
            said.append(told if told.startswith(str(file)) else f"{file}: {told}")
    return said


def accept(root: Path, run_id: str, because: str = "") -> Acceptance:
    """Make a run the baseline of its card and method.

    Args:
        root: the results folder.
        run_id: a run that is stored there; "newest" is the newest one of the card that ran last.
        because: why it is accepted although something speaks against it; it is kept.

    Returns:
        The acceptance; that which is there already, where the run is the baseline and nothing new is said of it.

    Raises:
        ResultsError: there is no such run, something in it cannot be right, it has no times, or something speaks
            against it and `because` is empty.
    """
    record = find(root, run_id)
    if wrong := faults(record):
        raise ResultsError(f"run {record.run_id!r} is not accepted: {'; '.join(wrong)}; {MEND}")
    against = reasons(record, _night(root, record))
    if not any(isinstance(case, Speed) and case.median_ns for case in record.cases):
        raise ResultsError(f"run {record.run_id!r} is not accepted: it has no time; accept a run that has some")
    because = " ".join(because.split())
    if against and not because:
        raise ResultsError(
            f"run {record.run_id!r} is not accepted: {'; '.join(against)}; accept another run, or tell why this one "
            "is right all the same with --because"
        )
    earlier = acceptances(root, record.gpu_key, record.method.id)
    if earlier and earlier[-1].run_id == record.run_id and because in ("", earlier[-1].because):
        return earlier[-1]
    now = datetime.now(UTC)
    if earlier:  # another machine's clock may have been ahead: what is accepted last is the baseline all the same
        now = max(now, datetime.fromisoformat(earlier[-1].accepted).astimezone(UTC) + timedelta(microseconds=1))
    one = Acceptance(
        run_id=record.run_id,
        gpu_key=record.gpu_key,
        method_id=record.method.id,
        accepted=now.isoformat(timespec="microseconds"),
        because=because,
        despite=tuple(against),
    )
    data = msgspec.json.format(msgspec.json.encode(one), indent=1) + b"\n"
    put(data, root / "accepted" / one.gpu_key / f"{now:{STAMP}}-{one.run_id}.json")
    return one


def reasons(record: Record, night: Sequence[Record] = ()) -> list[str]:
    """What speaks against a run as a baseline, a phrase each.

    Args:
        record: the run.
        night: the other runs of its night, whose checks count for it, as a fresh process only measures times.
    """
    found = []
    if record.status != "complete":
        found.append("it is partial: it was stopped, or cases failed to run")
    if held := held_back(record):
        found.append(f"the card held its clocks back ({held})")
    if record.environment.dirty:
        found.append("its source differs from its commit (dirty)")
    elif not record.environment.commit:
        found.append("its commit is not known")
    every = [case for one in (record, *night) for case in one.cases]
    if red := [case for case in every if case.outcome == "red"]:
        found.append(f"{_cases(len(red), 'red')}, first {_case(red[0])}")
    if noisy := [case for case in record.cases if case.outcome == "inconclusive"]:
        found.append(f"{_cases(len(noisy), 'inconclusive')}, first {_case(noisy[0])}")
    for kind, what in ((Accuracy, "accuracy"), (Determinism, "determinism")):
        if not any(isinstance(case, kind) and case.outcome == "green" for case in every):
            found.append(f"no check of {what} is green in it")
    return found


def _cases(number: int, outcome: str) -> str:
    return f"{number:,} case{'' if number == 1 else 's'} {'is' if number == 1 else 'are'} {outcome}"


def _case(case: Accuracy | Determinism | Speed) -> str:
    kind = {Accuracy: "accuracy", Determinism: "determinism", Speed: "speed"}[type(case)]
    told = f": {case.reason}" if case.reason else ""
    return f"{kind} of {case.recurrence} at {case.tokens:,} tokens{told}"


def find(root: Path, run_id: str) -> Record:
    """The record of a run, of whichever card.

    Raises:
        ResultsError: it is not stored, stored for several cards, or cannot be read.
    """
    if run_id == "newest":
        table = series.runs(root)
        if not len(table):
            raise ResultsError(f"nothing is stored in {root}; pytest --benchmark-only measures")
        return read(root, str(table["gpu_key"].iloc[-1]), str(table["run_id"].iloc[-1]))
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", run_id):
        raise ResultsError(f"run is {run_id!r}; a name that gdn-bench history lists is wanted")
    found, problems = [], list[str]()
    for folder in gpu_folders(root, problems):
        with suppress(NotStoredError):
            found.append(read(root, folder.name, run_id))
    if len(found) == 1:
        return found[0]
    if found:
        raise ResultsError(f"run {run_id!r} is stored for {len(found)} cards; that cannot be told apart: rename one")
    raise NotStoredError(f"run {run_id!r} is not stored in {root}; name one that gdn-bench history lists")


def _night(root: Path, record: Record) -> list[Record]:
    """The other runs of a run's night on its card, with the same source."""
    if record.night is None:
        return []
    table = series.runs(root, record.gpu_key)
    own = table[(table["night"] == record.night) & (table["run_id"] != record.run_id)]
    return [read(root, record.gpu_key, str(name)) for name in own["run_id"]]
