"""The likelihood of coincidences, its solvers, impostors: against twins, and by properties."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmetric.learn.coincidence import likelihood_solvers as solvers
from fastmetric.learn.coincidence.impostor_rounds import ImpostorRounds, Settings
from fastmetric.learn.coincidence.impostors import ActiveSet, find_impostors
from fastmetric.learn.coincidence.likelihood import Coincidence, Scatter, make_pairs
from fastmetric.learn.optim.outcome import Recorder
from fastmetric.learn.rows import ArrayRows
from tests.strategies import problems
from tests.twins import coincidence as naive

EPS = np.finfo(float).eps


class Case(NamedTuple):
    """Pairs of rows, and a model."""

    W: np.ndarray
    noise: float
    X: np.ndarray
    firsts: np.ndarray
    seconds: np.ndarray
    coincide: np.ndarray
    kappa_sq: np.ndarray  # of each row

    def problem(self, **changes):
        """Return the likelihood, of this case or a changed one."""
        case = self._replace(**changes)
        pairs = make_pairs(len(case.X), case.firsts, case.seconds, case.coincide)
        return Coincidence(ArrayRows(case.X), pairs, case.kappa_sq.copy())

    def twin(self, W=None, noise=None):
        """Return the twin's sums."""
        pairs = np.stack([self.X[self.firsts], self.X[self.seconds]], axis=1)
        W, noise = self.W if W is None else W, self.noise if noise is None else noise
        return naive.Sums(W, noise, pairs, self.coincide, self.kappa_sq[self.firsts])


@st.composite
def cases(draw, min_scale=-4, max_scale=2, kinds=("mixed", "coincide", "different")):
    """Draw rows with duplicates, constant columns and outliers, pairs of them, and a model."""
    problem = draw(problems(max_n=20, max_features=5, min_scale=min_scale, max_scale=max_scale))
    n, m = len(problem.X), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    firsts, seconds = rng.integers(0, n, (2, m)).astype(np.int32)  # i = j: points that coincide
    kind = draw(st.sampled_from(kinds))
    coincide = rng.random(m) < {"mixed": 0.5, "coincide": 1.0, "different": 0.0}[kind]
    kappa_sq = np.exp(rng.normal(0, 1, n)) if draw(st.booleans()) else np.ones(n)
    noise = 10.0 ** draw(st.integers(-6, 2))
    return Case(problem.A, noise, problem.X, firsts, seconds, coincide, kappa_sq)


# The likelihood


@given(cases())
def test_value_and_slopes_are_the_twins(case):
    found, twin = case.problem().evaluate(case.W, case.noise), case.twin()
    by_map, by_noise = (part.astype(float) for part in twin.gradient())
    # Projections are rounded relative to the farthest row, products relative to their terms.
    size = np.abs(case.X - case.X.mean(0)).max() * np.abs(case.W).sum() + 1e-300
    spread = case.kappa_sq.min() + 2 * case.noise
    loss = 50 * EPS * size * (size + np.sqrt(spread)) / spread
    steepest = max(1 / case.noise, 1.0)  # of log(1 - P) near P = 1
    atol = len(case.coincide) * (loss * steepest * spread + 100 * EPS)
    assert found.log_likelihood == pytest.approx(float(twin.value), rel=1e-10, abs=atol)
    if loss < 1e-9 and case.noise > 1e-3:
        scale = np.abs(by_map).max() + size * len(case.coincide) / spread
        np.testing.assert_allclose(-found.map_gradient, by_map, atol=1e-6 * scale + 1e-300)
        assert found.noise_slope() == pytest.approx(
            float(by_noise), rel=1e-6, abs=1e-6 * len(case.coincide) / case.noise
        )


def test_twins_probability_is_the_integral_over_latents():
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    kappa_sq, noise, gap = 0.7, 0.4, 1.3
    difference = gap + np.sqrt(2 * noise) * nodes  # z - z' has variance 2 sigma^2
    mean = (weights @ np.exp(-(difference**2) / (2 * kappa_sq))) / weights.sum()
    assert np.exp(float(naive.log_coincidence(gap**2, kappa_sq, noise, 1))) == pytest.approx(mean)


@given(cases(min_scale=-1, max_scale=0))
@settings(max_examples=30)
def test_slopes_are_those_of_finite_differences(case):
    case = case._replace(noise=max(case.noise, 1e-2))
    twin, step = case.twin(), 1e-6
    by_map, by_noise = (np.asarray(part, float) for part in twin.gradient())
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(case.W.shape)
    ends = [case.twin(W=case.W + sign * step * direction).value for sign in (1, -1)]
    slope = float((ends[0] - ends[1]) / (2 * step))
    assert np.sum(by_map * direction) == pytest.approx(slope, rel=1e-4, abs=1e-4)
    change = step * case.noise
    ends = [case.twin(noise=case.noise + sign * change).value for sign in (1, -1)]
    slope = float((ends[0] - ends[1]) / (2 * change))
    assert by_noise == pytest.approx(slope, rel=1e-4, abs=1e-4)


@given(cases())
def test_swapping_the_members_of_pairs_changes_nothing(case):
    case = case._replace(kappa_sq=np.ones(len(case.X)))  # else it belongs to the first
    one = case.problem().evaluate(case.W, case.noise)
    two = case.problem(firsts=case.seconds, seconds=case.firsts).evaluate(case.W, case.noise)
    assert one.log_likelihood == pytest.approx(two.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(
        one.map_gradient, two.map_gradient, atol=1e-11 * (1 + np.abs(one.map_gradient).max())
    )


@given(cases(min_scale=-1, max_scale=0), st.integers(-6, 6))
def test_map_noise_and_scales_share_one_unit(case, power):
    unit = 2.0**power
    one = case.problem().log_likelihood(case.W, case.noise)
    other = case.problem(kappa_sq=case.kappa_sq * unit**2)
    assert other.log_likelihood(case.W * unit, case.noise * unit**2) == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize("coincide", [True, False])
@pytest.mark.parametrize("noise", [1e-12, 1.0, 1e12])
def test_points_that_coincide_are_finite(coincide, noise):
    X = np.ones((4, 2))
    case = Case(np.eye(2), noise, X, np.arange(4), np.arange(4)[::-1].copy(), None, np.ones(4))
    found = case.problem(coincide=np.full(4, coincide)).evaluate(case.W, noise)
    assert np.isfinite(found.log_likelihood)
    assert np.isfinite(found.noise_slope())
    assert np.all(found.map_gradient == 0)


@given(cases())
def test_scatter_is_that_of_the_differences(case):
    gaps = case.X[case.firsts] - case.X[case.seconds]
    size = np.abs(case.X - case.X.mean(0)).max() ** 2 * len(gaps)
    np.testing.assert_allclose(case.problem().scatter(), gaps.T @ gaps, atol=1e-13 * size + 1e-300)


# Solvers


@given(cases(min_scale=-1, max_scale=0))
@settings(max_examples=40)
def test_an_em_step_is_the_twins(case):
    case = case._replace(noise=max(case.noise, 1e-2))
    problem = case.problem()
    found = solvers.em_step(
        case.W, case.noise, problem.evaluate(case.W, case.noise), Scatter(problem)
    )
    W, noise = case.twin().em_step()
    # Where no pair differs, W may be anything.
    gaps = case.X[case.firsts] - case.X[case.seconds]
    np.testing.assert_allclose(gaps @ found[0].T, gaps @ W.T, rtol=1e-6, atol=1e-6)
    assert found[1] == pytest.approx(noise, rel=1e-6)


@given(cases(min_scale=-2, max_scale=1), st.sampled_from(["em", "lbfgs"]))
@settings(max_examples=40)
def test_likelihood_never_decreases(case, solver):
    recorder = Recorder()
    solve = solvers.SOLVERS[solver]
    outcome = solve(case.problem(), case.W, case.noise, max_iter=25, tol=0.0, recorder=recorder)
    values = recorder.history()["log_likelihood"]
    # Near-certain pairs are rounded relative to one, not to their logs.
    rounding = 1e-10 * np.abs(values).max() + 1e-12 * len(case.coincide) / min(
        outcome.model.noise, 1
    )
    assert np.all(np.diff(values) >= -rounding)
    assert outcome.model.log_likelihood == pytest.approx(values[-1], rel=1e-12, abs=1e-300)
    assert outcome.model.noise > 0


def test_likelihood_can_decrease_with_the_papers_noise_update():
    """A test of the tests above: eq. (11) lacks a term, and monotony is lost."""
    rng = np.random.default_rng(3)
    fell = False
    for _ in range(20):
        X = rng.standard_normal((30, 2))
        coincide = rng.random(60) < 0.3
        case = Case(np.eye(2), 1.0, X, *rng.integers(0, 30, (2, 60)), coincide, np.ones(30))
        problem, W, noise, last = case.problem(), case.W, case.noise, -np.inf
        scatter = Scatter(problem)
        for _ in range(200):
            found = problem.evaluate(W, noise)
            fell |= found.log_likelihood < last - 1e-9
            last = found.log_likelihood
            gaps = (X[case.firsts] - X[case.seconds]) @ W.T
            q, t = (gaps**2).sum(1), 1 / (1 + 2 * noise)
            odds = 1 / np.expm1(np.log1p(2 * noise) + q * t / 2)  # p = 2
            missing = np.sum(np.where(coincide, 0, odds * (1 + odds) * (noise * t) ** 2 * q))
            W, noise = solvers.em_step(W, noise, found, scatter)
            noise = max(noise + 2 * missing / (2 * len(q)), 1e-9)
    assert fell


def test_lbfgs_matches_em_in_a_tenth_of_the_iterations():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    X[:100, 0] += 2.0
    firsts, seconds = rng.integers(0, 200, (2, 1000)).astype(np.int32)
    coincide = (firsts < 100) == (seconds < 100)
    case = Case(0.5 * np.eye(2, 4), 0.25, X, firsts, seconds, coincide, np.ones(200))
    ends = [
        solve(case.problem(), case.W, case.noise, max_iter=limit, tol=0.0).model.log_likelihood
        for solve, limit in ((solvers.by_em, 500), (solvers.by_lbfgs, 50))
    ]
    assert ends[1] >= ends[0] - 1e-6


# Length scales


@given(cases(min_scale=-1, max_scale=0))
def test_length_scale_search_never_decreases_the_likelihood(case):
    problem = case.problem()
    before = problem.log_likelihood(case.W, case.noise)
    old = problem.kappa_sq.copy()
    gain = problem.search_scales(case.W, case.noise)
    after = problem.log_likelihood(case.W, case.noise)
    assert gain >= 0
    assert after == pytest.approx(before + gain, rel=1e-9, abs=1e-9)
    for i in range(len(case.X)):
        own = case.coincide[case.firsts == i]
        if own.all() or not own.any():  # none, or of one kind
            assert problem.kappa_sq[i] == old[i]


def test_a_length_scale_is_at_the_maximum_of_a_grid():
    X = np.array([[0.0], [1.0], [2.0], [2.5]])
    coincide = np.array([True, True, False])
    case = Case(np.eye(1), 0.1, X, np.zeros(3, int), np.arange(1, 4), coincide, np.ones(4))
    problem = case.problem()
    problem.search_scales(case.W, case.noise)
    grid = np.exp(np.linspace(-6, 6, 20001))
    values = [
        sum(
            float(log_p if same else np.log(-np.expm1(log_p)))
            for q, same in zip((1.0, 4.0, 6.25), coincide, strict=True)
            for log_p in [float(naive.log_coincidence(q, k, case.noise, 1))]
        )
        for k in grid
    ]
    assert problem.kappa_sq[0] == pytest.approx(grid[np.argmax(values)], rel=0.01)


# Impostors


@given(problems(max_n=40), st.floats(0.1, 3.0))
def test_impostors_are_those_of_the_twin(problem, share):
    Z, y = problem.X @ problem.A.T, problem.y
    reach = share * np.median(((Z[:, None] - Z[None]) ** 2).sum(-1), axis=1)
    found = set(zip(*find_impostors(Z, y, reach, 1).tolist(), strict=True))
    assert len(found) == find_impostors(Z, y, reach, 1).shape[1]
    differing = found ^ naive.impostors(Z, y, reach)
    for i, j in differing:  # at the border only
        assert ((Z[i] - Z[j]) ** 2).sum() == pytest.approx(reach[i], rel=1e-12)


def test_impostors_are_found_across_blocks_far_from_the_origin():
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((3000, 2)) + 1e6, rng.integers(0, 3, 3000)
    reach = np.full(3000, 1e-3)
    found = find_impostors(Z - Z.mean(0), y, reach, 2)
    sq = ((Z[found[0]] - Z[found[1]]) ** 2).sum(1)
    assert sq.max() < 1.001e-3
    near = ((Z[:, None, :] - Z[None, :50]) ** 2).sum(-1) < 1e-3
    assert np.sum(found[1] < 50) == np.sum(near & (y[:, None] != y[:50]))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_impostor_search_keeps_the_nearest(n_jobs):
    n = 3000  # two classes on top of each other, in several tiles
    Z = np.random.default_rng(0).standard_normal((n, 2))
    y, reach = np.arange(n) % 2, np.full(n, 1e9)
    reach[7] = 1e-2
    firsts, seconds = find_impostors(Z, y, reach, n_jobs)
    for i in (0, 7, 1500, n - 1):
        sq = np.where(y == y[i], np.inf, ((Z - Z[i]) ** 2).sum(axis=1))
        nearest = np.argsort(sq)[:100]
        assert set(seconds[firsts == i]) == set(nearest[sq[nearest] < reach[i]])


def test_known_impostors_stay_and_rows_without_are_omitted():
    Z = np.array([[0.0], [1.0], [0.5], [9.0], [9.5]])
    y = np.array([0, 0, 1, 2, 2])
    active = ActiveSet(y, np.array([[0, 1, 3, 4], [1, 0, 4, 3]], np.int32), 1)
    assert active.refresh(Z, active.reach(Z)) == 2
    assert active.active.tolist() == [True, True, False, False, False]
    moved = Z.copy()
    moved[2] = 50.0
    assert active.refresh(moved, active.reach(moved)) == 0
    pairs = active.pairs()
    assert sorted(zip(pairs.firsts, pairs.seconds, pairs.coincide, strict=True)) == [
        (0, 1, True),
        (0, 2, False),
        (1, 0, True),
        (1, 2, False),
    ]


@pytest.mark.parametrize("solver", solvers.SOLVERS)
def test_impostor_rounds_never_decrease_their_likelihood(solver):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 5)), rng.integers(0, 3, 300)
    rounds = ImpostorRounds(ArrayRows(X), y, Settings(3, solver, refresh=3, max_iter=9, tol=0.0))
    rounds._begin(rounds.X)
    W = np.eye(5)
    for _ in range(3):
        problem, _ = rounds._problem(W)
        start = solvers.Model(W, 0.1, problem.log_likelihood(W, 0.1))
        end = rounds._moved(problem, start, 3)
        assert end.log_likelihood >= start.log_likelihood
        W = end.W
