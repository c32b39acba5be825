"""Trials of LatentCoincidenceAnalysis: which rows are held out, and what their errors decide."""

import numpy as np
import pytest

from fastmetric import LatentCoincidenceAnalysis
from fastmetric.learn.coincidence.impostor_rounds import State
from fastmetric.learn.coincidence.likelihood_solvers import Model
from fastmetric.learn.coincidence.trials import (
    Trial,
    best_schedule,
    best_start,
    errors_by_round,
)
from fastmetric.learn.optim.holdout import splits

pytestmark = pytest.mark.filterwarnings("ignore:LatentCoincidence.* has not converged")


@pytest.mark.parametrize("n", [7, 40, 999])
def test_few_rows_are_each_held_out_three_times(n):
    y = np.random.default_rng(n).integers(0, 3, n)
    split = list(splits(y, 0.1, np.random.RandomState(0)))
    for fold in range(0, len(split), 5):
        together = np.concatenate([held_out for _, held_out in split[fold : fold + 5]])
        assert np.array_equal(np.sort(together), np.arange(n))
    assert len(split) == 15
    assert not np.array_equal(split[0][1], split[5][1])
    for learnt, held_out in split:
        assert np.array_equal(np.sort(np.concatenate([learnt, held_out])), np.arange(n))
        shares = np.bincount(y[held_out], minlength=3) - np.bincount(y, minlength=3) / 5
        assert np.abs(shares).max() < 1


def test_many_rows_are_held_out_in_part():
    y = np.arange(1000) % 4
    ((learnt, held_out),) = splits(y, 0.1, np.random.RandomState(0))
    assert np.array_equal(np.sort(np.concatenate([learnt, held_out])), np.arange(1000))
    assert np.bincount(y[held_out]).tolist() == [25] * 4
    assert not list(splits(np.arange(1000), 0.1, np.random.RandomState(0)))


class _Script:
    """Rounds that go where the script says: the number of errors after each."""

    X = y = np.empty(0)

    def __init__(self, errors):
        self.errors = errors

    def following(self, settings):
        return _Script(self.errors[settings])

    def states(self, W):
        for error in self.errors:
            model = Model(np.array([[error]]), 1.0, 0.0)
            yield State(model, np.ones(1), np.ones(1, bool), 1)


def _curve(*scripts):
    """Return the errors by round of trials with ten rows held out each, and all that were seen."""
    rows = np.arange(10)
    trials = [Trial(_Script(errors), lambda W: rows < W[0, 0], rows) for errors in scripts]
    seen = []
    return errors_by_round(trials, lambda X, y: np.eye(1), seen.append), seen


def test_mean_errors_over_trials_choose_the_round():
    # The second ends sooner, and stays there.
    curve, seen = _curve([9, 5, 7, 2, 3], [5, 1])
    assert curve == [0.7, 0.3, 0.4, 0.15]
    assert seen == [*curve, 0.2]


def test_differences_below_a_standard_error_are_ignored():
    assert _curve([5, 4, 3], [5, 6, 6])[0] == [0.5]
    assert _curve([5, 4, 3], [5, 5, 5])[0] == [0.5, 0.45, 0.4]


def test_ten_rounds_without_fewer_errors_end_a_trial():
    curve, seen = _curve([5, 3] + [4] * 30)
    assert curve == [0.5, 0.3]
    assert len(seen) == 12


@pytest.mark.parametrize(
    ("first", "second", "chosen"), [([5, 2], [5, 1], 1), ([5, 2], [5, 3, 2], 0), ([5, 2], [5], 0)]
)
def test_schedule_with_the_fewest_final_errors_is_chosen(first, second, chosen):
    trial = Trial(_Script([first, second]), lambda W: np.arange(10) < W[0, 0], np.arange(10))
    settings, errors = best_schedule([trial], lambda X, y: np.eye(1), [0, 1], lambda share: None)
    assert settings == chosen
    assert errors[-1] == min([first, second][chosen]) / 10


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen"),
    [
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [1, 2], 0),  # one error fewer may be chance
        ([1, 2, 3], [1], 1),  # two rows more, none less: by more than the root of two
        ([1, 2, 3], [4], 0),  # three rows more, one less: two are the root of four
        ([1, 2, 3, 5], [4], 1),
        ([], [1, 2, 3], 0),
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_the_preferred_start_stays_within_a_standard_error(ours, theirs, chosen, times):
    """However often the rows are held out: that does not make them more."""
    wrong = {0.0: ours, 1.0: theirs}
    trial = Trial(_Script([]), lambda W: np.isin(np.arange(6), wrong[W[0, 0]]), np.arange(6))
    starts = [lambda X, y: np.zeros((1, 1)), lambda X, y: np.ones((1, 1))]
    assert best_start([trial] * times, starts) is starts[chosen]


@pytest.mark.parametrize(("init", "spread"), [("rca", 30.0), ("identity", 0.01)])
def test_start_is_chosen_on_held_out_rows(init, spread):
    """Classes differ in one feature; whitening turns the others down, or up."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = rng.standard_normal((150, 21)) * [1, *[spread] * 20]
    X[:, 0] += 3 * y
    chosen, given = (
        LatentCoincidenceAnalysis(init=name, max_iter=3, random_state=0).fit(X, y)
        for name in ("auto", init)
    )
    assert np.array_equal(chosen.components_, given.components_)
