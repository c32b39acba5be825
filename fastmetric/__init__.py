"""Metrics and densities learnt from data too large for n x n matrices.

Every public class has a file of its own here: parameters, validation, attributes. Its fit is in
`learn`, the loops that are compiled in `core`. Of the other files, `persistence` saves and loads
estimators, `engine` runs every loop over blocks (threads, Ctrl-C), `_jit` compiles, `_code_cache`
keeps compiled code on disk, `_compile_notice` says that a call compiles, `warm_up` compiles
everything beforehand, `_validate` refuses bad input, and `cli` is the command line.
"""

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
from fastmetric.persistence import load, save
from fastmetric.warm_up import warmup

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
    "load",
    "nca_value_and_grad",
    "save",
    "warmup",
]
