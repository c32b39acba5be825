"""The objective and its gradient: naive twin, finite differences, scikit-learn, invariances."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from fastmetric import nca_value_and_grad
from fastmetric.core.pairs import partition
from fastmetric.learn.pair_sums import all_pairs
from tests.strategies import Problem, problems
from tests.twins import nca as naive

EPS = np.finfo(np.float64).eps

pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes")


def exponent_error(problem, eps=EPS):
    """Return a bound of the rounding error of any exponent s_ij of the problem.

    Centring, projection and differences each lose a few eps of |A| |x - mean|, and s is a square.
    """
    A, X, _ = problem
    reach = np.linalg.norm(A, 2) * np.linalg.norm(X - X.mean(0), axis=1).max()
    lost = eps * (np.linalg.norm(A, 2) * np.abs(X).max() + (X.shape[1] + 4) * reach)
    return 8 * reach * lost + 4 * lost**2


def assert_equals_naive(problem, actual, rows=None, eps=EPS):
    """Assert that value and gradient are the naive twin's, to the rounding of the exponents."""
    A, X, y = problem
    value, gradient, size = naive.nca(A, X, y, rows)
    n = len(X)
    tolerance = 4 * exponent_error(problem, eps) + 50 * eps
    assert abs(actual[0] - value) <= n * tolerance
    # Besides its relative error, a difference z_i - z_j carries the rounding of its ends.
    ends = np.linalg.norm(A, 2) * np.ptp(X, axis=0).max() * np.abs(X - X.mean(0)).max()
    absolute = 40 * eps * n * ends * X.shape[1]
    assert np.all(np.abs(actual[1] - gradient) <= tolerance * size + absolute)


def test_comparison_with_naive_can_fail():
    rng = np.random.default_rng(0)
    problem = Problem(np.eye(2), rng.standard_normal((10, 2)), np.arange(10) % 2)
    value, gradient = nca_value_and_grad(*problem)
    assert_equals_naive(problem, (value, gradient))
    with pytest.raises(AssertionError):
        assert_equals_naive(problem, (value + 1e-9, gradient))
    with pytest.raises(AssertionError):
        assert_equals_naive(problem, (value, gradient + 1e-9))


@given(problems())
def test_objective_matches_the_pairwise_formula(problem):
    assume(exponent_error(problem) < 1e-3)
    assert_equals_naive(problem, nca_value_and_grad(*problem, n_jobs=1))


@given(problems(max_scale=2), st.data())
def test_value_of_some_rows_matches_the_naive_twin(problem, data):
    n = len(problem.X)
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=2 * n))
    actual = nca_value_and_grad(*problem, rows=np.array(rows), n_jobs=1)
    assert_equals_naive(problem, actual, rows)


@given(problems(min_scale=-2, max_scale=0))
def test_gradient_equals_finite_differences(problem):
    A, X, y = problem
    _, gradient = nca_value_and_grad(A, X, y, n_jobs=1)
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(A.shape)
    direction /= np.linalg.norm(direction) * max(1.0, np.ptp(X, axis=0).max())
    steps = 1e-3 * np.array([-3, -2, -1, 1, 2, 3])
    sixth_order = np.array([-1, 9, -45, 45, -9, 1]) / 60e-3
    values = [naive.nca_value(A + step * direction, X, y) for step in steps]
    slope = float(sixth_order @ np.array(values))
    assert abs(slope - np.sum(gradient * direction)) < 1e-7 * len(X)


@given(problems(min_scale=-4, max_scale=1))
def test_float32_agrees_to_its_precision(problem):
    A, X, y = problem
    low = Problem(A.astype(np.float32).astype(float), X.astype(np.float32).astype(float), y)
    eps32 = np.finfo(np.float32).eps
    assume(exponent_error(low, eps32) < 0.1)
    actual = nca_value_and_grad(low.A, low.X.astype(np.float32), y, n_jobs=1)
    assert_equals_naive(low, actual, eps=eps32)


@pytest.mark.parametrize("scale", [1e8, 1e30, 1e100])
def test_nearest_neighbour_decides_where_kernels_underflow(scale):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((80, 3)) * scale, rng.integers(0, 3, 80)
    value, gradient = nca_value_and_grad(np.eye(3), X, y)
    s = naive.sq_distances(X, X)
    np.fill_diagonal(s, np.inf)
    assert value == np.sum(y[s.argmin(axis=1)] == y)
    assert np.all(np.isfinite(gradient))


def test_tiny_scale_gives_each_row_the_share_of_its_class():
    y = np.repeat([0, 1], [30, 10])
    X = np.random.default_rng(0).standard_normal((40, 2)) * 1e-200
    value, _ = nca_value_and_grad(np.eye(2), X, y)
    assert value == pytest.approx(30 * 29 / 39 + 10 * 9 / 39, rel=1e-14)


def test_all_rows_equal_gives_a_zero_gradient():
    value, gradient = nca_value_and_grad(np.eye(2), np.ones((12, 2)), np.arange(12) % 3)
    assert value == pytest.approx(12 * 3 / 11)
    assert not gradient.any()


def test_classes_of_one_never_find_a_neighbour():
    X = np.random.default_rng(0).standard_normal((30, 3))
    value, gradient = nca_value_and_grad(np.eye(3), X, np.arange(30))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("d", [2, 10, 64])
def test_objective_matches_scikit_learn_on_digits(d):
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    A = np.random.default_rng(0).standard_normal((d, 64)) / 4
    peer = NeighborhoodComponentsAnalysis()
    peer.n_iter_ = 1
    expected_value, expected = peer._loss_grad_lbfgs(A.ravel(), X, y[:, None] == y, 1.0)
    value, gradient = nca_value_and_grad(A, X, y)
    assert abs(value / expected_value - 1) < 1e-10
    assert np.abs(gradient.ravel() - expected).max() < 1e-10 * np.abs(expected).max()


def _medium(n=2500, n_features=30, d=3, n_classes=7, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features)).astype(dtype)
    A = rng.standard_normal((d, n_features)) / np.sqrt(n_features)
    return Problem(A, X, rng.integers(0, n_classes, n))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 40.0])  # symmetric blocks; rows relative to their nearest
@pytest.mark.parametrize("d", [2, 20])
def test_same_bits_for_any_number_of_threads(d, scale, dtype):
    A, X, y = _medium(d=d, dtype=dtype)
    one = nca_value_and_grad(scale * A, X, y, n_jobs=1)
    for n_jobs in (2, 5):
        value, gradient = nca_value_and_grad(scale * A, X, y, n_jobs=n_jobs)
        assert value == one[0]
        assert np.array_equal(gradient, one[1])


@pytest.mark.parametrize("d", [2, 20])
def test_block_size_changes_only_rounding(d, monkeypatch):
    A, X, y = _medium(d=d)
    value, gradient = nca_value_and_grad(A, X, y)
    monkeypatch.setattr(partition, "SMALLEST_SIDE", 96)
    monkeypatch.setattr(partition, "LARGEST_SIDE", 192)
    assert len(partition.symmetric_blocks(len(X), d)) > 36
    small_value, small_gradient = nca_value_and_grad(A, X, y)
    assert small_value == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(small_gradient, gradient, atol=1e-12 * np.abs(gradient).max())


def test_rows_of_underflowed_kernels_match_the_naive_twin():
    A, X, y = _medium(n=300, d=2)
    X[:20] *= 1e3  # outliers whose kernels all underflow
    assert_equals_naive(Problem(A, X, y), nca_value_and_grad(A, X, y))


def test_symmetric_pairs_and_rows_agree(monkeypatch):
    A, X, y = _medium(n=1500)
    value, gradient = nca_value_and_grad(A, X, y)
    monkeypatch.setattr(all_pairs, "mostly_underflowed", lambda problem, n_jobs: True)
    by_rows = nca_value_and_grad(A, X, y)
    assert by_rows[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(by_rows[1], gradient, atol=1e-12 * np.abs(gradient).max())


def test_row_order_does_not_matter():
    A, X, y = _medium()
    value, gradient = nca_value_and_grad(A, X, y)
    order = np.random.default_rng(1).permutation(len(X))
    other_value, other = nca_value_and_grad(A, X[order], y[order])
    assert other_value == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(other, gradient, atol=1e-11 * np.abs(gradient).max())


def test_translation_does_not_matter():
    A, X, y = _medium()
    value, gradient = nca_value_and_grad(A, X, y)
    far_value, far = nca_value_and_grad(A, X + 1e6, y)
    # A shift of 1e6 costs the data 1e6 eps; the exponents are of the order of 10.
    assert far_value == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(far, gradient, atol=1e-7 * np.abs(gradient).max())


def test_rotation_of_the_projected_space_rotates_the_gradient():
    A, X, y = _medium(d=4)
    value, gradient = nca_value_and_grad(A, X, y)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    turned_value, turned = nca_value_and_grad(Q @ A, X, y)
    assert turned_value == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(turned, Q @ gradient, atol=1e-12 * np.abs(gradient).max())


def test_names_of_classes_do_not_matter():
    A, X, y = _medium(n=200)
    names = np.array([f"class {9 - c}" for c in y])
    assert nca_value_and_grad(A, X, names)[0] == pytest.approx(nca_value_and_grad(A, X, y)[0])


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=0)[::2],
        lambda X: np.pad(X, ((0, 0), (3, 2)))[:, 3:-2],
        lambda X: X[::-1].copy()[::-1],
        lambda X: X.astype(">f8"),
        lambda X: X.astype(object),
        lambda X: X.tolist(),
    ],
    ids=["fortran", "row stride", "column slice", "reversed", "big-endian", "object", "list"],
)
def test_layout_of_the_input_does_not_matter(change):
    A, X, y = _medium(n=400)
    value, gradient = nca_value_and_grad(A, X, y)
    other_value, other = nca_value_and_grad(A, change(X), y)
    assert other_value == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(other, gradient, atol=1e-13 * np.abs(gradient).max())


def test_read_only_arrays_are_accepted():
    A, X, y = _medium(n=100)
    for array in (A, X, y):
        array.flags.writeable = False
    copies = [array.copy() for array in (A, X, y)]
    nca_value_and_grad(A, X, y, rows=np.arange(3))
    for array, copy in zip((A, X, y), copies, strict=True):
        assert np.array_equal(array, copy)


def test_integer_input_is_accepted():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (50, 3)).astype(np.uint8), rng.integers(0, 2, 50)
    A = np.eye(2, 3) / 100
    assert nca_value_and_grad(A, X, y)[0] == nca_value_and_grad(A, X.astype(float), y)[0]


BAD = {
    "NaN": (dict(X=[[np.nan, 1.0], [0.0, 1.0]]), "NaN"),
    "infinity": (dict(X=[[np.inf, 1.0], [0.0, 1.0]]), "infinity"),
    "one row": (dict(X=[[1.0, 2.0]], y=[0]), "minimum of 2"),
    "1-D": (dict(X=[1.0, 2.0]), "2D array"),
    "lengths": (dict(y=[0, 1, 1]), "inconsistent"),
    "one class": (dict(y=[1, 1]), "one class only"),
    "continuous": (dict(y=[0.5, 1.5]), "continuous"),
    "strings": (dict(X=[["1", "2"], ["3", "4"]]), "strings"),
    "A columns": (dict(A=np.eye(3)), "columns"),
    "A rows": (dict(A=np.ones((3, 2))), "more dimensions"),
    "A NaN": (dict(A=[[np.nan, 0.0]]), "NaN"),
    "rows range": (dict(rows=[0, 2]), "rows run"),
    "rows mask": (dict(rows=[True, False]), "flatnonzero"),
    "rows empty": (dict(rows=[]), "non-empty"),
    "kernel": (dict(kernel="cosine"), "choose from 'gaussian'"),
    "method": (dict(method="forest"), "choose from 'auto', 'exact', 'tree'"),
    "rtol": (dict(rtol=1.0), "rtol should be less than 1"),
    "n_jobs": (dict(n_jobs=0), "n_jobs"),
    "overflow": (dict(X=[[1e200, 0.0], [0.0, 1.0]]), "overflow"),
    "y 2-D": (dict(y=[[0, 1], [1, 0]]), "shape"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(change, message):
    good = dict(A=np.eye(2), X=[[0.0, 1.0], [2.0, 3.0]], y=[0, 1])
    with pytest.raises(ValueError, match=message):
        nca_value_and_grad(**(good | change))


def test_sparse_input_is_refused_with_advice():
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="dense"):
        nca_value_and_grad(np.eye(2), csr_array(np.eye(2)), [0, 1])
