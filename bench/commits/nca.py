"""NCA: an evaluation, its threads, its agreement with scikit-learn, a fit."""

from typing import Any, cast

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from bench.shared.setup import Problem, peak_memory, random_normal, take_turns
from bench.sides import nca as both

SIZES = {"n=10000 D=50 d=2": (10_000, 50, 2), "n=5000 D=256 d=32": (5_000, 256, 32)}
SMALL = {"n=2000 D=50 d=2": (2_000, 50, 2), "n=1000 D=256 d=32": (1_000, 256, 32)}
DTYPES = ["float64", "float32"]


def _problem(size: tuple[int, int, int], dtype: str) -> Problem:
    """Return random normal data, with the code for them compiled."""
    problem = random_normal(*size)
    if dtype == "float32":
        problem = both.as_float32(problem)
    both.load_code(problem)
    return problem


def _pairs_per_second(problem: Problem, n_jobs: int | None = None) -> float:
    """Return ordered pairs of rows per second, the best of three evaluations."""
    task = {"evaluation": lambda: both.our_evaluation(problem, n_jobs)}
    n = len(problem.X)
    return n * (n - 1) / take_turns(task, 3)["evaluation"].best


class Evaluation:
    """One value and gradient on all cores."""

    params = (list(SIZES), DTYPES)
    param_names = ("size", "dtype")

    def setup(self, size, dtype):
        self.problem = _problem(SIZES[size], dtype)

    def time_value_and_gradient(self, size, dtype):
        both.our_evaluation(self.problem)

    def peakmem_value_and_gradient(self, size, dtype):
        both.our_evaluation(self.problem)

    def track_peak_above_data(self, size, dtype):
        return peak_memory(lambda: both.our_evaluation(self.problem))

    cast(Any, track_peak_above_data).unit = "bytes"

    def track_pairs_per_second(self, size, dtype):
        return _pairs_per_second(self.problem)

    cast(Any, track_pairs_per_second).unit = "pairs/s"


class Threads:
    """The same evaluation on one thread and on two."""

    params = (1, 2)
    param_names = ("threads",)

    def setup(self, threads):
        self.problem = _problem(SIZES["n=10000 D=50 d=2"], "float64")

    def track_pairs_per_second(self, threads):
        return _pairs_per_second(self.problem, threads)

    cast(Any, track_pairs_per_second).unit = "pairs/s"


class Agreement:
    """The largest difference from scikit-learn, relative to its largest entry."""

    params = (list(SMALL), DTYPES)
    param_names = ("size", "dtype")

    def setup(self, size, dtype):
        problem = random_normal(*SMALL[size])
        self.value, self.gradient = both.our_evaluation(_problem(SMALL[size], dtype))
        self.peer = both.peer_evaluation(problem, both.same_class(problem.y))

    def track_value_error(self, size, dtype):
        return both.difference(self.value, self.peer[0])

    def track_gradient_error(self, size, dtype):
        return both.difference(self.gradient, self.peer[1])


class Fit:
    """Ten iterations on scikit-learn's digits from PCA."""

    params = DTYPES
    param_names = ("dtype",)

    def setup(self, dtype):
        X, y = load_digits(return_X_y=True)
        X = X / 16
        problem = Problem(PCA(5, svd_solver="full").fit(X).components_, X, y)
        self.problem = problem if dtype == "float64" else both.as_float32(problem)
        both.load_code(self.problem)

    def time_fit(self, dtype):
        both.our_fit(self.problem, 10)

    def peakmem_fit(self, dtype):
        both.our_fit(self.problem, 10)

    def track_objective(self, dtype):
        return both.our_fit(self.problem, 10).objective_

    cast(Any, track_objective).unit = "mean P"
