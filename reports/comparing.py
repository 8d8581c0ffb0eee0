"""The commands `gdn-bench compare`, `push` and `pull`."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from results.store import ResultsError, default_root, replace_file

OK, NOT_COMPARABLE = 0, 5
FORMATS = ("text", "markdown", "json", "junit")

CODES = (
    "Exit codes: 0 judged and fine, 1 slower, 2 usage, 3 wrong or not deterministic, 4 nothing or not enough measured, "
    "as of what seems slower and is not confirmed, "
    "5 not comparable."
)


def add(commands: Any, results: dict[str, Any]) -> None:
    """Add the commands' parsers."""
    compare = commands.add_parser(
        "compare", help="judge the newest run against the accepted baseline and the history", epilog=CODES
    )
    compare.add_argument("--results", **results)
    compare.add_argument("--run", metavar="RUN", help="the record's name (default: the newest run)")
    compare.add_argument(
        "--since", metavar="TIME", help="every card that ran since then: 2026-11-30T02:17Z, or 6h (default: the last)"
    )
    compare.add_argument("--gpu", metavar="KEY", help="the gpu_key that is expected; another one is exit code 5")
    compare.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="thresholds (default: the checkout's pyproject.toml)",
    )
    compare.add_argument("--confirm", action="store_true", help="run fresh processes for what one run leaves open")
    compare.add_argument("--allow-new", action="store_true", help="a card without a baseline is fine, if it is right")
    compare.add_argument("--format", choices=FORMATS, default="text", help="of what is printed (default: %(default)s)")
    compare.add_argument(
        "--also", action="append", default=[], metavar="FORMAT=FILE", help="write it in this format as well"
    )
    for name, what in (("push", "copy records to a store, a folder or a URL"), ("pull", "copy records from a store")):
        moves = commands.add_parser(name, help=f"{what}; nothing is overwritten")
        moves.add_argument("store", metavar="STORE", help="a folder, or a URL such as s3://bucket/path")
        moves.add_argument("--results", **results)
        moves.add_argument("--verify", action="store_true", help="read files that are in both, too")


def parse_since(text: str, now: datetime | None = None) -> datetime:
    """A moment, from a time with its zone or a duration before now, such as 6h or 90m.

    Raises:
        ResultsError: it is neither.
    """
    if short := re.fullmatch(r"(\d{1,4})([mhd])", text, re.ASCII):
        unit = {"m": "minutes", "h": "hours", "d": "days"}[short[2]]
        return (now or datetime.now(UTC)) - timedelta(**{unit: int(short[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise ResultsError(
            f"--since is {text!r}; give a time with its zone, such as 2026-11-30T02:17Z, or 6h"
        ) from None
    return found.astimezone(UTC)


def compare(root: Path, arguments: argparse.Namespace) -> int:
    """Judge, print and write; returns the exit code."""
    from reports.comparison import exit_code, render
    from results.compare import Asked, Comparison, cards
    from results.judging_rules import read_rules

    also = [_also(text) for text in arguments.also]
    since = None if arguments.since is None else parse_since(arguments.since)
    rules = read_rules(arguments.config or default_root().parent / "pyproject.toml")
    common: dict[str, Any] = {"since": since, "allow_new": arguments.allow_new, "rules": rules}
    found: list[Comparison] = []
    if arguments.run is not None or since is None:
        found.append(_one(root, Asked(arguments.run, arguments.gpu, **common), arguments.confirm))
    else:
        for card in cards(root, since):
            found.append(_one(root, Asked(None, arguments.gpu, card, **common), arguments.confirm))
        if not found:
            found.append(_one(root, Asked(None, arguments.gpu, **common), False))
    sys.stdout.write(render(found, arguments.format))
    for how, file in also:
        replace_file(render(found, how), file, "comparison", "name another file with --also")
    return exit_code(found)


def _one(root: Path, asked: Any, confirming: bool) -> Any:
    """The comparison of one run, after fresh processes where they are wanted and could settle something."""
    from dataclasses import replace

    from results.compare import NOT_COMPARABLE as CODE
    from results.compare import Comparison, compare
    from results.verdicts import NotComparableError

    try:
        found = compare(root, asked=asked)
        if confirming and found.suspicious and found.exit_code != CODE:
            from results.confirm import confirm

            again = replace(asked, run_id=found.run_id)
            try:
                if confirm(root, found, again, _say):
                    found = compare(root, asked=again)
            except ResultsError as error:
                found = replace(found, notes=(*found.notes, f"not confirmed: {error}"))
        return found
    except NotComparableError as error:
        return Comparison("not comparable", str(error), CODE, gpu_key=asked.card[0] if asked.card else asked.gpu_key)


def _also(text: str) -> tuple[str, Path]:
    how, sign, file = text.partition("=")
    if how not in FORMATS or not sign or not file:
        raise ResultsError(f"--also is {text!r}; give a format and a file, such as markdown=comparison.md")
    return how, Path(file)


def move(root: Path, arguments: argparse.Namespace) -> int:
    """Push or pull, and say what was copied; 5 where a file could not be."""
    from results.remote import pull, push

    if arguments.command == "push":
        moved = push(root, arguments.store, arguments.verify)
    else:
        moved = pull(arguments.store, root, arguments.verify)
    print(f"{len(moved.copied):,} copied, {len(moved.there):,} there before, {len(moved.problems):,} failed")
    for problem in moved.problems:
        _say(problem)
    return NOT_COMPARABLE if moved.problems else OK


def _say(text: str) -> None:
    print(f"gdn-bench: {' '.join(text.split())}", file=sys.stderr, flush=True)
