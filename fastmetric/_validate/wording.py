"""How errors speak of a parameter: its name, what was given, and what was expected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LONGEST = 80  # characters of a value in a message
_SMALL = 6  # entries of an array that is shown entry by entry


def shown(value: Any) -> str:
    """Return a value on one short line."""
    if isinstance(value, np.ndarray) and value.size > _SMALL:
        return f"an array of shape {value.shape}, {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of more digits than Python prints, or a failing __repr__
        return f"an object of type {type(value).__name__}"
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}... ({type(value).__name__}, {len(text)} characters)"


@contextmanager
def named(name: str, wanted: str) -> Iterator[None]:
    """Make errors of NumPy and scikit-learn in the body say that `name` should be `wanted`."""
    try:
        yield
    except OverflowError as error:
        raise ValueError(
            f"{name} should be {wanted}. It holds an integer beyond the range of float64, about "
            "1.8e308: scale it down."
        ) from error
    except (ValueError, TypeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name} should be {wanted}. {error}") from error
