"""Several projections of the same rows side by side, saved to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastmetric.plotting.canvas import matplotlib_or_error

_INK, _PAPER = "#22262e", "#fbfaf7"


class Panel(NamedTuple):
    """One projection: points in the plane under a title."""

    title: str
    subtitle: str
    Z: np.ndarray  # (n, 2)


def save_projections(path: Path, panels: list[Panel], labels: np.ndarray, title: str) -> None:
    """Draw the panels side by side, one colour and one letter-sized label per class."""
    colormaps = matplotlib_or_error().colormaps
    from matplotlib.figure import Figure

    classes, numbers = np.unique(labels, return_inverse=True)
    palette = colormaps["tab10"] if len(classes) <= 10 else colormaps["nipy_spectral"]
    spread = np.arange(len(classes)) if len(classes) <= 10 else np.linspace(0, 1, len(classes))
    colors = palette(spread)
    figure = Figure(figsize=(6.2 * len(panels), 6.6), facecolor=_PAPER, dpi=150)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    figure.suptitle(title, fontsize=17, color=_INK, y=0.975, fontweight="bold")
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, classes, numbers, colors)
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.03, top=0.82, wspace=0.05)
    figure.savefig(path, facecolor=_PAPER)


def _draw(
    axis: Any, panel: Panel, classes: np.ndarray, numbers: np.ndarray, colors: np.ndarray
) -> None:
    """Draw one panel: every point, and each class's name at its median."""
    from matplotlib.patheffects import withStroke

    axis.scatter(*panel.Z.T, c=colors[numbers], s=14, alpha=0.75, linewidths=0, rasterized=True)
    for k, name in enumerate(classes):
        center = np.median(panel.Z[numbers == k], axis=0)
        outline = [withStroke(linewidth=4, foreground="white")]
        name_style = {"fontsize": 20, "fontweight": "bold", "ha": "center", "va": "center"}
        axis.text(*center, str(name), color=colors[k], path_effects=outline, **name_style)
    # The bulk fills the panel; a few far points may lie outside it.
    low, high = np.percentile(panel.Z, [0.5, 99.5], axis=0)
    margin = 0.12 * (high - low)
    axis.set(xlim=(low[0] - margin[0], high[0] + margin[0]))
    axis.set(ylim=(low[1] - margin[1], high[1] + margin[1]), xticks=[], yticks=[])
    axis.set_facecolor("white")
    for side in axis.spines.values():
        side.set_color("#d8d5cc")
    axis.set_title(f"{panel.title}\n", fontsize=14, color=_INK, fontweight="bold")
    place = {"transform": axis.transAxes, "ha": "center"}
    axis.text(0.5, 1.02, panel.subtitle, fontsize=11, color="#5b6270", **place)
