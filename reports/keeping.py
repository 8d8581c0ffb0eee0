"""The commands on what is kept: `gdn-bench accept` and `gdn-bench history`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store import ResultsError, StoredError

if TYPE_CHECKING:
    import pandas as pd

    from results.history import Filter

OK, USAGE, NOTHING, NOT_COMPARABLE = 0, 2, 4, 5
ACTIONS = ("list", "export", "import", "merge", "compact", "check")
SHOWN = 20
"""Runs that a list shows unless --last says otherwise."""


def add(commands: Any, results: dict[str, Any]) -> None:
    """Add the two commands to the parser of the command line."""
    accept = commands.add_parser("accept", help="make a run the baseline that later ones are judged against")
    accept.add_argument("--results", **results)
    accept.add_argument("run", metavar="RUN", help="the record's name, or newest")
    accept.add_argument(
        "--because", default="", metavar="WHY", help="why it is right although something speaks against it"
    )
    history = commands.add_parser(
        "history",
        help="list, export, import, merge, compact or check what is stored",
        description="list: the runs. export: their cases, to a file. import FILE...: JSON of pytest-benchmark. "
        "merge DIR...: other results folders. compact: old records into compressed packs. check: read every byte.",
    )
    history.add_argument("--results", **results)
    history.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="what to do (default: list)")
    history.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files to import, or folders to merge")
    history.add_argument("--gpu", metavar="KEY", help="of this card; import: the card that was timed")
    history.add_argument("--method", metavar="ID", help="of this method")
    history.add_argument("--night", metavar="NIGHT", help="of this night")
    history.add_argument("--status", choices=("complete", "partial"))
    history.add_argument("--commit", metavar="HASH", help="of this commit, or the first letters of it")
    history.add_argument("--driver", metavar="VERSION", help="of this driver")
    history.add_argument("--since", metavar="DATE", help="from this UTC date on")
    history.add_argument("--until", metavar="DATE", help="before this UTC date")
    history.add_argument("--last", type=int, metavar="N", help=f"the newest N of each card (list: {SHOWN}; 0: all)")
    history.add_argument("--kinds", default="", metavar="KIND,...", help="export: accuracy, determinism, speed")
    history.add_argument("--recurrences", default="", metavar="NAME,...", help="export: of these")
    history.add_argument("--tokens", default="", metavar="T,...", help="export: at these token counts")
    history.add_argument(
        "--format", choices=("text", "csv", "json", "parquet"), help="default: text, or as --out is named"
    )
    history.add_argument("--out", type=Path, metavar="FILE", help="the file (default: to standard output)")
    history.add_argument("--before", metavar="DATE", help="compact: records that started before this UTC date")


def accept(root: Path, run: str, because: str) -> int:
    """Move the baseline; prints what it is now."""
    from results.accepted import accept

    one = accept(root, run, because)
    print(f"{one.run_id} is the baseline of {one.gpu_key} {one.method_id} since {one.accepted}")
    if one.because:
        print(f"because: {one.because}")
    for reason in one.despite:
        _say(f"accepted although {reason}")
    return OK


def history(root: Path, arguments: argparse.Namespace) -> int:
    """Do what `gdn-bench history` was asked for."""
    if arguments.action in ("import", "merge"):
        if not arguments.paths:
            raise ResultsError(f"history {arguments.action} wants at least one path")
    elif arguments.paths:
        raise ResultsError(f"history {arguments.action} takes no path, but {arguments.paths[0]} was given")
    act = {"import": _import, "merge": _merge, "compact": _compact, "check": _check}.get(arguments.action, _show)
    return act(root, arguments)


def _filter(arguments: argparse.Namespace, last: int | None) -> Filter:
    from results.history import Filter, moment
    from results.series import KINDS

    kinds = tuple(filter(None, arguments.kinds.split(","))) or KINDS
    if wrong := sorted(set(kinds) - set(KINDS)):
        raise ResultsError(f"--kinds has {wrong[0]!r}; of {', '.join(KINDS)} are wanted")
    try:
        tokens = [int(number) for number in arguments.tokens.split(",") if number]
    except ValueError:
        raise ResultsError(f"--tokens is {arguments.tokens!r}; whole numbers such as 128,2048 are wanted") from None
    if last is not None and last < 0:
        raise ResultsError(f"--last is {last}; a number of runs, or 0 for all, is wanted")
    return Filter(
        gpu_key=arguments.gpu,
        method_id=arguments.method,
        night=arguments.night,
        status=arguments.status,
        driver=arguments.driver,
        commit=arguments.commit,
        since=moment(arguments.since, "--since") if arguments.since else None,
        until=moment(arguments.until, "--until") if arguments.until else None,
        kinds=kinds,
        recurrences=tuple(filter(None, arguments.recurrences.split(","))),
        tokens=tokens,
        last=last or None,
    )


def _show(root: Path, arguments: argparse.Namespace) -> int:
    """List runs, or export cases."""
    from results.history import FORMATS, encode, exported, listed, write

    form = arguments.format or (arguments.out.suffix[1:] if arguments.out else None)
    export = arguments.action == "export"
    if export:
        form = form or "csv"
    if form not in (None, "text") and form not in FORMATS:
        raise ResultsError(f"--out is {arguments.out}; name it .csv, .json or .parquet, or give --format")
    if form == "parquet" and not arguments.out:
        raise ResultsError("--format is 'parquet', which is no text; give --out=FILE")
    if form in (None, "text") and (arguments.out or export):
        raise ResultsError("--format is 'text', which is for lists on the screen; csv, json or parquet are wanted")
    last = arguments.last if arguments.last is not None or export or form not in (None, "text") else SHOWN
    wanted = _filter(arguments, last)
    table = (exported if export else listed)(root, wanted)
    if form in (None, "text"):
        print("\n".join(lines(table)))
    elif arguments.out:
        print(write(table, arguments.out, form))
    else:
        sys.stdout.write(encode(table, form or "csv").decode())
    return _told(table.attrs, len(table), root)


def lines(table: pd.DataFrame) -> list[str]:
    """The runs in lines, newest last, under the name of their card."""
    found = []
    for key, own in table.groupby("gpu_key", sort=True):
        found.append(f"{key}")
        for row in own.to_dict("records"):
            run: Any = argparse.Namespace(**{str(name): value for name, value in row.items()})
            outcomes = [
                f"{getattr(run, name)} {name.replace('_', ' ')}"
                for name in ("red", "inconclusive", "not_measured", "green")
                if getattr(run, name)
            ]
            commit = f"{str(run.commit)[:10]}{' + changes' if run.dirty is True else ''}" if run.commit else "no commit"
            words = [f"{run.started:%Y-%m-%d %H:%M}", run.run_id, run.method_id, commit]
            words += [f"driver {run.driver}"] if run.driver else []
            words += ["partial"] if run.status == "partial" else []
            words += [f"held back: {run.throttle}"] if run.throttle else []
            found.append("  " + "  ".join([*map(str, words), ", ".join(outcomes) or "no case"]))
    return found


def _import(root: Path, arguments: argparse.Namespace) -> int:
    from results.imported import record_of
    from results.store import save

    records = [
        (file, record_of(file, arguments.gpu)) for file in arguments.paths
    ]  # all of them are good, or none goes in
    for file, record in records:
        try:
            print(save(record, root))
        except StoredError:
            _say(f"{file} is here already, as {record.run_id} of {record.gpu_key}")
    return OK


def _merge(root: Path, arguments: argparse.Namespace) -> int:
    from results.merge import merge

    done = merge(root, arguments.paths)
    print(f"{len(done.added):,} files came in, {done.same:,} records and files were here already")
    for line in (*done.notes, *done.conflicts, *done.problems):
        _say(line)
    return NOT_COMPARABLE if done.conflicts or done.problems else OK


def _compact(root: Path, arguments: argparse.Namespace) -> int:
    from results.compact import compact
    from results.history import moment

    if not arguments.before:
        raise ResultsError("history compact wants --before=DATE")
    done = compact(root, moment(arguments.before, "--before"), arguments.gpu)
    for pack in done.packs:
        print(pack)
    print(f"{done.runs:,} records of {done.before / 1e6:,.1f} MB moved into packs")
    if done.packs:
        print(f"written: {len(done.packs)} of {done.after / 1e6:,.1f} MB")
    for line in done.problems:
        _say(line)
    return NOT_COMPARABLE if done.problems else OK


def _check(root: Path, arguments: argparse.Namespace) -> int:
    from results.history import check

    table, wrong = check(root)
    print(f"runs: {len(table):,}, cards: {table['gpu_key'].nunique()}, all bytes were read; problems: {len(wrong)}")
    return _told({"problems": wrong, "notes": table.attrs["notes"]}, len(table), root)


def _told(attrs: Any, rows: int, root: Path) -> int:
    for line in (*attrs.get("notes", ()), *attrs.get("problems", ())):
        _say(line)
    if attrs.get("problems"):
        return NOT_COMPARABLE
    if not rows:
        _say(f"nothing like that is stored in {root}")
        return NOTHING
    return OK


def _say(text: str) -> None:
    print(f"gdn-bench: {' '.join(text.split())}", file=sys.stderr)
