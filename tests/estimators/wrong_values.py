"""Every public parameter: which values are legal, which are wrong, and how it is reached.

A value of `POOL` is wrong for a parameter unless its entry in `TABLE` says that it is legal.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.naive_bayes import GaussianNB

import fastmetric
from fastmetric import KernelDensity

X = np.array([[0.0, 0.1], [1.0, 2.0], [0.5, -1.0], [1.2, 0.3], [-0.7, 1.1], [2.0, 0.9]])
Y = np.array([0, 0, 0, 1, 1, 1])
PAIRS = X.reshape(3, 2, 2)
NUMBERS = np.arange(6).reshape(3, 2)
SIGNS = np.array([1, -1, 1])
BEYOND = 10**400


def arrays(*shape: int) -> dict[str, Any]:
    """Return arrays of a shape that hold no finite real numbers, or have gaps."""
    ones = np.ones(shape)
    spoilt = {name: ones.copy() for name in ("NaN", "inf", "-inf")}
    for name, array in spoilt.items():
        array.flat[0] = float(name)
    beyond, things = ones.astype(object), ones.astype(object)
    beyond.flat[0], things.flat[0] = BEYOND, {}
    dates = np.full(shape, np.datetime64("2020-01-01"))
    gaps = np.ma.array(ones, mask=ones > 0)
    return {
        **{f"{name} in {shape}": array for name, array in spoilt.items()},
        f"10**400 in {shape}": beyond,
        f"10**400 in lists {shape}": beyond.tolist(),
        f"dict in {shape}": things,
        f"complex {shape}": ones + 1j,
        f"strings {shape}": np.full(shape, "1"),
        f"dates {shape}": dates,
        f"dates as objects {shape}": dates.astype(object),
        f"durations {shape}": dates - dates,
        f"masked {shape}": gaps,
        f"list of masked {shape}": list(gaps) if len(shape) > 1 else gaps,
    }


POOL: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": 0,
    "1": 1,
    "2": 2,
    "-1": -1,
    "0.5": 0.5,
    "2.5": 2.5,
    "-0.5": -0.5,
    "NaN": float("nan"),
    "inf": float("inf"),
    "-inf": -float("inf"),
    "float32 NaN": np.float32("nan"),
    "10**30": 10**30,
    "-10**30": -(10**30),
    "10**400": BEYOND,
    "-10**400": -BEYOND,
    "10**5000": 10**5000,
    "1j": 1j,
    "zz": "zz",
    "''": "",
    "'1'": "1",
    "bytes": b"1",
    "[]": [],
    "()": (),
    "{}": {},
    "dict": {"a": 1},
    "set": {1, 2},
    "empty": np.empty(0),
    "no rows": np.empty((0, 2)),
    "no features": np.empty((6, 0)),
    "7 numbers": np.linspace(0.1, 0.9, 7),
    "(6, 3)": np.ones((6, 3)),
    "(6, 2, 2)": np.ones((6, 2, 2)),
    "ragged": [[1.0], [1.0, 2.0]],
    "sparse": csr_array(np.eye(6, 2)),
    "object": object(),
    "type": float,
    "function": len,
    "date": np.datetime64("2020-01-01"),
    "datetime": datetime.datetime(2020, 1, 1),
    "duration": np.timedelta64(1, "D"),
    "Generator": np.random.default_rng(0),
    **arrays(6, 2),
    **arrays(6),
}

Keys = frozenset[str]


def keys(*names: str) -> Keys:
    """Return names of values of the pool, all of which it has."""
    assert set(names) <= set(POOL)
    return frozenset(names)


NOTHING = keys()
NONE = keys("None")
FLAG = keys("True")
FROM_0 = keys("0", "1", "2")
FROM_1 = keys("1", "2")
FROM_2 = keys("2")
NUMBER = keys("0", "1", "2", "0.5", "2.5", "10**30")
TOLERANCE = keys("0", "0.5")
SHARE = keys("0.5")
JOBS = keys("None", "1", "2", "-1")
VERBOSE = FLAG | FROM_0
RANDOM = NONE | FROM_0
IGNORED = keys(*POOL)


class Parameter(NamedTuple):
    """What a parameter may be: names of values of the pool, and further values of both kinds."""

    legal: Keys
    more_legal: tuple[Any, ...] = ()
    more_wrong: tuple[Any, ...] = ()
    beside: Mapping[str, Any] = MappingProxyType({})  # other arguments that the parameter needs
    either: Keys = frozenset()  # legal or wrong, by what they meet: not tried

    def wrong_values(self) -> dict[str, Any]:
        """Return all values that are wrong, by name."""
        pool = {name: value for name, value in POOL.items() if name not in self.legal | self.either}
        return pool | {f"wrong {k}": value for k, value in enumerate(self.more_wrong)}

    def legal_values(self) -> dict[str, Any]:
        """Return all values that are legal, by name."""
        pool = {name: POOL[name] for name in self.legal}
        return pool | {f"legal {k}": value for k, value in enumerate(self.more_legal)}


def one_of(*names: str, also: Keys = NOTHING, more: tuple[Any, ...] = ()) -> Parameter:
    """Return a parameter that is one of some strings."""
    return Parameter(also, names + more, (names[0].upper(), [names[0]]))


def array(*shape: int, none: bool = False, wrong: tuple[Any, ...] = (), **beside: Any) -> Parameter:
    """Return a parameter that is an array of numbers of a shape."""
    good = np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape)
    legal = (good, good.tolist(), good.astype(np.float32), good.astype(object))
    bad = (*arrays(*shape).values(), np.ones((*shape, 2, 2)), *wrong)
    return Parameter(NONE if none else NOTHING, legal, bad, beside)


ROWS = array(6, 2)
FIRST_ROWS = ROWS._replace(legal=keys("(6, 3)"))  # of any number of features
NEXT_ROWS = ROWS._replace(either=keys("(6, 3)"))
LABELS = Parameter(
    NOTHING,
    (Y, Y.tolist(), Y == 1, Y.astype(float), Y.astype(str), Y.astype(str).astype(object)),
    (
        np.zeros(6),
        Y.astype(object),
        Y[:5],
        np.c_[Y, Y],
        Y + 0.5,
        [None, *Y[1:]],
        np.array([0, 0, 0, "a", "b", 1.5], object),
    ),
)
NEXT_LABELS = LABELS._replace(
    either=keys("durations (6,)"),
    more_wrong=LABELS.more_wrong[1:],
    more_legal=LABELS.more_legal[:4],
)  # one class may be enough
PRIORS = Parameter(
    NONE,
    ("equal", [1, 3], (0.5, 0.5), np.array([1.0, 2.0], np.float32)),
    (*arrays(2).values(), [1.0, 0.0], [1.0, -1.0], [1.0, 2.0, 3.0], [1e-260, 1.0], [[1.0, 2.0]]),
)
BANDWIDTH = Parameter(
    NUMBER - keys("0"),
    (np.float32(0.5), np.int8(1), np.array(0.5), [1.0, 2.0], np.eye(2), np.eye(2).tolist()),
    (*arrays(2).values(), *arrays(2, 2).values(), 1e-200, [1.0, 0.0], np.ones((2, 2)),
     [[1.0, 0.5], [0.0, 1.0]], np.eye(3)),
)  # fmt: skip
SEED = Parameter(
    RANDOM, (np.random.RandomState(0), np.int64(3), 2**32 - 1), (2**32, np.array([1, 2]))
)
POSITIVE = Parameter(FROM_1, (np.int64(1), np.uint8(2)), (np.array(1), 1.0, 2**63))
COMMON = {"verbose": Parameter(VERBOSE, (np.bool_(True), np.int64(1))), "n_jobs": Parameter(JOBS)}
RTOL = Parameter(TOLERANCE, (np.float32(0.5),), (1.0, -1e-9))
RTOL_OR_AUTO = RTOL._replace(more_legal=(*RTOL.more_legal, "auto"))
TOL = Parameter(NUMBER, (np.float32(0.5), np.int64(1)))
FLAGS = Parameter(FLAG, (False, np.bool_(True)))
INIT = ("auto", "rca", "pca", "identity")
START = (*arrays(1, 2).values(), np.eye(3), [1.0, 2.0], np.ones((3, 2)))
FIRST_START = (np.eye(2), [[1.0, 2.0]], np.eye(2).astype(object))
SHARES = Parameter(SHARE, (np.float32(0.1),), (1.0, 1.5))
METHOD = one_of("auto", "exact", "tree")
SUMS = ("gaussian", "biweight", "tophat", "epanechnikov", "exponential", "linear", "cosine")

TABLE: dict[str, dict[str, Parameter]] = {
    "NCA": {
        "n_components": POSITIVE._replace(legal=NONE | FROM_1),
        "kernel": one_of("gaussian", "biweight"),
        "background": Parameter(keys("True", "0.5"), (False, "learn", np.float32(0.5))),
        "priors": PRIORS,
        "method": METHOD,
        "rtol": RTOL_OR_AUTO,
        "solver": one_of("auto", "lbfgs", "stochastic", "minibatch"),
        "batch_size": Parameter(FROM_2, ("auto", np.int64(3)), (2.0, 2**63)),
        "batches": one_of("random", "farthest", "projection"),
        "subsample": Parameter(keys("None", "2", "0.5"), (1.0, np.int64(6)), (7, 1.5, 0.0)),
        "init": Parameter(NOTHING, (*INIT, "random", *FIRST_START), START),
        "alpha": TOL,
        "annealing": FLAGS,
        "early_stopping": FLAGS,
        "validation_fraction": SHARES,
        "max_iter": POSITIVE,
        "tol": TOL,
        "warm_start": FLAGS,
        "callback": Parameter(NONE, (lambda A, i: None, np.hypot), either=keys("type", "function")),
        "random_state": SEED,
        **COMMON,
    },
    "NCA.fit": {"X": FIRST_ROWS, "y": LABELS},
    "NCA.partial_fit": {
        "X": NEXT_ROWS,
        "y": NEXT_LABELS,
        "classes": Parameter(NONE, ([0, 1], (1, 0), np.array([0, 1])), ([0, 2], [0], ["a", "b"])),
    },
    "NCA.transform": {"X": ROWS},
    "NCA.predict_proba": {"X": ROWS},
    "NCA.predict": {"X": ROWS},
    "nca_value_and_grad": {
        "A": Parameter(NOTHING, FIRST_START, START),
        "X": ROWS,
        "y": LABELS,
        "kernel": one_of("gaussian", "biweight"),
        "background": FLAGS,
        "return_bound": FLAGS,
        "beta": Parameter(
            keys("None", "0.5"),
            ([0.2, 0.3], np.array([0.2, 0.3])),
            (*arrays(2).values(), [0.0, 0.5], [0.5, 1.0], [0.1, 0.2, 0.3]),
            dict(background=True),
        ),
        "priors": PRIORS,
        "rows": Parameter(
            NONE, ([0, 1], np.array([5], np.uint8)), ([6], [-1], [0.0], [[0]], [True], [10**30])
        ),
        "method": METHOD,
        "rtol": RTOL,
        "n_jobs": Parameter(JOBS),
    },
    "KernelDensity": {
        "bandwidth": BANDWIDTH._replace(more_legal=(*BANDWIDTH.more_legal, "scott", "loo")),
        "algorithm": one_of("auto", "kd_tree", "ball_tree"),
        "kernel": one_of(*SUMS),
        "metric": one_of("euclidean", "l2"),
        "atol": TOL,
        "rtol": RTOL,
        "breadth_first": FLAGS,
        "leaf_size": POSITIVE,
        "metric_params": Parameter(keys("None", "{}")),
        "method": METHOD,
        **COMMON,
    },
    "KernelDensity.fit": {
        "X": FIRST_ROWS,
        "y": Parameter(IGNORED),
        "sample_weight": array(6, none=True, wrong=(np.zeros(6), -np.ones(6), np.ones(5))),
    },
    "KernelDensity.score_samples": {"X": ROWS},
    "KernelDensity.score": {"X": ROWS, "y": Parameter(IGNORED)},
    "KernelDensity.sample": {"n_samples": POSITIVE, "random_state": SEED},
    "kernel_sums": {
        "X": FIRST_ROWS,
        "query": array(6, 2, none=True, wrong=(np.ones((2, 3)),)),
        "kernel": one_of(*SUMS),
        "bandwidth": BANDWIDTH,
        "weights": array(6, none=True, wrong=(np.zeros(6), -np.ones(6), np.ones(5))),
        "rtol": RTOL,
        "atol": TOL,
        "method": METHOD,
        "n_jobs": Parameter(JOBS),
        "return_bounds": FLAGS,
    },
    "LocalComponentAnalysis": {
        "covariance": one_of("full", "diag", "spherical", "local"),
        "rank": Parameter(keys("1"), (), (1.0,), dict(covariance="low_rank")),
        "gaussian": Parameter(FLAG, (False, "search")),
        "nu": Parameter(
            NUMBER,
            ((1.0, 2.0), [1, 2], np.array([1.0, 2.0]), np.float32(1)),
            ((1.0,), (1.0, -1.0), (1.0, None), [1.0, 2.0, 3.0], (BEYOND, 1.0)),
        ),
        "smoothing": TOL._replace(legal=NUMBER - keys("0")),
        "batch_size": POSITIVE._replace(legal=NONE | FROM_1),
        "n_neighbors": Parameter(keys("None", "2"), (np.int64(3),)),
        "discount": Parameter(TOLERANCE, (), (1.0,)),
        "validation_fraction": SHARES,
        "max_iter": POSITIVE,
        "tol": TOL,
        "random_state": SEED,
        **COMMON,
    },
    "LocalComponentAnalysis.fit": {"X": FIRST_ROWS, "y": Parameter(IGNORED)},
    "LocalComponentAnalysis.partial_fit": {"X": NEXT_ROWS, "y": Parameter(IGNORED)},
    "LocalComponentAnalysis.transform": {"X": ROWS},
    "LocalComponentAnalysis.score_samples": {"X": ROWS},
    "LocalComponentAnalysis.score": {"X": ROWS, "y": Parameter(IGNORED)},
    "LocalComponentAnalysis.sample": {"n_samples": POSITIVE, "random_state": SEED},
    "ManifoldParzen": {
        "n_components": Parameter(FROM_0, (np.int64(1),), (3, 1.0)),
        "n_neighbors": Parameter(keys("1", "2"), (np.int64(9),), (2.0,)),
        "noise_variance": Parameter(NUMBER - keys("0"), (np.float32(1),), (1e-310,)),
        "neighborhood": one_of("hard", "soft"),
        "bandwidth": Parameter(
            (NUMBER | NONE) - keys("0"), (np.float32(1),), (), dict(neighborhood="soft")
        ),
        "rtol": RTOL,
        **COMMON,
    },
    "ManifoldParzen.fit": {"X": FIRST_ROWS, "y": Parameter(IGNORED)},
    "ManifoldParzen.score_samples": {"X": ROWS},
    "ManifoldParzen.score": {"X": ROWS, "y": Parameter(IGNORED)},
    "ManifoldParzen.score_samples_grid": {
        "X": ROWS,
        "n_components": Parameter(keys("None", "0", "1"), ([0, 1], np.array([1])), ([2], [0.0])),
        "noise_variance": Parameter(
            (NUMBER | NONE | keys("7 numbers")) - keys("0"),
            ([0.1, 2], np.array(0.1), np.ones(2, np.float32)),
            ([0.0], [0.1, -1.0], [1.0, BEYOND], *arrays(2).values()),
        ),
    },
    "ManifoldParzen.sample": {"n_samples": POSITIVE, "random_state": SEED},
    "MeanShift": {
        "bandwidth": BANDWIDTH._replace(legal=BANDWIDTH.legal | NONE),
        "seeds": array(3, 2, none=True, wrong=([1.0, 2.0], np.ones((3, 3)))),
        "bin_seeding": FLAGS,
        "min_bin_freq": POSITIVE._replace(more_legal=(np.int64(1),)),
        "cluster_all": FLAGS,
        "max_iter": POSITIVE,
        "rtol": RTOL,
        "tol": TOL,
        **COMMON,
    },
    "MeanShift.fit": {"X": FIRST_ROWS, "y": Parameter(IGNORED)},
    "MeanShift.predict": {"X": ROWS},
    "DensityClassifier": {
        "estimator": Parameter(NOTHING, (KernelDensity(),), (KernelDensity, GaussianNB())),
        "priors": PRIORS,
    },
    "DensityClassifier.fit": {"X": FIRST_ROWS, "y": LABELS},
    "DensityClassifier.predict_log_proba": {"X": ROWS},
    "DensityClassifier.predict_proba": {"X": ROWS},
    "DensityClassifier.predict": {"X": ROWS},
    "LatentCoincidenceAnalysis": {
        "n_components": POSITIVE._replace(legal=NONE | FROM_1),
        "n_neighbors": POSITIVE,
        "solver": one_of("lbfgs", "em"),
        "init": Parameter(NOTHING, ("auto", "pca", "identity", *FIRST_START), START),
        "refresh": POSITIVE,
        "n_passes": Parameter(FROM_1, ("auto", np.int64(2)), (1.0, 2**63)),
        "early_stopping": FLAGS,
        "validation_fraction": SHARES,
        "max_iter": POSITIVE,
        "tol": TOL,
        "random_state": SEED,
        **COMMON,
    },
    "LatentCoincidenceAnalysis.fit": {"X": NEXT_ROWS, "y": LABELS},
    "LatentCoincidenceAnalysis.transform": {"X": ROWS},
    "LatentCoincidenceClassifier": {
        "n_components": POSITIVE,
        "solver": one_of("lbfgs", "em"),
        "max_iter": POSITIVE,
        "tol": TOL,
        **COMMON,
    },
    "LatentCoincidenceClassifier.fit": {"X": FIRST_ROWS, "y": LABELS},
    "LatentCoincidenceClassifier.predict_log_coincidence": {"X": ROWS},
    "LatentCoincidenceClassifier.predict_proba": {"X": ROWS},
    "LatentCoincidenceClassifier.predict": {"X": ROWS},
    "KDTree": {"X": FIRST_ROWS, "leaf_size": POSITIVE, "n_jobs": Parameter(JOBS)},
    "KDTree.query": {
        "X": ROWS,
        "k": POSITIVE._replace(more_wrong=(7, 1.0)),
        "return_distance": FLAGS,
        "dualtree": FLAGS,
        "breadth_first": FLAGS,
        "sort_results": FLAGS,
    },
    "KDTree.query_radius": {
        "X": ROWS,
        "r": Parameter(
            NUMBER | keys("inf", "10**400", "10**5000", "inf in (6,)"),
            (np.float32(1), [1.0], np.ones(6), [1] * 6),
            ([1.0, 2.0], [[1.0]] * 6, -np.ones(6)),
        ),
        "return_distance": FLAGS,
        "count_only": FLAGS,
        "sort_results": FLAGS._replace(beside=dict(return_distance=True)),
    },
}
for _name in ("fit_pairs", "partial_fit_pairs"):
    TABLE[f"LatentCoincidenceAnalysis.{_name}"] = {
        "pairs": array(3, 2, 2, wrong=(np.ones((3, 3, 2)), NUMBERS)),
        "y": Parameter(NOTHING, (SIGNS, SIGNS.tolist()), ([1, 0, 1], [1, -1], *arrays(3).values())),
        "X": array(6, 2, wrong=(np.ones((5, 2)),), pairs=NUMBERS)._replace(
            legal=keys("(6, 3)") if _name == "fit_pairs" else NOTHING,
            either=keys("(6, 3)"),
        ),
    }

# What an estimator is made with, and the methods that learn, with their arguments.
MADE_WITH: dict[str, dict[str, Any]] = {
    "NCA": dict(max_iter=1, random_state=0),
    "KernelDensity": {},
    "LocalComponentAnalysis": dict(nu=1.0, max_iter=1),
    "ManifoldParzen": dict(n_components=1, n_neighbors=2, noise_variance=0.1),
    "MeanShift": dict(bandwidth=1.0),
    "DensityClassifier": dict(estimator=KernelDensity()),
    "LatentCoincidenceAnalysis": dict(max_iter=2, n_passes=1, early_stopping=False),
    "LatentCoincidenceClassifier": dict(n_components=1, max_iter=1),
    "KDTree": dict(X=X),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "nca_value_and_grad": dict(A=np.eye(2), X=X, y=Y),
    "kernel_sums": dict(X=X),
    "NCA.partial_fit": dict(X=X, y=Y),
    "LatentCoincidenceAnalysis.fit_pairs": dict(pairs=PAIRS, y=SIGNS),
    "LatentCoincidenceAnalysis.partial_fit_pairs": dict(pairs=PAIRS, y=SIGNS),
    "KDTree.query": dict(X=X),
    "KDTree.query_radius": dict(X=X, r=1.0),
}
SUPERVISED = ("NCA", "DensityClassifier", "LatentCoincidence")
LEARNS = ("fit", "partial_fit", "fit_pairs", "partial_fit_pairs")


def arguments(place: str) -> dict[str, Any]:
    """Return good arguments of a method or function."""
    if place in ARGUMENTS:
        return ARGUMENTS[place]
    if place.endswith(".fit") and place.startswith(SUPERVISED):
        return dict(X=X, y=Y)
    return {} if place.endswith(".sample") else dict(X=X)


class Call(NamedTuple):
    """A call with one argument set apart: `of(value)` returns an object, if any, and the call."""

    label: str
    of: Callable[[Any], tuple[Any, Callable[[], Any]]]


_fitted: dict[str, Any] = {}


def fitted(name: str) -> Any:
    """Return a fitted estimator, which has the same attributes at every call."""
    if name not in _fitted:
        made = getattr(fastmetric, name)(**MADE_WITH[name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _fitted[name] = made if name == "KDTree" else made.fit(**arguments(f"{name}.fit"))
    again = object.__new__(type(_fitted[name]))  # copy.copy would leave out what a pickle does
    vars(again).update(vars(_fitted[name]))
    return again


def calls(place: str, name: str, parameter: Parameter) -> Iterator[Call]:
    """Yield the calls that a parameter is read by: of its method, or of all that learn."""
    owner, _, method = place.partition(".")
    what = getattr(fastmetric, owner)

    def by_constructor(value: Any) -> tuple[Any, Callable[[], Any]]:
        return None, lambda: what(**(base | {name: value}))

    if not isinstance(what, type) or (owner == "KDTree" and not method):
        base = MADE_WITH.get(place) or arguments(place) | dict(parameter.beside)
        yield Call(place, by_constructor)
        return
    if method:
        good = arguments(place) | dict(parameter.beside)

        def on(make: Callable[[], Any]) -> Callable[[Any], tuple[Any, Callable[[], Any]]]:
            def of(value: Any) -> tuple[Any, Callable[[], Any]]:
                made = make()
                return made, lambda: getattr(made, method)(**(good | {name: value}))

            return of

        yield Call(f"{place}, fitted", on(lambda: fitted(owner)))
        if method in LEARNS:
            yield Call(f"{place}, new", on(lambda: what(**MADE_WITH[owner])))
        return
    for learn in LEARNS:
        if f"{owner}.{learn}" not in TABLE:
            continue

        def of(value: Any, learn: str = learn) -> tuple[Any, Callable[[], Any]]:
            made = what(**(MADE_WITH[owner] | dict(parameter.beside) | {name: value}))
            # Some legal values allow `fit` alone.
            ask = getattr(made, learn, lambda **_: None)
            return made, lambda: ask(**arguments(f"{owner}.{learn}"))

        yield Call(f"{place}.{learn}", of)
