"""The report's figures, as SVG for inclusion in HTML.

Each function takes rows of `results.frame` and returns one `<svg>` element, or an empty text where there is nothing
to draw. Colours are CSS variables of the page (`--series-1` ..., `--grid`, `--muted`, `--bad`) and `currentColor`, so
that a figure follows the page into the dark. The same rows give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from kernels.dispatch import CHUNKED_MIN_TOKENS
from reports import words
from results.crossing import BASELINES

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's palette, which the colour-blind can tell apart. Markers and lines differ too."""

INK, GRID, MUTED, BAD = "#010203", "#020304", "#030405", "#040506"
_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    MUTED: "var(--muted)",
    BAD: "var(--bad)",
    **{color: f"var(--series-{number})" for number, color in enumerate(SERIES, 1)},
}

_DASHES = ("--", "-.", ":")

_RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gdn-bench",
    "svg.id": None,
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Style:
    """How one recurrence is drawn, in every figure of a page."""

    color: str
    marker: str
    line: str

    @property
    def kwargs(self) -> dict[str, Any]:
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each recurrence: the baseline first, then the chunked one, then the others by name."""
    markers, lines = "osD^vPX*", ("-", (0, (6, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
    return {
        name: Style(SERIES[i % len(SERIES)], markers[i % len(markers)], lines[i % len(lines)])  # type: ignore[arg-type]
        for i, name in enumerate(ordered(names))
    }


def ordered(names: Iterable[str]) -> list[str]:
    """Names of recurrences in the order of every table and figure."""
    return sorted(set(names), key=lambda name: (name not in BASELINES, not name.endswith("chunked"), name))


def baseline(names: Iterable[str]) -> str | None:
    """The baseline among the names."""
    return next((name for name in BASELINES if name in set(names)), None)


def ratios(speed: pd.DataFrame) -> pd.DataFrame:
    """The baseline's time over each other recurrence's: columns recurrence, tokens, ratio, low, high.

    The interval goes from the quotient of the near ends of the two medians' intervals to that of the far ends.
    """
    timed = speed.dropna(subset=["median_us"])
    base = baseline(timed["recurrence"])
    left = timed[timed["recurrence"] == base]
    both = timed[timed["recurrence"] != base].merge(left, on="tokens", suffixes=("", "_base"))
    return pd.DataFrame(
        {
            "recurrence": both["recurrence"],
            "tokens": both["tokens"],
            "ratio": both["median_us_base"] / both["median_us"],
            "low": both["low_us_base"] / both["high_us"],
            "high": both["high_us_base"] / both["low_us"],
        }
    ).sort_values(["recurrence", "tokens"], ignore_index=True)


def speedup(speed: pd.DataFrame, look: Mapping[str, Style], prefix: str, published: pd.DataFrame | None = None) -> str:
    """Speedup over the baseline against tokens.

    Args:
        speed: timed cases of one run and one series.
        look: from `styles`.
        prefix: begins every id in the figure.
        published: figures to show beside, columns label, recurrence, tokens, median_us, low_us, high_us.
    """
    table = ratios(speed)
    if table.empty:
        return ""
    base = baseline(speed["recurrence"])
    others = [(name, ratios(rows)) for name, rows in _labels(published)]
    others = [(f"{one}, {label}", rows) for label, part in others for one, rows in by_recurrence(part)]
    said = [
        f"{name} is {_ends(rows['tokens'], rows['ratio'], words.ratio, 'times as fast')}"
        for name, rows in by_recurrence(table)
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, rows in by_recurrence(table):
            axes.fill_between(rows["tokens"], rows["low"], rows["high"], color=look[name].color, alpha=0.2, lw=0)
            axes.plot(rows["tokens"], rows["ratio"], label=name, **look[name].kwargs)
        for (label, rows), dashes in zip(others, itertools.cycle(_DASHES)):
            axes.plot(rows["tokens"], rows["ratio"], color=MUTED, ls=dashes, lw=1.2, label=label)
        axes.axhline(1, color=INK, lw=0.9)
        _threshold(axes)
        token_axis(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"speedup over {base}")
        legend(figure)

    said += [f"{label}: {_ends(rows['tokens'], rows['ratio'], words.ratio, 'times as fast')}" for label, rows in others]
    return svg(draw, prefix, f"Speedup over {base} against tokens", said)


def time_per_token(
    speed: pd.DataFrame, look: Mapping[str, Style], prefix: str, published: pd.DataFrame | None = None
) -> str:
    """Nanoseconds per token against tokens; the arguments are those of `speedup`."""
    timed = speed.dropna(subset=["median_us"])
    timed = timed[timed["tokens"] > 0]
    if timed.empty:
        return ""

    def per_token(rows: pd.DataFrame, column: str = "median_us") -> Any:
        return rows[column] * 1e3 / rows["tokens"]

    others = [(f"{one}, {label}", r) for label, rows in _labels(published) for one, r in by_recurrence(rows)]
    said = [
        f"{name} takes {_ends(rows['tokens'], per_token(rows), words.significant, 'ns a token')}"
        for name, rows in by_recurrence(timed)
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, rows in by_recurrence(timed):
            style = look[name]
            low, high = per_token(rows, "low_us"), per_token(rows, "high_us")
            axes.fill_between(rows["tokens"], low, high, color=style.color, alpha=0.2, lw=0)
            axes.plot(rows["tokens"], per_token(rows), label=name, **style.kwargs)
        for (label, rows), dashes in zip(others, itertools.cycle(_DASHES)):
            axes.plot(rows["tokens"], per_token(rows), color=MUTED, ls=dashes, lw=1.2, label=label)
        axes.set_yscale("log")
        _readable_log(axes)
        token_axis(axes)
        axes.set_ylabel("time per token (ns)")
        legend(figure)

    said += [f"{label}: {_ends(r['tokens'], per_token(r), words.significant, 'ns a token')}" for label, r in others]
    return svg(draw, prefix, "Time per token against tokens", said)


def accuracy(rows: pd.DataFrame, look: Mapping[str, Style], prefix: str) -> str:
    """Errors of the output and of the state against tokens, in two panels; an error of 0 is drawn at a floor."""
    columns = {"error_out": "output", "error_state": "state"}
    rows = rows[rows["tokens"] > 0].dropna(subset=list(columns), how="all")
    if rows.empty:
        return ""
    values = pd.concat([rows[column] for column in columns]).dropna()
    least = values[values > 0].min()
    floor = 10.0 ** (math.floor(math.log10(least)) - 1) if not math.isnan(least) else 1e-9
    zeros = bool((values == 0).any())
    pairs = [
        ((name, str(against)), part.sort_values("tokens"))
        for name, one in by_recurrence(rows)
        for against, part in one.groupby("against")
    ]
    pairs.sort(key=lambda pair: pair[0][1] != "fp64")
    said = []
    for (name, against), one in pairs:
        worst = [
            f"{what} {words.error(one[column].max())} at {one['tokens'].iloc[int(one[column].argmax())]:,}"
            for column, what in columns.items()
            if one[column].notna().any()
        ]
        said.append(f"{name} against {against}, greatest error: {', '.join(worst)} tokens")

    def draw(figure: Figure) -> None:
        for axes, (column, what) in zip(figure.subplots(1, 2, sharey=True), columns.items(), strict=True):
            for (name, against), one in pairs:
                style = look[name]
                pair = against != "fp64"
                axes.plot(
                    one["tokens"],
                    one[column].clip(lower=floor),
                    color=style.color,
                    marker=style.marker,
                    ls=(0, (2, 2)) if pair else "-",
                    fillstyle="none" if pair else "full",
                    lw=1.2,
                    ms=4,
                    label=f"{name} vs {against}",
                )
            for limit in sorted(set(rows["limit"].dropna()) - {0.0}):
                axes.axhline(limit, color=BAD, lw=1, ls=":")
                axes.annotate(
                    f"limit {words.error(limit)}".replace(".0e", "e"),
                    (1, limit),
                    xycoords=("axes fraction", "data"),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="right",
                    color=BAD,
                    fontsize=9,
                )
            axes.set_yscale("log")
            axes.set_title(what, loc="left")
            token_axis(axes, most=5)
            bottom, top = axes.get_ylim()
            powers = range(math.ceil(math.log10(bottom)), math.floor(math.log10(top)) + 1)
            axes.yaxis.set_major_locator(FixedLocator([10.0**power for power in powers]))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(
                FuncFormatter(lambda y, _: "0" if zeros and y <= floor * 1.01 else f"1e{round(math.log10(y))}")
            )
        figure.axes[0].set_ylabel("error")
        legend(figure)

    return svg(draw, prefix, "Errors of the output and of the state against tokens", said)


def history(speed: pd.DataFrame, tokens: int, look: Mapping[str, Style], prefix: str) -> str:
    """The median time of each recurrence at one token count, run by run, a panel each.

    A line joins runs of one method. A change of the driver or of the CUDA runtime is marked.
    """
    rows = speed[speed["tokens"] == tokens].dropna(subset=["median_us"])
    rows = rows.sort_values(["started", "run_id"], kind="stable")
    runs = rows.drop_duplicates("run_id").reset_index(drop=True)
    if len(runs) < 2:
        return ""
    places = {run: place for place, run in enumerate(runs["run_id"])}
    panels = by_recurrence(rows, sort="started")
    said = []
    for name, one in panels:
        medians = one["median_us"]
        said.append(
            f"{name} took {words.duration(medians.iloc[0])} in the first of {words.count(len(one), 'run')} and "
            f"{words.duration(medians.iloc[-1])} in the last, between {words.duration(medians.min())} and "
            f"{words.duration(medians.max())}"
        )
    steps = _steps(runs)
    marked = steps[-MOST_STEPS:]

    def draw(figure: Figure) -> None:
        every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, one) in zip(every, panels, strict=True):
            style = look[name]
            for _, line in one.groupby("method_id", sort=False):
                drawn = _thinned(line.assign(place=[places[run] for run in line["run_id"]]))
                axes.fill_between(drawn["place"], drawn["low_us"], drawn["high_us"], color=style.color, alpha=0.2, lw=0)
                axes.plot(drawn["place"], drawn["median_us"], **(style.kwargs | _many(len(drawn))))
            for place, _ in marked:
                axes.axvline(place - 0.5, color=MUTED, lw=1, ls=":")
            middle = one["median_us"].median()
            low, high = one["low_us"].min(), one["high_us"].max()
            axes.set_ylim(min(low, middle * 0.97), max(high, middle * 1.03))
            axes.margins(x=0.03)
            axes.set_title(name, loc="left")
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(_durations(max(high, middle)))
        for place, text in marked:
            every[0].annotate(
                text,
                (place - 0.5, 1),
                xycoords=("data", "axes fraction"),
                xytext=(-2, 3),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=MUTED,
            )
        shown = sorted({round(i * (len(runs) - 1) / 4) for i in range(5)})
        every[-1].set_xticks(shown, [f"{runs['started'][i]:%Y-%m-%d}" for i in shown])

    title = f"Median time at {tokens:,} tokens, run by run"
    said += [f"before run {place + 1}: {text}" for place, text in steps]
    return svg(draw, prefix, title, said, height=0.8 + 1.3 * len(panels))


MOST_POINTS = 300
"""A line through more runs is drawn through medians of consecutive ones: a page need not hold what no eye resolves."""


MOST_STEPS = 12
"""Of more changes of the software, the newest are marked in the figure; the description lists all."""


def _thinned(line: pd.DataFrame) -> pd.DataFrame:
    """At most `MOST_POINTS` rows: of consecutive runs the median of medians, the least low and the greatest high."""
    line = line[["place", "median_us", "low_us", "high_us"]]
    if len(line) <= MOST_POINTS:
        return line
    group = np.arange(len(line)) * MOST_POINTS // len(line)
    return line.groupby(group).agg({"place": "mean", "median_us": "median", "low_us": "min", "high_us": "max"})


def _many(points: int) -> dict[str, Any]:
    """How a line of many points differs: markers would cover it."""
    return {"marker": "", "linewidth": 1.0} if points > 100 else {}


def _steps(runs: pd.DataFrame) -> list[tuple[int, str]]:
    """(place, what changed) where the software differs from the run before."""
    found = []
    columns = {word: [*runs[name]] for name, word in _SOFTWARE}
    for place in range(1, len(runs)):
        changed = [
            f"{word} {values[place]}"
            for word, values in columns.items()
            if values[place] != values[place - 1] and not pd.isna(values[place])
        ]
        if changed:
            found.append((place, ", ".join(changed)))
    return found


_SOFTWARE = (("driver", "driver"), ("cuda_runtime", "CUDA"), ("method_id", "method"))


def _labels(published: pd.DataFrame | None) -> list[tuple[str, pd.DataFrame]]:
    """The published figures of each reference set."""
    return [] if published is None else [(str(label), rows) for label, rows in published.groupby("label")]


def by_recurrence(table: pd.DataFrame, sort: str = "tokens") -> list[tuple[str, pd.DataFrame]]:
    """The rows of each recurrence, in the order of every figure."""
    groups = {str(name): rows.sort_values(sort, kind="stable") for name, rows in table.groupby("recurrence")}
    return [(name, groups[name]) for name in ordered(groups)]


def _ends(tokens: Any, values: Any, number: Callable[[float], str], unit: str) -> str:
    """0.58 times as fast at 32 tokens and 1.82 at 32,768."""
    pairs = [(f"{t:,}", number(v)) for t, v in zip(tokens, values, strict=True) if not math.isnan(v)]
    first = f"{pairs[0][1]} {unit} at {pairs[0][0]} tokens"
    return first if len(pairs) == 1 else f"{first} and {pairs[-1][1]} at {pairs[-1][0]}"


def token_axis(axes: Axes, most: int = 9) -> None:
    """Powers of two, the threshold among them."""
    axes.set_xscale("log", base=2)
    low, high = (math.log2(end) for end in axes.get_xlim())
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    step = max(1, math.ceil(len(powers) / most))
    axes.xaxis.set_major_locator(FixedLocator([2.0**p for p in powers if (p - 7) % step == 0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel("tokens")


def _threshold(axes: Axes) -> None:
    axes.axvline(CHUNKED_MIN_TOKENS, color=MUTED, lw=1, ls=":")
    axes.annotate(
        f"dispatch from {CHUNKED_MIN_TOKENS}",
        (CHUNKED_MIN_TOKENS, 0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
        color=MUTED,
        fontsize=9,
    )


def _readable_log(axes: Axes) -> None:
    """1, 2, 5 steps of a log axis, in plain digits."""
    low, high = axes.get_ylim()
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) < 5 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: words.significant(y, 1)))
    axes.set_ylim(low, high)


def _durations(largest: float) -> FuncFormatter:
    scale, unit = next(((s, u) for s, u in ((1e6, "s"), (1e3, "ms")) if largest >= s), (1.0, "µs"))
    return FuncFormatter(lambda y, _: f"{y / scale:.4g} {unit}")


def legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels:
        columns = 2 if max(map(len, labels)) > 20 else 4
        figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(labels)), fontsize=9)


def svg(draw: Callable[[Figure], None], prefix: str, title: str, said: Sequence[str], height: float = 3.4) -> str:
    """The figure as one `<svg>` element whose ids begin with `prefix`, with `said` as its description."""
    with matplotlib.style.context(["default", _RC]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(6.4, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    inner = re.sub(
        r"^.*?<svg[^>]*>|<metadata>.*?</metadata>|<style.*?</style>|</svg>\s*$", "", text.getvalue(), flags=re.S
    )
    inner = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", inner)
    inner = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", inner).replace("xlink:href", "href")
    for color, variable in _VARIABLES.items():
        inner = inner.replace(color, variable)
    width, tall = 6.4 * 72, height * 72
    return (
        f'<svg viewBox="0 0 {width:g} {tall:g}" role="img" aria-labelledby="{prefix}-title {prefix}-desc">'
        f'<title id="{prefix}-title">{escape(title)}</title>'
        f'<desc id="{prefix}-desc">{escape("; ".join(said))}.</desc>{inner.strip()}</svg>'
    )
