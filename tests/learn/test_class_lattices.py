"""Class sums by lattices: their bounds, the probabilities by them, and their gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from fastmetric import NCA, nca_value_and_grad
from fastmetric.core.kernels import GAUSSIAN
from fastmetric.learn.lattices import aligned_lattices, point_lattice
from fastmetric.learn.lattices.aligned_lattices import AlignedLattices
from fastmetric.learn.lattices.lattice_plan import plans
from fastmetric.learn.lattices.point_lattice import PointLattice
from fastmetric.learn.nca.class_weights import Mixture
from fastmetric.learn.nca.objective import Objective
from fastmetric.learn.nca.posterior import Posterior
from fastmetric.learn.pair_sums import class_lattices, uncertified
from fastmetric.learn.pair_sums.all_pairs import RowPairs
from fastmetric.learn.pair_sums.class_lattices import ClassLattices
from fastmetric.learn.pair_sums.class_trees import ClassTrees
from fastmetric.learn.pair_sums.problem import PairProblem, Queries, RowWeights, Segments
from fastmetric.learn.rows import ArrayRows

WIDE = np.longdouble
SHAPES = ["normal", "apart", "lattice", "duplicates", "clusters", "line", "cauchy", "one place"]


def _points(rng, shape, y, d, log_scale):
    """Return points (n, d) of segments y (n,), in a shape that is hard on a lattice."""
    n = len(y)
    X = rng.standard_normal((n, d)) * 10.0**log_scale
    if shape == "apart":  # every segment has a box of its own
        X += 6 * y[:, None]
    elif shape == "lattice":  # points on borders of cells
        X = np.round(X) * plans(d, 1e-2, 12.0)[0].spacing * np.sqrt(0.5)
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 10), n)]
    elif shape == "clusters":
        X += 1e6 * rng.integers(0, 2, (n, 1))
    elif shape == "line":
        X[:, 1:] = X[:, :1]
    elif shape == "cauchy":
        X /= np.maximum(1e-3, np.abs(rng.standard_normal((n, 1))))
    elif shape == "one place":
        X[:] = X[0]
    return X


def _exact(problem):
    """Return log sums over the own segment and over the others, in wide arithmetic."""
    asked, n = problem.asked(), problem.n
    gaps = asked.rows.astype(WIDE)[:, None] - problem.points.astype(WIDE)
    logs = -(gaps**2).sum(axis=2) + np.log(problem.weights.astype(WIDE))
    logs[asked.self_index[:, None] == np.arange(n)] = -np.inf
    same = asked.segments[:, None] == problem.segments.numbers(np.arange(n))
    found = []
    for part in (same, ~same):
        there = np.where(part, logs, -np.inf)
        top = there.max(axis=1)
        top[np.isneginf(top)] = 0
        with np.errstate(divide="ignore"):
            found.append(top + np.log(np.exp(there - top[:, None]).sum(axis=1)))
    return found


@settings(max_examples=150)
@given(
    d=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=5),
    log_scale=st.sampled_from([-150.0, -8.0, -1.0, 0.0, 0.5, 1.0, 1.5, 3.0, 150.0]),
    log_rtol=st.floats(-8.0, -0.2),
    shape=st.sampled_from(SHAPES),
    log_weights=st.sampled_from([0.0, 3.0, 100.0]),
    dtype=st.sampled_from([np.float64, np.float64, np.float32]),
    by_share=st.booleans(),
    few=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_and_tolerance_hold(
    d, sizes, log_scale, log_rtol, shape, log_weights, dtype, by_share, few, seed
):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    if dtype == np.float32:
        log_scale, log_weights = float(np.clip(log_scale, -8, 8)), min(log_weights, 19.0)
    points = _points(rng, shape, y, d, log_scale).astype(dtype)
    weights = 10.0 ** (-log_weights * rng.random(len(sizes)))
    factors = 1 + rng.random(len(sizes)) if by_share else None
    chosen = np.flatnonzero(rng.random(len(y)) < 0.4) if few else None
    offsets, rtol = np.append(0, np.cumsum(sizes)), 10.0**log_rtol
    problem = PairProblem(
        points, Segments(offsets), weights[y], GAUSSIAN, chosen, rtol=rtol, factors=factors
    )
    if not problem.m:
        return
    found, (own, other) = ClassLattices(problem, 1).log_sums(), _exact(problem)
    for ends, exact in ((found.own_ends, own), (found.other_ends, other)):
        assert np.all((ends[0] <= exact) & (exact <= ends[1]))
    logs = (found.own, found.other)
    # Rounding of logs, and of exponents of sums without a lattice.
    eps = np.finfo(dtype).eps
    sides = [np.where(np.isneginf(exact), 0, np.abs(exact)) for exact in (own, other)]
    rounding = 8 * eps * (d + 600 + np.maximum(*sides) - np.log(weights.min()))
    if by_share:
        f = np.log(factors)[y if chosen is None else y[chosen]]
        with np.errstate(over="ignore", invalid="ignore"):
            P = 1 / (1 + np.exp(other - own - f))
            got = 1 / (1 + np.exp(logs[1] - logs[0] - f))
        there = np.isfinite(P)  # else the row is alone
        assert np.all(np.abs(P - got)[there] <= rtol / 2 + np.minimum(rounding[there], 1))
    else:
        for log, exact in zip(logs, (own, other), strict=True):
            there = np.isfinite(exact)
            off = np.abs(np.expm1(np.clip((log[there] - exact[there]).astype(float), -700, 700)))
            assert np.all(off <= rtol + 2 * np.expm1(np.minimum(rounding[there], 700)))
            assert np.array_equal(np.isneginf(log), ~there)


def _labelled(n, d, n_classes=3, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, d))
    y = (X[:, 0] + 0.5 * scale * rng.standard_normal(n) > 0).astype(int)
    return X, y + rng.integers(0, n_classes - 1, n)


def _spied(monkeypatch):
    """Return a list that takes the number of queries that go elsewhere, whenever some do."""
    left, init = [], class_lattices.Uncertified.__init__

    def spy(self, problem, numbers, frame, n_jobs):
        left.append(len(numbers))
        init(self, problem, numbers, frame, n_jobs)

    monkeypatch.setattr(class_lattices.Uncertified, "__init__", spy)
    return left


VARIANTS = [
    dict(),
    dict(priors="equal"),
    dict(priors=[1.0, 1e-3, 5.0]),
    dict(background=True),
    dict(background=True, beta=0.3, priors="equal"),
    dict(rows=np.arange(0, 3000, 7)),
    dict(rows=np.array([5, 5, 2000]), background=True),
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_value_and_gradient_of_every_variant_are_near_those_of_all_pairs(d, rtol, variant):
    X, y = _labelled(3000, 4)
    A = 2 * np.random.default_rng(1).standard_normal((d, 4))
    value, gradient, bound = nca_value_and_grad(A, X, y, return_bound=True, **variant)
    got = nca_value_and_grad(A, X, y, method="grid", rtol=rtol, return_bound=True, **variant)
    m = len(variant.get("rows", X))
    assert abs(got[0] - value) <= got[2] + bound
    assert got[2] <= m * (rtol / 2 + 1e-9)
    # Not certified. A pair's slope is off by some 10 times the tolerance; |A'(x - x')| is below 20
    # where a kernel counts, and the weights of a row sum to at most 2.
    assert np.abs(got[1] - gradient).max() <= 10 * rtol * m


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_the_gradient_is_the_slope_of_the_objective_on_the_lattice(d, rtol):
    """The value follows its own gradient, not only the exact one: a line search relies on it."""
    X, y = _labelled(2000, 4)
    rng = np.random.default_rng(5)
    A, step = rng.standard_normal((d, 4)), 1e-2
    problem = Objective(ArrayRows(X), y, method="grid", rtol=rtol)
    gradient = problem.evaluate(A).gradient
    direction = gradient / np.linalg.norm(gradient)
    ahead = problem.evaluate(A + step * direction).value
    behind = problem.evaluate(A - step * direction).value
    slope = np.sum(gradient * direction)
    # Central differences: the error of the value, a small part of its bound, over the step.
    assert abs((ahead - behind) / (2 * step) - slope) <= 2e-2 * slope


@pytest.mark.parametrize("resident", [0, 1 << 17])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_same_bits_on_any_number_of_threads(d, resident, monkeypatch):
    monkeypatch.setattr(point_lattice, "_RESIDENT", resident)
    monkeypatch.setattr(aligned_lattices, "_POINTS", 300)
    monkeypatch.setattr(aligned_lattices, "_QUERIES", 300)
    X, y = _labelled(6000, 4)
    A = 10 * np.eye(d, 4)
    found = [
        nca_value_and_grad(A, X, y, method="grid", rtol=1e-2, n_jobs=jobs, return_bound=True)
        for jobs in (1, 2, 3)
    ]
    for one in found[1:]:
        assert one[0] == found[0][0]
        assert one[2] == found[0][2]
        np.testing.assert_array_equal(one[1], found[0][1])
    exact = nca_value_and_grad(A, X, y)
    assert abs(exact[0] - found[0][0]) <= found[0][2]
    assert np.abs(exact[1] - found[0][1]).max() <= 1e-2 * 10 * len(X) / 20


@pytest.mark.parametrize("d", [1, 2, 3])
def test_tasks_reach_the_cells_of_their_points_and_few_others(d, monkeypatch):
    monkeypatch.setattr(aligned_lattices, "_POINTS", 100)
    rng, side = np.random.default_rng(0), point_lattice._TILE[d]
    plan = plans(d, 1e-2, 12.0)[0]
    X = rng.random((3000, d)) * np.array([50 * side, 40, 40])[:d] * plan.spacing
    frame = PointLattice(plan, 1e-2, point_lattice.box_of(X), 1.0, 1)
    offsets = np.array([0, 1000, 1000, 3000])
    lattices = AlignedLattices(frame, [point_lattice.box_of(X)] * 3)
    points = lattices.in_order(X, offsets)
    np.testing.assert_array_equal(np.sort(points.order), np.arange(len(X)))
    tasks = lattices._tasks(points)
    assert sum(some.last - some.first for some, _, _ in tasks) == len(X)
    for some, low, high in tasks:
        places = (X[some.order[some.first : some.last], 0] - X[:, 0].min()) / plan.spacing
        first = np.floor(places + plan.width / 2) - (plan.width // 2 - 1)
        assert low <= first.min()
        assert first.max() + plan.width <= high
        assert high - low <= 10 * side


def test_only_rows_without_a_certificate_are_summed_elsewhere(monkeypatch):
    X, y = _labelled(5000, 2)
    X[:3] = [[40.0, 40.0], [40.0, 50.0], [-40.0, 0.0]]
    left = _spied(monkeypatch)
    value, gradient, bound = nca_value_and_grad(
        np.eye(2), X, y, method="grid", rtol=1e-3, return_bound=True
    )
    assert left == [3]
    exact = nca_value_and_grad(np.eye(2), X, y)
    assert abs(exact[0] - value) <= bound
    # The rows far from all others have the largest differences, and so most of the gradient.
    assert np.abs(gradient - exact[1]).max() <= 1e-3 * np.abs(exact[1]).max()


def test_without_room_for_a_lattice_all_rows_are_summed_elsewhere(monkeypatch):
    X, y = _labelled(600, 3)
    left = _spied(monkeypatch)
    A = 1e9 * np.eye(3)
    found = nca_value_and_grad(A, X, y, method="grid", rtol=1e-2)
    exact = nca_value_and_grad(A, X, y)
    assert left == [600]
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-9)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-6, atol=1e-9 * np.abs(exact[1]).max())


def test_far_rows_are_summed_over_few_points(monkeypatch):
    """Points that do not matter are left out; the gradient reaches those that do."""
    rng = np.random.default_rng(0)
    X = 60 * rng.random((20_000, 2))
    X[:4] = [[90.0, 90.0], [94.0, 90.0], [90.0, 94.0], [-30.0, 90.0]]
    y = np.arange(len(X)) % 3
    y[:3] = 0, 0, 1  # the first one is in doubt
    sizes, init = [], RowPairs.__init__

    def spy(self, problem, *rest):
        sizes.append(problem.n)
        init(self, problem, *rest)

    monkeypatch.setattr(RowPairs, "__init__", spy)
    far = dict(rows=np.arange(4))
    got = nca_value_and_grad(np.eye(2), X, y, method="grid", rtol=1e-3, return_bound=True, **far)
    assert sizes
    assert max(sizes) < len(X) // 2
    exact = nca_value_and_grad(np.eye(2), X, y, **far)
    assert abs(got[0] - exact[0]) <= got[2] <= 4 * 1e-3
    assert np.abs(got[1] - exact[1]).max() <= 1e-3 * np.abs(exact[1]).max()


def test_rows_alone_in_their_class_or_among_themselves():
    X = np.array([[0.0, 0.0], [0.3, 0.1], [5.0, 5.0], [5.0, 5.0], [1e4, 0.0]])
    for y in ([0, 1, 2, 3, 4], [0, 0, 0, 0, 1], [0, 0, 1, 1, 1]):
        exact = nca_value_and_grad(np.eye(2), X, y)
        value, gradient, bound = nca_value_and_grad(
            np.eye(2), X, y, method="grid", rtol=1e-3, return_bound=True
        )
        assert abs(value - exact[0]) <= bound + 1e-12
        np.testing.assert_allclose(gradient, exact[1], atol=1e-2)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_posteriors_are_within_the_tolerance(d, background, rtol, monkeypatch):
    rng = np.random.default_rng(d)
    sizes = np.array([700, 1, 300])
    points = rng.standard_normal((1001, d)) + np.repeat([0.0, 8.0, 3.0], sizes)[:, None]
    query = np.concatenate([points[:300], rng.uniform(-30, 30, (200, d)), [[300.0] * d]])
    offsets, mixture = np.append(0, np.cumsum(sizes)), Mixture(background=background)
    left = _spied(monkeypatch)
    found = {
        method: np.concatenate(
            [P for _, P in Posterior(points, offsets, mixture, method=method, rtol=rtol)(query)]
        )
        for method in ("exact", "grid")
    }
    assert sum(left) > 0
    # With a background each sum has to be certified, that over the single point far away, too.
    assert background or sum(left) < len(query)
    allowed = rtol if background else rtol / 2
    assert np.abs(found["grid"] - found["exact"]).max() <= allowed + 1e-12


@pytest.mark.parametrize("resident", [0, 1 << 17])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_tasks_of_a_segment_stay_in_its_box(d, resident, monkeypatch):
    monkeypatch.setattr(point_lattice, "_RESIDENT", resident)
    rng, plan = np.random.default_rng(0), plans(d, 1e-2, 12.0)[0]
    parts = [rng.random((50, d)) + place for place in (0, 20, 40)]
    X, offsets = np.concatenate(parts), np.array([0, 50, 100, 150])
    frame = PointLattice(plan, 1e-2, point_lattice.box_of(X), 1.0, 1)
    lattices = AlignedLattices(frame, [point_lattice.box_of(part) for part in parts])
    points = lattices.in_order(X, offsets)
    for some, low, high in lattices._tasks(points):
        places = (X[offsets[some.segment] : offsets[some.segment + 1], 0]) / plan.spacing
        assert high - low <= np.ptp(places) + 3 * plan.width + 8
    # The lattice of all is what points spread onto it alone.
    weights = rng.random(150)
    values = lattices.spread_adjoint(points, np.stack([np.zeros(150), weights]))
    alone = frame.spread(X, weights, frame.sorting(X))[: frame.size]
    whole = lattices._view(values, 3).ravel()
    np.testing.assert_allclose(whole, alone, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("factors", [None, np.ones(2)])
def test_sums_far_below_the_range_of_floats_have_logs(factors):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((300, 2))
    query = np.array([[0.0, 0.0], [25.0, 3.0], [40.0, 0.0], [0.0, 600.0]])
    queries = Queries(query, np.full(4, -1), np.zeros(4, int))
    segments, how = Segments(np.array([0, 150, 300])), dict(per_segment=True, factors=factors)
    problem = PairProblem(points, segments, np.ones(300), GAUSSIAN, queries, rtol=1e-3, **how)
    exact = RowPairs(problem, 1).by_segment()
    np.testing.assert_allclose(ClassLattices(problem, 1).by_segment(), exact, rtol=1e-9, atol=1e-3)


def test_the_share_of_pairs_is_counted_after_the_sums(monkeypatch):
    monkeypatch.setattr(uncertified, "nearby_points", lambda *_, **__: None)
    monkeypatch.setattr(uncertified, "choose", lambda problem, *_, **__: ClassTrees(problem, 1))
    rng = np.random.default_rng(0)
    points = rng.standard_normal((1000, 2)) + 50 * rng.integers(0, 2, (1000, 1))
    points[::100] *= 1e3
    segments = Segments(np.array([0, 500, 1000]))
    problem = PairProblem(points, segments, np.ones(1000), GAUSSIAN, rtol=1e-3)
    way = ClassLattices(problem, 1)
    way.log_sums()
    assert way.pair_share > 0


def test_other_queries_are_read_off_the_same_lattices():
    X, y = _labelled(4000, 2)
    points, offsets = X[np.argsort(y, kind="stable")], np.append(0, np.cumsum(np.bincount(y)))
    query = np.random.default_rng(1).uniform(-20, 20, (3000, 2))

    def asked(rows):
        return Queries(rows, np.full(len(rows), -1), np.zeros(len(rows), np.intp))

    problem = PairProblem(
        points, Segments(offsets), np.ones(4000), GAUSSIAN, asked(query[:1000]), rtol=1e-3
    )._replace(per_segment=True, factors=np.ones(3))
    way = ClassLattices(problem, 1)
    way.by_segment()
    exact = RowPairs(problem, 1)
    for rows in (query[1000:], 3 * query[1000:]):  # beyond the box of the first queries
        got, truth = (one.with_queries(asked(rows)).by_segment() for one in (way, exact))
        P, Q = (np.exp(one - one.max(axis=1, keepdims=True)) for one in (got, truth))
        P, Q = (one / one.sum(axis=1, keepdims=True) for one in (P, Q))
        assert np.abs(P - Q).max() <= 5e-4 + 1e-12


def test_gradient_weights_far_in_the_tails_do_not_overflow():
    """Rows that the lattice cannot certify are not on it: exp(-log_totals) is infinite there."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.standard_normal((2000, 2)), [[60.0, 0.0], [60.0, 90.0]]])
    problem = PairProblem(
        points,
        Segments(np.array([0, 1000, 2002])),
        np.ones(2002),
        GAUSSIAN,
        rtol=1e-3,  # slopes err some ten times as much as sums [GRD-5]
        factors=np.ones(2),
    )
    both = []
    for way in (ClassLattices(problem, 1), RowPairs(problem, 1)):
        sums = way.log_sums()
        total = np.logaddexp(sums.own, sums.other)
        share = np.exp(sums.own - total)
        both.append(way.gradient(RowWeights(total, share - 1, share)).points)
    assert np.isfinite(both[0]).all()
    np.testing.assert_allclose(both[0], both[1], atol=1e-2 * np.abs(both[1]).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fit_over_lattices_reaches_the_exact_fit(dtype):
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 4
    X = (rng.standard_normal((2000, 6)) + 2 * np.eye(4, 6)[y]).astype(dtype)
    options = dict(n_components=2, solver="lbfgs", max_iter=5, tol=0)
    with pytest.warns(ConvergenceWarning):  # it is stopped before
        exact = NCA(method="exact", rtol=0.0, **options).fit(X, y)
    with pytest.warns(ConvergenceWarning):
        grid = NCA(method="grid", rtol=1e-4, **options).fit(X, y)
    # Five steps from one start, each towards a slightly different gradient.
    assert abs(exact.objective_ - grid.objective_) < 1e-4
    rounding = 5e-5 if dtype == np.float32 else 1e-9
    assert 0 < grid.error_bound_ < 5e-5 + rounding
    P = exact.set_params(method="grid", rtol=1e-4).predict_proba(X[:500])
    Q = exact.set_params(method="exact").predict_proba(X[:500])
    assert np.abs(P - Q).max() <= 5e-5 + 2e-5 * (dtype == np.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(kernel="biweight", rtol=0.1), "kernel='biweight'"),
        (dict(rtol=0.0), "rtol=0.0"),
    ],
)
def test_a_grid_says_what_it_cannot_do(options, message):
    X, y = _labelled(50, 2)
    with pytest.raises(ValueError, match=message):
        nca_value_and_grad(np.eye(2), X, y, method="grid", **options)
    with pytest.raises(ValueError, match=message):
        NCA(method="grid", **options).fit(X, y)


def test_a_grid_has_at_most_three_dimensions():
    X, y = _labelled(50, 5)
    with pytest.raises(ValueError, match="at most 3 dimensions, but A has 4 rows"):
        nca_value_and_grad(np.eye(4, 5), X, y, method="grid", rtol=0.1)
    for options in (dict(n_components=4), dict()):
        with pytest.raises(ValueError, match="at most 3 dimensions, but there are"):
            NCA(method="grid", rtol=0.1, **options).fit(X, y)
