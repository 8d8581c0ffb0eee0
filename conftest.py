"""Wiring: the suite's runs go to the results' store, and from there to the report."""

from __future__ import annotations

import pytest

from reports.page import write_report
from results.keep import Keeper
from results.store import ResultsError, load
from suite.run import Run

pytest_plugins = ["suite.plugin", "pytester"]

KEEPER = pytest.StashKey[Keeper]()


def pytest_gdn_start(config: pytest.Config, run: Run) -> None:
    try:
        keeper = config.stash[KEEPER] = Keeper(run, run.options.results)
    except ResultsError as error:
        raise pytest.UsageError(str(error)) from None
    run.save = keeper.draft


def pytest_gdn_finish(config: pytest.Config, run: Run, complete: bool) -> list[str]:
    root = run.options.results
    try:
        record = config.stash[KEEPER].finish(complete)
        report = write_report(root)
    except ResultsError as error:
        return [f"ERROR: {error}"]
    unread = [f"cannot be read, and was left as it is: {problem}" for problem in load(root).problems]
    return [*unread, f"record: {record}", f"report: {report}"]
