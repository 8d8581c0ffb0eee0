"""Writes `docs/schema.md` from the schema: python -m results.document > docs/schema.md"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from results.schema import SCHEMA, Record, Struct

INTRO = f"""\
# The record of a run

Written from the code by `python -m results.document > docs/schema.md`. This is schema {SCHEMA}.

A run is one JSON file: `results/history/<gpu_key>/<run_id>.json` once it is complete, `<run_id>.partial.json` while it
is in progress and if it was stopped. Keys that are not listed here are refused, and numbers are finite.
"""


def schema_markdown() -> str:
    """The schema as Markdown: every part of a record with its keys, their types and what they mean."""
    return "\n".join([INTRO, *(_section(part) for part in _parts(Record))])


def _parts(kind: Any) -> list[type[Struct]]:
    """All structs that a type leads to, the outermost first."""
    found: list[type[Struct]] = []
    waiting = [kind]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, type) and issubclass(one, Struct):
            if one in found:
                continue
            found.append(one)
            waiting += [field.type for field in msgspec.structs.fields(one)]
        else:
            waiting += get_args(one)
    return found


def _section(part: type[Struct]) -> str:
    lines = [
        f"## {part.__name__}",
        "",
        " ".join((part.__doc__ or "").split()),
        "",
        "| key | type | meaning |",
        "|---|---|---|",
    ]
    lines += (f"| `{key}` | {kind} | {meaning} |".replace("  |", " |") for key, kind, meaning in _rows(part))
    return "\n".join([*lines, ""])


def _rows(part: type[Struct]) -> Iterator[tuple[str, str, str]]:
    config = part.__struct_config__
    if config.tag_field:
        yield config.tag_field, f'"{config.tag}"', "which kind of case this is"
    for field in msgspec.structs.fields(part):
        yield field.encode_name, _type(field.type).replace("|", r"\|"), _meaning(field.type).replace("|", r"\|")


def _type(kind: Any) -> str:
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin is Annotated:
        least = [meta.ge for meta in kind.__metadata__ if meta.ge is not None]
        return _type(arguments[0]) + "".join(f", at least {bound:g}" for bound in least)
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    words = {int: "integer", float: "number", bool: "true or false", str: "text", type(None): "null"}
    return words[kind]


def _meaning(kind: Any) -> str:
    """The key's own description, the outermost one, or that of the struct it holds."""
    if get_origin(kind) is Annotated:
        said = [meta.description for meta in kind.__metadata__ if meta.description]
        return said[-1] if said else ""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"see {kind.__name__}"
    return ""


if __name__ == "__main__":
    print(schema_markdown(), end="")
