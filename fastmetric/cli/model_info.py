"""What a saved model is, what it was fitted to, and which commands suit it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from fastmetric.cli import preparation
from fastmetric.cli.files import models
from fastmetric.cli.work import is_fitted


def info(options: Any) -> None:
    """Print what a model is, what it was fitted to, and what it can do."""
    model = models.read_model(options.model, options.trust)
    last, known = model.last, model.known
    lines = [("model", type(last).__name__)]
    if model.from_python:
        lines.append(("saved", "by fastmetric.save, in Python"))
    features = known.features
    if features is None:
        lines.append(("features", f"{known.width} columns without names"))
    else:
        shown = ", ".join(features[:20]) + ", …" * (len(features) > 20)
        lines.append(("features", f"{len(features)}: {shown}"))
    if known.target:
        lines.append(("target", known.target))
    if known.ids:
        lines.append(("ids", ", ".join(known.ids)))
    if hasattr(last, "classes_"):
        shown = ", ".join(map(str, last.classes_[:20])) + ", …" * (len(last.classes_) > 20)
        lines.append(("classes", f"{len(last.classes_)}: {shown}"))
    lines += [("preparation", text) for text in preparation.described(model.estimator)]
    lines += [("parameters", _parameters(last))]
    lines += [(name, value) for name, value in _figures(last)]
    able = [
        command
        for command, method in (
            ("transform", "transform"),
            ("predict", "predict"),
            ("density", "score_samples"),
        )
        if hasattr(model.estimator, method)
    ]
    lines.append(("commands", ", ".join(able)))
    before = ""
    for name, text in lines:
        print(f"{name if name != before else '':<12}  {text}")
        before = name


def _parameters(estimator: Any) -> str:
    """Return the parameters that differ from their defaults."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator).__init__).parameters.items()
    }
    given = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("verbose", "n_jobs") and repr(value) != repr(defaults.get(name))
    }
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "the defaults"


def _figures(estimator: Any) -> list[tuple[str, str]]:
    """Return what a fit found, as names and texts."""
    found = []
    for name in ("components_", "cluster_centers_"):
        if hasattr(estimator, name):
            rows, columns = getattr(estimator, name).shape[-2:]
            what = "clusters" if name == "cluster_centers_" else "dimensions"
            found.append((what, f"{rows}, from {columns} features"))
    for name in ("objective_", "log_likelihood_", "n_iter_", "bandwidth_"):
        value = getattr(estimator, name, None)
        if value is not None and np.ndim(value) == 0:
            found.append((name.rstrip("_"), f"{value:.6g}"))
    return found or [("state", "fitted" if is_fitted(estimator) else "not fitted")]
