"""Manifold Parzen Windows: the fit, log densities, and a grid of them."""

import numpy as np

from fastmetric import ManifoldParzen

N, QUERIES, Q = 2000, 500, 8


class Manifold:
    """Standard normal points: over a tree in few dimensions, by products in many."""

    params = ([3, 100], ["float64", "float32"])
    param_names = ("D", "dtype")

    def setup(self, D, dtype):
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((N, D)).astype(dtype)
        self.queries = rng.standard_normal((QUERIES, D)).astype(dtype)
        self.model = ManifoldParzen(min(Q, D), n_neighbors=12, noise_variance=0.3).fit(self.X)
        self.time_score_samples(D, dtype)
        self.time_grid(D, dtype)

    def time_fit(self, D, dtype):
        self.model.fit(self.X)

    def peakmem_fit(self, D, dtype):
        self.model.fit(self.X)

    def time_score_samples(self, D, dtype):
        self.model.score_samples(self.queries)

    def time_grid(self, D, dtype):
        noises = np.geomspace(0.1, 1.0, 10)
        self.model.score_samples_grid(
            self.queries, n_components=range(min(Q, D) + 1), noise_variance=noises
        )
