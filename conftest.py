"""Wiring: the suite's runs go to the results' store, and from there to the report."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from results.ceilings import keep_ceilings, load_ceilings
from results.keep import Keeper
from results.night import nights, summary
from results.store import ResultsError, gpu_key, read
from suite.options import Options
from suite.run import KeepError, Run

pytest_plugins = ["suite.plugin", "pytester"]

KEEPER = pytest.StashKey[Keeper]()


def pytest_gdn_start(config: pytest.Config, run: Run) -> None:
    try:
        keeper = config.stash[KEEPER] = Keeper(run, run.options.results)
        run.ceilings = load_ceilings(run.options.results, gpu_key(run.environment))
    except ResultsError as error:
        raise pytest.UsageError(str(error)) from None
    run.save = keeper.draft


def pytest_gdn_finish(config: pytest.Config, run: Run, complete: bool) -> list[str]:
    root, keeper = run.options.results, config.stash[KEEPER]
    try:
        lines = [f"record: {keeper.finish(complete)}"]
    except ResultsError as error:
        rescued = keeper.finish(complete, Path(tempfile.gettempdir()) / "gdn-bench")
        raise KeepError(f"{error}. The record of this run is {rescued}; move it once there is room") from None
    try:
        if run.ceilings and (kept := keep_ceilings(run.ceilings, root, gpu_key(run.environment))):
            lines.append(f"the card's peak rates: {kept}")
    except ResultsError as error:
        raise KeepError(f"{error}. {lines[0]}") from None
    # Of a night, the first process writes the report, once the others are done.
    return lines if run.options.process is not None else _report(root, lines)


def pytest_gdn_night(config: pytest.Config, options: Options, run: Run | None) -> list[str]:
    from results import series  # pandas takes a while as well

    runs = series.runs(options.results)
    names = runs[(runs["night"] == options.night) & (runs["status"] == "complete")][["gpu_key", "run_id"]]
    records = [read(options.results, str(key), str(name)) for key, name in names.itertuples(index=False)]
    own = nights(records).get(options.night or "", [])
    lines = [f"night {options.night}: {line}" for line in summary(own)]
    return lines if run is not None else _report(options.results, lines)


def _report(root: Path, lines: list[str]) -> list[str]:
    """Write the report; returns the lines with it, and with what could not be read."""
    # Matplotlib takes a second to import, which the fresh processes of a night need not wait for.
    from reports.page import report

    try:
        page, problems, notes, _ = report(root)
    except ResultsError as error:
        raise KeepError(f"{error}. {lines[0] if lines else ''}") from None
    unread = [f"cannot be read, and was left as it is: {problem}" for problem in problems]
    return [*unread, *notes, *lines, f"report: {page}"]
