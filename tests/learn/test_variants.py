"""Every NCA variant's objective and gradient: naive twin, certified rounding, invariances."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastmetric import nca_value_and_grad
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.rows import ArrayRows
from tests.learn.test_objective import EPS, exponent_error
from tests.strategies import Problem, problems
from tests.twins import nca as naive
from tests.twins.pairs import kernel_fall

KERNELS = ("gaussian", "biweight")
METHODS = ("exact", "tree")
PRIORS = {"classic": None, "equal": "equal", "array": np.array([3.0, 1.0, 0.2, 1.0])}
BACKGROUNDS = {
    "none": {},
    "default share": dict(background=True),
    "one share": dict(background=True, beta=0.3),
    "share per class": dict(background=True, beta=np.array([0.1, 0.7, 0.3, 0.02])),
}

pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes")


class Rounding:
    """What rounding can make of a problem: how far P and the gradient may be from the truth.

    A squared distance may be wrong by the exponents' error, which a kernel turns into a range of
    every class sum; a background loses the digits that its covariance's condition costs.
    """

    def __init__(self, problem, variant, eps=EPS):
        A, X, _ = problem
        twin = naive.ClassDensities(*problem, **variant)
        n = len(twin.Z)
        self.delta = exponent_error(problem, eps) + 8 * eps
        normals, backgrounds = self._backgrounds(twin, eps)
        low = twin.terms(lift=self.delta)[0] * (1 - 50 * eps) + backgrounds * (1 - self.worst)
        high = twin.terms(lift=-self.delta)[0] * (1 + 50 * eps) + backgrounds * (1 + self.worst)
        at = np.arange(n), twin.y
        total = np.add(*twin.terms()).sum(axis=1)
        some, full = total > 0, np.where(total > 0, total, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            lowest = low[at] / (low[at] + high.sum(axis=1) - high[at])
            highest = high[at] / (high[at] + low.sum(axis=1) - low[at])
        # Nothing near: P is 0. Nothing near for sure: it may not be.
        self.lowest = np.nan_to_num(lowest, nan=0.0)
        self.highest = np.where(some, np.nan_to_num(highest, nan=1.0), 0)
        self.relative = ((high - low).sum(axis=1) / full).max()
        # Slopes of P in the terms [CCK-4], over all rows.
        P = twin.probabilities()
        slopes = np.repeat((P / full)[:, None], len(twin.classes), axis=1)
        slopes[at] = (1 - P) / full
        self.pairs = self._pair_sizes(twin, slopes)
        self.ends = np.linalg.norm(A, 2) * np.ptp(X, axis=0).max() * np.abs(X - X.mean(0)).max()
        self.ends *= 40 * eps * X.shape[1]
        self.normals = slopes * backgrounds * normals
        # Both sides' means are off by eps of the data, over a covariance of at least 1e-6.
        self.least = 1e6 * n * np.linalg.norm(A, 2) * (eps * np.abs(X).max()) ** 2

    def _backgrounds(self, twin, eps):
        """Return the size of the slopes of log N in A, and the backgrounds' terms, (n, C) each."""
        backgrounds = twin.terms()[1]
        sizes, self.worst, self.condition = np.zeros(backgrounds.shape), 0.0, 1.0
        if not twin.background:
            return sizes, backgrounds
        reach = np.linalg.norm((twin.X - twin.X.mean(axis=0)).astype(float), axis=1).max()
        for c in range(len(twin.classes)):
            mean, T = twin.normal(c)
            inverse = naive.inverse_and_determinant(T)[0].astype(float)
            v = ((twin.Z - mean) @ inverse).astype(float)
            lengths = np.linalg.norm(v, axis=1)
            squares = ((twin.Z - mean).astype(float) * v).sum(axis=1)
            self.condition = max(self.condition, np.linalg.cond(T.astype(float)))
            self.worst = max(self.worst, squares.max())
            covariance = np.linalg.norm(twin.A.astype(float), 2) * reach**2
            spread = lengths**2 + np.linalg.norm(inverse, 2)
            sizes[:, c] = 2 * lengths * reach + spread * covariance
        self.worst = 20 * eps * len(T) * self.condition * (1 + self.worst)
        return sizes, backgrounds

    def _pair_sizes(self, twin, slopes):
        """Return the absolute weights of pairs, what they may be off by, and what they weigh."""
        gaps = twin.Z[:, None] - twin.Z
        s = (gaps * gaps).sum(axis=-1)
        fall = kernel_fall(twin.kernel, s)
        off = self.delta * (fall if twin.kernel == "gaussian" else 2.0 * (s < 1 + self.delta))
        counted = 1 - np.eye(len(s))
        weight = slopes[:, twin.y] * counted
        if not twin.classic:
            numbers = np.maximum(twin.sizes[twin.y] - (twin.y[:, None] == twin.y), 1)
            weight = weight * twin.priors[twin.y] / numbers
        if twin.background:
            weight = weight * (1 - twin.beta)[twin.y] / twin.volume
        length = 2 * np.sqrt(s * naive.sq_distances(twin.X, twin.X))
        return weight * fall, weight * off, length

    def of_gradient(self, counts):
        """Return how far entries of the gradient may be off, by rounding."""
        counts = counts[:, None]
        weight, off, length = self.pairs
        kernels = counts * ((4 * self.relative * weight + off) * length + weight * self.ends)
        backgrounds = counts * (4 * self.relative + self.worst) * self.normals
        return kernels.sum() + backgrounds.sum() + self.least


def assert_equals_twin(problem, actual, variant, *, rows=None, eps=EPS, twin=None):
    """Assert that value and gradient are the twin's, to rounding; `twin` is its, if known."""
    n = len(problem.X)
    counts = np.ones(n) if rows is None else np.bincount(rows, minlength=n)
    rounding = Rounding(problem, variant, eps)
    slack = 50 * eps * n
    assert counts @ rounding.lowest - slack <= actual[0] <= counts @ rounding.highest + slack
    expected = naive.variant_gradient(*problem, rows, **variant) if twin is None else twin
    assert np.abs(actual[1] - expected).max() <= rounding.of_gradient(counts)


def _small(n=36, d=2, scale=0.6, seed=0):
    """Return a problem of four classes: of one row, of two, and of many."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32).astype(float)
    y = np.concatenate([[0, 1, 1], rng.integers(2, 4, n - 3)])
    A = (scale * rng.standard_normal((d, 5))).astype(np.float32).astype(float)
    return Problem(A, X, rng.permutation(y))


@st.composite
def variants(draw, n_classes):
    """Draw a kernel, priors and a background for so many classes."""
    numbers = st.lists(st.floats(0.01, 0.99), min_size=n_classes, max_size=n_classes)
    variant = dict(
        kernel=draw(st.sampled_from(KERNELS)),
        priors=draw(st.one_of(st.none(), st.just("equal"), numbers.map(np.array))),
        background=draw(st.booleans()),
    )
    if variant["background"]:
        one = st.floats(0.01, 0.99)
        variant["beta"] = draw(st.one_of(st.none(), one, numbers.map(np.array)))
    return variant


def _is_fair(problem, variant):
    """Return whether the twin's own arithmetic holds: nothing underflows, no singular doubt."""
    A, X, y = problem
    if exponent_error(problem) > 1e-6 or naive.sq_distances(X @ A.T, X @ A.T).max() > 5000:
        return False
    Z = X @ A.T
    for c in np.unique(y) if variant["background"] else ():
        rows = Z[y == c]
        if len(rows) > Z.shape[1]:
            lengths = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
            ratios = lengths[-1] / np.array([lengths[0] or 1, np.abs(Z).max() or 1])
            if np.any((ratios > 1e-13) & (ratios < 1e-3)):
                return False
    return True


def test_comparison_with_the_twin_can_fail():
    problem, variant = _small(), dict(kernel="biweight", background=True)
    value, gradient = nca_value_and_grad(*problem, **variant)
    assert_equals_twin(problem, (value, gradient), variant)
    with pytest.raises(AssertionError):
        assert_equals_twin(problem, (value + 1e-9, gradient), variant)
    with pytest.raises(AssertionError):
        assert_equals_twin(problem, (value, gradient * (1 + 1e-8)), variant)


def test_twin_without_priors_and_background_is_classic_nca():
    A, X, y = _small()
    value, gradient, _ = naive.nca(A, X, y)
    assert abs(naive.variant_value(A, X, y) - value) < 1e-15
    assert np.abs(naive.variant_gradient(A, X, y) - gradient).max() < 1e-15


@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
@pytest.mark.parametrize("priors", PRIORS.values(), ids=PRIORS.keys())
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_variant_equals_its_twin(kernel, priors, background):
    problem = _small()
    variant = dict(kernel=kernel, priors=priors, background=False) | background
    for rows in (None, np.array([5, 0, 1, 2, 30, 7, 7, 7])):
        twin = naive.variant_gradient(*problem, rows, **variant)
        for method, dtype in product(METHODS, (np.float64, np.float32)):
            actual = nca_value_and_grad(
                problem.A, problem.X.astype(dtype), problem.y, rows=rows, method=method, **variant
            )
            eps = np.finfo(dtype).eps
            assert_equals_twin(problem, actual, variant, rows=rows, eps=eps, twin=twin)


@settings(max_examples=150)
@given(st.data(), problems(max_n=30, max_features=5, min_scale=-2, max_scale=0))
def test_any_data_match_the_twin(data, problem):
    variant = data.draw(variants(len(np.unique(problem.y))))
    assume(_is_fair(problem, variant))
    n = len(problem.X)
    some = st.lists(st.integers(0, n - 1), min_size=1, max_size=2 * n)
    rows = data.draw(st.one_of(st.none(), some.map(np.array)))
    method = data.draw(st.sampled_from(METHODS))
    actual = nca_value_and_grad(*problem, rows=rows, method=method, n_jobs=1, **variant)
    assert_equals_twin(problem, actual, variant, rows=rows)


@settings(max_examples=60)
@given(st.data(), problems(max_n=40, min_scale=-8, max_scale=8))
def test_value_is_bounded_and_gradient_finite_at_any_scale(data, problem):
    variant = data.draw(variants(len(np.unique(problem.y))))
    for method in METHODS:
        value, gradient = nca_value_and_grad(*problem, method=method, n_jobs=1, **variant)
        assert 0 <= value <= len(problem.X) * (1 + 8 * EPS)
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_class_of_singular_covariance_uses_the_total_one(kernel, d):
    _, X, y = _small()
    X[y == 2, :] = X[y == 2][0] * np.linspace(-1, 1, np.sum(y == 2))[:, None]  # on a line
    A = 0.5 * np.random.default_rng(3).standard_normal((d, 5))
    variant = dict(kernel=kernel, background=True, beta=0.5)
    problem = Problem(A, X, y)
    assert_equals_twin(problem, nca_value_and_grad(*problem, **variant), variant)


@pytest.mark.parametrize("d", [1, 2])
def test_a_class_of_equal_rows_has_no_covariance_of_its_own(d):
    A, X, y = _small(d=d)
    X[y == 3] = [0.1, 0.7, 1.3, -0.3, 0.01]  # their mean is not quite them
    variant = dict(kernel="biweight", background=True, beta=0.5)
    problem = Problem(A, X, y)
    assert_equals_twin(problem, nca_value_and_grad(*problem, **variant), variant)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e7])
def test_rows_that_do_not_span_the_space_have_a_background(scale):
    rng = np.random.default_rng(0)
    X, y = scale * rng.standard_normal((3, 5)), np.array([0, 1, 1])
    A = rng.standard_normal((4, 5)) / scale
    problem, variant = Problem(A, X, y), dict(background=True)
    assert_equals_twin(problem, nca_value_and_grad(*problem, **variant), variant)


@pytest.mark.parametrize("seed", range(10))
def test_singular_covariance_keeps_value_and_gradient_finite(seed):
    rng = np.random.default_rng(seed)
    X, A = rng.standard_normal((2, 5)), 1e7 * rng.standard_normal((2, 5))
    value, gradient = nca_value_and_grad(A, X, [0, 1], background=True)
    assert 0 <= value <= 2
    assert np.all(np.isfinite(gradient))


def test_equal_rows_give_a_zero_gradient():
    X, y = np.full((12, 2), 0.1), np.arange(12) % 3
    for kernel in KERNELS:
        variant = dict(kernel=kernel, background=True)
        value, gradient = nca_value_and_grad(np.eye(2), X, y, **variant)
        assert value == pytest.approx(float(naive.variant_value(np.eye(2), X, y, **variant)))
        assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("rows", [None, np.array([1, 1, 8, 20])], ids=["all", "some"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_slope_in_a_common_share_equals_the_twins(kernel, method, rows):
    A, X, y = _small()
    problem = Objective(ArrayRows(X), y, mixture=Mixture(kernel, background=True), method=method)
    for beta in (0.01, 0.5, 0.99):
        found = problem.evaluate(A, rows, beta=beta)
        variant = dict(kernel=kernel, background=True)
        assert found.value == pytest.approx(
            float(naive.variant_value(A, X, y, rows, beta=beta, **variant)), rel=1e-13
        )
        moved = naive.WIDE(beta) + 1j * naive.WIDE("1e-60")
        slope = naive.variant_value(A, X, y, rows, beta=moved, **variant).imag * naive.WIDE("1e60")
        # P (1 - P) over the share: at most 1/4 for each row, twice, all of it rounded.
        tolerance = 100 * EPS * len(X) / (beta * (1 - beta))
        assert abs(found.beta_slope - slope) <= tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("priors", [None, "equal"])
def test_rows_beyond_a_compact_kernel_contribute_nothing(priors, method):
    A, X, y = _small()
    far = np.array([3, 9, 14])
    X[far] = 100.0 * (1 + np.arange(3))[:, None]
    variant = dict(kernel="biweight", priors=priors, method=method)
    value, gradient = nca_value_and_grad(A, X, y, rows=far, **variant)
    assert value == 0
    assert not gradient.any()
    near = np.setdiff1d(np.arange(len(X)), far)
    whole = nca_value_and_grad(A, X, y, **variant)
    part = nca_value_and_grad(A, X, y, rows=near, **variant)
    assert whole[0] == pytest.approx(part[0], rel=1e-14)
    np.testing.assert_allclose(whole[1], part[1], atol=1e-13 * np.abs(part[1]).max())


def test_a_background_reaches_rows_beyond_a_compact_kernel():
    A, X, y = _small()
    X[3] = 100.0
    assert nca_value_and_grad(A, X, y, rows=[3], kernel="biweight", background=True)[0] > 0


def _medium(n=1500, d=2, dtype=np.float64):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    X = (rng.standard_normal((n, 10)) + y[:, None]).astype(dtype)
    return Problem(rng.standard_normal((d, 10)) / 4, X, y)


@pytest.mark.parametrize("rows", [None, np.arange(0, 1500, 7)], ids=["all", "some"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
@pytest.mark.parametrize("kernel", KERNELS)
def test_same_bits_for_any_number_of_threads(kernel, background, method, rows):
    for priors, dtype in ((PRIORS["array"], np.float64), (None, np.float32)):
        variant = dict(kernel=kernel, priors=priors, method=method, rows=rows) | background
        problem = _medium(dtype=dtype)
        one = nca_value_and_grad(*problem, n_jobs=1, **variant)
        for n_jobs in (2, 5):
            value, gradient = nca_value_and_grad(*problem, n_jobs=n_jobs, **variant)
            assert value == one[0]
            assert np.array_equal(gradient, one[1])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
@pytest.mark.parametrize("kernel", KERNELS)
def test_mean_over_batches_is_the_full_objective(kernel, background, method):
    A, X, y = _medium(n=600)
    variant = dict(kernel=kernel, priors="equal", method=method) | background
    value, gradient = nca_value_and_grad(A, X, y, **variant)
    split = np.random.default_rng(1).permutation(600).reshape(8, 75)
    parts = [nca_value_and_grad(A, X, y, rows=rows, **variant) for rows in split]
    assert np.mean([600 / 75 * part[0] for part in parts]) == pytest.approx(value, rel=1e-13)
    mean = np.mean([600 / 75 * part[1] for part in parts], axis=0)
    np.testing.assert_allclose(mean, gradient, atol=1e-11 * np.abs(gradient).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_mini_batch_is_a_problem_of_its_own(kernel, method):
    A, X, y = _small(n=60)
    beta, priors = np.array([0.1, 0.7, 0.3, 0.02]), np.array([3.0, 1.0, 0.2, 1.0])
    whole = Objective(ArrayRows(X), y, mixture=Mixture(kernel, priors, True, beta), method=method)
    rows = np.flatnonzero(y != 1)[::-2]  # it lacks a class
    kept = np.unique(y[rows])
    found = whole.restricted(rows).evaluate(A)
    expected = nca_value_and_grad(
        A,
        X[rows],
        y[rows],
        kernel=kernel,
        priors=priors[kept],
        background=True,
        beta=beta[kept],
        method=method,
    )
    # The priors are in other units.
    assert found.value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(found.gradient, expected[1], rtol=1e-10, atol=1e-12)


def test_trees_leave_out_pairs_beyond_a_compact_kernel():
    A, X, y = _medium(n=3000)
    shares = []
    for scale in (1.0, 10.0):
        exact, tree = (
            Objective(ArrayRows(X), y, mixture=Mixture("biweight"), method=method).evaluate(
                scale * A
            )
            for method in METHODS
        )
        assert exact.pair_share == 1
        assert tree.error_bound < 1e-10 * len(X)
        assert tree.value == pytest.approx(exact.value, rel=1e-12)
        shares.append(tree.pair_share)
    # A group of neighbours looks at more than its reach.
    assert shares[1] < shares[0] / 2 < 0.3


@pytest.mark.parametrize("rtol", [0.0, 1e-6, 1e-2, 0.3])
@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
@pytest.mark.parametrize("priors", PRIORS.values(), ids=PRIORS.keys())
def test_a_tolerance_is_certified_in_every_variant(priors, background, rtol):
    A, X, y = _medium(n=800)
    shape = dict(background=False) | background
    beta = shape.get("beta")
    beta = None if beta is None else np.broadcast_to(beta, 4)
    mixture = Mixture("gaussian", np.ones(4) if isinstance(priors, str) else priors)
    mixture = mixture._replace(background=shape["background"], beta=beta)
    exact, tree = (
        Objective(ArrayRows(X), y, mixture=mixture, method=method, rtol=rtol).evaluate(A)
        for method in METHODS
    )
    assert abs(tree.value - exact.value) <= tree.error_bound + 1e-12 * len(X)
    assert tree.error_bound <= max(2 * rtol, 1e-11) * len(X)


@settings(max_examples=80)
@given(st.data(), problems(max_n=80, max_scale=2), st.sampled_from([0.0, 1e-6, 1e-2, 0.3]))
def test_any_data_lie_within_the_error_bound(data, problem, rtol):
    y = np.unique(problem.y, return_inverse=True)[1]
    n, sizes = len(y), np.bincount(y)
    beta = data.draw(st.sampled_from([None, np.linspace(0.1, 0.9, len(sizes))]))
    priors = data.draw(st.sampled_from([None, np.linspace(1.0, 5.0, len(sizes))]))
    mixture = Mixture("gaussian", priors, data.draw(st.booleans()), beta)
    exact, tree = (
        Objective(ArrayRows(problem.X), y, mixture=mixture, method=method, rtol=rtol).evaluate(
            problem.A
        )
        for method in METHODS
    )
    # Sums of P_i <= 1 each; the exponents of both sides are rounded.
    rounding = min(n, n * (1e-12 + 4 * exponent_error(problem)))
    assert abs(tree.value - exact.value) <= tree.error_bound + rounding


@pytest.mark.parametrize("rtol", [0.0, 1e-3])
def test_classes_of_equal_rows_have_a_gradient_over_trees(rtol):
    # Between two places a sum is constant; its slope is not.
    X = np.repeat([[0.0, 0.0], [0.5, 0.2], [0.1, 0.9]], [5, 9, 4], axis=0)
    y = np.repeat([0, 1, 2], [5, 9, 4])
    for priors, background in product((None, "equal"), (False, True)):
        variant = dict(priors=priors, background=background)
        exact = nca_value_and_grad(np.eye(2), X, y, **variant)
        tree = nca_value_and_grad(np.eye(2), X, y, method="tree", rtol=rtol, **variant)
        assert np.abs(exact[1]).max() > 0.1
        np.testing.assert_allclose(tree[1], exact[1], atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_translation_does_not_matter(kernel):
    A, X, y = _medium(n=500)
    variant = dict(kernel=kernel, background=True, beta=0.4)
    value, gradient = nca_value_and_grad(A, X, y, **variant)
    far_value, far = nca_value_and_grad(A, X + 1e6, y, **variant)
    # A shift of 1e6 costs the data 1e6 eps.
    assert far_value == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(far, gradient, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("kernel", KERNELS)
def test_rotation_of_the_projected_space_rotates_the_gradient(kernel):
    A, X, y = _medium(n=500, d=4)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    for priors in (None, "equal"):
        variant = dict(kernel=kernel, background=True, beta=0.4, priors=priors)
        value, gradient = nca_value_and_grad(A, X, y, **variant)
        turned_value, turned = nca_value_and_grad(Q @ A, X, y, **variant)
        assert turned_value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(turned, Q @ gradient, atol=1e-10 * np.abs(gradient).max())


@pytest.mark.parametrize("method", ["exact", "tree"])
@pytest.mark.parametrize("kernel", ["gaussian", "biweight"])
def test_unequal_priors_keep_their_digits_in_float32(kernel, method):
    A, X, y = _medium(n=300, dtype=np.float32)
    for least in (1e-35, 1e-45, 1e-240):
        variant = dict(kernel=kernel, method=method, priors=np.where(np.unique(y), least, 1.0))
        single, double = (
            nca_value_and_grad(2 * A, X.astype(dtype), y, **variant)
            for dtype in (np.float32, np.float64)
        )
        assert single[0] == pytest.approx(double[0], rel=1e-5)
        scale = max(1.0, np.abs(double[1]).max())
        np.testing.assert_allclose(single[1], double[1], atol=1e-5 * scale)


def test_only_ratios_of_priors_matter():
    A, X, y = _small()
    for background in BACKGROUNDS.values():
        one = nca_value_and_grad(A, X, y, priors=[1, 2, 3, 4], **background)
        other = nca_value_and_grad(A, X, y, priors=[1e5, 2e5, 3e5, 4e5], **background)
        assert other[0] == pytest.approx(one[0], rel=1e-13)
        np.testing.assert_allclose(other[1], one[1], rtol=1e-9, atol=1e-13)


BAD = {
    "background": (dict(background="learn"), "background should be True or False"),
    "beta alone": (dict(beta=0.5), "give background=True"),
    "beta 0": (dict(background=True, beta=0.0), "beta should be"),
    "beta 1": (dict(background=True, beta=1.0), "beta should be"),
    "beta NaN": (dict(background=True, beta=np.nan), "beta should be"),
    "beta number": (dict(background=True, beta=[0.5]), "2 of them"),
    "beta range": (dict(background=True, beta=[0.5, 1.5]), "beta should be"),
    "priors name": (dict(priors="even"), "priors='even'"),
    "priors number": (dict(priors=[1.0, 1.0, 1.0]), "priors should be 2"),
    "priors 0": (dict(priors=[0.0, 1.0]), "priors should be"),
    "priors negative": (dict(priors=[-1.0, 2.0]), "priors should be"),
    "priors NaN": (dict(priors=[np.nan, 1.0]), "priors"),
    "priors sum": (dict(priors=[1e308, 1.5e308]), "priors should be"),
    "priors apart": (dict(priors=[1e-260, 1.0]), "too far apart"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        nca_value_and_grad(np.eye(2), [[0.0, 1.0], [2.0, 3.0]], [0, 1], **change)
