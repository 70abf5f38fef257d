"""Plots of a Result: speed with its ceiling, acceptance by position, cost curves, speedup by class, memory by context,
routing against a coin.

The only importer of matplotlib. Draws off screen; below each plot stands what was measured where and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...gguf.format.atomic import written_whole
from ..measure.environment import environment_line
from ..measure.measurement import LONG_CLASS, STRICT
from .result import ROUTED, Pictures, Result
from .summary import Summary

# Colour-blind safe (Okabe & Ito), the same order in every plot.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MUTED = "#666666"
_BASE = "#9AA5B1"
_DPI = 144
_POSITIONS = 12  # only long copies reach further, and they are right

Draw = Callable[[Figure, Pictures], None]


def draw(folder: Path, result: Result) -> list[tuple[str, str]]:
    """Writes every plot that has data as SVG and PNG; gives (title, PNG's name)."""
    written = []
    for name, title, figure in figures(result):
        for suffix in ("svg", "png"):
            save(folder / f"{name}.{suffix}", figure)
        written.append((title, f"{name}.png"))
    return written


def figures(result: Result) -> Iterator[tuple[str, str, Figure]]:
    """(name, title, figure) of every plot that has data."""
    environment = result.document.get("environment")
    for name, title, has_data, plot in _PLOTS:
        if has_data(result.pictures):
            figure = Figure(figsize=(8.0, 4.5), layout="constrained")
            plot(figure, result.pictures)
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
            if environment:
                head = f"{environment.get('family')}: {environment_line(environment)}"
                figure.supxlabel(head, x=0.01, ha="left", fontsize=7, color=_MUTED)
            yield name, title, figure


def save(path: Path, figure: Figure) -> None:
    """Writes SVG or PNG, by the suffix; the same figure gives the same SVG."""
    suffix = path.suffix.removeprefix(".")
    with written_whole(path) as partial, matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(partial, format=suffix, dpi=_DPI, metadata={"Date": None} if suffix == "svg" else None)


def _speed(figure: Figure, pictures: Pictures) -> None:
    summaries = [one for one in pictures.summaries if one.tokens_per_s]
    figure.set_size_inches(8.0, 1.2 + 0.34 * len(summaries))
    axes = _bare(figure.subplots())
    ceilings = pictures.ceilings
    for row, one in enumerate(reversed(summaries)):
        found = one.tokens_per_s
        if found is None:
            continue
        colour = _BASE if one.draft == "none" else COLOURS[0]
        axes.barh(row, found.median, 0.68, color=colour)
        axes.plot([found.low, found.high], [row, row], color="black", linewidth=1.2)
        text = f"{found.median:.1f}" + (f"   {one.speedup.value:.2f}x" if one.speedup and one.draft != "none" else "")
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        limit = ceilings.get(one.name)
        if limit is not None and limit < 4 * max(s.tokens_per_s.median for s in summaries if s.tokens_per_s):
            axes.plot([limit, limit], [row - 0.4, row + 0.4], color=COLOURS[1], linewidth=1.6)
    axes.set_yticks(range(len(summaries)), [one.name for one in reversed(summaries)], fontsize=8)
    axes.set_xlim(left=0)
    axes.set_xlabel("tokens per second (black: quartiles; orange: ceiling of the memory's bandwidth)", fontsize=8)


def _acceptance(figure: Figure, pictures: Pictures) -> None:
    axes = _bare(figure.subplots())
    for number, one in enumerate(_with_positions(pictures)):
        shares = one.accepted_by_position[:_POSITIONS]
        axes.plot(range(1, len(shares) + 1), shares, "o-", color=_colour(number), label=one.name, markersize=4)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("position in the draft", fontsize=9)
    axes.set_ylabel("accepted, of those reached", fontsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, frameon=False)


def _curves(figure: Figure, pictures: Pictures) -> None:
    axes = _bare(figure.subplots())
    for number, (name, curve) in enumerate(pictures.curves.items()):
        widths = [cost.width for cost in curve]
        medians = [cost.seconds.median * 1e3 for cost in curve]
        axes.plot(widths, medians, "o-", color=_colour(number), label=name, markersize=4)
        low, high = ([getattr(cost.seconds, end) * 1e3 for cost in curve] for end in ("low", "high"))
        axes.fill_between(widths, low, high, color=_colour(number), alpha=0.15, linewidth=0)
        if name in pictures.floors_s:
            axes.axhline(pictures.floors_s[name] * 1e3, color=_colour(number), linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("width: tokens in one forward", fontsize=9)
    axes.set_ylabel("ms (dotted: reading the weights once)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)


def _classes(figure: Figure, pictures: Pictures) -> None:
    drafting = [one for one in pictures.summaries if one.draft != "none" and one.speedup]
    summaries = [one for one in drafting if not one.name.endswith(STRICT)] or drafting  # they have a table
    classes = list(
        dict.fromkeys(c for one in summaries for c, found in one.by_class.items() if found.speedup and c != LONG_CLASS)
    )
    figure.set_size_inches(max(8.0, 0.2 * len(summaries) * len(classes) + 3), 4.5)
    axes = _bare(figure.subplots())
    width = 0.8 / len(summaries)
    for number, one in enumerate(summaries):
        for place, name in enumerate(classes):
            found = one.by_class[name].speedup if name in one.by_class else None
            if found is not None:
                at = place + (number - (len(summaries) - 1) / 2) * width
                axes.bar(
                    at,
                    found.value,
                    0.92 * width,
                    color=_colour(number),
                    hatch=_hatch(number),
                    edgecolor="white",
                    linewidth=0.0,
                    label=None if place else one.name,
                )
                if found.low is not None and found.high is not None:
                    axes.plot([at, at], [found.low, found.high], color="black", linewidth=1)
    axes.axhline(1.0, color=_MUTED, linewidth=1)
    axes.set_xticks(range(len(classes)), classes, fontsize=9)
    axes.set_ylabel("times the same file without a draft", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="upper left", ncols=2)
    axes.margins(y=0.25)


def _memory(figure: Figure, pictures: Pictures) -> None:
    axes = _bare(figure.subplots())
    for number, name in enumerate(dict.fromkeys(point.name for point in pictures.memory)):
        points = [point for point in pictures.memory if point.name == name]
        sizes = [point.n_bytes / 2**30 for point in points]
        axes.plot([point.n_ctx for point in points], sizes, "o-", color=_colour(number), label=name, markersize=4)
    contexts = sorted({point.n_ctx for point in pictures.memory})
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [f"{n:,}" for n in contexts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("context length in tokens", fontsize=9)
    axes.set_ylabel("GiB (weights, KV cache, buffers)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)


def _coin(figure: Figure, pictures: Pictures) -> None:
    """Time a token and agreement; on the line lies whoever throws a coin between two siblings that answer alone."""
    axes = _bare(figure.subplots())
    places = {
        one.name: (pictures.agreement[one.name], 1 / one.gain.value, one.draft == "none")
        for one in pictures.summaries
        if one.gain and one.name in pictures.agreement
    }
    for name, (agreement, time, is_alone) in places.items():
        axes.plot(agreement, time, "o", color=_BASE if is_alone else COLOURS[0], markersize=7)
        shift, side = ((-6, 6), "right") if is_alone else ((7, -3), "left")
        axes.annotate(name, (agreement, time), shift, textcoords="offset points", ha=side, fontsize=8)
    line = sorted((agreement, time) for agreement, time, is_alone in places.values() if is_alone)
    axes.plot([at for at, _ in line], [time for _, time in line], "--", color=_BASE, linewidth=1, zorder=0)
    least = min(at for at, _, _ in places.values())
    axes.set_xlim(1 - 1.3 * (1 - least), 1 + 0.4 * (1 - least))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}" if value < 1.001 else ""))
    axes.set_xlabel("tokens that the most precise sibling chooses too (dashed: a coin; below is better)", fontsize=9)
    axes.set_ylabel("time a token (most precise sibling alone: 1)", fontsize=9)


_PLOTS: tuple[tuple[str, str, Callable[[Pictures], bool], Draw], ...] = (
    ("speed", "Speed by setting", lambda p: any(one.tokens_per_s for one in p.summaries), _speed),
    (
        "classes",
        "Speedup by prompt class",
        lambda p: any(o.speedup and o.draft != "none" for o in p.summaries),
        _classes,
    ),
    ("acceptance", "Acceptance by position in the draft", lambda p: bool(_with_positions(p)), _acceptance),
    ("curves", "Cost of one forward by width", lambda p: bool(p.curves), _curves),
    ("memory", "Memory by context length", lambda p: bool(p.memory), _memory),
    (
        "coin",
        "Routing against a coin between siblings",
        lambda p: any(one.draft == ROUTED and one.name in p.agreement for one in p.summaries),
        _coin,
    ),
)


def _with_positions(pictures: Pictures) -> list[Summary]:
    return [one for one in pictures.summaries if len(one.accepted_by_position) > 1]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _hatch(number: int) -> str | None:
    """Stripes once the colours are used up."""
    return "////" if number >= len(COLOURS) else None


def _bare(axes: Axes) -> Axes:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="both", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes
