"""Rows: every sum against NumPy in float64, and fits that see blocks and chosen rows only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmetric.learn import rows as door
from fastmetric.learn.coincidence import coincidence_fit
from fastmetric.learn.coincidence.impostor_rounds import Settings as CoincidenceSettings
from fastmetric.learn.local_component import local_fit
from fastmetric.learn.local_component.covariance_model import Penalty, Shape
from fastmetric.learn.nca import nca_fit, training
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.rows import ArrayRows, Rows


class GivenRows(Rows):
    """Rows that give blocks and chosen rows, each in memory of its own, and nothing else."""

    def __init__(self, X: np.ndarray, n_jobs: int | None = None) -> None:
        self._hidden, self.shape, self.dtype, self.n_jobs = X, X.shape, X.dtype, n_jobs

    def block(self, rows: slice) -> np.ndarray:
        return self._hidden[rows].copy()

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._hidden[rows].copy()


@st.composite
def problems(draw):
    """Draw rows of any size, place and precision; a few of one block, some of several."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, D = draw(st.sampled_from([1, 2, 63, 65, 300, 5000])), draw(st.sampled_from([1, 3, 50]))
    scale, far = draw(st.sampled_from([1e-8, 1.0, 1e8])), draw(st.sampled_from([0.0, 10.0]))
    X = scale * (rng.standard_normal((n, D)) + far)
    return X.astype(draw(st.sampled_from([np.float64, np.float32]))), rng


@given(problems(), st.sampled_from([1, 2]))
def test_every_sum_is_that_of_numpy_and_has_the_bits_of_an_array(problem, n_jobs):
    X, rng = problem
    (n, D), y = X.shape, rng.integers(0, 4, len(X))
    center = X[0] + X.std(axis=0)
    A, U = rng.standard_normal((2, D)).astype(X.dtype), rng.standard_normal((n, 2)).astype(X.dtype)
    centred = X.astype(np.float64) - center
    expected = {
        "sums": X.sum(axis=0, dtype=np.float64),
        "offset_sums": centred.sum(axis=0),
        "square_sums": np.stack([centred.sum(axis=0), (centred**2).sum(axis=0)]),
        "moments": centred.T @ centred,
        "class_sums": np.stack([centred[y == c].sum(axis=0) for c in range(4)]),
        "cross": U.astype(np.float64).T @ centred,
        "project": centred @ A.T.astype(np.float64),
        "precise": centred @ A.T.astype(np.float64),
    }
    array, blocks = (
        {
            "sums": rows.sums(),
            "offset_sums": rows.offset_sums(center),
            "square_sums": rows.square_sums(center),
            "moments": rows.moments(center),
            "class_sums": rows.class_sums(y, center, 4),
            "cross": rows.cross(U, center),
            "project": rows.project(center, A),
            "precise": rows.project(center, A, precise=True),
        }
        for rows in (ArrayRows(X, n_jobs), GivenRows(X))
    )
    eps = float(np.finfo(X.dtype).eps)
    size = float(np.abs(X).max() + np.abs(center).max())
    for name, found in array.items():
        assert np.array_equal(found, blocks[name]), name
        # Each term is rounded in the precision of X, and n or D of them are added.
        power = 2 if name in ("square_sums", "moments") else 1
        factor = max(1.0, float(np.abs(A).max()), float(np.abs(U).max()))
        atol = 4 * eps * (n + D) * max(size, size**power) * factor
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=atol, err_msg=name)


@given(problems())
def test_ranges_cover_all_rows_and_depend_on_the_shape_alone(problem):
    X, _ = problem
    ranges = ArrayRows(X).ranges()
    assert ranges == GivenRows(X.astype(np.float32)).ranges()
    numbers = np.concatenate([np.arange(len(X))[rows] for rows in ranges])
    assert np.array_equal(numbers, np.arange(len(X)))


@given(problems())
def test_rows_are_resident_and_chosen_as_they_are(problem):
    X, rng = problem
    chosen = rng.integers(0, len(X), 7)
    for rows in (ArrayRows(X), GivenRows(X)):
        assert np.array_equal(rows.resident(), X)
        assert np.array_equal(rows.subset(chosen).resident(), X[chosen])
        assert (len(rows), rows.subset(chosen).dtype) == (len(X), X.dtype)


def test_rows_without_blocks_cannot_be_made():
    class Nothing(Rows):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Nothing()


def test_mean_and_covariance_are_numpys():
    X = np.random.default_rng(0).standard_normal((9000, 3)) + 1e3
    mean, cov = door.mean_and_covariance(ArrayRows(X))
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(cov, np.cov(X.T, bias=True), rtol=1e-10, atol=1e-12)


# Fits


def _nca(rows: Rows, y: np.ndarray, **options) -> list[np.ndarray]:
    settings = training.Settings(
        options.pop("solver", "lbfgs"), "auto", "random", 0.0, False, 3, 0.0, n_components=2
    )
    settings = settings._replace(**options)
    rng = np.random.RandomState(0)
    found = nca_fit.fit(rows, y, Mixture(), settings, rng, lambda *_: None, lambda _: None)
    return [found.best.A, np.array(found.objective)]


def _local(rows: Rows, y: np.ndarray, **options) -> list[np.ndarray]:
    settings = local_fit.Settings(
        Shape(), Penalty(0.1, 0.1), None, False, False, 1.0, 0.2, max_iter=4, tol=0.0
    )
    settings = settings._replace(**options)
    found = local_fit.fit(rows, settings, np.random.RandomState(0), lambda _: None)
    return [found.model.B, np.array(found.log_likelihood)]


def _coincidence(rows: Rows, y: np.ndarray, **options) -> list[np.ndarray]:
    given_parameters = coincidence_fit.Given(2, "auto", **options)
    ways = [CoincidenceSettings(3, "lbfgs", 3, 6, 0.0)]
    rng = np.random.RandomState(0)
    found = coincidence_fit.fit(
        rows, y, ways, given_parameters, rng, lambda _: None, lambda _: None
    )
    return [found.state.model.W, found.state.kappa_sq]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("fit", "options"),
    [
        (_nca, {}),
        (_nca, {"solver": "minibatch"}),
        (_nca, {"solver": "stochastic"}),
        (_nca, {"early_stopping": True, "init": "rca"}),
        (_local, {}),
        (_local, {"penalty": None}),
        (_local, {"batches": local_fit.Batches(100, 150, 0.5)}),
        (_coincidence, {}),
        (_coincidence, {"early_stopping": True}),
    ],
)
def test_a_fit_from_blocks_and_chosen_rows_has_the_bits_of_an_array(fit, options, dtype):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = (rng.standard_normal((400, 5)) + y[:, None] + 3).astype(dtype)
    array, blocks = (fit(rows, y, **options) for rows in (ArrayRows(X), GivenRows(X)))
    for ours, theirs in zip(array, blocks, strict=True):
        assert np.array_equal(ours, theirs)
