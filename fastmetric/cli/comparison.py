"""Scores of a method on rows that it did not learn from, beside those of others.

Accuracy of maps and classifiers, beside raw features, PCA and scikit-learn's own method; or
the log-likelihood of densities, beside a Gaussian, PCA and scikit-learn's. All see the same
rows, prepared in the same way, fold by fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    NeighborhoodComponentsAnalysis,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from fastmetric.cli import methods, preparation, work
from fastmetric.cli.files import models
from fastmetric.cli.files.columns import Table
from fastmetric.cli.files.text_tables import TableError

_MOST_ROWS_OF_PEER_NCA = 2000  # it needs matrices of n x n
_MOST_PAIRS_OF_PEER_DENSITY = 2e8  # it takes about a minute for more
_WIDTH = 50


class Candidate(NamedTuple):
    """One line of the result: what is fitted, and how it is judged."""

    name: str
    estimator: Any  # fitted to the training rows, once for all candidates that share it
    judge: Callable[[Any, Any, Any, Any, Any], float]  # of model, X, y and new X, y


class _Line(NamedTuple):
    """The figures of a candidate, one for each fold."""

    scores: list[float]
    seconds: list[float]


def evaluate(options: Any) -> None:
    """Print held-out scores of a method and of what it should be better than."""
    if options.model is not None:
        _evaluate_model(options)
        return
    if options.method == "mean-shift":
        raise TableError(
            "mean-shift predicts no classes and no density; `fastmetric cluster` compares its "
            "clusters with --target"
        )
    if options.neighbors < 1:
        raise TableError(f"--neighbors {options.neighbors}: 1 or more were expected")
    methods.request(options)
    table = work.training_table(options)
    by_accuracy = options.method in methods.SUPERVISED or (
        options.method in methods.MAPS and table.y is not None
    )
    splits = _splits(options, table, by_accuracy)
    _check_sizes(options, table, splits)
    candidates = (_by_accuracy if by_accuracy else _by_likelihood)(options, table, splits)
    score = "accuracy" if by_accuracy else "log density"
    print(f"{work.sizes(table)}; {_said(options)}.")
    spread = "" if options.held_out is not None else " ± standard deviation over folds"
    print(f"Mean {score} of rows held out{spread}, median seconds of a fit:\n")
    *peers, ours = candidates
    form = "{:8.1%}" if by_accuracy else "{:8.3f}"
    for group in peers:
        _run(group, table, splits, form, peer=True)
    _run(ours, table, splits, form)


def _said(options: Any) -> str:
    """Return how rows are held out, in words."""
    if options.held_out is not None:
        return f"{options.held_out:.0%} of them held out, drawn at random"
    return f"{options.folds} folds, drawn at random, each held out once"


def _splits(options: Any, table: Table, stratified: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows to learn from and those held out, for each fold."""
    n, seed = len(table.X), options.seed or 0
    if options.held_out is not None:
        if not 0 < options.held_out < 1:
            raise TableError(f"--held-out {options.held_out}: a share between 0 and 1 was expected")
        _check_share(options.held_out, table, stratified)
        kind = StratifiedShuffleSplit if stratified else ShuffleSplit
        splitter = kind(1, test_size=options.held_out, random_state=seed)
    else:
        if not 2 <= options.folds <= n:
            raise TableError(f"--folds {options.folds}: 2 to {n} were expected, its rows")
        fold = StratifiedKFold if stratified else KFold
        splitter = fold(options.folds, shuffle=True, random_state=seed)
    if stratified:
        assert table.y is not None
        classes, counts = np.unique(table.y, return_counts=True)
        least = 2 if options.held_out is not None else options.folds
        if counts.min() < least:
            raise TableError(
                f"class {classes[counts.argmin()]} has {counts.min()} rows, and {least} are needed "
                "for it to be among those held out and those learnt from; give fewer --folds, or "
                "leave the class out of the table"
            )
    return list(splitter.split(np.zeros((n, 1)), table.y if stratified else None))


def _check_share(share: float, table: Table, stratified: bool) -> None:
    """Raise if too few rows are held out, or left to learn from."""
    n = len(table.X)
    held_out = int(np.ceil(share * n))
    least = len(np.unique(table.y)) if stratified and table.y is not None else 1
    if min(held_out, n - held_out) < least:
        one = "one of each class" if stratified else "one"
        raise TableError(
            f"--held-out {share}: {held_out} of {n} rows would be held out; at least {least} on "
            f"both sides were expected, {one}"
        )


def _check_sizes(options: Any, table: Table, splits: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Raise if the rows or features of a fold are too few for an option."""
    rows = min(len(learnt) for learnt, _ in splits)
    if options.neighbors > rows:
        raise TableError(
            f"--neighbors {options.neighbors}: 1 to {rows} were expected, the rows learnt from"
        )
    width = table.X.shape[1]
    d = options.components
    if d is not None and not table.categories and not 1 <= d <= width:
        raise TableError(f"--components {d}: 1 to {width} were expected, the features")


def _by_accuracy(
    options: Any, table: Table, splits: list[tuple[np.ndarray, np.ndarray]]
) -> list[list[Candidate]]:
    """Return the candidates of a map or a classifier, in groups that share a fit."""
    ours = work.prepared_estimator(options, table, quiet=True)
    last = models.final_estimator(ours)
    steps = preparation.preparation_steps(work.preparation_of(options, table))
    k = options.neighbors

    def with_steps(*more: Any) -> Any:
        return Pipeline([*steps, *((f"step{i}", step) for i, step in enumerate(more))])

    width = table.X.shape[1]
    d = getattr(last, "n_components", None) or min(2, width)
    rule = f"{k}-NN"
    groups = [
        [Candidate("the most frequent class", DummyClassifier(), _own_score)],
        [Candidate(f"raw features, {rule}", with_steps(FunctionTransformer()), _neighbours(k))],
        [Candidate(f"PCA to {d}, {rule}", with_steps(PCA(d, random_state=0)), _neighbours(k))],
    ]
    name = f"fastmetric's {type(last).__name__}"
    if options.method in methods.MAPS:
        rows = len(splits[0][0])
        if rows <= _MOST_ROWS_OF_PEER_NCA or options.slow:
            peer = NeighborhoodComponentsAnalysis(d, random_state=0)
            line = f"scikit-learn's NCA to {d}, {rule}"
            groups.append([Candidate(line, with_steps(peer), _neighbours(k))])
        else:
            print(
                f"scikit-learn's NCA is left out: for {rows} rows it needs matrices of "
                f"{rows} x {rows} (--slow runs it).",
                flush=True,
            )
        to = f" to {d}" if options.method != "local-component" else ""
        group = [Candidate(f"{name}{to}, {rule}", ours, _neighbours(k))]
        if hasattr(last, "predict"):
            group.append(Candidate("… by its class posterior", ours, _own_score))
        groups.append(group)
    else:
        qda = QuadraticDiscriminantAnalysis(reg_param=1e-6)
        groups.append([Candidate("scikit-learn's QDA", with_steps(qda), _own_score)])
        groups.append([Candidate(name, ours, _own_score)])
    return groups


def _by_likelihood(
    options: Any, table: Table, splits: list[tuple[np.ndarray, np.ndarray]]
) -> list[list[Candidate]]:
    """Return the candidates of a density."""
    ours = work.prepared_estimator(options, table, quiet=True)
    last = models.final_estimator(ours)
    steps = preparation.preparation_steps(work.preparation_of(options, table))

    def with_steps(step: Any) -> Any:
        return Pipeline([*steps, ("density", step)])

    d = min(2, table.X.shape[1])
    groups = [
        [Candidate("one Gaussian", with_steps(GaussianMixture(1)), _own_score)],
        [Candidate(f"PCA to {d} and noise", with_steps(PCA(d, random_state=0)), _own_score)],
    ]
    learnt, held_out = (len(rows) for rows in splits[0])
    if learnt * held_out <= _MOST_PAIRS_OF_PEER_DENSITY or options.slow:
        bandwidth = getattr(last, "bandwidth", None)
        given = bandwidth if isinstance(bandwidth, float | int) else "scott"
        peer = with_steps(KernelDensity(bandwidth=given))
        line = f"scikit-learn's KernelDensity, {given}"
        groups.append([Candidate(line, peer, _mean_log_density)])
    else:
        print(
            f"scikit-learn's KernelDensity is left out: it visits {learnt * held_out:,} pairs "
            "one by one (--slow runs it).",
            flush=True,
        )
    groups.append([Candidate(f"fastmetric's {type(last).__name__}", ours, _mean_log_density)])
    return groups


def _own_score(model: Any, X: Any, y: Any, X_new: Any, y_new: Any) -> float:
    """Return the score of a model's own predictions."""
    return model.score(X_new, y_new)


def _mean_log_density(model: Any, X: Any, y: Any, X_new: Any, y_new: Any) -> float:
    """Return the mean log density of new rows."""
    return float(np.mean(model.score_samples(X_new)))


def _neighbours(k: int) -> Callable[[Any, Any, Any, Any, Any], float]:
    """Return a judge by the k nearest neighbours of transformed rows."""

    def accuracy(model: Any, X: Any, y: Any, X_new: Any, y_new: Any) -> float:
        voters = KNeighborsClassifier(k).fit(model.transform(X), y)
        return voters.score(model.transform(X_new), y_new)

    return accuracy


def _run(
    group: list[Candidate],
    table: Table,
    splits: list[tuple[np.ndarray, np.ndarray]],
    form: str,
    peer: bool = False,
) -> None:
    """Fit and judge the candidates of a group in every fold; print their lines.

    That one of the others fails does not end the comparison.
    """
    lines = [_Line([], []) for _ in group]
    X = table.X if table.named or table.categories else table.X.to_numpy()
    y = table.y if table.y is not None else np.zeros(len(table.X))
    print(f"  {group[0].name:<{_WIDTH}}", end="", flush=True)
    try:
        for learnt, new in splits:
            one, other = _rows(X, learnt), _rows(X, new)
            began = time.perf_counter()
            model = clone(group[0].estimator).fit(one, y[learnt])
            seconds = time.perf_counter() - began
            for candidate, line in zip(group, lines, strict=True):
                line.scores.append(candidate.judge(model, one, y[learnt], other, y[new]))
                line.seconds.append(seconds)
    except BaseException as error:
        if peer and isinstance(error, ValueError):  # a singular covariance, for example
            print(f"fails: {' '.join(str(error).split())}", flush=True)
            return
        print(flush=True)  # the error has a line of its own
        raise
    for number, (candidate, line) in enumerate(zip(group, lines, strict=True)):
        if number:
            print(f"  {candidate.name:<{_WIDTH}}", end="")
        print(_figures(line, form), flush=True)


def _rows(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of a frame or an array."""
    return X[rows] if isinstance(X, np.ndarray) else X.iloc[rows]


def _figures(line: _Line, form: str) -> str:
    """Return the figures of a line: mean, deviation over several folds, seconds.

    The median of the seconds, since the first fit of a process may compile.
    """
    spread = f" ± {form.format(np.std(line.scores)).strip():<6}" if len(line.scores) > 1 else ""
    return f"{form.format(np.mean(line.scores))}{spread} {np.median(line.seconds):8.2f} s"


def _evaluate_model(options: Any) -> None:
    """Print the score of a saved model on the rows of a file."""
    work.refuse_options_of_a_fit(options)
    model, table = work.model_and_table(options, "score", "`fastmetric info` says what it can do")
    X, last = work.rows_for(model, table), model.last
    if hasattr(model.estimator, "predict") and hasattr(last, "classes_"):
        right = work.as_given(table, model.estimator.predict(X))
        if table.y is None or not len(right):
            raise TableError(f"{options.data}: without classes there is no accuracy; give --target")
        if len(right) < len(table.y):
            work.tell(
                [f"{options.data}: {len(table.y) - len(right)} rows without a class: left out"]
            )
        given = [label for label in table.y if label is not None]
        _, counts = np.unique(given, return_counts=True)
        error = np.sqrt(right.mean() * (1 - right.mean()) / len(right))
        print(f"{len(right)} rows: {right.mean():.1%} ± {error:.1%} right (one standard error);")
        print(f"always the most frequent class of the file: {counts.max() / counts.sum():.1%}")
    elif hasattr(model.estimator, "score_samples"):
        logs = model.estimator.score_samples(X)
        error = np.std(logs) / np.sqrt(len(logs))
        print(f"{len(logs)} rows: mean log density {logs.mean():.4f} ± {error:.4f}")
    else:
        raise TableError(
            f"{type(last).__name__} has no score of its own; evaluate DATA --method compares maps"
        )
