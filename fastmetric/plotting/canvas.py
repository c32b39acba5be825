"""What all displays share: matplotlib, axes, colours, grids, and the rows that are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from fastmetric import _validate
from fastmetric._validate import shown

_MISSING = 'Pictures need matplotlib, which is not installed: pip install "fastmetric[plot]"'
_TENS = 10  # colours that are told apart at a glance


def matplotlib_or_error() -> Any:
    """Return matplotlib, or say how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(_MISSING) from error
    return matplotlib


def axes_or_new(ax: Any) -> Any:
    """Return the axes to draw on: those given, or the only ones of a new figure of pyplot."""
    matplotlib_or_error()
    from matplotlib.axes import Axes

    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise ValueError(
            f"ax should be an Axes of matplotlib, or None for new ones; got {shown(ax)}."
        )
    return ax


# Names of one option in matplotlib: of these only one may be passed on.
_SAME = (
    {"c", "color", "colors", "cmap"},
    {"linewidth", "linewidths", "lw"},
    {"linestyle", "linestyles", "ls"},
    {"edgecolor", "edgecolors", "ec"},
)


def options(name: str, given: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments for matplotlib: what was given before the defaults."""
    if given is None:
        return dict(defaults)
    if not isinstance(given, dict):
        raise ValueError(
            f"{name} should be a dict of keyword arguments for matplotlib; got {shown(given)}."
        )
    taken = set(given).union(*(same for same in _SAME if same & set(given)))
    return {key: value for key, value in defaults.items() if key not in taken} | given


def columns(name: str, chosen: Any, n: int) -> tuple[int, int]:
    """Return two different column numbers below n."""
    if not isinstance(chosen, tuple | list) or len(chosen) != 2:
        raise ValueError(f"{name} should be two column numbers, (0, 1) say; got {shown(chosen)}.")
    first, second = (_validate.integer(name, one, 0, n - 1) for one in chosen)
    if first == second:
        raise ValueError(f"{name} should be two different column numbers; got {shown(chosen)}.")
    return first, second


def labels_beside(name: str, labels: Any, n: int) -> np.ndarray:
    """Return labels as an array, one for each of n rows."""
    array = np.asarray(labels)
    wanted = f"{name} should be one label for each of the {n} rows of X"
    if array.shape != (n,):
        raise ValueError(f"{wanted}; got {shown(labels)}.")
    try:
        np.unique(array)
    except TypeError as error:
        raise ValueError(f"{wanted}, all of one type; got {shown(labels)}.") from error
    return array


def drawn_rows(subsample: Any, random_state: Any, n: int) -> np.ndarray:
    """Return the sorted numbers of the rows to draw: all n, or a random sample of them."""
    draws = _validate.random_state(random_state)
    if subsample is None or (isinstance(subsample, Integral) and int(subsample) >= n):
        return np.arange(n)
    size = _validate.sample_size("subsample", subsample, n)
    return np.sort(draws.choice(n, size, replace=False))


def limits(points: np.ndarray, eps: float | None, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest coordinates of a picture of the points, shape (d,) each.

    They lie `eps` beyond those of the points; None: `share` of their range; if that is 0, of their
    size, or of 1 if that is more.
    """
    low, high = points.min(axis=0).astype(float), points.max(axis=0).astype(float)
    if eps is not None:
        return low - eps, high + eps
    spread = np.where(high > low, high - low, np.maximum(1.0, np.abs(high)))
    return low - share * spread, high + share * spread


def plane(low: np.ndarray, high: np.ndarray, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates (resolution, resolution) of a grid over a rectangle."""
    sides = [np.linspace(low[k], high[k], resolution) for k in range(2)]
    xx0, xx1 = np.meshgrid(*sides)
    return xx0, xx1


def class_colors(n: int, given: Any = None) -> np.ndarray:
    """Return n colours, shape (n, 3): those given, of a colour map, or told apart most easily."""
    matplotlib = matplotlib_or_error()
    from matplotlib.colors import to_rgba_array

    if given is None:
        given = "tab10" if n <= _TENS else "tab20" if n <= 2 * _TENS else "nipy_spectral"
    if isinstance(given, str):
        if given not in matplotlib.colormaps:
            raise ValueError(
                f"multiclass_colors should be colours, one a class, or a colour map of "
                f"matplotlib; got {given!r}."
            )
        palette = matplotlib.colormaps[given]
        listed = palette.N < 256 and n <= palette.N  # a list of colours, not a gradual change
        return np.asarray(palette(np.arange(n) if listed else np.linspace(0, 1, n)))[:, :3]
    try:
        colors = to_rgba_array(given)[:, :3]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"multiclass_colors should be colours, one a class; got {shown(given)}."
        ) from error
    if len(colors) != n:
        raise ValueError(
            f"multiclass_colors should be {n} colours, one a class; got {len(colors)} of them."
        )
    return colors


def draw_regions(ax: Any, corners: tuple[Any, Any], shares: np.ndarray, colors: Any) -> Any:
    """Draw the pale mixture of the classes' colours at every place of a grid; return the image.

    `shares` (r, r, C) add up to 1, or to 0 where no class is. `corners` are the grid's coordinates.
    """
    xx0, xx1 = corners
    ink = 0.30 * shares.sum(axis=2, keepdims=True)
    mixture = shares @ colors
    image = np.clip(1 - ink + 0.30 * mixture, 0, 1)
    half = [(side[-1, -1] - side[0, 0]) / (len(side) - 1) / 2 for side in (xx0, xx1)]
    extent = (xx0.min() - half[0], xx0.max() + half[0], xx1.min() - half[1], xx1.max() + half[1])
    drawn = ax.imshow(image, extent=extent, origin="lower", aspect="auto", zorder=0)
    ax.set(xlim=(xx0.min(), xx0.max()), ylim=(xx1.min(), xx1.max()))
    return drawn


def shares_of(numbers: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return class numbers (...) as shares (..., C): 1 for the class, 0 for all others."""
    return (numbers[..., None] == classes).astype(float)


def like(places: np.ndarray, X: Any, dtype: Any) -> Any:
    """Return places in the form of the rows given: their precision, and a frame if they were."""
    places = places.astype(dtype)
    if not hasattr(X, "iloc"):  # not of pandas
        return places
    return type(X)(places, columns=X.columns)
