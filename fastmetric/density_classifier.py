"""Bayes' rule over one density per class."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate
from fastmetric._typing import BaseEstimator, ClassifierMixin, Vector


class DensityClassifier(ClassifierMixin, BaseEstimator):
    """A classifier from a density estimator: one density per class, and Bayes' rule.

    The posterior of class c at x is proportional to its prior times its density, p(x | c) P(c).

    Parameters
    ----------
    estimator : object
        Any estimator with `fit(X)` and `score_samples(X)`, which returns log densities:
        :class:`KernelDensity`, :class:`ManifoldParzen`, scikit-learn's `GaussianMixture`. Cloned
        for every class, and left as it is.
    priors : None, "equal" or array-like of shape (n_classes,), default=None
        The P(c): the shares of the classes in `y`, all the same, or positive numbers in the order
        of the sorted classes, which are scaled to add up to 1.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    estimators_ : list of length n_classes
        The fitted density of each class.
    priors_ : ndarray of shape (n_classes,)
        The priors in use.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    KernelDensity : A density from kernels.
    ManifoldParzen : A density whose kernels lie along the data.
    LatentCoincidenceClassifier : One map per class.
    sklearn.naive_bayes.GaussianNB : One normal density per class and feature.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import DensityClassifier, ManifoldParzen
    >>> X, y = load_iris(return_X_y=True)
    >>> density = ManifoldParzen(2, n_neighbors=10, noise_variance=0.05)
    >>> model = DensityClassifier(density).fit(X[::2], y[::2])
    >>> model.predict_proba(X[1:2]).round(2)
    array([[1., 0., 0.]])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    def __init__(self, estimator: Any, *, priors: Literal["equal"] | Vector | None = None) -> None:
        self.estimator = estimator
        self.priors = priors

    def fit(self, X: Any, y: Any) -> DensityClassifier:
        """Fit a density to the rows of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,)
            The class of each row, at least two of them.

        Returns
        -------
        self : DensityClassifier
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self):
            methods = ("fit", "score_samples", "get_params")
            lacking = [name for name in methods if not hasattr(self.estimator, name)]
            if lacking or isinstance(self.estimator, type):
                what = f"has no {lacking[0]}" if lacking else "is a class"
                raise TypeError(
                    f"estimator={_validate.shown(self.estimator)} {what}. Give a density "
                    "estimator, such as KernelDensity()."
                )
            X, classes, y = _validate.training_data(self, X, y)
            given = _validate.priors(self.priors, len(classes))
            self.priors_ = np.bincount(y) / len(y) if given is None else given
            self.estimators_ = [self._fitted(X[y == c], classes[c]) for c in range(len(classes))]
            self.classes_ = classes
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logs of the class posteriors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. A row where all densities are zero is given the priors.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        columns = [density.score_samples(X) for density in self.estimators_]
        joint = np.stack(columns, axis=1).astype(np.float64) + np.log(self.priors_)
        joint[np.isneginf(joint).all(axis=1)] = np.log(self.priors_)
        return joint - logsumexp(joint, axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class posteriors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of largest posterior for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The classes.
        """
        best = np.argmax(self.predict_log_proba(X), axis=1)
        return self.classes_[best]

    def _fitted(self, X: np.ndarray, name: Any) -> Any:
        """Return a density fitted to the rows of one class."""
        try:
            return clone(self.estimator).fit(X)
        except Exception as error:
            error.add_note(f"This was raised by the density of class {name!r}, {len(X)} rows.")
            raise
