"""The measured times that `auto` chooses by: a table for each card and shape, a JSON file each."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from kernels.dispatch import DeviceFacts
from kernels.problem import ProblemError, Shape

FOLDER = Path(__file__).parent / "tables"
"""The tables that ship with the project."""

TOKENS_END = 2**31
"""Token counts are below this, as the kernels take them as 32-bit integers."""

LONGEST_NS = 1e18


class AutoError(ValueError):
    """A table is wrong, or there is nothing to choose from; the message names the field, the value and the mend."""


@dataclass(frozen=True)
class Source:
    """Where a table's times come from.

    Attributes:
        commit: the checkout's commit, or "unknown".
        date: day of the run in UTC, such as 2026-11-30.
        record: the record's `run_id`.
        command: the command line of the run.
        dirty: whether the source differed from the commit.
    """

    commit: str
    date: str
    record: str
    command: str
    dirty: bool = False

    def __post_init__(self) -> None:
        for name in ("commit", "date", "record", "command"):
            if not isinstance(value := getattr(self, name), str) or not value:
                _refuse(f"source.{name}", value, "a text that is not empty")
        try:
            date.fromisoformat(self.date)
        except ValueError:
            _refuse("source.date", self.date, "a day such as 2026-11-30")
        if not isinstance(self.dirty, bool):
            _refuse("source.dirty", self.dirty, "true or false")


@dataclass(frozen=True)
class Table:
    """The measured times of one card and one shape.

    Attributes:
        gpu: product name.
        sms: streaming multiprocessors.
        compute_capability: 90 for 9.0.
        key_heads, value_heads, head_map: see `Shape`.
        source: where the times come from.
        median_ns: by recurrence and token count, the median time of a call, nanoseconds; ascending token counts.

    Raises:
        AutoError: a value is not as above.
    """

    gpu: str
    sms: int
    compute_capability: int
    key_heads: int
    value_heads: int
    head_map: str
    source: Source
    median_ns: Mapping[str, Mapping[int, float]]
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.gpu, str) or not self.gpu:
            _refuse("gpu", self.gpu, "the card's product name")
        for name in ("sms", "compute_capability", "key_heads", "value_heads"):
            if type(value := getattr(self, name)) is not int or value < 1:
                _refuse(name, value, "a positive integer")
        try:
            object.__setattr__(self, "shape", Shape(self.key_heads, self.value_heads, self.head_map))
        except ProblemError as error:
            raise AutoError(str(error)) from None
        if not isinstance(self.median_ns, Mapping) or not self.median_ns:
            _refuse("median_ns", self.median_ns, "an object with times of at least one recurrence")
        checked = {name: _checked(f"median_ns.{name}", times) for name, times in self.median_ns.items()}
        object.__setattr__(self, "median_ns", checked)

    def is_of(self, device: DeviceFacts) -> bool:
        """Whether the times are those of this card: the same name, SM count and compute capability."""
        ours = (self.gpu, self.sms, self.compute_capability)
        return ours == (device.name, device.sms, device.compute_capability)

    @property
    def file_name(self) -> str:
        """What the table's file is called, such as nvidia-h200-132sm-cc90-16x48-tiled.json."""
        card = re.sub(r"[^a-z0-9.]+", "-", self.gpu.lower()).strip("-.") or "unknown"
        shape = f"{self.key_heads}x{self.value_heads}-{self.head_map}"
        return f"{card}-{self.sms}sm-cc{self.compute_capability}-{shape}.json"

    def to_json(self) -> str:
        """The table as the text of its file."""
        values = {key: value for key, value in asdict(self).items() if key != "shape"}
        return json.dumps(values, indent=1) + "\n"


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    raise AutoError(f"{name} is {value!r}; it must be {wanted}")


def _checked(name: str, times: object) -> dict[int, float]:
    """The times of a recurrence by ascending token count; a file's token counts are texts."""
    if not isinstance(times, Mapping) or not times:
        _refuse(name, times, "an object with a time at one token count or more")
    checked: dict[int, float] = {}
    for tokens, ns in times.items():
        if isinstance(tokens, str) and re.fullmatch("[1-9][0-9]{0,9}", tokens):
            tokens = int(tokens)
        if type(tokens) is not int or not 0 < tokens < TOKENS_END:
            _refuse(f"a token count of {name}", tokens, f"an integer from 1 to {TOKENS_END - 1}")
        if type(ns) not in (int, float) or not 0 < ns < LONGEST_NS:
            _refuse(f"{name}.{tokens}", ns, "a positive and finite number of nanoseconds")
        checked[tokens] = float(ns)
    return dict(sorted(checked.items()))


def read_table(file: Path) -> Table:
    """The table of a file.

    Raises:
        AutoError: the file cannot be read, or does not hold what `Table` says.
    """
    try:
        raw = json.loads(file.read_bytes(), object_pairs_hook=_object)
        source = _built(Source, _keys(raw, Table, "the file").get("source"), "source")
        table: Table = _built(Table, raw | {"source": source}, "the file")
        return table
    except OSError as error:
        raise AutoError(f"{file}: {error.strerror}; make it readable or remove it") from error
    except RecursionError:
        raise AutoError(f"{file}: nested too deeply for a table; gdn-bench table makes it anew") from None
    except ValueError as error:
        raise AutoError(f"{file}: {error}; gdn-bench table makes it anew") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of a key that is there twice, json would keep the last value in silence."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise AutoError(f"{key} is there twice, as {made[key]!r} and {value!r}; it must be there once")
        made[key] = value
    return made


def _keys(raw: object, kind: type, where: str) -> dict[str, Any]:
    """The object, once it is one with all the keys of the dataclass and no other."""
    if not isinstance(raw, dict):
        _refuse(where, raw, "an object")
    known = {one.name: one for one in fields(kind) if one.init}
    for key in raw:
        if key not in known:
            raise AutoError(f"{where} has the unknown field {key} = {raw[key]!r}; known are {', '.join(known)}")
    for key in known:
        if key not in raw:
            raise AutoError(f"{where} has no field {key}; it must have {', '.join(known)}")
    return raw


def _built(kind: type, raw: object, where: str) -> Any:
    return kind(**_keys(raw, kind, where))


def read_tables(folder: Path) -> tuple[Table, ...]:
    """All tables of a folder; none where there is no folder.

    Raises:
        AutoError: a file is no table, or two are of one card and shape.
    """
    seen: dict[tuple[object, ...], Path] = {}
    found = []
    for file in sorted(folder.glob("*.json")):
        table = read_table(file)
        key = (table.gpu, table.sms, table.compute_capability, table.shape)
        if key in seen:
            raise AutoError(f"{file} and {seen[key].name} are both of {table.gpu} and {heads(table.shape)}; remove one")
        seen[key] = file
        found.append(table)
    return tuple(found)


@functools.cache
def shipped_tables() -> tuple[Table, ...]:
    """The tables that ship with the project, read once a process; see `read_tables`."""
    return read_tables(FOLDER)


def heads(shape: Shape) -> str:
    """A shape in words, such as 16x48 tiled heads."""
    return f"{shape.key_heads}x{shape.value_heads} {shape.head_map} heads"


def token_count(number: int) -> str:
    """A number of tokens in words, such as 1 token or 8,192 tokens."""
    return f"{number:,} token{'' if number == 1 else 's'}"
