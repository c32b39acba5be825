"""The k-d tree: building it, nearest neighbours, balls."""

from typing import Any, cast

import numpy as np

from bench.shared.setup import take_turns
from fastmetric import KDTree

N = 20_000
DIMS = [2, 3, 10]
K = 10


class Tree:
    """Standard normal points, and as many others for queries."""

    params = DIMS
    param_names = ("d",)

    def setup(self, d):
        self.X, self.queries = np.random.default_rng(0).standard_normal((2, N, d))
        self.tree = KDTree(self.X)
        dist, _ = self.tree.query(self.queries, K)
        self.radius = float(np.median(dist[:, -1]))  # half of the balls hold K points
        self.tree.query_radius(self.queries, self.radius)
        self.tree.query_radius(self.queries, self.radius, count_only=True)

    def time_build(self, d):
        KDTree(self.X)

    def peakmem_build(self, d):
        KDTree(self.X)

    def time_query(self, d):
        self.tree.query(self.queries, K)

    def track_queries_per_second(self, d):
        task = {"query": lambda: self.tree.query(self.queries, K)}
        return N / take_turns(task, 3)["query"].best

    cast(Any, track_queries_per_second).unit = "queries/s"

    def time_query_radius(self, d):
        self.tree.query_radius(self.queries, self.radius)

    def time_count_within_radius(self, d):
        self.tree.query_radius(self.queries, self.radius, count_only=True)
