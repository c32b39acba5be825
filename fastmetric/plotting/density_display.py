"""The log density over one or two features, far into the tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate
from fastmetric._validate import shown
from fastmetric.plotting import canvas

_MOST_LEVELS = 60  # doublings: from a thousandth of a nat to beyond any float


class DensityDisplay:
    """The log density of an estimator of one or two features, with contours into the tails.

    Make one with :meth:`from_estimator`. All parameters are stored as attributes. Logs are drawn,
    not densities, so places where the density is 1e-1000 are still told apart.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        The rows that are drawn.
    xx0 : ndarray of shape (grid_resolution,) or (grid_resolution, grid_resolution)
        The places where the density was evaluated: of one feature, or the first of two.
    xx1 : ndarray of shape (grid_resolution, grid_resolution), default=None
        The second feature of the places.
    response : ndarray of the shape of `xx0`
        The log densities; -inf where the density is zero.
    levels : array-like of shape (n_levels,), default=None
        The log densities of the contours. None: 0.5, 1, 2, 4, 8, ... below the highest, down to
        the lowest.
    xlabel, ylabel : str, default=None
        The labels of the axes.

    Attributes
    ----------
    surface_ : matplotlib.contour.QuadContourSet or None
        The filled contours of two features.
    contour_ : matplotlib.contour.QuadContourSet or None
        The lines between them.
    colorbar_ : matplotlib.colorbar.Colorbar or None
        The scale of the log density.
    line_ : matplotlib.lines.Line2D or None
        The log density of one feature.
    scatter_ : matplotlib.collections.PathCollection or None
        The rows; of one feature, short lines at the foot of the axes.
    ax_ : matplotlib.axes.Axes
        The axes of the picture.
    figure_ : matplotlib.figure.Figure
        The figure that contains them.

    See Also
    --------
    ProjectionDisplay : Rows in the plane of a learnt map.
    ClusterDisplay : Clusters, their centres and basins.
    sklearn.inspection.DecisionBoundaryDisplay : The decisions of a classifier of two features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import KernelDensity
    >>> from fastmetric.plotting import DensityDisplay
    >>> X = load_iris().data[:, 2:]
    >>> density = KernelDensity(bandwidth=0.3).fit(X)
    >>> display = DensityDisplay.from_estimator(density, X, xlabel="length", ylabel="width")
    >>> display.response.shape
    (100, 100)
    """

    def __init__(
        self,
        *,
        X: np.ndarray,
        xx0: np.ndarray,
        xx1: np.ndarray | None = None,
        response: np.ndarray,
        levels: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
    ) -> None:
        self.X = X
        self.xx0 = xx0
        self.xx1 = xx1
        self.response = response
        self.levels = levels
        self.xlabel = xlabel
        self.ylabel = ylabel

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        grid_resolution: int = 100,
        eps: float | None = None,
        levels: Any = None,
        subsample: Any = 1_000,
        random_state: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
        ax: Any = None,
        surface_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> DensityDisplay:
        """Draw the log density of a fitted estimator around rows.

        Parameters
        ----------
        estimator : estimator
            Fitted to one or two features, with ``score_samples`` that returns log densities.
        X : array-like of shape (n_samples, n_features)
            Rows: the picture extends around them, and they are drawn.
        y : None
            Ignored.
        grid_resolution : int, default=100
            Places along each axis at which the density is evaluated.
        eps : float, default=None
            How far the picture extends beyond the rows, in units of the features; None: a third
            of their range, which shows the tails.
        levels : array-like of shape (n_levels,), default=None
            The log densities of the contours, increasing, at least two. None: 0.5, 1, 2, 4, 8,
            ... below the highest, down to the lowest in the picture.
        subsample : int, float or None, default=1_000
            How many rows, or what share of them, to draw, at random; None: all.
        random_state : int, RandomState instance or None, default=None
            Determines the rows that are drawn, if not all.
        xlabel, ylabel : str, default=None
            The labels of the axes; None: the names of the features, if the estimator has any.
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        surface_kwargs : dict, default=None
            Passed to matplotlib's ``contourf``; of one feature, to ``plot``.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.

        Returns
        -------
        display : DensityDisplay
            The picture, with what it was drawn from.
        """
        canvas.matplotlib_or_error()
        check_is_fitted(estimator)
        if not hasattr(estimator, "score_samples"):
            raise ValueError(
                f"estimator should have the method score_samples; got {shown(estimator)}."
            )
        _validate.integer("grid_resolution", grid_resolution, 2)
        if eps is not None:
            _validate.number("eps", eps)
        levels = _checked_levels(levels)
        rows = _validate.float_array(X, "X")
        d = rows.shape[1]
        if d > 2:
            raise ValueError(
                f"X should have one or two features, to be drawn; it has {d}. Fit the density to "
                "two features, or to the rows projected to two components."
            )
        low, high = canvas.limits(rows, eps, 1 / 3)
        if d == 1:
            xx0 = np.linspace(low[0], high[0], grid_resolution * 5)  # a line costs little
            xx1, places = None, xx0[:, None]
        else:
            xx0, xx1 = canvas.plane(low, high, grid_resolution)
            places = np.column_stack([xx0.ravel(), xx1.ravel()])
        logs = estimator.score_samples(canvas.like(places, X, rows.dtype))
        names = _names(estimator, d)
        display = cls(
            X=rows[canvas.drawn_rows(subsample, random_state, len(rows))],
            xx0=xx0,
            xx1=xx1,
            response=np.asarray(logs, dtype=np.float64).reshape(xx0.shape),
            levels=levels,
            xlabel=names[0] if xlabel is None else xlabel,
            ylabel=names[1] if ylabel is None else ylabel,
        )
        return display.plot(ax=ax, surface_kwargs=surface_kwargs, scatter_kwargs=scatter_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        surface_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
        colorbar: bool = True,
    ) -> DensityDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        surface_kwargs : dict, default=None
            Passed to matplotlib's ``contourf``; of one feature, to ``plot``.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.
        colorbar : bool, default=True
            Whether to draw the scale, of two features.

        Returns
        -------
        self : DensityDisplay
            The display, with `ax_`, `figure_` and the artists.
        """
        _validate.flag("colorbar", colorbar)
        canvas.matplotlib_or_error()
        levels = _checked_levels(self.levels)
        if levels is None:
            levels = _default_levels(self.response)
        self.surface_: Any = None
        self.contour_: Any = None
        self.colorbar_: Any = None
        self.line_: Any = None
        plain: dict[str, Any] = {"color": "C0", "linewidth": 1.6}
        dots: dict[str, Any] = {"s": 6, "color": "black", "alpha": 0.45, "linewidths": 0}
        if self.xx1 is None:
            dots |= {"s": 90, "marker": "|", "linewidths": 0.7}
            del dots["alpha"]
        else:
            plain = {"cmap": "viridis"}
        surface = canvas.options("surface_kwargs", surface_kwargs, plain)
        if self.xx1 is not None and "levels" in surface:
            raise ValueError(
                f"surface_kwargs should hold no levels; got {shown(surface)}. Give levels instead."
            )
        dots = canvas.options("scatter_kwargs", scatter_kwargs, dots)
        ax = canvas.axes_or_new(ax)
        if self.xx1 is None:
            self._draw_line(ax, surface, dots)
        else:
            self._draw_contours(ax, levels, surface, colorbar)
            self.scatter_ = ax.scatter(*self.X.T, **dots)
        if self.xlabel is not None:
            ax.set_xlabel(self.xlabel)
        if self.ylabel is not None:
            ax.set_ylabel(self.ylabel)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_line(self, ax: Any, surface: dict[str, Any], dots: dict[str, Any]) -> None:
        """Draw the log density of one feature; there is no line where the density is zero."""
        shown_logs = np.where(np.isfinite(self.response), self.response, np.nan)
        (self.line_,) = ax.plot(self.xx0, shown_logs, **surface)
        foot = np.full(len(self.X), 0.02)
        self.scatter_ = ax.scatter(self.X[:, 0], foot, transform=ax.get_xaxis_transform(), **dots)
        ax.set_xlim(self.xx0[0], self.xx0[-1])

    def _draw_contours(self, ax: Any, levels: Any, surface: dict[str, Any], bar: bool) -> None:
        """Draw filled contours, each of its own colour, lines between them, and the scale."""
        from matplotlib.colors import BoundaryNorm

        # Contours end where the density is zero: a value below all levels is not filled.
        logs = np.where(np.isfinite(self.response), self.response, levels[0] - 1.0)
        if "colors" not in surface:
            size = canvas.matplotlib_or_error().colormaps.get_cmap(surface["cmap"]).N
            surface = {"norm": BoundaryNorm(levels, size, extend="max")} | surface
        where = (self.xx0, self.xx1, logs)
        self.surface_ = ax.contourf(*where, levels=levels, extend="max", **surface)
        line = {"colors": "white", "linewidths": 0.5, "alpha": 0.7, "linestyles": "solid"}
        self.contour_ = ax.contour(*where, levels=levels, **line)
        if bar:
            scale = ax.figure.colorbar(self.surface_, ax=ax, spacing="uniform")
            scale.set_label("log density")
            scale.set_ticks(levels, labels=[f"{level:.4g}" for level in levels])
            self.colorbar_ = scale


def _default_levels(logs: np.ndarray) -> np.ndarray:
    """Return increasing levels 0.5, 1, 2, 4, ... below the highest log density, rounded up.

    The lowest is the first that no finite log density of the picture is below.
    """
    finite = logs[np.isfinite(logs)]
    if not len(finite):
        raise ValueError(
            "The density is zero in all of the picture; a density above zero is needed somewhere. "
            "Choose a larger eps or grid_resolution, or give rows where the density is not zero."
        )
    top = float(np.ceil(10 * finite.max()) / 10)  # a number that is read easily
    depth = max(top - float(finite.min()), 1.0)
    falls = 0.5 * 2.0 ** np.arange(_MOST_LEVELS)
    count = min(int(np.searchsorted(falls, depth)) + 1, _MOST_LEVELS)
    return top - falls[:count][::-1]


def _checked_levels(levels: Any) -> np.ndarray | None:
    """Return levels as increasing numbers, or None."""
    if levels is None:
        return None
    wanted = "at least two increasing log densities"
    given = _validate.arrays.numeric_array("levels", levels, wanted)
    if given.ndim != 1 or len(given) < 2 or np.any(np.diff(given) <= 0):
        raise ValueError(f"levels should be {wanted}; got {shown(levels)}.")
    return given


def _names(estimator: Any, d: int) -> tuple[str, str]:
    """Return the labels of the axes: names of the features as far as there are any."""
    known = list(map(str, getattr(estimator, "feature_names_in_", [])))
    names = known if len(known) == d else [f"feature {k}" for k in range(d)]
    return (names[0], "log density") if d == 1 else (names[0], names[1])
