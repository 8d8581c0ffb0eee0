"""The figures on the measuring: A/A against tokens, and the canaries run by run. See `reports.figures`."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from reports import figures, words
from results.schema import Record
from suite.quality import CARD, SHORT_TOKENS


def aa(records: Sequence[Record], run_id: str, prefix: str) -> str:
    """The A/A ratio against tokens, of one run and, grey, of the others of the same method.

    Args:
        records: of one GPU, oldest first.
        run_id: the run that is shown with its intervals.
        prefix: begins every id in the figure.
    """
    shown = next(one for one in records if one.run_id == run_id)
    points = _points(shown)
    if not points:
        return ""
    others = [_points(one) for one in records if one.run_id != run_id and one.method.id == shown.method.id]
    worst = max(points, key=lambda point: abs(point[1]))
    said = [
        f"{words.count(len(points), 'token count')}; farthest from 0 at {worst[0]:,} tokens, {worst[1]:+.2%}",
        *([f"beside {words.count(len(others), 'other run')}"] if others else []),
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        every = [point for other in others for point in other]
        if every:
            axes.plot([p[0] for p in every], [p[1] for p in every], ls="", marker=".", color=figures.MUTED, ms=3)
        x, y, low, high = zip(*points, strict=True)
        errors = [[max(0.0, a - b) for a, b in zip(*ends, strict=True)] for ends in ((y, low), (high, y))]
        axes.errorbar(x, y, errors, color=figures.SERIES[0], marker="o", ls="", capsize=2)
        figures.token_axis(axes)
        left, right = axes.get_xlim()
        turn = min(max(SHORT_TOKENS, left), right)
        edges, bound = [left, turn, turn, right], [CARD.aa_short, CARD.aa_short, CARD.aa, CARD.aa]
        if shown.environment.gpu:  # a host's bounds are far beyond
            for sign in (1, -1):
                axes.plot(edges, [sign * value for value in bound], color=figures.BAD, lw=1, ls=":")
        axes.set_xlim(left, right)
        axes.axhline(0, color=figures.INK, lw=0.9)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.1%}"))
        axes.set_ylabel("A/A: twin against itself")

    return figures.svg(draw, prefix, "The baseline measured twice (A/A) against tokens", said, height=2.6)


def _points(record: Record) -> list[tuple[int, float, float, float]]:
    """(tokens, ratio - 1, its interval's ends) of each alternation."""
    return sorted(
        (one.tokens, one.aa_ratio - 1, (one.aa_low or one.aa_ratio) - 1, (one.aa_high or one.aa_ratio) - 1)
        for one in record.groups
        if one.aa_ratio is not None
    )


def canaries(records: Sequence[Record], prefix: str) -> str:
    """The canaries' times run by run, each against its own median over the runs; before and after the run's times."""
    kept = [one for one in records if one.canaries]
    times: dict[str, list[tuple[int, float]]] = {}
    for place, record in enumerate(kept):
        for one in record.canaries:
            if one.times.median_ns:
                shift = -0.12 if one.when == "before" else 0.12
                times.setdefault(one.name, []).append((place + shift, one.times.median_ns))  # type: ignore[arg-type]
    if not times:
        return ""
    middles = {name: sorted(ns for _, ns in own)[len(own) // 2] for name, own in times.items()}
    said = [
        f"{name}: {min(ns for _, ns in own) / middles[name] - 1:+.2%} to "
        f"{max(ns for _, ns in own) / middles[name] - 1:+.2%} of its median over {words.count(len(kept), 'run')}"
        for name, own in times.items()
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, (name, own) in enumerate(times.items()):
            axes.plot(
                [x for x, _ in own],
                [ns / middles[name] - 1 for _, ns in own],
                color=figures.SERIES[place],
                marker="os"[place % 2],
                lw=1,
                label=f"canary {name}",
            )
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, -0.01), max(high, 0.01))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.1%}"))
        steps = sorted({round(i * (len(kept) - 1) / 4) for i in range(5)})
        axes.set_xticks(steps, [kept[i].started[:10] for i in steps])
        axes.set_ylabel("time against its median")
        figures.legend(figure)

    return figures.svg(draw, prefix, "The canaries, run by run", said, height=2.6)
