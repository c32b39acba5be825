"""The vectorisable exponential against extended precision."""

import numpy as np
import pytest

from fastmetric._jit import jit
from fastmetric.core.vector.exp import LOWEST, LOWEST_32, exp


@jit
def _exp_of_all(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


def _exp(x):
    out = np.empty_like(x)
    _exp_of_all(x, out)
    return out


def _relative_error(x):
    truth = np.exp(x.astype(np.longdouble))
    return np.abs(_exp(x) / truth - 1).max()


@pytest.mark.parametrize("highest", [0.0, 700.0])
def test_float64_is_within_1e_14_of_the_truth(highest):
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(LOWEST, highest, 200_001), rng.uniform(-1, 0, 100_000)])
    assert _relative_error(x) < 1e-14


def test_float64_is_accurate_where_the_power_of_two_changes():
    middles = (np.arange(-1020, 1) + 0.5) * np.log(2)
    x = np.concatenate([middles + k * 1e-13 for k in range(-20, 21)])
    assert _relative_error(x[x >= LOWEST]) < 1e-14


def test_float32_is_within_two_units_in_the_last_place():
    x = np.linspace(LOWEST_32, 80, 300_001, dtype=np.float32)
    assert _exp(x).dtype == np.float32
    assert _relative_error(x) < 2 * np.finfo(np.float32).eps


def test_zero_gives_exactly_one():
    assert _exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    assert _exp(np.array([0.0], np.float32)).tolist() == [1.0]


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float64, -708.0), (np.float32, -87.0)])
def test_result_is_zero_below_the_lowest_and_normal_above(dtype, lowest):
    below = np.array([np.nextafter(dtype(lowest), dtype(-np.inf)), -1e4, -1e30, -np.inf], dtype)
    assert _exp(below).tolist() == [0.0] * 4
    at = _exp(np.array([lowest], dtype))[0]
    assert at >= np.finfo(dtype).smallest_normal


def test_never_decreases_by_more_than_rounding():
    x = np.linspace(-50, 0, 1_000_001)
    steps = np.diff(_exp(x))
    assert (steps > -4 * np.finfo(float).eps * _exp(x[1:])).all()
