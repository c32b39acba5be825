"""What every "auto" decides, as tables: size, dimension, kernel and method give the way."""

from __future__ import annotations

import numpy as np
import pytest

from fastmetric.learn import nearest_neighbours
from fastmetric.learn.chooser import choose
from fastmetric.learn.kernel_sums.log_sums import KernelSums
from fastmetric.learn.kernel_sums.sum_problem import Options, SumProblem
from fastmetric.learn.kernel_sums.walk_ways import WALKS
from fastmetric.learn.local_component import e_step
from fastmetric.learn.local_component.product_e_step import Neighbours
from fastmetric.learn.manifold import mixture_density
from fastmetric.learn.manifold.covariance_grid import ShapeGrid
from fastmetric.learn.manifold.neighbourhood_pca import LocalGaussians
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.nca.training import choose_batch_size, choose_solver, choose_tolerance
from fastmetric.learn.pair_sums.ways import WAYS as PAIR_WAYS
from fastmetric.learn.rows import ArrayRows


def _normal(n, d, scale=1.0, seed=0):
    return scale * np.random.default_rng(seed).standard_normal((n, d))


def _nca_way(n, d, kernel, method, m=None, scale=1.0, n_classes=2, rtol=0.0):
    """Return the name of the class that sums for NCA's objective."""
    y = np.arange(n) % n_classes
    problem = Objective(
        ArrayRows(_normal(n, d)), y, mixture=Mixture(kernel), method=method, rtol=rtol
    )
    Z = problem.project(scale * np.eye(d))
    class_weights = problem.mixture.class_weights(problem.classes.sizes, d)
    chosen = None if m is None else np.sort(np.random.default_rng(1).permutation(n)[:m])
    return type(choose(problem._pairs(Z, class_weights, chosen), PAIR_WAYS, method)).__name__


NCA = [
    # n, d, kernel, method, rows, scale, way
    (300, 2, "gaussian", "exact", None, 1.0, "SymmetricPairs"),
    (300, 2, "gaussian", "exact", None, 1e4, "RowPairs"),
    (300, 2, "gaussian", "exact", 40, 1.0, "RowPairs"),
    (300, 2, "biweight", "exact", None, 1.0, "SymmetricPairs"),
    (300, 2, "biweight", "exact", None, 1e4, "SymmetricPairs"),
    (300, 2, "biweight", "exact", 40, 1.0, "RowPairs"),
    (300, 2, "gaussian", "tree", None, 1.0, "ClassTrees"),
    (300, 2, "gaussian", "tree", 40, 1.0, "ClassTrees"),
    (300, 20, "gaussian", "tree", None, 1.0, "ClassTrees"),
    (300, 3, "biweight", "tree", None, 1.0, "CutoffGrid"),
    (300, 3, "biweight", "tree", 40, 1.0, "CutoffGrid"),
    (300, 4, "biweight", "tree", None, 1.0, "ClassTrees"),
    (4999, 2, "gaussian", "auto", None, 0.1, "SymmetricPairs"),
    (20_000, 1, "gaussian", "auto", None, 3.0, "SymmetricPairs"),
    (6000, 8, "gaussian", "auto", None, 0.7, "SymmetricPairs"),
    (6000, 13, "gaussian", "auto", None, 0.1, "SymmetricPairs"),
    (20_000, 1, "gaussian", "auto", 1000, 3.0, "RowPairs"),
    (499, 2, "biweight", "auto", None, 50.0, "SymmetricPairs"),
    (3000, 2, "biweight", "auto", None, 5.0, "CutoffGrid"),
    (3000, 2, "biweight", "auto", None, 0.01, "SymmetricPairs"),
    (3000, 2, "biweight", "auto", 600, 5.0, "CutoffGrid"),
    (3000, 2, "biweight", "auto", 499, 5.0, "RowPairs"),
    (3000, 2, "biweight", "auto", 600, 0.01, "RowPairs"),
    (4999, 4, "biweight", "auto", None, 50.0, "SymmetricPairs"),
    (20_000, 4, "biweight", "auto", None, 50.0, "ClassTrees"),
]


@pytest.mark.parametrize(("n", "d", "kernel", "method", "m", "scale", "way"), NCA)
def test_objective(n, d, kernel, method, m, scale, way):
    assert _nca_way(n, d, kernel, method, m, scale) == way


NCA_WITHIN = [
    # n, d, rtol, method, rows, scale, way
    (300, 2, 1e-2, "grid", None, 1.0, "ClassLattices"),
    (300, 2, 1e-2, "grid", 40, 1.0, "ClassLattices"),
    (300, 2, 0.0, "grid", None, 1.0, "SymmetricPairs"),
    (300, 4, 1e-2, "grid", None, 1.0, "SymmetricPairs"),
    (999, 2, 1e-2, "auto", None, 1.0, "SymmetricPairs"),
    (20_000, 1, 1e-2, "auto", None, 3.0, "ClassLattices"),
    (20_000, 2, 1e-2, "auto", None, 3.0, "ClassLattices"),
    (20_000, 3, 1e-2, "auto", None, 1.0, "ClassLattices"),
    (20_000, 2, 1e-6, "auto", None, 3.0, "ClassLattices"),
    (20_000, 2, 1e-10, "auto", None, 3.0, "SymmetricPairs"),
    (20_000, 2, 1e-2, "auto", 1000, 3.0, "ClassLattices"),
    (20_000, 2, 1e-2, "auto", 50, 3.0, "RowPairs"),
    (20_000, 2, 1e-2, "auto", None, 1e5, "RowPairs"),  # too many cells
    (20_000, 4, 1e-2, "auto", None, 30.0, "ClassTrees"),
]


@pytest.mark.parametrize(("n", "d", "rtol", "method", "m", "scale", "way"), NCA_WITHIN)
def test_objective_within_a_tolerance(n, d, rtol, method, m, scale, way):
    assert _nca_way(n, d, "gaussian", method, m, scale, rtol=rtol) == way


def test_objective_of_small_classes_takes_no_trees():
    assert _nca_way(20_000, 1, "gaussian", "auto", scale=3.0, n_classes=401) == "SymmetricPairs"


def _posterior_way(n, m, d, kernel, method, scale=1.0, rtol=0.0):
    """Return the name of the class that sums for class posteriors."""
    offsets = np.array([0, n // 2, n])
    posterior = Posterior(_normal(n, d, scale), offsets, Mixture(kernel), method=method, rtol=rtol)
    return type(choose(posterior._pairs(_normal(m, d, scale, seed=1)), PAIR_WAYS, method)).__name__


POSTERIOR = [
    # n, queries, d, kernel, method, scale, way
    (300, 100, 2, "gaussian", "exact", 1.0, "RowPairs"),
    (300, 100, 2, "gaussian", "tree", 1.0, "ClassTrees"),
    (300, 100, 20, "gaussian", "tree", 1.0, "ClassTrees"),
    (19_999, 10_000, 1, "gaussian", "auto", 3.0, "RowPairs"),
    (20_000, 10_000, 1, "gaussian", "auto", 3.0, "ClassTrees"),
    (20_000, 10_000, 13, "gaussian", "auto", 0.1, "RowPairs"),
    (300, 100, 2, "biweight", "exact", 1.0, "RowPairs"),
    (300, 100, 4, "biweight", "tree", 1.0, "ClassTrees"),
    (300, 100, 2, "biweight", "tree", 1.0, "CutoffGrid"),
    (3000, 600, 2, "biweight", "auto", 5.0, "RowPairs"),
    (3000, 6000, 2, "biweight", "auto", 5.0, "CutoffGrid"),
    (3000, 499, 2, "biweight", "auto", 5.0, "RowPairs"),
    (3000, 600, 2, "biweight", "auto", 0.01, "RowPairs"),
]


@pytest.mark.parametrize(("n", "m", "d", "kernel", "method", "scale", "way"), POSTERIOR)
def test_posterior(n, m, d, kernel, method, scale, way):
    assert _posterior_way(n, m, d, kernel, method, scale) == way


POSTERIOR_WITHIN = [
    # n, queries, d, rtol, method, scale, way
    (300, 100, 2, 1e-2, "grid", 1.0, "ClassLattices"),
    (300, 100, 4, 1e-2, "grid", 1.0, "RowPairs"),
    (20_000, 10_000, 2, 1e-3, "auto", 3.0, "ClassLattices"),
    (20_000, 499, 2, 1e-3, "auto", 3.0, "RowPairs"),
]


@pytest.mark.parametrize(("n", "m", "d", "rtol", "method", "scale", "way"), POSTERIOR_WITHIN)
def test_posterior_within_a_tolerance(n, m, d, rtol, method, scale, way):
    assert _posterior_way(n, m, d, "gaussian", method, scale, rtol) == way


def _e_step_way(n, d, q, scale, gap=0.0):
    """Return the name of what the E-step among all rows goes by."""
    W = _normal(n, d, scale)
    W[::2] += gap
    way = choose(Neighbours(W, q), e_step.WAYS)
    return type(way.sums() if isinstance(way, e_step.Differences) else way).__name__


E_STEP = [
    # n, D, q, scale, gap, way
    (300, 3, 3, 1.0, 0.0, "SymmetricPairs"),
    (300, 15, 15, 1.0, 0.0, "SymmetricPairs"),
    (300, 3, 3, 1e4, 0.0, "RowPairs"),
    (300, 16, 16, 0.5, 0.0, "Products"),
    (300, 24, 24, 4.0, 0.0, "NeighbourList"),
    (300, 24, 24, 1.0, 1e6, "SymmetricPairs"),
    (6000, 2, 2, 30.0, 0.0, "ClassTrees"),
    (6000, 3, 2, 30.0, 0.0, "SymmetricPairs"),
    (4999, 2, 2, 30.0, 0.0, "SymmetricPairs"),
    (6000, 13, 13, 0.1, 0.0, "SymmetricPairs"),
]


@pytest.mark.parametrize(("n", "d", "q", "scale", "gap", "way"), E_STEP)
def test_e_step(n, d, q, scale, gap, way):
    assert _e_step_way(n, d, q, scale, gap) == way


KERNEL_SUMS = [
    # n, d, kernel, scale, whether a tree is walked for log sums, and for mean shift
    (999, 1, "gaussian", 100.0, False, False),
    (5000, 1, "gaussian", 100.0, True, True),
    (5000, 1, "epanechnikov", 100.0, True, True),
    (3000, 8, "gaussian", 0.5, True, False),  # log sums within 1e-3 are those of float32 leaves
    (3000, 30, "gaussian", 1.0, False, False),  # no point is near: no tree is built
]


@pytest.mark.parametrize(("n", "d", "kernel", "scale", "log_sums", "mean_shift"), KERNEL_SUMS)
def test_kernel_sums(n, d, kernel, scale, log_sums, mean_shift):
    sums = KernelSums(_normal(n, d, scale), kernel=kernel)
    for in_float32, taken in ((True, log_sums), (False, mean_shift)):
        options = Options(in_float32=in_float32)
        problem = SumProblem(sums, None, sums._rule(1e-3, 0.0), options=options)
        assert (choose(problem, WALKS).method == "tree") is taken


def test_solver():
    table = {
        ("auto", 20_000, 3): "lbfgs",
        ("auto", 20_001, 50): "minibatch",
        ("auto", 20_001, 51): "stochastic",
        ("stochastic", 100, 2): "stochastic",
    }
    assert {key: choose_solver(*key) for key in table} == table


def test_tolerance():
    table = {
        ("auto", 5_000, "auto"): 0.0,
        ("auto", 5_001, "auto"): 1e-6,
        ("auto", 5_001, "exact"): 1e-6,  # all pairs have no error
        ("auto", 100, "tree"): 0.0,
        ("auto", 100, "grid"): 1e-6,
        (0.0, 10**6, "auto"): 0.0,
        (1e-2, 100, "auto"): 1e-2,
    }
    assert {key: choose_tolerance(*key) for key in table} == table


def test_batch_size():
    table = {
        ("auto", "stochastic", 1000): 250,
        ("auto", "stochastic", 60_000): 500,
        ("auto", "stochastic", 300_000): 100,
        ("auto", "stochastic", 10_000_000): 50,
        ("auto", "minibatch", 1000): 250,
        ("auto", "minibatch", 60_000): 1000,
        ("auto", "minibatch", 30): 30,
        (700, "minibatch", 500): 500,
    }
    assert {key: choose_batch_size(*key) for key in table} == table


MANIFOLD = [
    # n, queries, D, standard deviation of the noise, way
    (1000, 1000, 2, 0.01, "tree"),
    (255, 1000, 2, 0.01, "products"),
    (1000, 255, 2, 0.01, "products"),
    (1000, 1000, 2, 10.0, "products"),
    (400, 400, 13, 0.1, "products"),
    (255, 400, 2, 1e-8, "differences"),
    (5000, 5000, 80, 0.2, "screened"),
]


@pytest.mark.parametrize(("n", "m", "d", "sigma", "way"), MANIFOLD)
def test_manifold_density(n, m, d, sigma, way, monkeypatch):
    rng = np.random.default_rng(0)
    X = _normal(n, d)
    directions = rng.standard_normal((n, 1, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    center = X.mean(axis=0)
    offsets = np.einsum("nqd,nd->nq", directions, X - center)
    variances = np.full((n, 1), 2 * sigma**2)
    gaussians = LocalGaussians(X, center, directions, variances, offsets)
    grid = ShapeGrid(np.array([1]), np.array([sigma**2]))
    taken = _spies(monkeypatch)
    mixture_density.log_densities(gaussians, _normal(m, d, seed=1), grid)
    assert taken == [way]


def _spies(monkeypatch):
    """Return a list to which each way of a manifold density writes its name instead of summing."""
    taken = []

    def named(name):
        def add(*args, **options):
            if name not in taken:
                taken.append(name)

        return add

    monkeypatch.setattr(mixture_density, "_add_by_products", named("products"))
    monkeypatch.setattr(mixture_density, "_add_by_differences", named("differences"))
    monkeypatch.setattr(mixture_density, "add_screened", named("screened"))
    by_tree = mixture_density.log_densities_by_tree

    def walked(*args):
        found = by_tree(*args)
        if found is not None:
            taken.append("tree")
        return found

    monkeypatch.setattr(mixture_density, "log_densities_by_tree", walked)
    return taken


NEIGHBOURS = [(30, 2, 29, "_AllOthers"), (30, 12, 5, "_ByTree"), (30, 13, 5, "_ByProducts")]


@pytest.mark.parametrize(("n", "d", "k", "way"), NEIGHBOURS)
def test_nearest_neighbours(n, d, k, way):
    assert type(nearest_neighbours.others(_normal(n, d), k)).__name__ == way
