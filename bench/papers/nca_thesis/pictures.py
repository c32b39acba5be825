"""The pictures of the thesis' experiments; matplotlib is imported only to draw them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.papers.nca_thesis.rows import Row
from fastmetric.plotting.projection_panels import Panel, save_projections

_INK, _PAPER, _FAINT = "#22262e", "#fbfaf7", "#d8d5cc"


class _Style(NamedTuple):
    """The marker of a variant; members of a family share the colour."""

    color: str
    marker: str


_STYLES = {
    "sub-sampling": _Style("#7c828d", "s"),
    "mini-batch, random": _Style("#dd7a2c", "v"),
    "mini-batch, farthest": _Style("#dd7a2c", "<"),
    "mini-batch, projection": _Style("#dd7a2c", ">"),
    "stochastic": _Style("#2467b3", "o"),
    "stochastic + tree": _Style("#1f9a80", "D"),
    "stochastic + compact": _Style("#9a3fa8", "P"),
    "all rows (L-BFGS)": _Style(_INK, "*"),
    "all rows (L-BFGS), alpha": _Style(_INK, "X"),
}


# Projections


def projections(path: Path, rows: Sequence[Row], y_test: np.ndarray) -> None:
    """Draw the test rows under every map that was learnt, side by side."""
    panels = [
        Panel(row.variant, f"nearest neighbour right on {row.mean('neighbor'):.1f} %", row.Z)
        for row in rows
        if row.Z is not None
    ]
    title = f"{rows[0].data}: {len(y_test):,} test rows in the plane"
    _save(path, lambda: save_projections(path, panels, y_test, title))


# Accuracy against time


def accuracy_against_time(path: Path, rows: Sequence[Row]) -> None:
    """Draw every variant's accuracy over the seconds of its fit, a panel for each data set.

    Published values are hollow; those without a time stand in a strip of their own.
    """
    drawn = [row for row in rows if row.variant in _STYLES and row.measurements]
    if drawn:
        _save(path, lambda: _draw_accuracies(path, drawn))


def _draw_accuracies(path: Path, rows: Sequence[Row]) -> None:
    """Draw the panels with one legend under them."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row.data for row in rows))
    figure = Figure(figsize=(7.2 * len(sets), 6.4), facecolor=_PAPER, dpi=150)
    widths = [5.2, 1.3, 0.45] * len(sets)  # times, the strip without times, a gap
    grid = figure.add_gridspec(1, len(widths) - 1, width_ratios=widths[:-1], wspace=0.04)
    for k, data in enumerate(sets):
        axis = figure.add_subplot(grid[3 * k])
        strip = figure.add_subplot(grid[3 * k + 1], sharey=axis)
        _draw_set(axis, strip, [row for row in rows if row.data == data])
    figure.suptitle("Accuracy against time, d = 5", fontsize=17, color=_INK, fontweight="bold")
    figure.legend(
        handles=_legend_handles({row.variant for row in rows}),
        loc="lower center",
        ncols=5 if len(sets) > 1 else 3,
        frameon=False,
        fontsize=10.5,
        columnspacing=1.4,
        handletextpad=0.3,
        labelcolor=_INK,
    )
    side = 0.42 / figure.get_figwidth()
    bottom = 0.21 if len(sets) > 1 else 0.27
    figure.subplots_adjust(left=2 * side, right=1 - side, bottom=bottom, top=0.85)
    figure.savefig(path, facecolor=_PAPER)


def _draw_set(axis: Any, strip: Any, rows: Sequence[Row]) -> None:
    """Draw one data set: what was measured, and what was published with a time and without."""
    from matplotlib.ticker import LogLocator, NullFormatter

    measured = [(row, row.mean("seconds"), row.mean("rule")) for row in rows]
    for row, seconds, rule in measured:
        style = _STYLES[row.variant]
        axis.scatter(seconds, rule, s=_size(style), zorder=3, linewidths=0, **style._asdict())
        published = row.published
        if published.seconds is not None and published.rule is not None:
            line = [(seconds, published.seconds), (rule, published.rule)]
            axis.plot(*line, ":", color=style.color, lw=1.2, zorder=2)
            _hollow(axis, style, published.seconds, published.rule)
    # The three ways of making mini-batches have one published value: a marker for the first.
    untimed = {row.published: row for row in reversed(rows) if row.published.seconds is None}
    for place, (published, row) in enumerate(reversed(untimed.items())):
        if published.rule is not None:
            _hollow(strip, _STYLES[row.variant], place, published.rule)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    low, high = axis.get_xlim()
    if high < 100 * low:  # few powers of ten: numbers between them, too
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("seconds of the fit", color=_INK, fontsize=11)
    axis.set_ylabel("test rows right by the NCA rule, %", color=_INK, fontsize=11)
    axis.set_title(rows[0].data, fontsize=14, color=_INK, fontweight="bold", loc="left")
    strip.set(xlim=(-0.8, max(len(untimed), 1) - 0.2), xticks=[])
    strip.set_xlabel("published\nwithout time", color="#5b6270", fontsize=10)
    for one in (axis, strip):
        _plain(one)
    strip.tick_params(axis="y", left=False, labelleft=False)


def _hollow(axis: Any, style: _Style, x: float, y: float) -> None:
    """Draw a published value."""
    look = {"facecolors": "white", "edgecolors": style.color, "linewidths": 1.6}
    axis.scatter(x, y, s=0.8 * _size(style), marker=style.marker, zorder=3, **look)


def _size(style: _Style) -> int:
    """Return the area of a marker; stars look smaller than they are."""
    return 190 if style.marker == "*" else 95


def _plain(axis: Any) -> None:
    """Give an axis a white ground, faint lines and no frame."""
    axis.set_facecolor("white")
    axis.grid(True, which="major", color=_FAINT, lw=0.7)
    axis.tick_params(which="both", colors=_INK, labelsize=10, length=3)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_color(_FAINT)


def _legend_handles(variants: set[str]) -> list[Any]:
    """Return a marker for every variant drawn, and one for what hollow means."""
    from matplotlib.lines import Line2D

    looks = {name: style for name, style in _STYLES.items() if name in variants}
    handles = [
        Line2D([], [], linestyle="", markersize=9, markeredgewidth=0, label=name, **style._asdict())
        for name, style in looks.items()
    ]
    label = "published (USPS: of another set)"
    hollow: dict[str, Any] = dict(marker="o", markerfacecolor="white", markeredgecolor="#5b6270")
    return [*handles, Line2D([], [], linestyle="", markersize=8, label=label, **hollow)]


def _save(path: Path, draw: Callable[[], None]) -> None:
    """Draw a picture and say where it is, or why there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        draw()
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)
    else:
        print(f"picture: {path}", file=sys.stderr)
