"""A classifier of one coincidence model per class, between its mean and all rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from fastmetric import _validate, engine
from fastmetric._typing import BaseEstimator, ClassifierMixin
from fastmetric.learn.coincidence import class_means
from fastmetric.learn.coincidence.likelihood_solvers import SOLVERS
from fastmetric.learn.optim.outcome import say, warn_not_converged
from fastmetric.learn.rows import as_rows


class LatentCoincidenceClassifier(ClassifierMixin, BaseEstimator):
    """One model of Latent Coincidence Analysis per class, between its mean and all rows.

    The model of a class learns a map to few dimensions in which the rows of the class coincide
    with its mean, and all other rows do not. A new row is given the class whose mean it coincides
    with most probably.

    Parameters
    ----------
    n_components : int
        Dimension of the latent spaces, at most the number of features.
    solver : {"lbfgs", "em"}, default="lbfgs"
        "lbfgs": L-BFGS on the likelihood. "em": EM, which takes many more steps.
    max_iter : int, default=100
        Largest number of iterations, for each class.
    tol : float, default=1e-3
        The run ends when an iteration raises the mean log-likelihood by less; for L-BFGS also when
        its gradient is smaller. With many features it keeps the models from over-fitting: classes
        that can be separated from the rest without error have no finite maximum.
    verbose : int, default=0
        1: one line per class.
    n_jobs : int or None, default=None
        Number of threads, which share the rows of one class after the other. None: all cores in
        the main process, one inside a worker process of joblib, multiprocessing or Dask; -1: all
        cores, -2: all but one. The result does not depend on it.

    Attributes
    ----------
    components_ : ndarray of shape (n_classes, n_components, n_features)
        The map of each class.
    noise_variances_ : ndarray of shape (n_classes,)
        sigma^2 of each class, in units in which kappa = 1.
    means_ : ndarray of shape (n_classes, n_features)
        The mean of each class.
    log_likelihoods_ : ndarray of shape (n_classes,)
        The sum over all rows, for each class.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    n_iter_ : int
        The largest number of iterations of a class.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had names that are all strings.

    See Also
    --------
    LatentCoincidenceAnalysis : One map, from pairs or for neighbours.
    DensityClassifier : Bayes' rule over one density per class.

    References
    ----------
    M. Der, L. K. Saul: Latent Coincidence Analysis: A Hidden Variable Model for Distance Metric
    Learning, NIPS 2012, section 3.1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastmetric import LatentCoincidenceClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> LatentCoincidenceClassifier(n_components=2).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["lbfgs", "em"] = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-3,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> LatentCoincidenceClassifier:
        """Learn one map per class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, at least two rows.
        y : array-like of shape (n_samples,)
            The class of each row, at least two classes.

        Returns
        -------
        self : LatentCoincidenceClassifier
            The fitted estimator.
        """
        with _validate.unchanged_on_error(self), engine.one_thread_blas():
            _validate.choice("solver", self.solver, tuple(SOLVERS))
            max_iter = _validate.integer("max_iter", self.max_iter, 1)
            tol = _validate.number("tol", self.tol)
            _validate.verbosity(self.verbose)
            _validate.jobs(self.n_jobs)
            X, self.classes_, y = _validate.training_data(self, X, y)
            _validate.squarable(X, "X")
            p = _validate.integer("n_components", self.n_components, 1, X.shape[1])
            settings = class_means.Settings(self.solver, max_iter, tol)
            models, rows = [], as_rows(X, self.n_jobs)
            for fitted in class_means.fit_classes(rows, y, p, settings):
                models.append(fitted)
                if self.verbose:
                    name, value = self.classes_[len(models) - 1], fitted.model.log_likelihood
                    say(
                        "LatentCoincidenceClassifier",
                        f"{name!r}: {fitted.n_iter} iterations, log-likelihood {value:.6g}",
                    )
            self.components_ = np.stack([one.model.W for one in models]).astype(X.dtype)
            self.means_ = np.stack([one.mean for one in models])
            self.noise_variances_ = np.array([one.model.noise for one in models])
            self.log_likelihoods_ = np.array([one.model.log_likelihood for one in models])
            self.n_iter_ = max(one.n_iter for one in models)
        slow = [name for name, one in zip(self.classes_, models, strict=True) if not one.converged]
        if slow:
            warn_not_converged(
                f"LatentCoincidenceClassifier has not converged after {self.max_iter} iterations "
                f"for {len(slow)} of {len(models)} classes. Raise max_iter or tol."
            )
        return self

    def predict_log_coincidence(self, X: Any) -> np.ndarray:
        """Return the logs of the probabilities that rows coincide with the means, eq. (22).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        L : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; each is a probability by itself, they need not add up to 1.
        """
        check_is_fitted(self)
        X = _validate.query_data(self, X)
        models = self.components_, self.means_, self.noise_variances_
        return class_means.log_coincidences(as_rows(X, self.n_jobs), *models)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of coinciding with each mean, scaled to add up to one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        P : ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; equal for a row so far from every mean that
            all of them underflow.
        """
        logs = self.predict_log_coincidence(X)
        logs[np.isneginf(logs).all(axis=1)] = 0
        return softmax(logs, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class whose mean each row coincides with most probably.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Members of `classes_`.
        """
        numbers = self.predict_log_coincidence(X).argmax(axis=1)
        return self.classes_[numbers]
