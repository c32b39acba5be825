"""Files of models for the command line: .skops, or joblib's for one's own use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import joblib

from fastmetric import persistence
from fastmetric.cli.files.columns import Known
from fastmetric.cli.files.text_tables import TableError

_PICKLES = (".joblib", ".pkl", ".pickle")


class Model(NamedTuple):
    """An estimator, or a pipeline that ends in one, and what is known of its table."""

    estimator: Any
    known: Known
    from_python: bool = False  # fitted to no table of the command line

    @property
    def last(self) -> Any:
        """Return the estimator itself, without the preparation of its table."""
        return final_estimator(self.estimator)


def final_estimator(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator."""
    steps = getattr(estimator, "steps", None)
    return steps[-1][1] if steps else estimator


def write_model(path: Path, model: Model) -> None:
    """Write a model as the suffix says."""
    table = model.known._asdict()
    if path.suffix == ".skops":
        persistence.write(model.estimator, path, table)
    else:
        joblib.dump({"model": model.estimator, **table}, path)


def read_model(path: Path, trust: bool) -> Model:
    """Return the model in a file; a pickle only if its code is trusted."""
    if path.is_dir():
        raise TableError(f"{path}: a folder; a model was expected")
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
        return Model(saved["model"], _known(saved, saved["model"]))
    except Exception as error:
        raise TableError(f"{path} is not a model saved by `fastmetric fit`") from error


def _from_skops(path: Path) -> Model:
    """Return the model in a .skops file, also in one that was saved in Python."""
    estimator, notes = persistence.read(path)
    if "target" in notes:
        return Model(estimator, _known(notes, estimator))
    names = getattr(estimator, "feature_names_in_", None)
    notes = {"features": None if names is None else list(map(str, names)), "target": ""}
    return Model(estimator, _known(notes, estimator), from_python=True)


def _known(notes: dict[str, Any], estimator: Any) -> Known:
    """Return what a file says of the table; files of earlier versions say less."""
    return Known(
        notes["features"],
        notes["target"],
        list(notes.get("ids", [])),
        list(notes.get("categories", [])),
        bool(notes.get("impute", False)),
        getattr(estimator, "n_features_in_", None),
    )
