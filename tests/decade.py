"""Years of made-up nights, all but the last one accepted, written fast: python -m tests.decade DIR [--nights 3650]

Then it times what must stay fast over them, with the index built and one new night: reading a series, the comparison
and the report.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np

from results.accepted import STAMP, Acceptance
from results.schema import Record
from tests.fabricate import accuracy, canaries, determinism, environment, group, measured, speed

TOKENS = (1, 16, 64, 96, 128, 256, 512, 1024, 2048, 8192, 32_768)
CARDS = (
    {"gpu": "NVIDIA H200", "sms": 132},
    {"gpu": "NVIDIA B200", "sms": 148, "power_limit_w": 1000.0},
    {"gpu": "NVIDIA GeForce RTX 5090", "sms": 170, "ecc": False, "power_limit_w": 575.0},
)
START = datetime(2026, 12, 1, 2, 17, tzinfo=UTC)


def night(card: int, number: int) -> Record:
    """One night of one card: 22 series of times, the checks beside them, A/A and canaries; 1 % from night to night."""
    random = np.random.default_rng([card, number])
    started = START + timedelta(days=number, minutes=card)
    noise = iter((1 + 0.01 * random.standard_normal(64)).tolist())
    cases = []
    for tokens in TOKENS:
        for name, ns, fixed in (("sequential", 490.0, 2e3), ("chunked", 250.0, 2e4)):
            place = {"recurrence": name, "tokens": tokens}
            cases += [accuracy(**place), determinism(**place, sha256_out=f"{number // 400:064x}")]
            cases.append(speed(**place, median_ns=(ns * tokens + fixed) * next(noise), stop="precision"))
        cases.append(accuracy(recurrence="chunked", against="sequential", tokens=tokens))
    return measured(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{card:02x}{number:06x}",
        started=started.isoformat(timespec="milliseconds"),
        finished=(started + timedelta(minutes=5)).isoformat(timespec="milliseconds"),
        environment=environment(**CARDS[card], driver=f"{570 + number // 365}.10", commit=f"{number // 3:040x}"),
        cases=tuple(cases),
        groups=tuple(group(tokens=tokens, aa_ratio=next(noise) * 0.1 + 0.9) for tokens in TOKENS),
        canaries=canaries(3.3e5 * next(noise), 3.3e5 * next(noise)),
    )


def write(root: Path, nights: int, gpus: int, first: int = 0) -> int:
    """Write the nights of some cards, without waiting for the disk; returns how many records there are."""
    for record in (night(card, number) for card in range(gpus) for number in range(first, first + nights)):
        folder = root / "history" / record.gpu_key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{record.run_id}.json").write_bytes(msgspec.json.encode(record))
    return nights * gpus


def accepted(root: Path, nights: int, gpus: int, first: int = 0) -> None:
    """Accept these nights, ten minutes after they began; `results.accepted.accept` looks at all that is there."""
    for record in (night(card, number) for card in range(gpus) for number in range(first, first + nights)):
        at = datetime.fromisoformat(record.started) + timedelta(minutes=10)
        one = Acceptance(
            run_id=record.run_id, gpu_key=record.gpu_key, method_id=record.method.id, accepted=at.isoformat()
        )
        folder = root / "accepted" / record.gpu_key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{at:{STAMP}}-{record.run_id}.json").write_bytes(msgspec.json.encode(one))


def timings(root: Path) -> Iterator[tuple[str, float]]:
    """(what, seconds) of each thing that must stay fast; imports are not counted but for the commands'."""
    from results import series

    start = time.perf_counter()
    table = series.runs(root)
    yield f"runs of all {len(table):,}", time.perf_counter() - start
    key, method = table["gpu_key"].iloc[-1], table["method_id"].iloc[-1]
    for kinds in (("speed",), series.KINDS):
        start = time.perf_counter()
        found = series.cases(root, key, method, kinds)
        yield f"{len(found):,} cases of one card, {' '.join(kinds)}", time.perf_counter() - start
    for command in ("compare", "report"):
        line = [sys.executable, "-m", "reports.cli", command, "--results", str(root)]
        start = time.perf_counter()
        subprocess.run(line, stdout=subprocess.DEVNULL, timeout=600)
        yield f"gdn-bench {command}, with Python's start", time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--nights", type=int, default=3650)
    parser.add_argument("--gpus", type=int, default=3)
    arguments = parser.parse_args()
    root, nights, gpus = arguments.root, arguments.nights, arguments.gpus
    if not (root / "history").exists():
        start = time.perf_counter()
        print(f"{write(root, nights - 1, gpus):,} records written in {time.perf_counter() - start:.1f} s")
        accepted(root, nights - 1, gpus)
    from results import series

    start = time.perf_counter()
    _, problems, notes = series.opened(root)
    print(f"index of {len(notes)} cards built in {time.perf_counter() - start:.1f} s, {len(problems)} problems")
    write(root, 1, gpus, nights - 1)
    for what, seconds in timings(root):
        print(f"{seconds:6.2f} s  {what}")


if __name__ == "__main__":
    main()
