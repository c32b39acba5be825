"""How the density of a class is made up [CCK-1], [CCK-7]: kernels, priors, a share of background.

A row's density under class c, times the prior, is

    background_c N(z | class c) + weight_c sum_j k(s_ij),   j over class c,

in units that cancel between the classes. For a row of the class itself, which is left out of
its sum, the kernels count `own_c` times as much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmetric.learn.kernel_table import KERNELS


class ClassWeights(NamedTuple):
    """The weights of kernels and background, per class (C,)."""

    weights: np.ndarray  # a kernel; the largest is 1
    own: np.ndarray  # N / (N - 1): a kernel for a row of the class itself, over `weights`
    log_background: np.ndarray | None  # the background; None: there is none


class Mixture(NamedTuple):
    """The kernel, the priors of the classes and the share of their background."""

    kernel: str = "gaussian"
    priors: np.ndarray | None = None  # (C,), None: classic NCA, every point counts the same
    background: bool = False
    beta: np.ndarray | None = None  # (C,), the share of the background; None: 1 / (N_c + 1)

    @property
    def code(self) -> int:
        """Return the kernel's code."""
        return KERNELS[self.kernel].code

    def of_classes(self, kept: np.ndarray) -> Mixture:
        """Return the mixture of some of the classes."""
        return self._replace(
            priors=None if self.priors is None else self.priors[kept],
            beta=None if self.beta is None else self.beta[kept],
        )

    def sharing(self, beta: float | None, n_classes: int) -> Mixture:
        """Return the mixture with the share `beta` of background in every class; None: as it is."""
        return self if beta is None else self._replace(beta=np.full(n_classes, beta))

    def shares(self, sizes: np.ndarray) -> np.ndarray:
        """Return the share of the background in each class (C,)."""
        return 1 / (sizes + 1) if self.beta is None else self.beta

    def class_weights(self, sizes: np.ndarray, d: int) -> ClassWeights:
        """Return the factors for classes of the given sizes (C,) in R^d."""
        sizes = sizes.astype(np.float64)
        if self.priors is None and not self.background:
            return ClassWeights(np.ones(len(sizes)), np.ones(len(sizes)), None)
        priors = sizes if self.priors is None else self.priors
        own = sizes / np.maximum(sizes - 1, 1)
        if not self.background:
            return ClassWeights(_over_largest(priors / sizes), own, None)
        beta = self.shares(sizes)
        weights = priors * (1 - beta) / sizes
        log_background = np.log(priors) + np.log(beta) - np.log(weights.max())
        return ClassWeights(_over_largest(weights), own, log_background + self.log_kernel_volume(d))

    def log_kernel_volume(self, d: int) -> float:
        """Return the log of the kernel's integral over R^d; the Gaussian is exp(-s) here."""
        kernel = KERNELS[self.kernel]
        return kernel.log_volume(d) + d * np.log(kernel.pair_bandwidth)


def _over_largest(weights: np.ndarray) -> np.ndarray:
    """Return weights in units of the largest."""
    return weights / weights.max()
