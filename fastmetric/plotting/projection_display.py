"""Rows in the plane of a learnt map, and the class that every place of the plane is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate
from fastmetric._validate import shown
from fastmetric.plotting import canvas

_RESPONSES = ("auto", "predict_proba", "predict")
_ROUND_TRIP = 1e-3  # of a coordinate, after a row made from it is projected again


class _Plane(NamedTuple):
    """The estimator's map, and the classifier behind it, if places of the plane have a class."""

    transform: Callable[[Any], Any]
    classifier: Any  # or None
    rows_at: Callable[[np.ndarray], np.ndarray]  # rows that are projected to given places


class ProjectionDisplay:
    """Rows projected to two components, over the classes that the estimator predicts there.

    Make one with :meth:`from_estimator`. All parameters are stored as attributes.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, 2)
        The projected rows that are drawn.
    y : ndarray of shape (n_samples,), default=None
        Their labels; None: all rows look the same.
    classes : ndarray of shape (n_classes,), default=None
        The labels in the order of the colours; None: those in `y`, sorted.
    xx0, xx1 : ndarray of shape (grid_resolution, grid_resolution), default=None
        The places at which a class was predicted.
    response : ndarray of shape (grid_resolution, grid_resolution, n_classes), default=None
        The probability of each class there; 0 and 1 by "predict". None: no regions are drawn.
    multiclass_colors : str or list of colours, default=None
        The colours of the classes, or a colour map of matplotlib.
    xlabel, ylabel : str, default=None
        The labels of the axes.

    Attributes
    ----------
    surface_ : matplotlib.image.AxesImage or None
        The regions.
    scatter_ : matplotlib.collections.PathCollection
        The rows.
    legend_ : matplotlib.legend.Legend or None
        One entry for each class.
    ax_ : matplotlib.axes.Axes
        The axes of the picture.
    figure_ : matplotlib.figure.Figure
        The figure that contains them.

    See Also
    --------
    DensityDisplay : The log density over one or two features.
    ClusterDisplay : Clusters, their centres and basins.
    sklearn.inspection.DecisionBoundaryDisplay : The decisions of a classifier of two features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import NCA
    >>> from fastmetric.plotting import ProjectionDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2, max_iter=20, tol=1e-2).fit(X, y)
    >>> display = ProjectionDisplay.from_estimator(nca, X, y)
    >>> display.ax_.get_xlabel()
    'nca0'
    """

    def __init__(
        self,
        *,
        Z: np.ndarray,
        y: np.ndarray | None = None,
        classes: np.ndarray | None = None,
        xx0: np.ndarray | None = None,
        xx1: np.ndarray | None = None,
        response: np.ndarray | None = None,
        multiclass_colors: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
    ) -> None:
        self.Z = Z
        self.y = y
        self.classes = classes
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
        components: tuple[int, int] = (0, 1),
        response_method: str | None = "auto",
        grid_resolution: int = 150,
        eps: float | None = None,
        subsample: Any = 10_000,
        random_state: Any = None,
        multiclass_colors: Any = None,
        xlabel: str | None = None,
        ylabel: str | None = None,
        ax: Any = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> ProjectionDisplay:
        """Draw rows under the map of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            A fitted transformer; or a pipeline of transformers and, at its end, a classifier. Where
            two components are all that a classifier sees, the regions of its classes are drawn.
        X : array-like of shape (n_samples, n_features)
            The rows to draw, in the features of the estimator.
        y : array-like of shape (n_samples,), default=None
            Their labels, for the colours.
        components : tuple of two int, default=(0, 1)
            Which components to draw. With any others than all there are, no region is drawn.
        response_method : {"auto", "predict_proba", "predict"} or None, default="auto"
            What to draw as regions: probabilities, paler where classes mix, or the most probable
            class. "auto": the first that the estimator has; none, if it has neither, or if more
            than the two components decide. None: no regions.
        grid_resolution : int, default=150
            Places along each axis at which a class is predicted.
        eps : float, default=None
            How far the picture extends beyond the rows, in units of the components; None: a
            twentieth of their range.
        subsample : int, float or None, default=10_000
            How many rows, or what share of them, to draw, at random; None: all.
        random_state : int, RandomState instance or None, default=None
            Determines the rows that are drawn, if not all.
        multiclass_colors : str or list of colours, default=None
            A colour for each class, or the name of a colour map of matplotlib.
        xlabel, ylabel : str, default=None
            The labels of the axes; None: the names of the components.
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.

        Returns
        -------
        display : ProjectionDisplay
            The picture, with what it was drawn from.
        """
        canvas.matplotlib_or_error()
        check_is_fitted(estimator)
        if response_method is not None:
            _validate.choice("response_method", response_method, _RESPONSES)
        _validate.integer("grid_resolution", grid_resolution, 2)
        if eps is not None:
            _validate.number("eps", eps)
        plane = _plane_of(estimator)
        Z = np.asarray(plane.transform(X))
        if Z.ndim != 2 or Z.shape[1] < 2:
            raise ValueError(
                "estimator should project rows to at least two components; its transform returns "
                f"an array of shape {Z.shape}. Fit it with n_components=2."
            )
        pair = canvas.columns("components", components, Z.shape[1])
        whole = Z.shape[1] == 2 and pair == (0, 1)
        labels = None if y is None else canvas.labels_beside("y", y, len(Z))
        rows = canvas.drawn_rows(subsample, random_state, len(Z))
        low, high = canvas.limits(Z[:, pair], eps, 0.05)
        xx0, xx1 = canvas.plane(low, high, grid_resolution)
        response = _response(plane, (xx0, xx1), response_method, whole)
        classes = None if labels is None else np.unique(labels)
        if response is not None:
            classes = _known(plane.classifier.classes_, classes)
        names = _names(estimator, Z.shape[1])
        display = cls(
            Z=Z[rows][:, pair],
            y=None if labels is None else labels[rows],
            classes=classes,
            xx0=xx0,
            xx1=xx1,
            response=response,
            multiclass_colors=multiclass_colors,
            xlabel=names[pair[0]] if xlabel is None else xlabel,
            ylabel=names[pair[1]] if ylabel is None else ylabel,
        )
        return display.plot(ax=ax, scatter_kwargs=scatter_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        scatter_kwargs: dict[str, Any] | None = None,
        legend: bool = True,
    ) -> ProjectionDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        scatter_kwargs : dict, default=None
            Passed to matplotlib's ``scatter`` for the rows.
        legend : bool, default=True
            Whether to name the classes, right of the axes.

        Returns
        -------
        self : ProjectionDisplay
            The display, with `ax_`, `figure_` and the artists.
        """
        _validate.flag("legend", legend)
        style: dict[str, Any] = {"s": 16, "linewidths": 0.4, "edgecolors": "white"}
        classes = self.classes
        if classes is None and self.y is not None:
            classes = np.unique(self.y)
        canvas.matplotlib_or_error()
        colors = None
        style["color"] = "0.35"
        if classes is not None:
            colors = canvas.class_colors(len(classes), self.multiclass_colors)
            if self.y is not None:
                style["color"] = colors[np.searchsorted(classes, self.y)]
        style = canvas.options("scatter_kwargs", scatter_kwargs, style)
        ax = canvas.axes_or_new(ax)
        self.surface_ = None
        if self.response is not None:
            self.surface_ = canvas.draw_regions(ax, (self.xx0, self.xx1), self.response, colors)
        self.scatter_ = ax.scatter(*self.Z.T, **style)
        self.legend_ = None
        if legend and classes is not None:
            self.legend_ = _legend(ax, classes, colors)
        if self.xlabel is not None:
            ax.set_xlabel(self.xlabel)
        if self.ylabel is not None:
            ax.set_ylabel(self.ylabel)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _plane_of(estimator: Any) -> _Plane:
    """Return the map of an estimator, or of a pipeline, and the classifier that follows it."""
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    last = steps[-1]
    if len(steps) > 1 and not hasattr(last, "transform") and hasattr(last, "predict"):
        return _Plane(estimator[:-1].transform, last, lambda places: places)
    if not hasattr(estimator, "transform"):
        raise ValueError(
            "estimator should have the method transform, or be a pipeline of transformers and a "
            f"classifier; got {shown(estimator)}."
        )
    components = np.asarray(getattr(last, "components_", np.empty(0)))
    if not hasattr(last, "predict") or components.ndim != 2:
        return _Plane(estimator.transform, None, lambda places: places)
    back = np.linalg.pinv(components).astype(components.dtype)

    def rows_at(places: np.ndarray) -> np.ndarray:
        return places.astype(components.dtype) @ back.T

    return _Plane(estimator.transform, _Behind(last), rows_at)


class _Behind:
    """A classifier that projects by itself, asked for rows that it projects to given places."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._estimator, name)

    def reaches(self, rows: np.ndarray, places: np.ndarray) -> bool:
        """Return whether the rows are projected to the places."""
        error = np.abs(np.asarray(self._estimator.transform(rows)) - places).max()
        return bool(error <= _ROUND_TRIP * np.abs(places).max())


def _response(plane: _Plane, grid: Any, method: str | None, whole: bool) -> np.ndarray | None:
    """Return the probability of each class at the places of a grid; None: no regions."""
    if method is None:
        return None
    classifier = plane.classifier
    why = ""
    if not whole:
        why = "the classes depend on more than two components, or on these in another order"
    elif classifier is None or not hasattr(classifier, "classes_"):
        why = "the estimator does not classify"
    elif method != "auto" and not hasattr(classifier, method):
        why = f"the estimator has no {method}"
    if not why:
        places = np.column_stack([side.ravel() for side in grid])
        rows = plane.rows_at(places)
        if isinstance(classifier, _Behind) and not classifier.reaches(rows, places):
            why = "the map does not reach every place of the plane"
    if why and method == "auto":
        return None
    if why:
        raise ValueError(f"response_method={method!r}, but {why}; choose None for no regions.")
    n = len(classifier.classes_)
    if method != "predict" and hasattr(classifier, "predict_proba"):
        return np.asarray(classifier.predict_proba(rows)).reshape(*grid[0].shape, n)
    return canvas.shares_of(classifier.predict(rows).reshape(grid[0].shape), classifier.classes_)


def _known(classes: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
    """Return the classes of the classifier; raise if rows have labels that are not among them."""
    known = set(classes.tolist())
    strangers = [] if labels is None else [one for one in labels.tolist() if one not in known]
    if strangers:
        raise ValueError(
            f"y should hold labels that the estimator was fitted to; got {shown(strangers[:6])} "
            "beside them. For the rows without regions choose response_method=None."
        )
    return classes


def _names(estimator: Any, n: int) -> list[str]:
    """Return the names of the components."""
    if hasattr(estimator, "get_feature_names_out"):
        try:
            names = list(map(str, estimator.get_feature_names_out()))
        except (AttributeError, ValueError, NotImplementedError):
            names = []  # a pipeline that ends in a classifier, or a step without names
        if len(names) == n:
            return names
    return [f"component {k}" for k in range(n)]


def _legend(ax: Any, classes: np.ndarray, colors: Any) -> Any:
    """Name the classes right of the axes."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", color=color, label=str(name))
        for name, color in zip(classes, colors, strict=True)
    ]
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    return ax.legend(handles=handles, frameon=False, ncols=1 + len(handles) // 21, **place)
