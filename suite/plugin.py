"""The pytest plugin: options, parametrisation, the run's life, the summary."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernels.detect import gpu
from kernels.inputs import FAMILIES
from suite import lock
from suite import options as o
from suite.devices import measure_each, take
from suite.facts import Speed
from suite.processes import new_night, time_in_fresh_processes
from suite.run import Item, KeepError, Run, items

RUN = pytest.StashKey[Run]()
LINES = pytest.StashKey[list[str]]()
TIMED_ELSEWHERE = pytest.StashKey[int]()
ON_EACH_CARD = pytest.StashKey[bool]()
UNTIL = pytest.StashKey[ExitStack]()
CARD = pytest.StashKey[lock.Lock | None]()

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

    @pytest.hookspec(firstresult=True)
    def pytest_gdn_night(self, config: pytest.Config, options: o.Options, run: Run | None) -> list[str]:  # type: ignore[empty-body]
        """After the last fresh process of a night; returns lines for the summary, or raises `KeepError`."""


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
        help="auto, host, all, or indices or UUIDs of GPUs, each with a record of its own (default: %(default)s)",
    )
    group.addoption(
        "--gdn-lock-timeout",
        metavar="SECONDS",
        default=f"{lock.DEFAULT_TIMEOUT_S:.0f}",
        help="how long to wait for another job on the same card (default: %(default)s)",
    )
    group.addoption(
        "--gdn-processes",
        metavar="N",
        default="0",
        help="check here, then time in N fresh processes, each with a record of its own (default: time here)",
    )
    for name in ("--gdn-night", "--gdn-process", "--gdn-red"):  # from `suite/processes.py` to its processes
        group.addoption(name, help=argparse.SUPPRESS)
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
        platform, devices, said = o.choose_devices(text("--gdn-device"), gpu())
        process = None if text("--gdn-process") is None else int(text("--gdn-process"))
        processes = o.parse_processes(text("--gdn-processes")) if process is None else 0
        head_map, names, tokens = text("--gdn-head-map"), text("--gdn-recurrences"), text("--gdn-tokens")
        _read[config] = o.Options(
            platform=platform,
            device=devices[0],
            recurrences=o.default_recurrences(platform) if names is None else o.parse_recurrences(names, platform),
            tokens=None if tokens is None else o.parse_tokens(tokens),
            shape=o.parse_shape(text("--gdn-shape"), head_map),
            families=o.parse_families(text("--gdn-inputs")),
            results=Path(text("--gdn-results") or config.rootpath / "results"),
            said=said,
            processes=processes,
            night=text("--gdn-night") or (new_night() if processes else None),
            process=process,
            red=tuple(filter(None, (text("--gdn-red") or "").split(","))),
            devices=devices if len(devices) > 1 else (),
            lock_timeout_s=o.parse_lock_timeout(text("--gdn-lock-timeout")),
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a night, the first process has the checks and the fresh ones have the times."""
    cases = [item for item in items if isinstance(_case(item), Item)]
    if not cases:
        return
    options = read_options(config)
    if options.devices:
        config.hook.pytest_deselected(items=[item for item in items if isinstance(_case(item), Item)])
        config.stash[ON_EACH_CARD] = True
        items[:] = [item for item in items if not isinstance(_case(item), Item)]
        return
    if options.night is None:
        return
    fresh = options.process is not None
    here = [item for item in items if (case := _case(item)) is None or (case.kind == "speed") == fresh]
    left = [item for item in items if item not in here]
    config.hook.pytest_deselected(items=left)
    config.stash[TIMED_ELSEWHERE] = 0 if fresh else len(left)
    items[:] = here


def _case(item: pytest.Item) -> Item | None:
    """The case that a test measures, or None where it is no test of the suite's."""
    spec = getattr(item, "callspec", None)
    found = spec.params.get("item") if spec is not None else None
    return found if isinstance(found, Item) else None


def planned(session: pytest.Session) -> list[Item]:
    """The cases that were selected, in order."""
    found = [_case(item) for item in session.items]
    return [item for item in found if item is not None]


def pytest_collection_finish(session: pytest.Session) -> None:
    config, selected = session.config, planned(session)
    elsewhere = config.stash.get(TIMED_ELSEWHERE, 0)
    if session.testsfailed or config.option.collectonly or config.getoption("--benchmark-skip"):
        return
    if selected or elsewhere:  # fresh processes are given the card of this one
        _take_card(config)
    if not selected:
        return
    run = Run.start(read_options(config))
    run.planned = selected
    run.progress = Progress(config.pluginmanager.get_plugin("terminalreporter"))
    config.hook.pytest_gdn_start(config=config, run=run)
    config.stash[RUN] = run


def _take_card(config: pytest.Config) -> None:
    options, reporter = read_options(config), config.pluginmanager.get_plugin("terminalreporter")
    if options.said and reporter is not None:
        reporter.write_line(f"gdn-bench: {options.said}")
    say = reporter.write_line if reporter is not None else lock.say
    try:
        until = config.stash[UNTIL] = ExitStack()
        config.stash[CARD] = take(options, lambda text: say(f"gdn-bench: {text}"), until)
    except lock.LockError as error:
        raise pytest.UsageError(str(error)) from None


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
    config, run = session.config, session.config.stash.get(RUN, None)
    if config.stash.get(ON_EACH_CARD, False) and exitstatus not in (2, 3, 4) and not config.option.collectonly:
        codes = measure_each(config, read_options(config), config.pluginmanager.get_plugin("terminalreporter"))
        session.exitstatus = next((code for code in codes if code), 0)
    if config.stash.get(TIMED_ELSEWHERE, 0) and exitstatus not in (2, 3, 4) and not config.option.collectonly:
        if run is not None:
            run.release()
        red = sorted({case.recurrence for case in run.cases if case.outcome == "red"}) if run else []
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        codes = time_in_fresh_processes(config, read_options(config), red, reporter, config.stash.get(CARD, None))
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = exitstatus = next((code for code in codes if code), 0)
    lines: list[str] = []
    try:
        if run is not None:
            lines += _finish(session, run, exitstatus)
        if config.stash.get(TIMED_ELSEWHERE, 0):
            lines += config.hook.pytest_gdn_night(config=config, options=read_options(config), run=run) or []
    except KeepError as error:
        lines, session.exitstatus = [f"ERROR: {error}"], NOT_KEPT
    config.stash[LINES] = lines


def pytest_unconfigure(config: pytest.Config) -> None:
    if (until := config.stash.get(UNTIL, None)) is not None:
        until.close()


def _finish(session: pytest.Session, run: Run, exitstatus: int) -> list[str]:
    """End the run and keep it; returns lines for the summary."""
    complete = len(run.cases) == len(run.planned) and not session.shouldstop and not session.shouldfail
    if exitstatus == pytest.ExitCode.OK and all(case.outcome in UNJUDGED for case in run.cases):
        session.exitstatus = NOTHING_MEASURED
    if exitstatus != pytest.ExitCode.INTERRUPTED:
        try:
            run.finish()
        except RuntimeError as error:  # CUDA's are such; what was measured before must be kept
            run.notes.append(f"the canaries after the times failed: {error}")
    return session.config.hook.pytest_gdn_finish(config=session.config, run=run, complete=complete) or []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run, lines = config.stash.get(RUN, None), config.stash.get(LINES, [])
    if run is None and not lines:
        return
    terminalreporter.section("gdn-bench")
    if run is not None:
        _write_counts(terminalreporter, run)
    for line in lines:
        terminalreporter.write_line(line)


def _write_counts(terminalreporter: Any, run: Run) -> None:
    counts = Counter(case.outcome for case in run.cases)
    left = len(run.planned) - len(run.cases)
    words = [f"{count} {outcome}" for outcome, count in sorted(counts.items())]
    if left:
        words.append(f"{left} not reached")
    terminalreporter.write_line(f"{len(run.planned)} cases: {', '.join(words) or 'none measured'}")
    cost = run.cost()
    nvml = "" if cost.nvml_share is None else f"; a kernel ran for {cost.nvml_share:.0%}, says NVML"
    terminalreporter.write_line(f"{cost.wall_s:.1f} s, of which the device worked {cost.share:.0%}{nvml}")
    unmeasured = Counter(case.reason for case in run.cases if case.outcome == "not measured")
    for reason, count in unmeasured.most_common(5):
        terminalreporter.write_line(f"not measured, {count} cases: {reason}")
    doubtful = Counter(case.reason for case in run.cases if case.outcome == "inconclusive")
    for reason, count in doubtful.most_common(5):
        terminalreporter.write_line(f"inconclusive, {count} cases: {reason}")
    for one in (case for case in run.cases if isinstance(case, Speed) and case.host and case.host.said):
        assert one.host is not None
        terminalreporter.write_line(f"host time of {one.recurrence} at {one.tokens:,} tokens: {one.host.said}")
