"""How a fit converged: what it recorded of every iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate
from fastmetric._validate import shown
from fastmetric.plotting import canvas

# What a fit maximises, in the order of preference; with it what is measured in the same units.
_MAXIMISED = {"objective": ("validation",), "log_likelihood": ()}
_TIMES = ("iteration", "seconds", "evaluations")
_WIDE = 100.0  # the ratio of figures from which a logarithmic axis shows more


class HistoryDisplay:
    """The figures that a fit recorded, by iteration, time or evaluations.

    Make one with :meth:`from_estimator`. All parameters are stored as attributes.

    Parameters
    ----------
    history : dict of ndarray
        The figures to draw, each under its name, one for every entry of `steps`.
    steps : ndarray of shape (n_steps,)
        Iterations from the start, 0, on; or seconds; or evaluations.
    steps_label : str, default="iteration"
        What they are.

    Attributes
    ----------
    lines_ : list of matplotlib.lines.Line2D
        One for each figure.
    legend_ : matplotlib.legend.Legend or None
        Their names, if there are several.
    ax_ : matplotlib.axes.Axes
        The axes of the picture.
    figure_ : matplotlib.figure.Figure
        The figure that contains them.

    See Also
    --------
    ProjectionDisplay : Rows in the plane of a learnt map.
    sklearn.model_selection.LearningCurveDisplay : Scores by the number of training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import NCA
    >>> from fastmetric.plotting import HistoryDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2, max_iter=20, tol=1e-2).fit(X, y)
    >>> display = HistoryDisplay.from_estimator(nca)
    >>> display.ax_.get_ylabel()
    'objective'
    """

    def __init__(
        self, *, history: dict[str, np.ndarray], steps: np.ndarray, steps_label: str = "iteration"
    ) -> None:
        self.history = history
        self.steps = steps
        self.steps_label = steps_label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        names: Any = None,
        steps: str = "iteration",
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> HistoryDisplay:
        """Draw what a fitted estimator recorded in `history_`.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `history_`; or a pipeline that ends in one.
        X, y : None
            Ignored: the figures are those of the fit.
        names : str or list of str, default=None
            The keys of `history_` to draw. None: what the fit maximises, and the same of held-out
            rows if it was recorded.
        steps : {"iteration", "seconds", "evaluations"}, default="iteration"
            By what to draw them.
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        line_kwargs : dict, default=None
            Passed to matplotlib's ``plot``.

        Returns
        -------
        display : HistoryDisplay
            The picture, with what it was drawn from.
        """
        canvas.matplotlib_or_error()
        check_is_fitted(estimator)
        _validate.choice("steps", steps, _TIMES)
        last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
        record = getattr(last, "history_", None)
        if not isinstance(record, dict) or not record:
            raise ValueError(
                "estimator should have recorded its fit in history_, as NCA, "
                f"LocalComponentAnalysis and LatentCoincidenceAnalysis do; got {shown(last)}."
            )
        figures = _chosen(record, names)
        n = len(next(iter(figures.values())))
        if steps == "iteration":
            places = np.arange(n)
        elif steps in record and len(record[steps]) == n:
            places = np.asarray(record[steps])
        else:
            raise ValueError(
                f"steps={steps!r}, but the fit has not recorded {steps}; choose 'iteration'."
            )
        display = cls(history=figures, steps=places, steps_label=steps)
        return display.plot(ax=ax, line_kwargs=line_kwargs)

    def plot(self, ax: Any = None, *, line_kwargs: dict[str, Any] | None = None) -> HistoryDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None: on a new figure.
        line_kwargs : dict, default=None
            Passed to matplotlib's ``plot``.

        Returns
        -------
        self : HistoryDisplay
            The display, with `ax_`, `figure_` and the artists.
        """
        canvas.matplotlib_or_error()
        marker = "o" if len(self.steps) <= 60 else ""
        defaults = {"linewidth": 1.5, "marker": marker, "markersize": 3.5}
        style = canvas.options("line_kwargs", line_kwargs, defaults)
        ax = canvas.axes_or_new(ax)
        self.lines_ = [
            ax.plot(self.steps, figures, **({"label": _words(name)} | style))[0]
            for name, figures in self.history.items()
        ]
        ax.set_xlabel(_words(self.steps_label))
        self.legend_ = None
        if len(self.history) > 1:
            self.legend_ = ax.legend(frameon=False)
        else:
            ax.set_ylabel(_words(next(iter(self.history))))
        everything = np.concatenate(list(self.history.values())).astype(float)
        if everything.min() > 0 and everything.max() > _WIDE * everything.min():
            ax.set_yscale("log")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _chosen(record: dict[str, Any], names: Any) -> dict[str, np.ndarray]:
    """Return the figures to draw, of equal lengths."""
    if names is None:
        main = next((name for name in _MAXIMISED if name in record), next(iter(record)))
        beside = [name for name in _MAXIMISED.get(main, ()) if name in record]
        names = [main, *(name for name in beside if len(record[name]) == len(record[main]))]
    wanted = [names] if isinstance(names, str) else names
    if not isinstance(wanted, list | tuple) or not wanted:
        raise ValueError(f"names should be keys of history_, at least one; got {shown(names)}.")
    for name in wanted:
        _validate.choice("names", name, tuple(record))
    lengths = {len(record[name]) for name in wanted}
    if len(lengths) > 1:
        raise ValueError(
            f"names should have figures of the same iterations; got {shown(wanted)}, with "
            f"{sorted(lengths)} figures. Draw them one by one."
        )
    return {name: np.asarray(record[name]) for name in wanted}


def _words(name: str) -> str:
    """Return a key as a label."""
    return name.replace("_", " ")
