"""The estimators by their names on the command line, and their parameters."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastmetric import (
    NCA,
    DensityClassifier,
    KernelDensity,
    LatentCoincidenceAnalysis,
    LatentCoincidenceClassifier,
    LocalComponentAnalysis,
    ManifoldParzen,
    MeanShift,
)
from fastmetric.cli.files.text_tables import TableError

METHODS: dict[str, Any] = {
    "nca": NCA,
    "coincidence": LatentCoincidenceAnalysis,
    "coincidence-classifier": LatentCoincidenceClassifier,
    "local-component": LocalComponentAnalysis,
    "kernel-density": KernelDensity,
    "manifold-parzen": ManifoldParzen,
    "density-classifier": DensityClassifier,
    "mean-shift": MeanShift,
}
SUPERVISED = ("nca", "coincidence", "coincidence-classifier", "density-classifier")
MAPS = ("nca", "coincidence", "local-component")
DENSITIES = ("kernel-density", "manifold-parzen", "local-component")
MOST_ROWS_OF_LOO = 20_000  # above, leaving each row out for many bandwidths takes too long

# The options with names of their own, and the parameter that each is.
OPTIONS = {
    "components": "n_components",
    "bandwidth": "bandwidth",
    "init": "init",
    "alpha": "alpha",
    "max_iter": "max_iter",
    "jobs": "n_jobs",
    "seed": "random_state",
}


class Request(NamedTuple):
    """A method with the parameters that the user gave."""

    method: str
    parameters: dict[str, Any]
    verbose: bool = False


def request(options: Any) -> Request:
    """Return the method and the parameters in parsed options; raise on an unknown parameter."""
    given = {
        parameter: getattr(options, option)
        for option, parameter in OPTIONS.items()
        if getattr(options, option, None) is not None
    }
    if "bandwidth" in given:
        given["bandwidth"] = _value(given["bandwidth"])
    for setting in options.set or ():
        name, equals, value = setting.partition("=")
        if not equals:
            raise TableError(f"--set {setting}: NAME=VALUE was expected, as in --set tol=1e-4")
        given[name.strip()] = _value(value.strip())
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise TableError(f"--seed {options.seed}: an integer from 0 to 2**32 - 1 was expected")
    wanted = Request(options.method, given, not options.quiet)
    estimator = _with_required(wanted, 2)
    if options.command == "evaluate" and "random_state" not in estimator.get_params():
        given.pop("random_state", None)  # it draws the folds
    for name in given:
        _own_name(estimator, name, options.method)
    return wanted


def made(wanted: Request, n_features: int, n_rows: int) -> tuple[Any, list[str]]:
    """Return the estimator, not fitted, and what was chosen for the user."""
    estimator = _with_required(wanted, n_features)
    parameters = {
        _own_name(estimator, name, wanted.method): value
        for name, value in wanted.parameters.items()
        if name != "estimator" or not isinstance(value, str)
    }
    known = estimator.get_params()
    notes = []
    for name in ("bandwidth", "estimator__bandwidth"):
        density = known.get("estimator") if name.startswith("estimator") else estimator
        if isinstance(density, KernelDensity) and name in known and name not in parameters:
            rule = "loo" if n_rows <= MOST_ROWS_OF_LOO else "scott"
            parameters[name] = rule
            why = "of largest leave-one-out likelihood" if rule == "loo" else "by Scott's rule"
            notes.append(f"bandwidth: {why} (--bandwidth sets it)")
    if wanted.verbose and "verbose" in known:
        parameters.setdefault("verbose", 1)
    return estimator.set_params(**parameters), notes


def _with_required(wanted: Request, n_features: int) -> Any:
    """Return an estimator with the parameters that it cannot be made without."""
    kind = METHODS[wanted.method]
    if kind is DensityClassifier:
        inner = wanted.parameters.get("estimator", "kernel-density")
        if inner not in DENSITIES:
            raise TableError(f"--set estimator={inner}: choose from {', '.join(DENSITIES)}")
        named = {
            name.removeprefix("estimator__"): value for name, value in wanted.parameters.items()
        }
        return DensityClassifier(_with_required(Request(inner, named), n_features))
    two = min(2, n_features)
    if kind is ManifoldParzen:
        needed = ("n_neighbors", "noise_variance")
        missing = [name for name in needed if name not in wanted.parameters]
        if missing:
            raise TableError(
                f"manifold-parzen needs {' and '.join(f'--set {name}=...' for name in missing)}: "
                "the rows of a neighbourhood, and the variance across it; "
                "--set n_neighbors=20 --set noise_variance=0.01, for example"
            )
        values = {name: wanted.parameters[name] for name in needed}
        return ManifoldParzen(wanted.parameters.get("n_components", two), **values)
    return kind(two) if "n_components" in kind().get_params() else kind()


def _own_name(estimator: Any, name: str, method: str) -> str:
    """Return the name of a parameter as the estimator has it: perhaps that of its density."""
    known = estimator.get_params()
    for own in (name, f"estimator__{name}"):
        if own in known:
            return own
    settable = sorted(one for one in known if one not in ("callback", "estimator"))
    option = next((option for option, own in OPTIONS.items() if own == name != option), "")
    given = f" (--{option})" if option else ""
    raise TableError(
        f"{method} has no parameter {name!r}{given}; it has {', '.join(_short(settable))}"
    )


def _short(names: Sequence[str]) -> list[str]:
    """Return names of parameters without their prefix."""
    return [name.removeprefix("estimator__") for name in names]


def _value(text: Any) -> Any:
    """Return a value as Python writes it: a number, True, None, a list; else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
