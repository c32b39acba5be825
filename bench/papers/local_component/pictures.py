"""The pictures of Le Roux & Bach's experiments; matplotlib is imported only to draw them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.local_component.rows import Row
from bench.shared.setup import UnavailableError

_INK, _PAPER, _FAINT = "#22262e", "#fbfaf7", "#d8d5cc"
_COLORS = {
    "whitened": "#7c828d",
    "FastICA": "#dd7a2c",
    "Local Component Analysis": "#2467b3",
    "… with Gaussian part": "#1f9a80",
    "… with search": "#9a3fa8",
}


def text(path: Path, panels: Sequence[tuple[str, np.ndarray]]) -> None:
    """Draw the points of the text after each map, all in one scale."""
    plt = _pyplot()
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(9, 1.9 * len(panels)), layout="constrained", facecolor=_PAPER
    )
    for axis, (title, points) in zip(np.atleast_1d(axes), panels, strict=True):
        axis.scatter(*points.T, s=2.5, color=_INK, linewidths=0)
        axis.set_aspect("equal")
        axis.set_axis_off()
        axis.set_title(title, color=_INK, loc="left", fontsize=10)
    _save(figure, path)


def curves(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw accuracies over the dimensions of noise, a panel for each problem."""
    plt = _pyplot()
    problems = list(dict.fromkeys(row.data for row in rows))
    figure, axes = plt.subplots(
        1, len(problems), figsize=(11, 3.6), layout="constrained", facecolor=_PAPER, sharey=True
    )
    variants = list(dict.fromkeys(row.variant for row in rows))
    shades = plt.get_cmap("viridis_r")(np.linspace(0.1, 0.95, len(variants)))
    for axis, problem in zip(np.atleast_1d(axes), problems, strict=True):
        places = sorted({row.key for row in rows if row.data == problem})
        for k, (variant, shade) in enumerate(zip(variants, shades, strict=True)):
            own = [row for row in rows if (row.data, row.variant) == (problem, variant)]
            # Evenly spaced, side by side: most curves lie on each other.
            beside = 0.06 * (k - (len(variants) - 1) / 2)
            axis.errorbar(
                [places.index(row.key) + beside for row in own],
                [row.mean for row in own],
                yerr=[row.error for row in own],
                color=_COLORS.get(variant, shade),
                marker="o",
                markersize=4,
                linewidth=1.6,
                capsize=2,
                label=variant,
            )
        _dress(axis, problem, "dimensions of noise")
        axis.set_xticks(range(len(places)), places)
        axis.set_xlim(-0.3, len(places) - 0.7)
        axis.set_ylim(0, 104)
    np.atleast_1d(axes)[0].set_ylabel("rows in the right cluster, %")
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title, color=_INK)
    _save(figure, path)


def densities(path: Path, rows: Sequence[Row]) -> None:
    """Draw how many nats each model is above a single Gaussian, published beside measured."""
    found = {row.variant: row.mean for row in rows}
    published = {row.variant: row.published for row in rows if row.published is not None}
    names = [name for name in found if name != "single Gaussian"]
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.5, 3), layout="constrained", facecolor=_PAPER)
    for shift, values, color in ((-0.19, found, "#2467b3"), (0.19, published, _FAINT)):
        for k, name in enumerate(names if values else ()):
            value = values[name] - values["single Gaussian"]
            axis.barh(k + shift, value, 0.36, color=color)
            axis.annotate(
                f"{value:+.1f}",
                (value, k + shift),
                (4 if value >= 0 else -4, 0),
                textcoords="offset points",
                ha="left" if value >= 0 else "right",
                va="center",
                fontsize=8,
                color=_INK,
            )
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.axvline(0, color=_INK, linewidth=0.8)
    axis.margins(x=0.12)
    title = "USPS: nats worse than a single Gaussian (blue measured, grey published)"
    _dress(axis, title, "difference of the test negative log-likelihoods")
    _save(figure, path)


def batches(path: Path, rows: Sequence[Row]) -> None:
    """Draw the test loss above batch EM over the neighbourhood, a panel for each discount."""
    test = [row for row in rows if row.data == "test"]
    discounts = sorted({row.key.discount for row in test})
    plt = _pyplot()
    figure, axes = plt.subplots(
        1, len(discounts), figsize=(4.6 * len(discounts), 3.4), layout="constrained", sharey=True
    )
    figure.set_facecolor(_PAPER)
    sizes = sorted({row.key.batch for row in test})
    shades = plt.get_cmap("viridis")(np.linspace(0.1, 0.8, len(sizes)))
    for axis, discount in zip(np.atleast_1d(axes), discounts, strict=True):
        for size, shade in zip(sizes, shades, strict=True):
            own = [row for row in test if (row.key.discount, row.key.batch) == (discount, size)]
            places = [row.key.neighbors for row in own]
            axis.plot(places, [row.mean for row in own], "o-", color=shade, label=f"B = {size:,}")
            known = [row for row in own if row.published is not None]
            axis.plot(
                [row.key.neighbors for row in known],
                [row.published for row in known],
                "o",
                color=shade,
                markerfacecolor="none",
                markersize=9,
            )
        axis.axhline(0, color=_FAINT, linewidth=0.8)
        _dress(axis, f"γ = {discount} (hollow: published)", "neighbours N")
    np.atleast_1d(axes)[0].set_ylabel("test loss above batch EM, nats")
    np.atleast_1d(axes)[0].legend(frameon=False)
    _save(figure, path)


def _pyplot() -> Any:
    """Return pyplot without a screen."""
    try:
        import matplotlib
    except ImportError as error:
        raise UnavailableError("matplotlib is not installed: no picture") from error

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _dress(axis: Any, title: str, below: str) -> None:
    """Give a panel its title, and thin lines."""
    axis.set_facecolor(_PAPER)
    axis.set_title(title, color=_INK, fontsize=10)
    axis.set_xlabel(below)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_FAINT)


def _save(figure: Any, path: Path) -> None:
    """Write the picture, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"  {path}", file=sys.stderr)
