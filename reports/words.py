"""Numbers and lists as the report writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

ABSENT = "–"

_UNITS = ((1.0, "µs"), (1e3, "ms"), (1e6, "s"))


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def significant(value: float, digits: int = 3) -> str:
    """The number with so many significant digits and no exponent: 18.4, 217, 0.0123, 1230."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def _unit(us: float) -> tuple[float, str]:
    rounded = float(f"{us:.2e}")
    return next((unit for unit in reversed(_UNITS) if rounded >= unit[0]), _UNITS[0])


def duration(us: float | None) -> str:
    """Microseconds with three significant digits and a unit: 18.4 µs, 13.5 ms."""
    if us is None or not math.isfinite(us):
        return ABSENT
    scale, unit = _unit(us)
    return f"{significant(us / scale)} {unit}"


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval of microseconds, in one unit."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ABSENT
    scale, unit = _unit(high)
    one, other = significant(low / scale), significant(high / scale)
    return f"{one} {unit}" if one == other else f"{one}–{other} {unit}"


def ratio(value: float | None) -> str:
    """A speedup: 0.58, 1.83, 12.4."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:.2f}" if value < 10 else significant(value)


def rate(per_second: float) -> str:
    """A rate with three significant digits and the prefix of its unit: 61.2 T, 4.19 T, 890 G."""
    scale, prefix = next(
        ((s, p) for s, p in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")) if per_second >= s), (1e3, "k")
    )
    return f"{significant(per_second / scale)} {prefix}"


def error(value: float | None) -> str:
    """An error as 1.1e-7; 0 is exactly 0."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


def count(number: float, noun: str, plural: str = "") -> str:
    """1 run, 2 runs, 1,000 runs."""
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}"


def listed(items: Iterable[str], most: int = 0) -> str:
    """a, b and c; beyond `most`, how many more."""
    names = list(items)
    if most and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def tokens(numbers: Sequence[int]) -> str:
    """32, 96 and 32,768 tokens."""
    return f"{listed(f'{number:,}' for number in sorted(set(numbers)))} token{'s' if list(numbers) != [1] else ''}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def commit(commit: str | None, dirty: bool | None) -> str:
    return (commit[:10] if commit else "unknown") + (" + changes" if dirty else "")


def utc(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return text
