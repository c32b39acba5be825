"""Pictures of densities, clusters and projections of a table; they need matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastmetric.plotting import DensityDisplay
from fastmetric.plotting.canvas import matplotlib_or_error

_INK, _FRAME = "#22262e", "#d8d5cc"
_TAIL = 24  # nats below the largest log density of which colours tell
_MOST_POINTS = 5000  # drawn; more make one blot
_NUMBERED = 10  # clusters and classes with a number or a name in the picture


class Picture(NamedTuple):
    """Where a picture goes, and its words."""

    path: Path
    title: str
    axes: tuple[str, str]


def need_matplotlib() -> Any:
    """Return matplotlib's class of figures, or say how to get it."""
    matplotlib_or_error()
    from matplotlib.figure import Figure

    return Figure


def in_plane(X: np.ndarray, names: list[str]) -> tuple[np.ndarray, tuple[str, str]]:
    """Return rows in a plane (n, 2), with the names of its axes: more features by PCA."""
    if X.shape[1] == 2:
        return X, (names[0], names[1])
    if X.shape[1] == 1:
        return np.column_stack([X[:, 0], np.arange(len(X))]), (names[0], "row")
    from sklearn.decomposition import PCA

    Z = PCA(2, random_state=0).fit_transform(X)
    return Z, ("first principal component", "second principal component")


def draw_density(
    picture: Picture, estimator: Any, rows: Any, X: np.ndarray, logs: np.ndarray
) -> None:
    """Draw a density under rows (n, D): over one feature or two; of more, colour the rows X.

    X (n, d) are the rows as they are drawn if they cannot be drawn as they are, `logs` (n,) their
    log densities.
    """
    figure, axis = _figure(picture)
    if X.shape[1] <= 2:
        DensityDisplay.from_estimator(estimator, rows, random_state=0, ax=axis)
    else:
        order = np.argsort(logs)  # dense rows above
        Z = in_plane(X, [])[0][order]
        finite = logs[np.isfinite(logs)]
        floor = max(finite.min(), finite.max() - _TAIL) if len(finite) else 0.0
        shades = np.clip(logs[order], floor, None)
        points = axis.scatter(*Z.T, c=shades, s=12, cmap="viridis", linewidths=0, rasterized=True)
        figure.colorbar(points, ax=axis, label="log density")
    _save(figure, axis, picture)


def draw_classes(picture: Picture, Z: np.ndarray, labels: np.ndarray, names: list[str]) -> None:
    """Draw rows in a plane in the colour of their class or cluster."""
    from matplotlib import colormaps
    from matplotlib.patheffects import withStroke

    figure, axis = _figure(picture)
    classes, numbers = np.unique(labels, return_inverse=True)
    few = len(classes) <= _NUMBERED
    spread = np.arange(len(classes)) if few else np.linspace(0, 1, len(classes))
    colors = colormaps["tab10" if few else "nipy_spectral"](spread)
    shown = _some(len(Z))
    axis.scatter(*Z[shown].T, c=colors[numbers[shown]], s=14, alpha=0.75, linewidths=0)
    for k in range(len(classes) if few else 0):
        center = np.median(Z[numbers == k], axis=0)
        outline = [withStroke(linewidth=4, foreground="white")]
        style: dict[str, Any] = {"fontsize": 12, "fontweight": "bold", "ha": "center"}
        axis.text(*center, names[k], color=colors[k], path_effects=outline, **style)
    _save(figure, axis, picture)


def _some(n: int) -> np.ndarray:
    """Return the numbers of the rows that are drawn."""
    if n <= _MOST_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _MOST_POINTS, replace=False))


def _figure(picture: Picture) -> tuple[Any, Any]:
    """Return a figure with its title, and its only axes."""
    figure = need_matplotlib()(figsize=(7.6, 6.0), dpi=150, layout="constrained")
    axis = figure.subplots()
    axis.set_title(picture.title, color=_INK, fontsize=12)
    return figure, axis


def _save(figure: Any, axis: Any, picture: Picture) -> None:
    """Name the axes and write the picture."""
    axis.set_xlabel(picture.axes[0], color=_INK)
    axis.set_ylabel(picture.axes[1], color=_INK)
    for side in axis.spines.values():
        side.set_color(_FRAME)
    figure.savefig(picture.path)
