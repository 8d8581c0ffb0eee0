"""The pytest plugin: options, parametrisation, the run's life, the summary."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernels.detect import gpu
from kernels.inputs import FAMILIES
from suite import options as o
from suite.run import Item, KeepError, Run, items

RUN = pytest.StashKey[Run]()
LINES = pytest.StashKey[list[str]]()

NOTHING_MEASURED = 4
"""Exit code of a run in which no case could be measured: silence must not read as passed."""

UNJUDGED = ("not measured", "inconclusive")
"""Outcomes that are neither green nor red."""

NOT_KEPT = 4
"""Exit code of a run whose record or report could not be written."""


class Hooks:
    """Hooks that the suite calls; `conftest.py` implements them."""

    def pytest_gdn_start(self, config: pytest.Config, run: Run) -> None:
        """Before the first case: refuse a results folder that cannot be written."""

    @pytest.hookspec(firstresult=True)
    def pytest_gdn_finish(self, config: pytest.Config, run: Run, complete: bool) -> list[str]:  # type: ignore[empty-body]
        """After the last case; returns lines for the summary, or raises `KeepError`."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gdn-bench", "Gated DeltaNet recurrences")
    group.addoption("--gdn-tokens", metavar="T,...", help="token counts instead of the plan's, such as 32,128,2048")
    group.addoption("--gdn-recurrences", metavar="NAME,...", help="recurrences to measure (default: all that are here)")
    group.addoption("--gdn-shape", metavar="HKxHV", default="16x48", help="head counts (default: %(default)s)")
    group.addoption("--gdn-head-map", default="tiled", metavar="MAP", help="tiled or grouped (default: %(default)s)")
    group.addoption(
        "--gdn-inputs",
        metavar="FAMILY,...",
        default="normal,correlated",
        help=f"input families of the checks, of {', '.join(FAMILIES)}; the first is timed (default: %(default)s)",
    )
    group.addoption(
        "--gdn-device",
        metavar="DEVICE",
        default="auto",
        help="auto, host or the index of a GPU (default: %(default)s)",
    )
    group.addoption(
        "--gdn-results",
        metavar="DIR",
        help="folder of the stored records, written with the = sign (default: results/ of the checkout)",
    )


def read_options(config: pytest.Config) -> o.Options:
    """The options, checked.

    Raises:
        OptionError: one of them has a value that is not taken.
    """
    if config not in _read:
        text = config.getoption
        platform, device, said = o.choose_device(text("--gdn-device"), gpu())
        head_map, names, tokens = text("--gdn-head-map"), text("--gdn-recurrences"), text("--gdn-tokens")
        _read[config] = o.Options(
            platform=platform,
            device=device,
            recurrences=o.default_recurrences(platform) if names is None else o.parse_recurrences(names, platform),
            tokens=None if tokens is None else o.parse_tokens(tokens),
            shape=o.parse_shape(text("--gdn-shape"), head_map),
            families=o.parse_families(text("--gdn-inputs")),
            results=Path(text("--gdn-results") or config.rootpath / "results"),
            said=said,
        )
    return _read[config]


_read: dict[pytest.Config, o.Options] = {}


def pytest_configure(config: pytest.Config) -> None:
    """`--benchmark-only` without a path is about the suite: the tests would all be collected to be skipped."""
    if config.getoption("--benchmark-only") and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = [str(config.rootpath / "suite")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Refuse bad options here: while tests are generated, an error would be one of each module."""
    suite = Path(__file__).parent
    paths = [Path(argument.partition("::")[0]).absolute() for argument in session.config.args]
    if any(suite in (path, *path.parents) or path in suite.parents for path in paths):
        try:
            read_options(session.config)
        except o.OptionError as error:
            raise pytest.UsageError(str(error)) from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "item" not in metafunc.fixturenames or metafunc.module.__package__ != "suite":
        return
    found = items(metafunc.function.__name__.removeprefix("test_"), read_options(metafunc.config))
    metafunc.parametrize("item", found, ids=[item.id for item in found])


def planned(session: pytest.Session) -> list[Item]:
    """The cases that were selected, in order."""
    parameters = [getattr(item, "callspec", None) for item in session.items]
    found = [spec.params.get("item") for spec in parameters if spec is not None]
    return [item for item in found if isinstance(item, Item)]


def pytest_collection_finish(session: pytest.Session) -> None:
    selected = planned(session)
    if (
        session.testsfailed
        or not selected
        or session.config.option.collectonly
        or session.config.getoption("--benchmark-skip")
    ):
        return
    options = read_options(session.config)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if options.said and reporter is not None:
        reporter.write_line(f"gdn-bench: {options.said}")
    run = Run.start(options)
    run.planned = selected
    run.progress = Progress(reporter)
    session.config.hook.pytest_gdn_start(config=session.config, run=run)
    session.config.stash[RUN] = run


class Progress:
    """Say what long work does: over the same line on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._said = time.monotonic()

    def __call__(self, text: str) -> None:
        if self._reporter is None or self._reporter.verbosity < 0:
            return
        terminal = self._reporter.isatty
        now = time.monotonic()
        if now - self._said < (0.5 if terminal else 10.0):
            return
        self._said = now
        if terminal:
            self._reporter.rewrite(f"  {text}", erase=True)
        else:
            self._reporter.write_line(f"  {text}")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest) -> Run:
    """The run that this session measures."""
    return request.config.stash[RUN]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash.get(RUN, None)
    if run is None:
        return
    complete = len(run.cases) == len(run.planned) and not session.shouldstop and not session.shouldfail
    if exitstatus == pytest.ExitCode.OK and all(case.outcome in UNJUDGED for case in run.cases):
        session.exitstatus = NOTHING_MEASURED
    if exitstatus != pytest.ExitCode.INTERRUPTED:
        run.finish()
    try:
        lines = session.config.hook.pytest_gdn_finish(config=session.config, run=run, complete=complete)
    except KeepError as error:
        lines, session.exitstatus = [f"ERROR: {error}"], NOT_KEPT
    session.config.stash[LINES] = lines or []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is None:
        return
    terminalreporter.section("gdn-bench")
    counts = Counter(case.outcome for case in run.cases)
    left = len(run.planned) - len(run.cases)
    words = [f"{count} {outcome}" for outcome, count in sorted(counts.items())]
    if left:
        words.append(f"{left} not reached")
    terminalreporter.write_line(f"{len(run.planned)} cases: {', '.join(words) or 'none measured'}")
    unmeasured = Counter(case.reason for case in run.cases if case.outcome == "not measured")
    for reason, count in unmeasured.most_common(5):
        terminalreporter.write_line(f"not measured, {count} cases: {reason}")
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(line)
