"""The command line `gdn-bench`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from reports import comparing, keeping
from results.store import ResultsError, default_root

OK, REGRESSION, USAGE, NOTHING, NOT_COMPARABLE, INTERRUPTED = 0, 1, 2, 4, 5, 130


class _Version(argparse.Action):
    """Looks the version up when it is asked for: no other command need wait for that."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("gdn-bench")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        print(parser.prog, version)
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gdn-bench",
        description="Keeps, judges and shows what pytest --benchmark-only measured.",
        epilog="Exit codes: 0 fine, 1 simulate misses a figure, 2 usage, 4 nothing is stored, "
        "5 a stored file cannot be read; compare --help has those of a comparison.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    results = {"type": Path, "metavar": "DIR", "help": "the results folder (default: the checkout's results/)"}
    report = commands.add_parser("report", help="write the HTML report and print its path")
    report.add_argument("--results", **results)  # type: ignore[arg-type]
    report.add_argument("--out", type=Path, metavar="FILE", help="the file (default: DIR/report.html)")
    doctor = commands.add_parser("doctor", help="say which device, software and dispatch there are here")
    doctor.add_argument("--results", **results)  # type: ignore[arg-type]
    doctor.add_argument("--profile", action="store_true", help="show the times of ncu and CUPTI beside ours")
    doctor.add_argument("--recurrences", default="sequential,chunked", metavar="NAME,...", help="what to profile")
    doctor.add_argument("--tokens", default="32,512,2048", metavar="T,...", help="token counts to profile")
    table = commands.add_parser("table", help="make the table of times that the recurrence auto chooses by")
    table.add_argument("--results", **results)  # type: ignore[arg-type]
    table.add_argument("--run", metavar="RUN", help="the record's name (default: the newest complete one of a GPU)")
    table.add_argument(
        "--out", type=Path, metavar="FILE", help="the file (default: in kernels/tables, by card and shape)"
    )
    keeping.add(commands, results)
    comparing.add(commands, results)
    simulation = commands.add_parser("simulate", help="let rules of judging loose on fabricated histories (minutes)")
    simulation.set_defaults(results=None)
    for name, default, what in (
        ("histories", 60, "histories without a change, of 100 nights each"),
        ("steps", 240, "histories with a step of 5 %%, and as many with one of 2 %%"),
        ("jobs", 2, "processes at once"),
    ):
        simulation.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help=f"{what} ({default})")
    simulation.add_argument("--seed", type=int, default=1, metavar="N", help="of the histories (1)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 1 on")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    # Imports and frames leave few cycles behind: to look for them as often as usual is a twelfth of a short command.
    gc.set_threshold(100_000)
    arguments = _parser().parse_args(argv)
    root: Path = arguments.results or default_root()
    try:
        if arguments.command == "doctor":
            from reports.doctor import doctor

            if arguments.profile:
                return _profile(root, arguments.recurrences, arguments.tokens)
            return doctor(root)
        if arguments.command == "compare":
            return comparing.compare(root, arguments)
        if arguments.command in ("push", "pull"):
            return comparing.move(root, arguments)
        if arguments.command == "accept":
            return keeping.accept(root, arguments.run, arguments.because)
        if arguments.command == "history":
            return keeping.history(root, arguments)
        if arguments.command == "table":
            return _table(root, arguments.run, arguments.out)
        if arguments.command == "simulate":
            return _simulate(arguments.histories, arguments.steps, arguments.seed, arguments.jobs)
        return _report(root, arguments.out or root / "report.html")
    except ResultsError as error:
        return _say(str(error), USAGE)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)


def _report(root: Path, out: Path) -> int:
    # Matplotlib and pandas take a second to import, which --help need not wait for.
    from reports.page import report

    path, problems, notes, runs = report(root, out)
    print(path)
    for note in notes:
        _say(note, OK)
    for problem in problems:
        _say(problem, NOT_COMPARABLE)
    if problems:
        return NOT_COMPARABLE
    if not runs:
        return _say(f"nothing is stored in {root}; pytest --benchmark-only measures", NOTHING)
    return OK


def _profile(root: Path, names: str, tokens: str) -> int:
    from kernels.detect import gpu
    from reports.profile import keep, lines, profile
    from results.store import gpu_key
    from suite.environment import card_uuid, collect
    from suite.lock import DEFAULT_TIMEOUT_S, Lock, LockError, idle
    from suite.options import OptionError, parse_recurrences, parse_tokens
    from suite.profile import ProfileError

    if not gpu().usable:
        return _say(f"there is no GPU to profile: {gpu().problem}", NOTHING)
    card = Lock(card_uuid(0) or "unknown")
    try:
        chosen, numbers = parse_recurrences(names, "cuda"), parse_tokens(tokens)
        with idle(card.uuid):
            card.acquire(DEFAULT_TIMEOUT_S, lambda text: print(text, file=sys.stderr))
        found = profile(chosen, numbers)
    except OptionError as error:
        return _say(str(error).replace("--gdn-", "--"), USAGE)
    except (ProfileError, LockError) as error:
        return _say(str(error), NOTHING)
    finally:
        card.release()
    print("\n".join(lines(found.rows)))
    environment, _ = collect(0)
    print(f"kept in {keep(found, environment, root, gpu_key(environment))}")
    return OK


def _table(root: Path, run_id: str | None, out: Path | None) -> int:
    # NumPy and CuPy take a while to import, which --help need not wait for.
    from kernels.timetable import FOLDER
    from results.store import load
    from results.tables import choose_record, crossovers, table_of, write

    loaded = load(root)
    for problem in loaded.problems:
        _say(problem, NOT_COMPARABLE)
    record = choose_record(loaded.records, run_id)
    if record is None:
        why = "no complete record of a GPU with times is stored in"
        return _say(f"{why} {root}; pytest --benchmark-only on a GPU makes one", NOTHING)
    table = table_of(record)
    print(write(table, out or FOLDER / table.file_name))
    print("\n".join(crossovers(table)))
    if table.source.dirty:
        _say(f"warning: {record.run_id} was measured with changes to commit {table.source.commit[:10]}", OK)
    return NOT_COMPARABLE if loaded.problems else OK


def _simulate(histories: int, steps: int, seed: int, jobs: int) -> int:
    # NumPy and SciPy take a while to import, which --help need not wait for.
    from reports.simulation import markdown, notes, simulate
    from results.simulate import missed

    found = simulate(histories, steps, seed, jobs)
    print(markdown(found))
    for note in notes(found):
        _say(note, OK)
    return REGRESSION if missed(found[0]) else OK


def _say(text: str, code: int) -> int:
    print(f"gdn-bench: {' '.join(text.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
