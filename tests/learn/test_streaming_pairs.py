"""Pairs that come bit by bit: partial_fit_pairs."""

import pickle

import numpy as np
import pytest

from fastmetric import LatentCoincidenceAnalysis
from fastmetric.learn.coincidence import streaming_pairs
from fastmetric.learn.coincidence.likelihood_solvers import LEAST_NOISE, MOST_NOISE
from fastmetric.learn.coincidence.streaming_pairs import PairSteps
from fastmetric.learn.rows import ArrayRows
from tests.twins import coincidence as naive

pytestmark = pytest.mark.filterwarnings("ignore:LatentCoincidence.* has not converged")


def make_pairs(m, seed=0, n_features=4):
    """Return pairs (m, 2, D) that coincide by their first two features or not, and +1 or -1."""
    rng = np.random.default_rng(seed)
    pairs = rng.standard_normal((m, 2, n_features)) * [1, 1, *[3] * (n_features - 2)]
    gaps = pairs[:, 0, :2] - pairs[:, 1, :2]
    coincide = rng.random(m) < np.exp(-0.5 * (gaps**2).sum(axis=1) / 0.5**2)
    return pairs, np.where(coincide, 1, -1)


def learn(steps, pairs, coincide, n_jobs=None):
    """Let the steps learn from pairs (m, 2, D)."""
    rows = pairs.reshape(-1, pairs.shape[2])
    numbers = np.arange(len(rows)).reshape(-1, 2)
    return steps.learn(ArrayRows(rows, n_jobs), *numbers.T, coincide)


def mean_log_likelihood(model, pairs, signs):
    """Return that of pairs under a fitted model."""
    sums = naive.Sums(
        model.components_, model.noise_variance_, pairs, signs == 1, np.ones(len(pairs))
    )
    return float(sums.value) / len(pairs)


@pytest.mark.parametrize("m", [1, 99, 350])
def test_steps_match_the_naive_twin(m):
    pairs, signs = make_pairs(m)
    pairs[:, :, 3] = 1.0  # a feature in which no pair differs
    W = np.random.default_rng(1).standard_normal((3, 4))
    steps = PairSteps(W, 0.2)
    learn(steps, pairs, signs == 1)
    batches = [(pairs[i : i + 100], signs[i : i + 100] == 1) for i in range(0, m, 100)]
    expected, noise = naive.online_steps(W, 0.2, batches)
    assert steps.count == len(batches)
    np.testing.assert_allclose(steps.W, expected, rtol=1e-10)
    assert np.array_equal(steps.W[:, 3], W[:, 3])
    assert steps.noise == pytest.approx(noise, rel=1e-10)


def test_the_likelihood_is_that_before_each_step():
    pairs, signs = make_pairs(200)
    steps, W = PairSteps(np.eye(4), 0.2), np.eye(4)
    total = learn(steps, pairs, signs == 1)
    after, noise = naive.online_steps(W, 0.2, [(pairs[:100], signs[:100] == 1)])
    parts = [
        naive.Sums(*model, pairs[part], signs[part] == 1, np.ones(100)).value
        for model, part in [((W, 0.2), slice(0, 100)), ((after, noise), slice(100, 200))]
    ]
    assert total == pytest.approx(float(sum(parts)), rel=1e-10)


@pytest.mark.parametrize("size", [7, 100, 5000])
def test_one_pass_reaches_most_of_the_likelihood(size):
    """On pairs that were not learnt from, measured from the start to what all pairs lead to."""
    pairs, signs = make_pairs(5000)
    new = make_pairs(500, seed=1)
    model = LatentCoincidenceAnalysis(random_state=0)
    best = mean_log_likelihood(model.fit_pairs(pairs, signs), *new)
    start = mean_log_likelihood(model.set_params(max_iter=1).fit_pairs(pairs, signs), *new)
    online = LatentCoincidenceAnalysis(random_state=0)
    for i in range(0, 5000, size):
        online.partial_fit_pairs(pairs[i : i + size], signs[i : i + size])
    assert start < best - 0.02
    assert mean_log_likelihood(online, *new) > best - 0.2 * (best - start)


def test_row_numbers_and_rows_give_the_same():
    X = np.random.default_rng(0).standard_normal((60, 3))
    numbers = np.random.default_rng(1).integers(0, 60, (250, 2))
    signs = np.where(np.abs(X[numbers[:, 0], 0] - X[numbers[:, 1], 0]) < 0.5, 1, -1)
    model = LatentCoincidenceAnalysis(2, random_state=0, init=np.eye(2, 3))
    by_number = model.partial_fit_pairs(numbers, signs, X=X).components_
    model = LatentCoincidenceAnalysis(2, random_state=0, init=np.eye(2, 3))
    assert np.array_equal(by_number, model.partial_fit_pairs(X[numbers], signs).components_)


def test_partial_fit_continues_after_a_pickle_on_any_threads():
    pairs, signs = make_pairs(600, n_features=1500)  # several blocks in a step
    runs = []
    for n_jobs in (1, 2):
        model = LatentCoincidenceAnalysis(2, random_state=0, n_jobs=n_jobs)
        model.partial_fit_pairs(pairs[:300], signs[:300])
        runs.append(pickle.loads(pickle.dumps(model)).partial_fit_pairs(pairs[300:], signs[300:]))
        model.partial_fit_pairs(pairs[300:], signs[300:])
        assert np.array_equal(model.components_, runs[-1].components_)
    assert np.array_equal(runs[0].components_, runs[1].components_)
    assert runs[0].noise_variance_ == runs[1].noise_variance_


def test_history_has_an_entry_for_each_call():
    pairs, signs = make_pairs(450)
    model = LatentCoincidenceAnalysis(random_state=0)
    for part in (slice(0, 250), slice(250, 450)):
        model.partial_fit_pairs(pairs[part], signs[part])
    assert model.history_["pairs"].tolist() == [250, 200]
    assert model.n_iter_ == 3 + 2
    assert model.history_["log_likelihood"][-1] == model.log_likelihood_
    assert model.history_["noise_variance"][-1] == model.noise_variance_


def test_partial_fit_continues_a_fit_and_a_fit_starts_anew():
    pairs, signs = make_pairs(400)
    fitted = LatentCoincidenceAnalysis(2, random_state=0).fit_pairs(pairs, signs)
    components, n_iter = fitted.components_, fitted.n_iter_
    steps = PairSteps(components, fitted.noise_variance_)
    order = np.random.RandomState(0).permutation(400)
    learn(steps, pairs[order], signs[order] == 1)
    assert np.array_equal(fitted.partial_fit_pairs(pairs, signs).components_, steps.W)
    assert fitted.n_iter_ == 4
    assert np.array_equal(fitted.fit_pairs(pairs, signs).components_, components)
    assert fitted.n_iter_ == n_iter
    again = fitted.partial_fit_pairs(pairs, signs)
    assert np.array_equal(again.components_, steps.W)
    assert len(again.history_["pairs"]) == 1
    X, y = pairs.reshape(-1, 4), np.repeat(signs, 2)
    again.set_params(early_stopping=False, max_iter=3).fit(X, y).partial_fit_pairs(pairs, signs)
    assert not hasattr(again, "classes_")
    assert not hasattr(again, "length_scales_")


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_of_one_kind_only(sign):
    pairs, _ = make_pairs(1000)
    model = LatentCoincidenceAnalysis().partial_fit_pairs(pairs, np.full(1000, sign))
    assert np.isfinite(model.components_).all()
    assert 0 < model.noise_variance_ < np.inf


@pytest.mark.parametrize("sign", [1, -1])
def test_the_noise_stays_within_its_bounds(sign):
    pairs, _ = make_pairs(300)
    bound = {1: LEAST_NOISE, -1: MOST_NOISE}[sign]
    steps = PairSteps(np.eye(4), bound)
    learn(steps, pairs, np.full(300, sign == 1))
    assert LEAST_NOISE <= steps.noise <= MOST_NOISE
    assert steps.noise == pytest.approx(bound)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("m", [1, 100])
def test_later_calls_recover_from_pairs_of_one_kind(sign, m):
    """It says little of how large the map should be: later pairs do."""
    pairs, signs = make_pairs(5000)
    order = np.argsort(signs != sign, kind="stable")
    pairs, signs = pairs[order], signs[order]
    rest = m + np.random.default_rng(0).permutation(5000 - m)
    model, alone = (LatentCoincidenceAnalysis(random_state=0) for _ in range(2))
    model.partial_fit_pairs(pairs[:m], signs[:m])
    for _ in range(3):
        model.partial_fit_pairs(pairs[rest], signs[rest])
        alone.partial_fit_pairs(pairs[rest], signs[rest])
    new = make_pairs(500, seed=1)
    share = float(np.mean(new[1] == 1))
    guess = share * np.log(share) + (1 - share) * np.log1p(-share)  # knowing nothing else
    best = mean_log_likelihood(alone, *new)
    assert mean_log_likelihood(model, *new) > best - 0.2 * (best - guess)


def test_feature_constant_up_to_rounding_is_not_moved():
    pairs, signs = make_pairs(500)
    pairs[:, :, 3] = 0.1
    pairs[::2, 0, 3] = 0.1 + 0.2 - 0.2
    W = np.random.default_rng(0).standard_normal((4, 4))
    model = LatentCoincidenceAnalysis(random_state=0, init=W)
    assert np.array_equal(model.partial_fit_pairs(pairs, signs).components_[:, 3], W[:, 3])
    assert np.abs(model.fit_pairs(pairs, signs).components_[:, 3] - W[:, 3]).max() < 1e-6


def test_the_number_of_components_stays():
    model = LatentCoincidenceAnalysis(3).partial_fit_pairs(*make_pairs(50))
    model.set_params(n_components=2)
    with pytest.raises(ValueError, match="3 rows"):
        model.partial_fit_pairs(*make_pairs(50))
    assert model.set_params(n_components=None).partial_fit_pairs(*make_pairs(50)).n_iter_ == 2


def test_pairs_that_all_coincide_move_nothing():
    pairs = np.repeat(np.random.default_rng(0).standard_normal((300, 1, 3)), 2, axis=1)
    model = LatentCoincidenceAnalysis(init=np.eye(3))
    model.partial_fit_pairs(pairs, np.where(np.arange(300) % 2, 1, -1))
    assert np.array_equal(model.components_, np.eye(3))
    assert 0 < model.noise_variance_ < np.inf


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_partial_fit_is_invariant_to_the_units_of_features(scale):
    pairs, signs = make_pairs(500)
    near, far = (
        LatentCoincidenceAnalysis(random_state=0, init=np.eye(4) / unit).partial_fit_pairs(
            pairs * unit + offset, signs
        )
        for unit, offset in [(1.0, 0.0), (scale, 1e3 * scale)]
    )
    # The offset costs three digits of the rows.
    np.testing.assert_allclose(far.components_ * scale, near.components_, rtol=1e-7, atol=1e-10)
    assert far.noise_variance_ == pytest.approx(near.noise_variance_, rel=1e-7)


def test_float32_follows_float64():
    pairs, signs = make_pairs(500)
    init = np.eye(4)
    double = LatentCoincidenceAnalysis(random_state=0, init=init).partial_fit_pairs(pairs, signs)
    single = LatentCoincidenceAnalysis(random_state=0, init=init)
    single.partial_fit_pairs(pairs.astype(np.float32), signs)
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, double.components_, atol=1e-4)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("pairs", "signs", "match"),
    [
        (np.full((3, 2, 4), np.nan), [1, 1, -1], "NaN"),
        (np.ones((3, 2, 4)), [0, 1, 1], "should be"),
        (np.ones((3, 2)), [1, 1, -1], "shape"),
        (np.full((3, 2, 4), 1e200), [1, 1, -1], "overflow"),
        (np.full((3000, 2, 4), 1e152), [1, -1] * 1500, "overflow"),
        (np.empty((0, 2, 4)), [], "0 sample|at least|minimum"),
    ],
)
def test_bad_pairs_are_refused_and_change_nothing(first, pairs, signs, match):
    model = LatentCoincidenceAnalysis()
    if not first:
        model.partial_fit_pairs(*make_pairs(50))
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=match):
        model.partial_fit_pairs(pairs, signs)
    assert pickle.dumps(model) == before


def test_other_features_are_refused():
    model = LatentCoincidenceAnalysis().partial_fit_pairs(*make_pairs(50))
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit_pairs(*make_pairs(50, n_features=5))


def test_interrupted_call_changes_nothing(monkeypatch):
    pairs, signs = make_pairs(500)
    model = LatentCoincidenceAnalysis(random_state=0).partial_fit_pairs(pairs, signs)
    before, evaluate, calls = pickle.dumps(model), streaming_pairs.Coincidence.evaluate, []

    def interrupted(self, W, noise):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(self, W, noise)

    monkeypatch.setattr(streaming_pairs.Coincidence, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit_pairs(pairs, signs)
    assert pickle.dumps(model) == before
