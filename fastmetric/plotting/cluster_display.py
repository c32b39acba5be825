"""Clusters, their centres, and the basin of each: the places that belong to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate
from fastmetric._validate import shown
from fastmetric.plotting import canvas

_OTHERS = (0.6, 0.6, 0.6)  # rows of clusters without a colour, and of none


class ClusterDisplay:
    """Rows in the colours of their clusters, over the basins of the clusters.

    Make one with :meth:`from_estimator`. All parameters are stored as attributes. The clusters of
    most rows have a colour each; rows of all others, and of none (-1), are grey.

    Parameters
    ----------
    X : ndarray of shape (n_samples, 2)
        The two features of the rows that are drawn.
    labels : ndarray of shape (n_samples,)
        Their clusters, -1 for none.
    colored : ndarray of shape (n_colored,)
        The clusters with a colour of their own.
    cluster_centers : ndarray of shape (n_clusters, 2), default=None
        The centres of the clusters with a colour.
    xx0, xx1 : ndarray of shape (grid_resolution, grid_resolution), default=None
        The places at which a cluster was predicted.
    response : ndarray of shape (grid_resolution, grid_resolution), default=None
        The clusters of these places. None: no basins are drawn.
    multiclass_colors : str or list of colours, default=None
        The colours of the clusters, or a colour map of matplotlib.
    xlabel, ylabel : str, default=None
        The labels of the axes.

    Attributes
    ----------
    surface_ : matplotlib.image.AxesImage or None
        The basins.
    scatter_ : matplotlib.collections.PathCollection
        The rows.
    centers_ : matplotlib.collections.PathCollection or None
        The centres.
    ax_ : matplotlib.axes.Axes
        The axes of the picture.
    figure_ : matplotlib.figure.Figure
        The figure that contains them.

    See Also
    --------
    DensityDisplay : The log density over one or two features.
    ProjectionDisplay : Rows in the plane of a learnt map.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import MeanShift
    >>> from fastmetric.plotting import ClusterDisplay
    >>> X = load_iris().data[:, 2:]
    >>> display = ClusterDisplay.from_estimator(MeanShift(bandwidth=0.6).fit(X), X)
    >>> len(display.colored)
    2
    """

    def __init__(
        self,
        *,
        X: np.ndarray,
        labels: np.ndarray,
        colored: np.ndarray,
        cluster_centers: np.ndarray | None = None,
        xx0: np.ndarray | None = None,
        xx1: np.ndarray | None = None,
        response: np.ndarray | None = None,
        multiclass_colors: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
    ) -> None:
        self.X = X
        self.labels = labels
        self.colored = colored
        self.cluster_centers = cluster_centers
        self.xx0 = xx0
        self.xx1 = xx1
        self.response = response
        self.multiclass_colors = multiclass_colors
        self.xlabel = xlabel
        self.ylabel = ylabel

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        features: tuple[int, int] = (0, 1),
        max_clusters: int = 10,
        basins: bool = True,
        grid_resolution: int = 150,
        eps: float | None = None,
        subsample: Any = 10_000,
        random_state: Any = None,
        multiclass_colors: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
        ax: Any = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> ClusterDisplay:
        """Draw the clusters of rows by a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict`, which returns the number of a row's cluster; centres are drawn
            if it has `cluster_centers_`.
        X : array-like of shape (n_samples, n_features)
            The rows to draw.
        y : None
            Ignored.
        features : tuple of two int, default=(0, 1)
            Which features to draw.
        max_clusters : int, default=10
            How many clusters have a colour of their own: those of most rows.
        basins : bool, default=True
            Whether to draw the clusters of all places, if the rows have two features and no more.
        grid_resolution : int, default=150
            Places along each axis at which a cluster is predicted.
        eps : float, default=None
            How far the picture extends beyond the rows, in units of the features; None: a
            twentieth of their range.
        subsample : int, float or None, default=10_000
            How many rows, or what share of them, to draw, at random; None: all.
        random_state : int, RandomState instance or None, default=None
            Determines the rows that are drawn, if not all.
        multiclass_colors : str or list of colours, default=None
            A colour for each cluster that has one, or the name of a colour map of matplotlib.
        xlabel, ylabel : str, default=None
            The labels of the axes; None: the names of the features.
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.

        Returns
        -------
        display : ClusterDisplay
            The picture, with what it was drawn from.
        """
        canvas.matplotlib_or_error()
        check_is_fitted(estimator)
        if not hasattr(estimator, "predict"):
            raise ValueError(f"estimator should have the method predict; got {shown(estimator)}.")
        _validate.integer("max_clusters", max_clusters, 1)
        _validate.flag("basins", basins)
        _validate.integer("grid_resolution", grid_resolution, 2)
        if eps is not None:
            _validate.number("eps", eps)
        rows = _validate.float_array(X, "X")
        if rows.shape[1] < 2:
            raise ValueError("X should have at least two features, to be drawn; it has 1.")
        pair = canvas.columns("features", features, rows.shape[1])
        chosen = canvas.drawn_rows(subsample, random_state, len(rows))
        labels = np.asarray(estimator.predict(X))
        if labels.dtype.kind not in "iu":
            raise ValueError(
                "estimator should be a clusterer, whose predict returns the number of each row's "
                f"cluster; got {shown(estimator)}, which returns {labels.dtype}."
            )
        numbers, counts = np.unique(labels[labels >= 0], return_counts=True)
        colored = np.sort(numbers[np.argsort(-counts, kind="stable")[:max_clusters]])
        low, high = canvas.limits(rows[:, pair], eps, 0.05)
        xx0, xx1 = canvas.plane(low, high, grid_resolution)
        response = None
        if basins and rows.shape[1] == 2 and pair == (0, 1):
            places = np.column_stack([xx0.ravel(), xx1.ravel()])
            places = canvas.like(places, X, rows.dtype)
            response = np.asarray(estimator.predict(places)).reshape(xx0.shape)
        centers = getattr(estimator, "cluster_centers_", None)
        names = list(map(str, getattr(estimator, "feature_names_in_", [])))
        if len(names) != rows.shape[1]:
            names = [f"feature {k}" for k in range(rows.shape[1])]
        display = cls(
            X=rows[chosen][:, pair],
            labels=labels[chosen],
            colored=colored,
            cluster_centers=None if centers is None else np.asarray(centers)[colored][:, pair],
            xx0=xx0,
            xx1=xx1,
            response=response,
            multiclass_colors=multiclass_colors,
            xlabel=names[pair[0]] if xlabel is None else xlabel,
            ylabel=names[pair[1]] if ylabel is None else ylabel,
        )
        return display.plot(ax=ax, scatter_kwargs=scatter_kwargs)

    def plot(
        self, ax: Any = None, *, scatter_kwargs: dict[str, Any] | None = None
    ) -> ClusterDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.

        Returns
        -------
        self : ClusterDisplay
            The display, with `ax_`, `figure_` and the artists.
        """
        canvas.matplotlib_or_error()
        colors = canvas.class_colors(len(self.colored), self.multiclass_colors)
        own = canvas.shares_of(self.labels, self.colored)
        rest = 1 - own.sum(axis=1, keepdims=True)
        defaults = {"s": 10, "c": own @ colors + rest * np.array(_OTHERS), "linewidths": 0}
        style = canvas.options("scatter_kwargs", scatter_kwargs, defaults)
        ax = canvas.axes_or_new(ax)
        self.surface_ = self.centers_ = None
        if self.response is not None:
            shares = canvas.shares_of(self.response, self.colored)
            self.surface_ = canvas.draw_regions(ax, (self.xx0, self.xx1), shares, colors)
        self.scatter_ = ax.scatter(*self.X.T, **style)
        if self.cluster_centers is not None:
            star = {"s": 170, "marker": "*", "c": colors, "edgecolors": "black", "zorder": 3}
            self.centers_ = ax.scatter(*self.cluster_centers.T, **star)
        if self.xlabel is not None:
            ax.set_xlabel(self.xlabel)
        if self.ylabel is not None:
            ax.set_ylabel(self.ylabel)
        self.ax_, self.figure_ = ax, ax.figure
        return self
