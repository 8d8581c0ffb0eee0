"""The record of a run, put together from what the suite measured (`suite/facts.py`).

A record is immutable. `SCHEMA` grows by one whenever a key is added, removed or changes its meaning; a reader
refuses a record that is newer than itself. `docs/schema.md` is written from this file and from `suite/facts.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from suite.facts import (
    Accuracy,
    Build,
    Canary,
    Case,
    Ceilings,
    Clocks,
    Cost,
    Determinism,
    Difference,
    Dropped,
    Environment,
    Group,
    Host,
    Look,
    Method,
    Outcome,
    Speed,
    Struct,
    Times,
)

__all__ = [
    "SCHEMA",
    "Accuracy",
    "Build",
    "Canary",
    "Case",
    "Ceilings",
    "Clocks",
    "Cost",
    "Determinism",
    "Difference",
    "Dropped",
    "Environment",
    "Group",
    "Host",
    "Look",
    "Method",
    "Outcome",
    "Record",
    "Speed",
    "Struct",
    "Times",
]

SCHEMA = 3
"""1: hot times alone. 2: cold times, host times, SM clocks, groups, canaries and ceilings. 3: fingerprints of source,
machine code and launching code. New keys may be missing, so that older files are read as they are."""


class Record(Struct, frozen=True, kw_only=True):
    """One run."""

    schema: Annotated[int, Meta(description="version of this layout, an integer from 1 on", ge=1)] = SCHEMA
    run_id: Annotated[str, Meta(description="UTC start time and a random part; the file's name")]
    status: Annotated[
        Literal["complete", "partial"],
        Meta(description="partial: the run was stopped, or selected cases failed to run"),
    ]
    started: Annotated[str, Meta(description="UTC, ISO 8601")]
    finished: Annotated[str, Meta(description="UTC, ISO 8601, of the last case stored")]
    command: Annotated[tuple[str, ...], Meta(description="the command line")]
    gpu_key: Annotated[str, Meta(description="stable facts of the card; names its history")]
    method: Method
    environment: Environment
    cases: Annotated[tuple[Case, ...], Meta(description="what was measured, in order")]
    groups: Annotated[tuple[Group, ...], Meta(description="the alternations that the times come from")] = ()
    canaries: Annotated[tuple[Canary, ...], Meta(description="fixed work, timed before and after")] = ()
    ceilings: Annotated[Ceilings | None, Meta(description="peak rates that the limits rest on")] = None
    builds: Annotated[tuple[Build, ...], Meta(description="kernels that were compiled; none in older records")] = ()
    night: Annotated[str | None, Meta(description="shared by the fresh processes of one night; else null")] = None
    process: Annotated[int | None, Meta(description="which of the night's processes this is, from 1 on")] = None
    cost: Annotated[Cost | None, Meta(description="what the run cost, and the device's share of that")] = None
    notes: Annotated[tuple[str, ...], Meta(description="what a reader must know, such as a skipped check")] = ()
