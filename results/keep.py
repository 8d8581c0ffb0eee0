"""From a run of the suite to its stored record: drafts while it runs, the record when it ends."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from results.schema import Record
from results.store import check_writable, gpu_key, new_run_id, save
from suite.builds import builds
from suite.run import Run, command

DRAFT_EVERY_S = 2.0
"""A draft is written at most this often, so that a killed run loses at most this much."""


class Keeper:
    """Keeps one run.

    Args:
        root: the results folder.

    Raises:
        ResultsError: nothing can be written there.
    """

    def __init__(self, run: Run, root: Path) -> None:
        check_writable(root, gpu_key(run.environment))
        self._run, self._root = run, root
        self._run_id = new_run_id()
        self._started = _now()
        self._drafted = time.monotonic()

    def draft(self, run: Run) -> None:
        """Store what there is so far as a partial record, now and then."""
        if time.monotonic() - self._drafted >= DRAFT_EVERY_S:
            save(self._record("partial"), self._root)
            self._drafted = time.monotonic()

    def finish(self, complete: bool, root: Path | None = None) -> Path:
        """Store the record, complete or marked as partial, in `root` where the run's own folder is full.

        Raises:
            ResultsError: it cannot be written.
        """
        return save(self._record("complete" if complete else "partial"), root or self._root)

    def _record(self, status: str) -> Record:
        run = self._run
        environment = msgspec.structs.replace(run.environment, after=run.clocks())
        return Record(
            run_id=self._run_id,
            status="complete" if status == "complete" else "partial",
            started=self._started,
            finished=_now(),
            command=command(),
            gpu_key=gpu_key(environment),
            method=run.method,
            environment=environment,
            cases=tuple(run.cases),
            groups=tuple(run.groups),
            canaries=tuple(run.canaries),
            ceilings=run.ceilings,
            builds=builds(run.options.recurrences),
            night=run.options.night,
            process=run.options.process,
            cost=run.cost(),
            notes=tuple(run.notes),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
