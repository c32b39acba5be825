"""Checks of parameters given by users: choices, numbers, shares, tolerances."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

FLOATS = (np.float64, np.float32)

# Of two weights: beyond, a product with a kernel leaves the precision.
_LARGEST_RATIO = {np.dtype(np.float64): 1e290, np.dtype(np.float32): 1e30}
_LEAST_PRIOR = 1e-250  # of their sum: below, one over a compact kernel's sum may overflow


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Return `value`, one of the strings `options`."""
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={value!r} is not known; choose from {known}.")
    return value


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an integer parameter within its range."""
    fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not fits or value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} should be an integer, {wanted}; got {value!r}.")
    return int(value)


def number(name: str, value: Any, least: float = 0.0) -> float:
    """Return a finite number of at least `least`."""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not fits or not np.isfinite(value) or value < least:
        raise ValueError(f"{name} should be a finite number, at least {least}; got {value!r}.")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Return a finite number above 0, with a finite inverse."""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not fits or not np.finfo(np.float64).tiny <= value < np.inf:
        raise ValueError(f"{name} should be a finite number above 0; got {value!r}.")
    return float(value)


def tolerances(rtol: Any, atol: Any) -> None:
    """Raise on a tolerance out of range."""
    if number("rtol", rtol) >= 1:
        raise ValueError(f"rtol should be less than 1; got {rtol!r}.")
    number("atol", atol)


def flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} should be True or False; got {value!r}.")
    return bool(value)


def share(name: str, value: Any) -> float:
    """Return a number between 0 and 1, neither of them."""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not fits or not 0 < value < 1:
        raise ValueError(f"{name} should be a number between 0 and 1, not 0 or 1; got {value!r}.")
    return float(value)


def background(value: Any) -> None:
    """Raise if this is not a valid background."""
    if isinstance(value, str):
        choice("background", value, ("learn",))
    elif not isinstance(value, bool | np.bool_):
        share("background", value)


def sample_size(name: str, value: Any, n: int) -> int:
    """Return a number of rows from 2 to n, given as such or as a share of n."""
    if isinstance(value, numbers.Integral):
        return integer(name, value, 2, n)
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not fits or not 0 < float(value) <= 1:
        raise ValueError(
            f"{name} should be a number of rows from 2 to {n}, or a share of them (a float, more "
            f"than 0, at most 1.0); got {value!r}."
        )
    return max(2, round(float(value) * n))


def priors(value: Any, n_classes: int) -> np.ndarray | None:
    """Return priors (C,) that add up to 1, or None."""
    if value is None:
        return None
    if isinstance(value, str):
        choice("priors", value, ("equal",))
        return np.full(n_classes, 1 / n_classes)
    given = np.empty(0)  # a number is none of them
    if np.ndim(value):
        given = check_array(value, dtype=np.float64, ensure_2d=False, input_name="priors")
    with np.errstate(over="ignore"):
        total = given.sum()
    if given.shape != (n_classes,) or not (given > 0).all() or not np.isfinite(total):
        raise ValueError(
            f"priors should be {n_classes} positive numbers, one for each class in sorted order; "
            f"got {value!r}."
        )
    if given.min() < _LEAST_PRIOR * total:
        raise ValueError(
            f"priors={value!r} are too far apart: the smallest should be at least "
            f"{_LEAST_PRIOR:.0e} of their sum. Leave out the rows of a class of negligible prior."
        )
    return given / total


def shares(name: str, value: Any, n_classes: int) -> np.ndarray | None:
    """Return numbers between 0 and 1, one per class (C,), from such or from one; or None."""
    if value is None:
        return None
    if isinstance(value, numbers.Real):
        return np.full(n_classes, share(name, value))
    given = check_array(value, dtype=np.float64, ensure_2d=False, input_name=name)
    if given.shape != (n_classes,) or not ((given > 0) & (given < 1)).all():
        raise ValueError(
            f"{name} should be a number between 0 and 1, not 0 or 1, or {n_classes} of them, one "
            f"for each class in sorted order; got {value!r}."
        )
    return given


def jobs(n_jobs: Any) -> int | None:
    """Return a number of threads: None, or an integer other than 0."""
    if n_jobs is None:
        return None
    if not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise ValueError(
            f"n_jobs should be None, a number of threads, or -1 for all cores; got {n_jobs!r}."
        )
    return int(n_jobs)
