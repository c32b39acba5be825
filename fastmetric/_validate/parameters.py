"""Checks of parameters given by users: choices, numbers, shares, tolerances."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from fastmetric._validate.arrays import numeric_array
from fastmetric._validate.wording import shown
from fastmetric.core.lattice.stencils import AXES

_LEAST_PRIOR = 1e-250  # of their sum: below, one over a compact kernel's sum may overflow
_MOST = 2**63 - 1  # compiled code counts in 64 bits


def is_integer(value: Any) -> bool:
    """Return whether this is an integer of Python or NumPy; True, False and durations are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.timedelta64)


def real(value: Any) -> float | None:
    """Return a real number as a float, infinite if it is beyond float64; None for all else.

    NumPy's numbers are such numbers; True, False and durations are none.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.timedelta64):
        return None
    given: Any = value
    try:
        return float(given)
    except OverflowError:
        return math.inf if given > 0 else -math.inf


def plain(value: Any) -> Any:
    """Return a number as Python's, and all else as it is.

    NumPy's small integers wrap around in products, and integers beyond 64 bits make arrays of
    objects: these become floats.
    """
    if is_integer(value) and abs(int(value)) <= _MOST:
        return int(value)
    given = real(value)
    return value if given is None else given


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Return `value`, one of the strings `options`."""
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={shown(value)} is not known; choose from {known}.")
    return value


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an integer parameter within its range."""
    fits = is_integer(value)
    if not fits or not least <= value <= (_MOST if most is None else most):
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
        if most is None and fits and value > _MOST:
            wanted += " and less than 2**63"
        raise ValueError(f"{name} should be an integer, {wanted}; got {shown(value)}.")
    return int(value)


def number(name: str, value: Any, least: float = 0.0) -> float:
    """Return a finite number of at least `least`."""
    given = real(value)
    if given is None or not least <= given < math.inf:
        raise ValueError(f"{name} should be a finite number, at least {least}; got {shown(value)}.")
    return given


def positive(name: str, value: Any) -> float:
    """Return a finite number above 0, with a finite inverse."""
    given = real(value)
    if given is None or not np.finfo(np.float64).tiny <= given < math.inf:
        raise ValueError(f"{name} should be a finite number above 0; got {shown(value)}.")
    return given


def integer_or_auto(name: str, value: Any, least: int) -> None:
    """Raise if this is neither "auto" nor an integer of at least `least`."""
    if not (isinstance(value, str) and value == "auto"):
        if not is_integer(value):
            raise ValueError(
                f"{name} should be 'auto' or an integer, at least {least}; got {shown(value)}."
            )
        integer(name, value, least)


def tolerance_or_auto(name: str, value: Any) -> None:
    """Raise if this is neither "auto" nor a tolerance below 1."""
    if isinstance(value, str):
        choice(name, value, ("auto",))
    else:
        tolerances(value, 0.0)


def tolerances(rtol: Any, atol: Any) -> tuple[float, float]:
    """Return a relative tolerance below 1 and an absolute one."""
    if not (given := number("rtol", rtol)) < 1:
        raise ValueError(f"rtol should be less than 1; got {shown(rtol)}.")
    return given, number("atol", atol)


def grid(method: str, kernel: str, rtol: Any) -> None:
    """Raise if method="grid" cannot sum this kernel, or without a tolerance."""
    if method == "grid" and kernel != "gaussian":
        raise ValueError(
            f"method='grid' sums Gaussians, but kernel={kernel!r}. Take kernel='gaussian', or "
            "method='auto'."
        )
    if method == "grid" and rtol == 0:
        raise ValueError(
            "method='grid' approximates, but rtol=0.0 asks for exact sums. Give a tolerance, for "
            "example rtol=1e-3, or take method='auto'."
        )


def grid_dimensions(method: str, d: int, given: str) -> None:
    """Raise where a lattice has too many dimensions; `given` says what has that many."""
    if method == "grid" and d > AXES:
        raise ValueError(
            f"method='grid' sums in at most {AXES} dimensions, but {given}. Take method='auto'."
        )


def flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} should be True or False; got {shown(value)}.")
    return bool(value)


def verbosity(value: Any) -> None:
    """Raise if this is no level of printing."""
    if not isinstance(value, bool | np.bool_):
        integer("verbose", value, 0)


def random_state(value: Any) -> np.random.RandomState:
    """Return a generator of random numbers from None, a seed or a generator."""
    try:
        if isinstance(value, bool | np.bool_ | np.timedelta64):
            raise ValueError
        return check_random_state(value)
    except (ValueError, TypeError, OverflowError) as error:
        advice = ""
        if isinstance(value, np.random.Generator):
            advice = " Of a Generator rng, give rng.integers(2**32)."
        raise ValueError(
            "random_state should be None, an integer from 0 to 2**32 - 1, or a "
            f"numpy.random.RandomState; got {shown(value)}.{advice}"
        ) from error


def share(name: str, value: Any) -> float:
    """Return a number between 0 and 1, neither of them."""
    given = real(value)
    if given is None or not 0 < given < 1:
        raise ValueError(
            f"{name} should be a number between 0 and 1, not 0 or 1; got {shown(value)}."
        )
    return given


def background(value: Any) -> None:
    """Raise if this is not a valid background."""
    if isinstance(value, str):
        choice("background", value, ("learn",))
    elif not isinstance(value, bool | np.bool_):
        if real(value) is None:
            raise ValueError(
                "background should be True, False, a number between 0 and 1, or 'learn'; got "
                f"{shown(value)}."
            )
        share("background", value)


def sample_size(name: str, value: Any, n: int) -> int:
    """Return a number of rows from 2 to n, given as such or as a share of n."""
    if is_integer(value):
        return integer(name, value, 2, n)
    given = real(value)
    if given is None or not 0 < given <= 1:
        raise ValueError(
            f"{name} should be a number of rows from 2 to {n}, or a share of them (a float, more "
            f"than 0, at most 1.0); got {shown(value)}."
        )
    return max(2, round(given * n))


def priors(value: Any, n_classes: int) -> np.ndarray | None:
    """Return priors (C,) that add up to 1, or None."""
    if value is None:
        return None
    if isinstance(value, str):
        choice("priors", value, ("equal",))
        return np.full(n_classes, 1 / n_classes)
    wanted = f"{n_classes} positive numbers, one for each class in sorted order"
    given = numeric_array("priors", value, wanted)
    with np.errstate(over="ignore"):
        total = given.sum()
    if given.shape != (n_classes,) or not (given > 0).all() or not np.isfinite(total):
        raise ValueError(f"priors should be {wanted}; got {shown(value)}.")
    if given.min() < _LEAST_PRIOR * total:
        raise ValueError(
            f"priors={shown(value)} are too far apart: the smallest should be at least "
            f"{_LEAST_PRIOR:.0e} of their sum. Leave out the rows of a class of negligible prior."
        )
    return given / total


def shares(name: str, value: Any, n_classes: int) -> np.ndarray | None:
    """Return numbers between 0 and 1, one per class (C,), from such or from one; or None."""
    if value is None:
        return None
    if real(value) is not None:
        return np.full(n_classes, share(name, value))
    wanted = (
        f"a number between 0 and 1, not 0 or 1, or {n_classes} of them, one for each class in "
        "sorted order"
    )
    given = numeric_array(name, value, wanted)
    if given.shape != (n_classes,) or not ((given > 0) & (given < 1)).all():
        raise ValueError(f"{name} should be {wanted}; got {shown(value)}.")
    return given


def jobs(n_jobs: Any) -> int | None:
    """Return a number of threads: None, or an integer other than 0."""
    if n_jobs is None:
        return None
    if not is_integer(n_jobs) or n_jobs == 0 or abs(int(n_jobs)) > _MOST:
        raise ValueError(
            f"n_jobs should be None, a number of threads, or -1 for all cores; got {shown(n_jobs)}."
        )
    return int(n_jobs)


def callback(value: Any) -> None:
    """Raise if this is neither None nor a function."""
    if value is not None and not callable(value):
        raise ValueError(f"callback should be callable or None; got {shown(value)}.")
