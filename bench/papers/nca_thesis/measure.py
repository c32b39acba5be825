"""Fits variants of NCA and measures them: accuracy by both rules, seconds."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bench.papers.nca_thesis.rows import Measurement, Row
from bench.shared.setup import Split, all_rows, clock, customary_split
from fastmetric import NCA

_WARM_UP_ROWS = 2_000
_NOTE_LENGTH = 90


class Variant(NamedTuple):
    """A way to learn a map: its name in the table, and what makes the estimator."""

    name: str
    make: Callable[..., Any]  # called with n_components and random_state


def nca(name: str, **parameters: Any) -> Variant:
    """Return a variant of NCA."""
    return Variant(name, partial(NCA, **parameters))


def no_map(n_components: int, random_state: int) -> FunctionTransformer:
    """Return an estimator that leaves the rows as they are, whatever it is asked for."""
    return FunctionTransformer()


def lda(n_components: int, random_state: int) -> LinearDiscriminantAnalysis:
    """Return scikit-learn's discriminant analysis, which draws nothing."""
    return LinearDiscriminantAnalysis(n_components=n_components)


# Data


def random_splits(data: str, n: int) -> list[Split]:
    """Return n random stratified 70/30 splits, standardised on the training part."""
    X, y = all_rows(data)
    rows = StratifiedShuffleSplit(n, test_size=0.3, random_state=0).split(X, y)
    return [_standardised(X, y, train, test) for train, test in rows]


def one_split(data: str, n: int | None, *, standardised: bool = True) -> Split:
    """Return n random rows of a set, None: all, split 80/20 at random."""
    X, y = all_rows(data)
    order = np.random.default_rng(0).permutation(len(X))[:n]
    train, test = np.split(order, [round(0.8 * len(order))])
    if standardised:
        return _standardised(X, y, train, test)
    return Split(X[train], y[train], X[test], y[test])


def _standardised(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Split:
    """Return the split, its features with mean 0 and deviation 1 over the training rows."""
    scaler = StandardScaler().fit(X[train])
    return Split(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])


def digits(data: str) -> Split:
    """Return the customary split of "USPS", grey from -1 to 1, or of "MNIST", from 0 to 1."""
    split = customary_split(data.lower())
    if data == "USPS":
        return split
    return split._replace(X=split.X / 255, X_test=split.X_test / 255)


# Measuring


def measured(data: str, d: int, variant: Variant, splits: Sequence[Split]) -> Row:
    """Return the row of a variant; one that says why, if it raises."""
    print(f"  {data} d={d} {variant.name} ...", end="", file=sys.stderr, flush=True)
    row = Row(data, d, variant.name)
    try:
        _load_code(variant, d, splits[0])
        fits = [_fit(variant, d, split, seed) for seed, split in enumerate(splits)]
    except Exception as error:  # whatever it is, the other variants are to be seen
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        row = row._replace(note=reason[:_NOTE_LENGTH])
    else:
        row = row._replace(measurements=[one for one, _ in fits], Z=fits[-1][1])
    print(f" {row.brief()}", file=sys.stderr, flush=True)
    return row


def _load_code(variant: Variant, d: int, split: Split) -> None:
    """Compile what the variant may run, or load it from the cache: a few rows, one iteration."""
    model = variant.make(n_components=d, random_state=0)
    rows = np.random.default_rng(0).permutation(len(split.X))[:_WARM_UP_ROWS]
    # "auto" may turn to trees at any map of the fit, so both ways have to be ready.
    chosen = model.get_params().get("method")
    for method in ("exact", "tree") if chosen == "auto" else (chosen,):
        if isinstance(model, NCA):
            model.set_params(max_iter=1, method=method, subsample=None)  # of few, too few
        _quietly(lambda: model.fit(split.X[rows], split.y[rows]))


def _fit(variant: Variant, d: int, split: Split, seed: int) -> tuple[Measurement, np.ndarray]:
    """Return what one fit achieves, and the test rows after its map."""
    model = variant.make(n_components=d, random_state=seed)
    seconds = clock(lambda: _quietly(lambda: model.fit(split.X, split.y))).best
    rule = 100 * model.score(split.X_test, split.y_test) if isinstance(model, NCA) else None
    Z, Z_test = model.transform(split.X), model.transform(split.X_test)
    neighbor = 100 * KNeighborsClassifier(1).fit(Z, split.y).score(Z_test, split.y_test)
    return Measurement(rule, neighbor, seconds), Z_test


def _quietly(fit: Callable[[], Any]) -> None:
    """Run a fit; that it may stop at its largest number of iterations is part of the plan."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit()
