"""Types for those who check theirs: scikit-learn's base classes, and what parameters may be.

scikit-learn has no types, and a class whose base is unknown has every attribute to a type
checker, so that `nca.fitt` would pass. A checker therefore sees the classes declared here, with
the methods that users call; at run time they are scikit-learn's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

Vector = np.ndarray | Sequence[float]
Matrix = np.ndarray | Sequence[Sequence[float]]
Seed = int | np.random.RandomState | None

SmoothKernel = Literal["gaussian", "biweight"]
AnyKernel = Literal[
    "gaussian", "biweight", "tophat", "epanechnikov", "exponential", "linear", "cosine"
]
SumMethod = Literal["auto", "exact", "tree", "grid"]

if TYPE_CHECKING:
    from typing import Self

    _Function = TypeVar("_Function", bound=Callable[..., Any])

    class BaseEstimator:
        """What all estimators have."""

        n_features_in_: int
        feature_names_in_: np.ndarray

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters."""

        def set_params(self, **params: Any) -> Self:
            """Set parameters."""

        def get_metadata_routing(self) -> Any:
            """Return how metadata are routed."""

        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: dict[str, Any]) -> None: ...

    class TransformerMixin:
        """What transformers have."""

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
            """Fit, and return the rows transformed."""

        def set_output(self, *, transform: Any = None) -> Self:
            """Set the container of transformed rows."""

    class ClassNamePrefixFeaturesOutMixin:
        """What transformers have whose features are named after them."""

        def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
            """Return the names of the transformed features."""

    class ClassifierMixin:
        """What classifiers have."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """Return the accuracy."""

    class ClusterMixin:
        """What clusterings have."""

        def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> np.ndarray:
            """Fit, and return the cluster of each row."""

    class DensityMixin:
        """What densities have: their methods are written out in each."""

    def available_if(check: Callable[[Any], bool]) -> Callable[[_Function], _Function]:
        """Return a decorator of a method that is there if the check holds."""

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        ClusterMixin,
        DensityMixin,
        TransformerMixin,
    )
    from sklearn.utils.metaestimators import available_if

__all__ = [
    "AnyKernel",
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "ClusterMixin",
    "DensityMixin",
    "Matrix",
    "Seed",
    "SmoothKernel",
    "SumMethod",
    "TransformerMixin",
    "Vector",
    "available_if",
]
