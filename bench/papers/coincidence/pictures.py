"""The pictures of Der & Saul's experiments; matplotlib is imported only to draw them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.coincidence import rows as records
from bench.papers.coincidence.rows import Row
from bench.papers.nca_thesis.pictures import _INK, _PAPER, _plain, _save
from fastmetric.plotting.projection_panels import Panel, save_projections

_STYLES = {
    "PCA": ("#7c828d", "s"),
    "LDA": ("#dd7a2c", "v"),
    "factor analysis": ("#1f9a80", "D"),
    records.CLASSIFIER: ("#2467b3", "o"),
    records.COINCIDENCE: ("#2467b3", "o"),
}


def plane(
    path: Path, data: str, panels: Sequence[tuple[str, float, np.ndarray]], labels: np.ndarray
) -> None:
    """Draw the test rows under maps to the plane, given with their names and errors."""
    if data == "ISOLET":
        labels = np.array(list(string.ascii_uppercase))[labels]
    drawn = [
        Panel(name, f"3 nearest neighbours wrong on {error:.1f} %", Z) for name, error, Z in panels
    ]
    title = f"{data}: {len(labels):,} test rows in the plane"
    _save(path, lambda: save_projections(path, drawn, labels, title))


def error_against_p(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw every method's error over the dimension, a panel for each data set.

    Training errors, if there are any, are dotted.
    """
    drawn = [row for row in rows if row.errors]
    if drawn:
        _save(path, lambda: _draw(path, drawn, title))


def _draw(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw the panels with one legend under them."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row.data for row in rows))
    figure = Figure(figsize=(max(6.2, 5.2 * len(sets)), 5.2), facecolor=_PAPER, dpi=130)
    handles: dict[str, Any] = {}
    for k, data in enumerate(sets):
        axis = figure.add_subplot(1, len(sets), k + 1)
        handles |= _draw_set(axis, [row for row in rows if row.data == data])
        axis.set_title(data, fontsize=14, color=_INK, fontweight="bold", loc="left")
        axis.set_xlabel("dimension p", color=_INK, fontsize=11)
        if not k:
            axis.set_ylabel("error, %", color=_INK, fontsize=11)
    figure.suptitle(title, fontsize=15, color=_INK, fontweight="bold")
    figure.legend(
        handles=list(handles.values()),
        loc="lower center",
        ncols=len(handles) if len(sets) > 1 else 2,
        frameon=False,
        labelcolor=_INK,
    )
    figure.subplots_adjust(left=0.1 if len(sets) == 1 else 0.06, right=0.97, bottom=0.25, top=0.84)
    figure.savefig(path, facecolor=_PAPER)


def _draw_set(axis: Any, rows: Sequence[Row]) -> dict[str, Any]:
    """Draw the lines of one data set; return them by method."""
    from matplotlib.ticker import LogLocator

    lines = {}
    for method in dict.fromkeys(row.method for row in rows):
        color, marker = _STYLES[method.removesuffix(", training")]
        p, error = zip(*((row.p, row.mean) for row in rows if row.method == method), strict=True)
        training = method.endswith(", training")
        style = {"linestyle": ":", "lw": 1.4} if training else {"marker": marker, "lw": 2}
        (lines[method],) = axis.plot(p, error, color=color, label=method, **style)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    _plain(axis)
    return lines
