"""The picture of the spiral's density; matplotlib is imported only to draw it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.manifold_parzen.spiral import Choice, Spiral

_INK, _PAPER, _FAINT = "#22262e", "#fbfaf7", "#d8d5cc"
_WHOLE = (-0.68, 0.68, -0.68, 0.68)
_PART = (0.12, 0.62, -0.34, 0.16)
_PIXELS = 360


def spiral(path: Path, data: Spiral, choices: Mapping[str, Choice]) -> None:
    """Draw both densities over the training rows, whole and a part of them (figure 2)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 10.4), facecolor=_PAPER, dpi=110)
    axes = figure.subplots(2, 2)
    titles = {"Parzen": "Parzen windows", "q = 1": "Manifold Parzen windows"}
    for column, (name, title) in zip(axes.T, titles.items(), strict=True):
        choice = choices[name]
        for axis, window in zip(column, (_WHOLE, _PART), strict=True):
            _draw(axis, choice, data.train, window)
        width = f"σ = {np.sqrt(choice.noise):.2g}"
        parameters = width if choice.k is None else f"q = 1, k = {choice.k}, {width}"
        column[0].set_title(title, fontsize=15, color=_INK, fontweight="bold", pad=26)
        column[0].text(
            0.5,
            1.025,
            f"{parameters}; test rows {-choice.test:.2f} nats",
            transform=column[0].transAxes,
            ha="center",
            fontsize=10.5,
            color="#5b6270",
        )
        left, right, bottom, top = _PART
        corners = ([left, right, right, left, left], [bottom, bottom, top, top, bottom])
        column[0].plot(*corners, color=_INK, lw=1, alpha=0.6)
    figure.subplots_adjust(left=0.03, right=0.97, bottom=0.03, top=0.92, wspace=0.05, hspace=0.05)
    figure.savefig(path, facecolor=_PAPER)


def _draw(axis: Any, choice: Choice, rows: np.ndarray, window: tuple[float, ...]) -> None:
    """Draw a density in a window: shades of its log, a line where it is 1, and the rows."""
    left, right, bottom, top = window
    x, y = np.meshgrid(np.linspace(left, right, _PIXELS), np.linspace(bottom, top, _PIXELS))
    logs = choice.model.score_samples(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
    levels = np.log([0.03, 0.1, 0.3, 1, 2, 4, 8, 16, 64])
    axis.contourf(x, y, np.clip(logs, levels[0] - 1, levels[-1]), levels, cmap="YlGnBu")
    axis.contour(x, y, logs, [0.0], colors=[_INK], linewidths=0.9)
    size = 5 if window == _WHOLE else 16
    axis.scatter(*rows.T, s=size, color="#d1495b", linewidths=0, zorder=3)
    axis.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], aspect="equal")
    axis.set_facecolor("white")
    for side in axis.spines.values():
        side.set_color(_FAINT)


def save(path: Path, draw: Callable[[], None]) -> None:
    """Draw a picture and say where it is, or why there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        draw()
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)
    else:
        print(f"picture: {path}", file=sys.stderr)
