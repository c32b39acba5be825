"""The experiments of M. Der and L. K. Saul, Latent Coincidence Analysis, 2012.

Published next to measured.

python -m bench.papers.coincidence [--quick] [--case NAME ...] [--out FOLDER]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from bench.papers import command
from bench.papers.coincidence import pictures
from bench.papers.coincidence import rows as records
from bench.papers.coincidence.data import TASKS, Task, inputs, one_split, raw_splits
from bench.papers.coincidence.rows import Row
from bench.shared.setup import Split, UnavailableError, clock
from fastmetric import NCA, KDTree, LatentCoincidenceAnalysis, LatentCoincidenceClassifier
from fastmetric.learn.coincidence.impostors import nearest_others
from fastmetric.learn.coincidence.trials import vote

_K = 3
_FEW = 500  # rows that code is compiled with


class Plan(NamedTuple):
    """How often, and how much."""

    splits: dict[str, int]  # of sets without test rows
    table: tuple[str, ...]
    mixtures: tuple[str, ...]  # Fig. 2 and 3
    metrics: tuple[str, ...]  # Fig. 4
    dimensions: tuple[int, ...]  # of mixtures
    metric_dimensions: tuple[int, ...]
    n_rows: int | None  # of large sets; None: all


FULL = Plan(
    splits={"letter": 5, "balance-scale": 30, "iris": 30},
    table=tuple(TASKS),
    mixtures=("MNIST", "ISOLET"),
    metrics=("MNIST", "ISOLET", "letter"),
    dimensions=(2, 4, 8, 16, 32, 64),
    metric_dimensions=(4, 8, 16, 32, 64),
    n_rows=None,
)
QUICK = Plan(
    splits={"letter": 1, "balance-scale": 10, "iris": 10},
    table=("letter", "balance-scale", "iris"),
    mixtures=("ISOLET",),
    metrics=("ISOLET",),
    dimensions=(2, 8, 32),
    metric_dimensions=(8, 16, 32),
    n_rows=3_000,
)


# Methods


def _metric(p: int) -> LatentCoincidenceAnalysis:
    """Return the metric, by its defaults."""
    return LatentCoincidenceAnalysis(p, n_neighbors=_K, random_state=0)


def _error(Z: np.ndarray, Z_test: np.ndarray, y: np.ndarray, y_test: np.ndarray) -> float:
    """Return the error of the 3 nearest neighbours in percent; of a tie, the nearest decides."""
    labels = y[KDTree(Z).query(Z_test, k=_K, return_distance=False)]
    return 100 * float(np.mean(vote(labels) != y_test))


def _fitted(model: Any, split: Split) -> tuple[Any, float]:
    """Return the model, fitted, and its seconds; its code is compiled before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if isinstance(model, LatentCoincidenceAnalysis):
            few = min(_FEW, len(split.X))
            type(model)(model.n_components, max_iter=3, random_state=0).fit(
                split.X[:few], split.y[:few]
            )
        return model, clock(lambda: model.fit(split.X, split.y)).best


def _mapped_error(model: Any, split: Split) -> float:
    """Return the error of the nearest neighbours after a map."""
    Z, Z_test = model.transform(split.X), model.transform(split.X_test)
    return _error(Z, Z_test, split.y, split.y_test)


# Table 1


def table(plan: Plan, out: Path) -> Iterator[Row]:
    """3-NN test error: no map, PCA, this method, and NCA beside them."""
    for name in plan.table:
        yield from _or_reason(name, partial(_set_rows, TASKS[name], plan))


def _set_rows(task: Task, plan: Plan) -> Iterator[Row]:
    """Yield the rows of one data set."""
    published = records.PUBLISHED[task.name]
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for raw in raw_splits(task, plan.splits.get(task.name, 1)):
        split = inputs(task, raw)
        plain = _error(raw.X, raw.X_test, raw.y, raw.y_test)
        errors.setdefault(records.EUCLIDEAN, []).append(plain)
        pca = _error(split.X, split.X_test, split.y, split.y_test)
        errors.setdefault(records.PRINCIPAL, []).append(pca)
        models = {
            records.COINCIDENCE: _metric(task.p),
            records.NEIGHBOURHOOD: NCA(task.p, random_state=0),
        }
        for name, model in models.items():
            model, took = _fitted(model, split)
            errors.setdefault(name, []).append(_mapped_error(model, split))
            seconds.setdefault(name, []).append(took)
        last = {name: round(found[-1], 2) for name, found in errors.items()}
        print(f"  {task.name} {last}", file=sys.stderr, flush=True)
    for name in (*errors, records.LARGE_MARGIN):
        p = {records.EUCLIDEAN: 0, records.PRINCIPAL: task.n_inputs}.get(name, task.p)
        row = Row(task.name, p, name, errors.get(name, []), seconds.get(name, []))
        yield row._replace(published=published.get(name))


# Fig. 2: classes as mixtures


def mixtures(plan: Plan, out: Path) -> Iterator[Row]:
    """Error against p: normal densities after PCA and LDA, factor analysers, and this method."""
    rows = []
    for name in plan.mixtures:
        for row in _or_reason(name, partial(_mixture_rows, name, plan)):
            rows.append(row)
            yield row
    pictures.error_against_p(
        out / "der-mixtures.png", rows, "One model per class: test error against dimension"
    )


def _mixture_rows(name: str, plan: Plan) -> Iterator[Row]:
    """Yield the rows of one data set."""
    split = one_split(name, plan.n_rows)
    n_classes = len(np.unique(split.y))
    for p in (p for p in plan.dimensions if p < split.X.shape[1]):
        normal = QuadraticDiscriminantAnalysis(reg_param=1e-6)
        models: dict[str, Any] = {"PCA": make_pipeline(PCA(p, random_state=0), normal)}
        if p < n_classes:
            lda = LinearDiscriminantAnalysis(n_components=p)
            models["LDA"] = make_pipeline(lda, QuadraticDiscriminantAnalysis(reg_param=1e-6))
        models["factor analysis"] = _FactorClassifier(p)
        models[records.CLASSIFIER] = LatentCoincidenceClassifier(p)
        for method, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, took = _fitted(model, split)
                error = 100 * (1 - model.score(split.X_test, split.y_test))
            print(f"  {name} p={p} {method} {error:.2f}", file=sys.stderr, flush=True)
            yield Row(name, p, method, [error], [took])


class _FactorClassifier:
    """One factor analyser per class, and Bayes' rule."""

    def __init__(self, p: int) -> None:
        self.p = p

    def fit(self, X: np.ndarray, y: np.ndarray) -> _FactorClassifier:
        """Fit the analysers."""
        self.classes, sizes = np.unique(y, return_counts=True)
        self.log_priors = np.log(sizes / len(y))
        self.models = [FactorAnalysis(self.p, random_state=0).fit(X[y == c]) for c in self.classes]
        return self

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        """Return the share of rows that are given their class."""
        logs = np.stack([model.score_samples(X) for model in self.models], axis=1)
        return float(np.mean(self.classes[(logs + self.log_priors).argmax(axis=1)] == y))


# Fig. 3: the plane


def plane(plan: Plan, out: Path) -> Iterator[Row]:
    """Two dimensions: PCA, and coincidence with the means of the classes. A picture for each set.

    One map for all classes: pairs of every row with every class mean.
    """
    for name in plan.mixtures:
        yield from _or_reason(name, partial(_plane_rows, name, plan, out))


def _plane_rows(name: str, plan: Plan, out: Path) -> Iterator[Row]:
    """Yield the rows of one data set, and draw it."""
    split = one_split(name, plan.n_rows)
    classes = np.unique(split.y)
    means = np.stack([split.X[split.y == c].mean(axis=0) for c in classes])
    n = len(split.X)
    rows, columns = (part.ravel() for part in np.indices((n, len(classes))))
    pairs = np.stack([rows, n + columns], axis=1)
    y = np.where(split.y[rows] == classes[columns], 1, -1)
    ours = LatentCoincidenceAnalysis(2, tol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        took = clock(lambda: ours.fit_pairs(pairs, y, X=np.concatenate([split.X, means]))).best
    pca = PCA(2).fit(split.X)
    panels = []
    for method, model, seconds in (("PCA", pca, []), (records.COINCIDENCE, ours, [took])):
        error = _mapped_error(model, split)
        panels.append((method, error, model.transform(split.X_test)))
        yield Row(name, 2, method, [error], seconds)
    pictures.plane(out / f"der-plane-{name.lower()}.png", name, panels, split.y_test)


# Fig. 4: the metric in fewer dimensions


def dimensions(plan: Plan, out: Path) -> Iterator[Row]:
    """3-NN error against p: PCA and this method, training (leave one out) and test rows."""
    rows = []
    for name in plan.metrics:
        for row in _or_reason(name, partial(_dimension_rows, name, plan)):
            rows.append(row)
            yield row
    pictures.error_against_p(
        out / "der-dimensions.png", rows, "Nearest neighbours in fewer dimensions"
    )


def _dimension_rows(name: str, plan: Plan) -> Iterator[Row]:
    """Yield the rows of one data set."""
    split = one_split(name, plan.n_rows)
    n_features = split.X.shape[1]
    for p in sorted({min(p, n_features) for p in plan.metric_dimensions}):
        for method, model in (
            ("PCA", PCA(p, random_state=0)),
            (records.COINCIDENCE, _metric(p)),
        ):
            model, took = _fitted(model, split)
            error, Z = _mapped_error(model, split), model.transform(split.X)
            print(f"  {name} p={p} {method} {error:.2f}", file=sys.stderr, flush=True)
            yield Row(name, p, method, [error], [took])
            yield Row(name, p, f"{method}, training", [_leave_one_out(Z, split.y)])


def _leave_one_out(Z: np.ndarray, y: np.ndarray) -> float:
    """Return the error of the rows by their 3 nearest other rows, in percent."""
    return 100 * float(np.mean(vote(y[nearest_others(Z, _K)]) != y))


def _or_reason(data: str, rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Yield the rows of a data set; one that says why, if it cannot be had."""
    try:
        yield from rows()
    except UnavailableError as error:
        yield Row(data, 0, "", note=f"not run: {error}")


# The command

CASES = {"table": table, "mixtures": mixtures, "plane": plane, "dimensions": dimensions}


def main(arguments: list[str] | None = None) -> None:
    """Run the cases, print a table and save the pictures of each."""
    parser = command.options_of("coincidence", __doc__, "fewer splits, sets and rows")
    command.add_cases(parser, CASES)
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL

    def tables(name: str) -> tuple[str, str, str]:
        rows = list(CASES[name](plan, options.out))
        legend = records.BY_CLASS if name == "mixtures" else records.BY_NEIGHBOURS
        return name, records.plain(rows, legend), records.markdown(rows)

    command.run(options.case or CASES, tables, options.markdown)


if __name__ == "__main__":
    main()
