"""Metrics and densities learnt from data too large for n x n matrices."""

from fastmetric.density_classifier import DensityClassifier
from fastmetric.kd_tree import KDTree
from fastmetric.kernel_density import KernelDensity, kernel_sums
from fastmetric.latent_coincidence import LatentCoincidenceAnalysis
from fastmetric.latent_coincidence_classifier import LatentCoincidenceClassifier
from fastmetric.local_component import LocalComponentAnalysis
from fastmetric.manifold_parzen import ManifoldParzen
from fastmetric.mean_shift import MeanShift
from fastmetric.nca import NCA
from fastmetric.nca_objective import nca_value_and_grad

__version__ = "0.1.0"

__all__ = [
    "NCA",
    "DensityClassifier",
    "KDTree",
    "KernelDensity",
    "LatentCoincidenceAnalysis",
    "LatentCoincidenceClassifier",
    "LocalComponentAnalysis",
    "ManifoldParzen",
    "MeanShift",
    "__version__",
    "kernel_sums",
    "nca_value_and_grad",
]
