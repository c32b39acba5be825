"""Every kernel of the table against independent formulas, integrals and draws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gamma

from fastmetric.core.kernels import (
    apply_kernel,
    centroid_correction,
    curvature_bound,
    has_tails,
    kernel_value,
    shifted_kernel,
    slope_bound,
)
from fastmetric.learn.kernel_table import (
    EXP_BANDWIDTH,
    KERNELS,
    SMOOTH,
    Kernel,
    checked,
    draw,
)

# Of r = |q| / h.
FORMULAS = {
    "gaussian": lambda r: math.exp(-r * r / 2),
    "biweight": lambda r: (1 - r * r) ** 2 if r < 1 else 0.0,
    "tophat": lambda r: 1.0 if r < 1 else 0.0,
    "epanechnikov": lambda r: 1 - r * r if r < 1 else 0.0,
    "exponential": lambda r: math.exp(-r),
    "linear": lambda r: 1 - r if r < 1 else 0.0,
    "cosine": lambda r: math.cos(math.pi * r / 2) if r < 1 else 0.0,
}
UNKNOWN = max(kernel.code for kernel in KERNELS.values()) + 1
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def scaled(kernel: Kernel, r: float) -> float:
    """Return the argument s of the core's kernel at a distance of r bandwidths."""
    return r * r / 2 if kernel.name == "gaussian" else r * r


def test_every_kernel_has_its_formula_and_its_own_code():
    assert set(FORMULAS) == set(KERNELS)
    assert len({kernel.code for kernel in KERNELS.values()}) == len(KERNELS)
    assert SMOOTH == ("gaussian", "biweight")


@every_kernel
def test_values_are_those_of_the_formula(kernel):
    r = np.linspace(0, 3, 301)
    s = np.array([scaled(kernel, x) for x in r])
    expected = [FORMULAS[kernel.name](x) for x in r]
    tile = s.copy()
    apply_kernel(kernel.code, tile, 1.0, 0.0)
    np.testing.assert_allclose(tile, expected, rtol=1e-13, atol=1e-15)
    one_by_one = [kernel_value(kernel.code, x) for x in s]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-13, atol=1e-15)


@every_kernel
@given(ends=st.tuples(st.floats(0, 3), st.floats(0, 3)), at=st.floats(0, 1))
def test_the_slope_is_within_its_bound(kernel, ends, at):
    lo, hi = sorted(ends)
    if kernel.name == "tophat" and hi >= 1:  # its jump has no slope
        return
    a, b = lo + at * (hi - lo), hi
    largest = FORMULAS[kernel.name](lo)
    bound = slope_bound(kernel.code, scaled(kernel, hi), largest)
    change = abs(FORMULAS[kernel.name](a) - FORMULAS[kernel.name](b))
    assert change <= bound * (b - a) * (1 + 1e-12) + 1e-14


def centroid_error(kernel: Kernel, centre: np.ndarray, spread: np.ndarray) -> tuple[float, float]:
    """Return the error at the origin of two points centre +- spread as one, and its bound."""
    points = np.stack([centre + spread, centre - spread])
    # All positions between the points and their centre: the segment holds them.
    segment = centre + np.linspace(-1, 1, 401)[:, None] * spread
    distances = np.linalg.norm(segment, axis=1)
    # The nearest place of the segment is between those of the grid.
    lo, hi = max(0.0, distances.min() - np.linalg.norm(spread) / 200), distances.max()
    scatter = 2 * float(spread @ spread)
    truth = sum(FORMULAS[kernel.name](float(r)) for r in np.linalg.norm(points, axis=1))
    value = 2 * FORMULAS[kernel.name](float(np.linalg.norm(centre)))
    value -= centroid_correction(kernel.code, scatter)
    s_lo, s_hi = scaled(kernel, lo), scaled(kernel, hi)
    k_lo = shifted_kernel(kernel.code, s_lo, 0.0)
    curvature = curvature_bound(kernel.code, s_lo, s_hi, k_lo)
    # A walk takes a node of one place as its centroid without asking for a bound.
    return abs(truth - value), 0.5 * scatter * curvature if scatter > 0 else 0.0


@every_kernel
@given(
    centre=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    spread=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    size=st.sampled_from([1.0, 0.3, 0.1]),
)
def test_the_curvature_bounds_the_error_of_a_centroid(kernel, centre, spread, size):
    error, bound = centroid_error(kernel, np.array(centre) * size, np.array(spread) * size)
    assert error <= bound * (1 + 1e-9) + 1e-14


@every_kernel
def test_the_bound_of_a_centroid_is_finite_within_reach(kernel):
    error, bound = centroid_error(kernel, np.array([0.5, 0.0]), np.array([0.1, 0.1]))
    assert error <= bound < 1


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@every_kernel
def test_the_volume_and_the_variance_are_integrals(kernel, d):
    end = np.inf if kernel.has_tails else 1.0
    sphere = 2 * math.pi ** (d / 2) / gamma(d / 2)
    mass, square = (
        quad(lambda r, p=p: FORMULAS[kernel.name](r) * r ** (d - 1 + p), 0, end)[0] for p in (0, 2)
    )
    assert kernel.log_volume(d) == pytest.approx(math.log(sphere * mass), abs=1e-8)
    assert kernel.variance(d) == pytest.approx(square / mass / d, rel=1e-6)


@pytest.mark.parametrize("d", [1, 3])
@every_kernel
def test_draws_have_the_variance(kernel, d):
    n = 100_000
    squares = (draw(kernel, n, d, np.random.RandomState(0)) ** 2).mean(axis=1)
    assert abs(squares.mean() - kernel.variance(d)) < 5 * squares.std() / math.sqrt(n)


def test_exp_is_the_gaussian_of_its_bandwidth():
    r = np.linspace(0, 4, 9)
    expected = np.exp(-(r**2))
    np.testing.assert_allclose(np.exp(-((r / EXP_BANDWIDTH) ** 2) / 2), expected, rtol=1e-14)


def test_an_unknown_code_has_no_value_and_infinite_bounds():
    tile = np.array([0.0, 0.5, 2.0])
    apply_kernel(UNKNOWN, tile, 1.0, 0.0)
    assert np.isnan(tile).all()
    assert np.isnan(kernel_value(UNKNOWN, 0.25))
    assert np.isnan(shifted_kernel(UNKNOWN, 0.25, 0.0))
    assert slope_bound(UNKNOWN, 0.5, 1.0) == np.inf
    assert curvature_bound(UNKNOWN, 0.25, 0.5, 1.0) == np.inf
    assert has_tails(UNKNOWN)  # no node is left out as beyond its reach


def test_the_table_refuses_a_code_without_bounds():
    with pytest.raises(ValueError, match="no bounds"):
        checked(KERNELS["cosine"]._replace(name="other", code=UNKNOWN))
    with pytest.raises(ValueError, match="tails"):
        checked(KERNELS["cosine"]._replace(has_tails=True))
