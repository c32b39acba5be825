"""Sums of Gaussians: their time, their error and their bounds; the density estimator."""

from typing import Any, cast

import numpy as np

from bench.sides import kernel_density as both
from fastmetric import KernelDensity, kernel_sums

N = 10_000
DIMS = [2, 3, 10]
RTOLS = [1e-2, 1e-4, 0.0]


class KernelSums:
    """The sums at all points, standard normal, each left out of its own sum."""

    params = (DIMS, RTOLS)
    param_names = ("d", "rtol")

    def setup(self, d, rtol):
        self.problem = both.normal_problem(N, d)
        both.load_code(self.problem)

    def sums(self, rtol, query=None, return_bounds=False):
        X, h = self.problem.X, self.problem.h
        return kernel_sums(X, query, bandwidth=h, rtol=rtol, return_bounds=return_bounds)

    def time_kernel_sums(self, d, rtol):
        self.sums(rtol)

    def peakmem_kernel_sums(self, d, rtol):
        self.sums(rtol)

    def track_largest_error(self, d, rtol):
        queries = self.problem.X[: both.SAMPLE]
        # Of all points: the tolerance is used up where queries are many.
        log_sums = self.sums(rtol, self.problem.X)[: both.SAMPLE]
        truth = both.true_log_sums(self.problem._replace(queries=queries))
        return float(np.max(np.abs(log_sums - truth)))

    cast(Any, track_largest_error).unit = "log sum"

    def track_widest_bounds(self, d, rtol):
        _, lower, upper = self.sums(rtol, return_bounds=True)
        return float(np.max(upper - lower))

    cast(Any, track_widest_bounds).unit = "log sum"


class Density:
    """The estimator with a tolerance of 1 %, at the points themselves and at others."""

    params = DIMS
    param_names = ("d",)

    def setup(self, d):
        problem = both.normal_problem(N, d)
        both.load_code(problem)
        self.X = problem.X
        self.others = np.random.default_rng(1).standard_normal((N, d))
        self.density = KernelDensity(bandwidth=problem.h, rtol=1e-2).fit(self.X)

    def time_fit(self, d):
        KernelDensity(bandwidth=self.density.bandwidth, rtol=1e-2).fit(self.X)

    def time_score_samples(self, d):
        self.density.score_samples(self.X)

    def time_score_samples_of_others(self, d):
        self.density.score_samples(self.others)
