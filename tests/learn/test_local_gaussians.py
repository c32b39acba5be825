from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastmetric import ManifoldParzen, engine
from fastmetric.learn import costs
from fastmetric.learn.manifold import gaussian_tree, marginal_screening, mixture_density
from fastmetric.learn.manifold.covariance_grid import Block, ShapeGrid
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians
from tests.manifold_problems import EPS, problems
from tests.twins import manifold as naive_manifold

# Screening


@pytest.mark.parametrize("rtol", [0.0, 0.3])
@pytest.mark.parametrize(
    ("spread", "dtype"), [(0.0, np.float64), (3.0, np.float64), (3.0, np.float32)]
)
def test_screening_omits_only_negligible_kernels(spread, dtype, rtol, monkeypatch):
    """Clusters, some of them dense: there every point matters, and products take over."""
    rng = np.random.default_rng(3)
    means = spread * rng.standard_normal((20, 40))
    X = np.repeat(means, 60, axis=0) + rng.standard_normal((1200, 40))
    X[:60] = means[0] + 0.05 * rng.standard_normal((60, 40))
    query = (X[::5] + 0.3 * rng.standard_normal((240, 40))).astype(dtype)
    X = X.astype(dtype)
    model = ManifoldParzen(3, n_neighbors=8, noise_variance=0.1, rtol=rtol).fit(X)
    monkeypatch.setattr(costs, "SCREENING_PRODUCTS", 0)
    screened = []
    add = mixture_density.add_screened

    def spy(*args, **kwargs):
        screened.append(args)
        add(*args, **kwargs)

    monkeypatch.setattr(mixture_density, "add_screened", spy)
    ours = model.score_samples(query)
    assert screened
    expected = naive_manifold.density_along(X, model.directions_, model.variances_, query, 0.1)
    promised = 1e-11 if dtype == np.float64 else 0.01
    error = ours - expected.astype(float)
    assert np.all(error <= promised)
    assert np.all(error >= np.log1p(-rtol) - promised)
    assert np.array_equal(ours, model.set_params(n_jobs=1).score_samples(query))


@pytest.mark.parametrize("share", [0.5, 1.1, 5.0])
def test_screening_omits_kernels_below_its_margin(share, monkeypatch):
    """Rows around one in a few directions, where bounds are exact: below or above the margin."""
    monkeypatch.setattr(costs, "SCREENING_PRODUCTS", 0)
    monkeypatch.setattr(costs, "SCREENING_GAIN", np.inf)
    monkeypatch.setattr(costs, "SCREENED_SHARE", 1.0)
    n, n_features, rtol = 1000, 40, 0.1
    X, query = np.zeros((n, n_features)), np.zeros((50, n_features))
    around = np.random.default_rng(31).standard_normal((n - 1, 5))
    around *= np.sqrt(-2 * np.log(share * rtol / n)) / np.linalg.norm(around, axis=1)[:, None]
    X[1:, :5] = around
    model = ManifoldParzen(0, n_neighbors=1, noise_variance=1.0, rtol=rtol).fit(X)
    error = model.score_samples(query) - np.log(1 + (n - 1) * share * rtol / n)
    error += np.log(n) + 20 * np.log(2 * np.pi)
    left_out = -np.log1p((n - 1) * share * rtol / n) if share < 1 else 0.0
    np.testing.assert_allclose(error, left_out, rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(problem=problems(max_features=9), part=st.sampled_from([8, 4, 2, 1]))
def test_marginal_bounds_the_gaussian_from_above(problem, part):
    """Up to rounding in float32."""
    X, query, q, k, noise = problem
    model = ManifoldParzen(q, n_neighbors=k, noise_variance=noise).fit(X)
    found = LocalGaussians(X, model._center, model.directions_, model.variances_, model._offsets)
    grid = ShapeGrid(np.array([model.variances_.shape[1]]), np.array([noise]))
    basis = marginal_screening._principal_directions(found, grid)[:, : max(1, X.shape[1] // part)]
    marginals = marginal_screening._marginals(found, slice(0, len(X)), grid, basis)
    rows = marginals.rows.astype(np.float64)
    gaps = (query - model._center) @ basis - rows[:, None, -1]
    along = np.einsum("imd,ijd->imj", gaps, rows[:, :-1])
    quadratic = (gaps**2).sum(axis=2) - (along**2).sum(axis=2)
    bounds = (marginals.log_factors[:, None] - quadratic) / 2
    terms = naive_manifold.terms_along(X, model.directions_, model.variances_, query, noise)
    sizes = (query**2).sum(axis=1).max() + (X**2).sum(axis=1).max()
    largest = noise + model.variances_.max(initial=0)
    logs = X.shape[1] * (1 + abs(np.log(noise)) + abs(np.log(largest)))
    slack = 8 * np.finfo(np.float32).eps * (q + 1) * (sizes / noise + logs)
    assert np.all(bounds >= terms.astype(float) - slack)
    if part == 1:
        assert np.all(bounds <= terms.astype(float) + slack)


def test_screening_runs_in_short_blocks(monkeypatch):
    """However many queries there are: a block is what Ctrl-C waits for."""
    monkeypatch.setattr(costs, "SCREENING_PRODUCTS", 0)
    monkeypatch.setattr(costs, "SCREENING_GAIN", np.inf)
    rng = np.random.default_rng(32)
    X, query = rng.standard_normal((2500, 16)), rng.standard_normal((5000, 16))
    model = ManifoldParzen(1, n_neighbors=3, noise_variance=0.5).fit(X)
    run, blocks = engine.run, []

    def spy(task, items, **options):
        blocks.extend(item for item in items if isinstance(item, Block))
        return run(task, items, **options)

    monkeypatch.setattr(engine, "run", spy)
    model.score_samples(query)
    pairs = [len(query[block.rows]) * len(X[block.points]) for block in blocks]
    assert sum(pairs) >= 2 * len(X) * len(query)  # the near points, and the sums
    assert max(pairs) <= 2**23


# Trees


@pytest.fixture
def only_trees(monkeypatch):
    """Have the tree taken, with leaves as small as can be, whether it pays or not."""
    monkeypatch.setattr(costs, "GAUSSIAN_TREE_ROWS", 1)
    monkeypatch.setattr(gaussian_tree, "_LEAF_SIZE", 16)
    monkeypatch.setattr(gaussian_tree, "_pays", lambda *args: True)
    monkeypatch.setattr(mixture_density, "_largest_norm", None)  # must not be called


def spiral(n, n_features, noise, seed):
    """Return rows (n, D) around a spiral."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(3, 15, n)
    curve = 0.04 * np.column_stack([t * np.sin(t), t * np.cos(t), t])[:, :n_features]
    return curve + noise * rng.standard_normal((n, n_features))


def assert_certified(ours, expected, model, query, rtol, eps=EPS):
    """Assert that log densities are too low by what rtol allows at most, up to rounding.

    A length across is off by eps of the whole difference, and is sqrt(quadratic) deviations.
    """
    X, noise = model._X.astype(np.float64), model.noise_variance
    expected = expected.astype(float)
    largest = noise + model.variances_.max(initial=0)
    logs = np.log(len(X)) + X.shape[1] * (2 + abs(np.log(noise)) + abs(np.log(largest)))
    spans = np.sqrt((query**2).sum(axis=1)) + np.sqrt((X**2).sum(axis=1).max())
    quadratic = 2 * (np.abs(expected) + logs)
    rounding = 32 * eps * (quadratic + spans / np.sqrt(noise) * np.sqrt(quadratic))
    assert np.all(ours <= expected + rounding)
    assert np.all(ours >= expected + np.log1p(-rtol) - rounding)


def test_assert_certified_can_fail():
    X = np.ones((3, 2))
    model = ManifoldParzen(1, n_neighbors=2, noise_variance=1.0).fit(X)
    expected = np.zeros(1)
    for wrong in (1e-9, np.log(0.89)):
        with pytest.raises(AssertionError):
            assert_certified(np.array([wrong]), expected, model, X[:1], 0.1)
    assert_certified(np.array([np.log(0.91)]), expected, model, X[:1], 0.1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    problem=problems(max_features=4, max_n=200),
    thinner=st.sampled_from([1.0, 1e-2, 1e-6]),
    far=st.sampled_from([1.0, 30.0, 1e6]),
    rtol=st.sampled_from([0.0, 1e-6, 0.01, 0.5]),
)
def test_tree_omits_at_most_its_error_budget(only_trees, problem, thinner, far, rtol):
    X, query, q, k, noise = problem
    query = np.concatenate([query, far * query, X[:5]])
    model = ManifoldParzen(q, n_neighbors=k, noise_variance=thinner * noise, rtol=rtol).fit(X)
    along = model.directions_, model.variances_
    expected = naive_manifold.density_along(X, *along, query, model.noise_variance)
    assert_certified(model.score_samples(query), expected, model, query, rtol)


@pytest.mark.parametrize("rtol", [1e-3, 0.1])
@pytest.mark.parametrize("share", [0.9, 1.2, 5.0])
def test_tree_omits_kernels_below_its_error_budget(only_trees, share, rtol):
    """Many rows at one place, whose bound is their sum: below or above what may be left out."""
    n, near = 512, 16
    X = np.zeros((n, 2))
    X[near:, 0] = np.sqrt(-2 * np.log(share * rtol * near / n))  # each has this share of `near`
    model = ManifoldParzen(1, n_neighbors=10, noise_variance=1.0, rtol=rtol).fit(X)
    along = model.directions_, model.variances_
    expected = naive_manifold.density_along(X, *along, X[:1], 1.0)
    ours = model.score_samples(X[:1])
    assert_certified(ours, expected, model, X[:1], rtol)
    assert (ours < expected + 0.5 * np.log1p(-rtol)).all() == (share < 1)


def test_tree_bounds_hold_for_directions_of_any_length(only_trees):
    """A kernel reaches farther along a direction that is shorter than one.

    Round kernels nearby are 9 nats above those far away if their directions are as long as that,
    and below if they are not.
    """
    noise, X, query = 0.01, np.zeros((64, 2)), np.zeros((1, 2))
    X[32:, 0] = 200 + np.linspace(-1, 1, 32)
    model = ManifoldParzen(1, n_neighbors=31, noise_variance=noise, rtol=0.1).fit(X)
    model.directions_[32:] *= 1 - 1e-3
    widest = noise + model.variances_[32:, 0]
    far = np.max(-0.5 * X[32:, 0] ** 2 / widest - 0.5 * np.log(widest / noise))
    X[:32, 1] = np.sqrt(-2 * noise * (far + 9))
    model._X = X
    along = model.directions_, model.variances_
    expected = naive_manifold.density_along(X, *along, query, noise)
    assert_certified(model.score_samples(query), expected, model, query, 0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_features", [2, 3])
def test_a_tree_is_taken_where_kernels_are_small(n_features, dtype, monkeypatch):
    X, query = (spiral(rows, n_features, 0.003, rows).astype(dtype) for rows in (3000, 300))
    options = dict(n_neighbors=11, noise_variance=0.003**2)
    monkeypatch.setattr(mixture_density, "_largest_norm", None)  # must not be called
    model = ManifoldParzen(1, **options, n_jobs=1).fit(X)
    along = model.directions_, model.variances_
    expected = naive_manifold.density_along(X, *along, query, model.noise_variance)
    ours = model.score_samples(query)
    assert ours.dtype == dtype
    assert_certified(ours, expected, model, query, 0.0, np.finfo(dtype).eps)
    assert np.array_equal(ours, model.set_params(n_jobs=3).score_samples(query))
    assert np.array_equal(ours[:260], model.score_samples(query[:260]))


def test_a_tolerance_opens_fewer_leaves(monkeypatch):
    X, query = spiral(3000, 2, 0.01, 1), spiral(300, 2, 0.01, 2)
    model = ManifoldParzen(1, n_neighbors=11, noise_variance=1e-4).fit(X)
    pairs = []
    walk = gaussian_tree.log_sums

    def counted(*args):
        found = walk(*args)
        pairs[-1] += found[1]
        return found

    monkeypatch.setattr(gaussian_tree, "log_sums", counted)
    for rtol in (0.0, 1e-6, 1e-2):
        pairs.append(0)
        model.set_params(rtol=rtol).score_samples(query)
    assert pairs[0] > 1.2 * pairs[1] > 1.2**2 * pairs[2] > 0


def test_blocks_are_taken_where_all_kernels_reach(monkeypatch):
    X, query = spiral(1000, 2, 0.01, 3), spiral(300, 2, 0.01, 4)
    model = ManifoldParzen(1, n_neighbors=11, noise_variance=1.0).fit(X)
    in_blocks = model.score_samples(query)
    monkeypatch.setattr(gaussian_tree, "_pays", lambda *args: True)
    by_tree = model.score_samples(query)
    np.testing.assert_allclose(by_tree, in_blocks, rtol=0, atol=1e-12)
    assert np.any(by_tree != in_blocks)


def test_a_trial_of_trees_is_short(monkeypatch):
    """Few queries have few of them tried; two full walks cost more than four shapes in blocks."""
    X, query = spiral(1000, 2, 0.01, 7), spiral(256, 2, 0.01, 8)
    model = ManifoldParzen(1, n_neighbors=11, noise_variance=1.0).fit(X)
    walk, walked = gaussian_tree.log_sums, []

    def spy(tree, leaves, bounds, rows, log_rtol):
        walked.extend(rows)
        return walk(tree, leaves, bounds, rows, log_rtol)

    monkeypatch.setattr(gaussian_tree, "log_sums", spy)
    model.score_samples_grid(query, noise_variance=[1.0, 2.0, 3.0, 1e-6])
    assert len(walked) == 2 * 8


def test_tree_blocks_are_short_whatever_is_omitted(only_trees, monkeypatch):
    monkeypatch.setattr(gaussian_tree, "_LONGEST", 1e7)
    X = np.random.default_rng(33).standard_normal((3000, 4))
    model = ManifoldParzen(4, n_neighbors=6, noise_variance=1e-4).fit(X)
    walk, sizes = gaussian_tree.log_sums, []

    def spy(tree, leaves, bounds, rows, log_rtol):
        sizes.append(len(rows))
        return walk(tree, leaves, bounds, rows, log_rtol)

    monkeypatch.setattr(gaussian_tree, "log_sums", spy)
    model.score_samples(X[:600])
    assert sum(sizes) == 600
    pair = gaussian_tree._pair_cost(4, ShapeGrid(np.array([4]), np.array([1e-4])))
    assert 0.9e7 < max(sizes) * len(X) * pair <= 1e7


def test_grid_scores_by_trees_match_separate_fits(only_trees):
    X, query = spiral(300, 3, 0.02, 5), spiral(40, 3, 0.02, 6)
    counts, noises = [2, 0, 1], [1e-2, 1e-5]
    model = ManifoldParzen(2, n_neighbors=7, noise_variance=1.0).fit(X)
    grid = model.score_samples_grid(query, n_components=counts, noise_variance=noises)
    for count, by_noise in zip(counts, grid, strict=True):
        for noise, logs in zip(noises, by_noise, strict=True):
            one = ManifoldParzen(count, n_neighbors=7, noise_variance=noise).fit(X)
            assert np.array_equal(logs, one.score_samples(query))
