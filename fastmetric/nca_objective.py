"""The objective of Neighbourhood Components Analysis, as a function."""

from __future__ import annotations

from typing import Any, Literal

from fastmetric import _validate
from fastmetric._typing import SmoothKernel, SumMethod, Vector
from fastmetric.learn.kernel_table import SMOOTH
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.pair_sums.ways import METHODS
from fastmetric.learn.rows import as_rows


def nca_value_and_grad(
    A: Any,
    X: Any,
    y: Any,
    *,
    kernel: SmoothKernel = "gaussian",
    background: bool = False,
    beta: float | Vector | None = None,
    priors: Literal["equal"] | Vector | None = None,
    rows: Any = None,
    method: SumMethod = "exact",
    rtol: float = 0.0,
    n_jobs: int | None = None,
    return_bound: bool = False,
) -> tuple[Any, ...]:
    """Return the NCA objective sum_i P_i and its gradient with respect to A.

    P_i is the probability that row i, choosing another row j with probability proportional to
    k(|A x_i - A x_j|^2), chooses one of its own class. With `priors` or a `background` it is the
    posterior of the own class under a density for each class.

    Parameters
    ----------
    A : array-like of shape (n_components, n_features)
        The linear map.
    X : array-like of shape (n_samples, n_features)
        The data. float32 is computed in float32, with sums in float64; all else in float64.
    y : array-like of shape (n_samples,)
        The class of each row.
    kernel : {"gaussian", "biweight"}, default="gaussian"
        The kernel of the squared distance s: exp(-s), or (1 - s)^2 up to s = 1 and 0 beyond.
    background : bool, default=False
        Whether each class has a share of a normal density, too, with the mean and covariance of
        its projected rows.
    beta : float or array-like of shape (n_classes,), default=None
        The share of the background, between 0 and 1; None: 1 / (N_c + 1) for a class of N_c rows.
    priors : {"equal"} or array-like of shape (n_classes,), default=None
        Prior probabilities of the classes, in sorted order; only their ratios matter. None:
        classic NCA, where every row counts the same (with a background: the sizes of the
        classes).
    rows : array-like of int, default=None
        The rows i to sum over, each against all rows j; None: all. A row given twice counts
        twice.
    method : {"exact", "tree", "grid", "auto"}, default="exact"
        How sums over pairs are computed: all pairs, or over k-d trees of the projected classes
        with certified error; with the biweight in up to three dimensions, over the pairs within
        the cutoff. "grid" spreads the rows of each class onto a lattice, for the Gaussian in at
        most three dimensions and a positive `rtol`: the time is linear in the rows. "auto" takes
        the fastest.
    rtol : float, default=0.0
        The relative error that a tree may make in each class sum of Gaussians, which changes a
        P_i by about rtol / 2 at most. By a grid, every P_i is within rtol / 2; with a background,
        each class sum within rtol. Sums of the biweight kernel are exact.
    n_jobs : int or None, default=None
        Number of threads; None: all cores (one inside a worker process), -1: all cores. The
        result does not depend on it, to the last bit.
    return_bound : bool, default=False
        Whether to return a certified bound of the value's error, too.

    Returns
    -------
    value : float
        The sum of P_i over `rows`, not rescaled.
    gradient : ndarray of shape (n_components, n_features)
        Its derivative with respect to `A`, float64. It has no certificate.
    bound : float
        Only with `return_bound`: the exact objective of the numbers `A` and `X` is within `bound`
        of `value`; rounding is included, that of a background aside.

    See Also
    --------
    NCA : The estimator that maximises it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastmetric import nca_value_and_grad
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), [0, 0, 1]
    >>> value, gradient = nca_value_and_grad(np.eye(1), X, y)
    >>> round(value, 6), gradient.round(6)
    (1.952239, array([[0.276424]]))
    """
    _validate.choice("kernel", kernel, SMOOTH)
    _validate.choice("method", method, METHODS)
    rtol, _ = _validate.tolerances(rtol, 0.0)
    _validate.flag("background", background)
    _validate.flag("return_bound", return_bound)
    n_jobs = _validate.jobs(n_jobs)
    X, y = _validate.labelled_arrays(X, y)
    n_classes = int(y.max()) + 1
    A = _validate.transformation(A, X.shape[1])
    _validate.grid(method, kernel, rtol)
    _validate.grid_dimensions(method, len(A), f"A has {len(A)} rows")
    rows = None if rows is None else _validate.row_indices(rows, len(X))
    priors = _validate.priors(priors, n_classes)
    if beta is not None and not background:
        raise ValueError(
            f"beta={_validate.shown(beta)} is the share of a background; give background=True, too."
        )
    mixture = Mixture(kernel, priors, background, _validate.shares("beta", beta, n_classes))
    problem = Objective(as_rows(X, n_jobs), y, mixture=mixture, method=method, rtol=rtol)
    found = problem.evaluate(A, rows, certified=return_bound)
    if return_bound:
        return found.value, found.gradient, found.error_bound
    return found.value, found.gradient
