"""Files of models for the command line: .skops, or joblib's for one's own use."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from fastmetric import persistence
from fastmetric.cli.tables import TableError

_PICKLES = (".joblib", ".pkl", ".pickle")


class Model(NamedTuple):
    """An estimator, and what is known of the table that it was fitted to."""

    estimator: Any
    features: list[str] | None  # names of the columns of X; None: the file had no names
    target: str  # the name or number of the column of classes; "": it is not known
    from_python: bool = False  # fitted to no table of the command line


def check_name(path: Path) -> None:
    """Raise if no model can be written to a file of this name: before the fit, not after it."""
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.parent}")
    if path.suffix not in (".skops", ".joblib"):
        raise ValueError(f"--out {path} should end in .skops, or in .joblib for your own use")


def write_model(path: Path, model: Model) -> None:
    """Write a model as the suffix says."""
    table = {"features": model.features, "target": model.target}
    if path.suffix == ".skops":
        persistence.write(model.estimator, path, table)
    else:
        joblib.dump({"model": model.estimator, **table}, path)


def read_model(path: Path, trust: bool) -> Model:
    """Return the model in a file; a pickle only if its code is trusted."""
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.suffix == ".skops":
        return _from_skops(path)
    if path.suffix not in _PICKLES:
        raise TableError(f"{path} is not a model: a .skops file was expected, or a .joblib file")
    if not trust:
        raise TableError(
            f"{path} is a pickle: loading it runs whatever code it names. If it is your own, give "
            "--trust; a model written by `fastmetric fit --out MODEL.skops` needs none"
        )
    try:
        saved = joblib.load(path)
        return Model(saved["model"], saved["features"], saved["target"])
    except Exception as error:
        raise TableError(f"{path} is not a model saved by `fastmetric fit`") from error


def _from_skops(path: Path) -> Model:
    """Return the model in a .skops file, also in one that was saved in Python."""
    estimator, notes = persistence.read(path)
    if not hasattr(estimator, "transform"):
        raise TableError(f"{path} holds {type(estimator).__name__}, which has no transform")
    if "target" in notes:
        return Model(estimator, notes["features"], notes["target"])
    names = getattr(estimator, "feature_names_in_", None)
    return Model(estimator, None if names is None else list(names), "", from_python=True)


def check_columns(model: Model, path: Path, names: list[str] | None) -> None:
    """Raise if a table has other columns than the one that the model was fitted to."""
    if model.from_python and None in (model.features, names):
        return  # rows without names: transform counts the columns
    if model.features != names:
        raise TableError(
            f"{path} has the columns {_listing(names)}; "
            f"the model was fitted on {_listing(model.features)}"
        )


def project(model: Model, X: np.ndarray) -> np.ndarray:
    """Return the rows X (n, D) in the space of the model (n, d)."""
    with warnings.catch_warnings():
        # The names were compared by check_columns.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return model.estimator.transform(X)


def _listing(names: list[str] | None) -> str:
    """Return names for a message."""
    if names is None:
        return "(unnamed)"
    return ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
