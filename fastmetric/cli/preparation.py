"""What is done to a table before an estimator sees it: saved with the model, as a pipeline."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

IMPUTATIONS = ("mean", "median", "most-frequent")


class Preparation(NamedTuple):
    """What to do with missing values, scales and categories."""

    impute: str | None
    scale: bool
    numbers: list[Any]
    categories: list[Any]

    @property
    def is_none(self) -> bool:
        """Return whether the rows are used as they are."""
        return self.impute is None and not self.scale and not self.categories


def prepared(estimator: Any, preparation: Preparation) -> Any:
    """Return a pipeline of the preparation and the estimator; the estimator if there is none."""
    steps = preparation_steps(preparation)
    return Pipeline([*steps, ("estimator", estimator)]) if steps else estimator


def preparation_steps(preparation: Preparation) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline that prepare the rows."""
    if preparation.is_none:
        return []
    numbers: list[tuple[str, Any]] = []
    if preparation.impute is not None:
        numbers.append(("impute", SimpleImputer(strategy=preparation.impute.replace("-", "_"))))
    if preparation.scale:
        numbers.append(("scale", StandardScaler()))
    if not preparation.categories:
        return numbers
    categories: list[tuple[str, Any]] = []
    if preparation.impute is not None:
        categories.append(("impute", SimpleImputer(strategy="most_frequent")))
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float64)
    categories.append(("one_hot", encoder))
    parts = [("categories", Pipeline(categories), preparation.categories)]
    if preparation.numbers:
        of_numbers = Pipeline(numbers) if numbers else "passthrough"
        parts.insert(0, ("numbers", of_numbers, preparation.numbers))
    return [("columns", ColumnTransformer(parts, verbose_feature_names_out=False))]


def encoder_of(estimator: Any) -> OneHotEncoder | None:
    """Return the fitted encoder of categories in a pipeline, if it has one."""
    steps = dict(getattr(estimator, "steps", ()))
    columns = steps.get("columns")
    if not isinstance(columns, ColumnTransformer):
        return None
    return columns.named_transformers_["categories"][-1]


def unknown_categories(estimator: Any, X: Any, categories: list[Any]) -> list[str]:
    """Return the categories of new rows that the model has not seen, as "column: names"."""
    encoder = encoder_of(estimator)
    if encoder is None:
        return []
    found = []
    for column, seen in zip(categories, encoder.categories_, strict=True):
        new = sorted(set(X[str(column)].dropna()) - set(seen))
        if new:
            found.append(f"{column}: {', '.join(new[:5])}{', …' * (len(new) > 5)}")
    return found


def described(estimator: Any) -> list[str]:
    """Return what a fitted pipeline does to a table, one phrase for each step."""
    steps = dict(getattr(estimator, "steps", ())[:-1])
    found = []
    columns = steps.get("columns")
    if isinstance(columns, ColumnTransformer):
        inner = columns.named_transformers_.get("numbers")
        steps = {**dict(getattr(inner, "steps", ())), **steps}
    for step in steps.values():
        if isinstance(step, SimpleImputer):
            found.append(f"missing values become the {step.strategy.replace('_', ' ')}")
        elif isinstance(step, StandardScaler):
            found.append("features are scaled to mean 0 and variance 1")
        elif isinstance(step, ColumnTransformer):
            encoder = encoder_of(estimator)
            assert encoder is not None
            numbers = ", ".join(
                f"{name} ({len(seen)})"
                for name, seen in zip(columns_of(step), encoder.categories_, strict=True)
            )
            found.append(f"one column for each category of {numbers}")
        else:
            found.append(type(step).__name__)
    return found


def columns_of(transformer: ColumnTransformer) -> list[Any]:
    """Return the columns of categories."""
    parts = {name: list(columns) for name, _, columns in transformer.transformers_}
    return parts["categories"]
