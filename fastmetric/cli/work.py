"""What the commands on tables do: fit, transform, predict, density, cluster."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from fastmetric.cli import methods, pictures, preparation
from fastmetric.cli.files import models, outputs
from fastmetric.cli.files.columns import Choice, Known, Table, columns_to_apply, columns_to_fit
from fastmetric.cli.files.models import Model
from fastmetric.cli.files.tables import read_raw
from fastmetric.cli.files.text_tables import Reading, TableError


def reading(options: Any) -> Reading:
    """Return how text files are to be read."""
    delimiter = {"tab": "\t", "\\t": "\t", "space": r"\s+"}.get(
        options.delimiter, options.delimiter
    )
    return Reading(
        delimiter,
        options.decimal,
        options.encoding,
        not options.no_header,
        tuple(options.missing or ()),
    )


def training_table(options: Any) -> Table:
    """Return the table of a fit, and say what was decided on its columns."""
    supervised = options.method in methods.SUPERVISED
    if supervised and not options.target:
        raise TableError(f"{options.method} learns from classes: give their column as --target")
    choice = Choice(
        options.target,
        options.id,
        options.features,
        options.drop,
        options.categories,
        options.impute is not None,
        supervised,
    )
    table = columns_to_fit(read_raw(options.data, reading(options)), choice)
    tell(table.notes)
    return table


def tell(notes: list[str]) -> None:
    """Print what the user should know, beside the result."""
    for note in notes:
        print(note, file=sys.stderr)


def prepared_estimator(options: Any, table: Table, quiet: bool = False) -> Any:
    """Return the estimator for a table, not fitted, with the preparation of its rows."""
    wanted = methods.request(options)
    if quiet:
        wanted = wanted._replace(verbose=False)
    estimator, notes = methods.made(wanted, table.X.shape[1], len(table.X))
    tell(notes)
    return preparation.prepared(estimator, preparation_of(options, table))


def preparation_of(options: Any, table: Table) -> preparation.Preparation:
    """Return what is done to the rows of a table."""
    numbers = [column for column in table.X.columns if column not in table.categories]
    return preparation.Preparation(options.impute, options.scale, numbers, table.categories)


class _Fit(NamedTuple):
    """A fitted model, and how the fit went."""

    model: Model
    seconds: float
    interrupted: bool


def _fitted(options: Any, table: Table) -> _Fit:
    """Return a model fitted to a table; after Ctrl-C that of the last finished iteration."""
    estimator = prepared_estimator(options, table)
    named = table.named or bool(table.categories)
    X = table.X if named else table.X.to_numpy()
    began, interrupted = time.perf_counter(), False
    try:
        estimator.fit(X, table.y)
    except KeyboardInterrupt:
        if not is_fitted(models.final_estimator(estimator)):
            raise
        interrupted = True
    known = Known(
        [str(column) for column in table.X.columns] if named else None,
        table.target,
        [str(column) for column in table.ids.columns],
        [str(column) for column in table.categories],
        options.impute is not None,
    )
    return _Fit(Model(estimator, known), time.perf_counter() - began, interrupted)


def is_fitted(estimator: Any) -> bool:
    """Return whether a fit has left anything behind."""
    return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))


def sizes(table: Table) -> str:
    """Return the numbers of rows and features of a table, in words."""
    rows, features = table.X.shape
    return f"{rows:,} rows, {features} feature{'s' * (features != 1)}"


def _summary(fit: _Fit, table: Table) -> str:
    """Return a line on a fit."""
    last, text = fit.model.last, sizes(table)
    if hasattr(last, "classes_"):
        text += f", {len(last.classes_)} classes"
    text += ": "
    if hasattr(last, "objective_"):
        text += f"mean probability of the right class {last.objective_:.4f} on these rows"
    elif hasattr(last, "cluster_centers_"):
        text += f"{len(last.cluster_centers_)} clusters"
    elif hasattr(last, "bandwidth_") and np.ndim(last.bandwidth_) == 0:
        text += f"bandwidth {last.bandwidth_:.6g}"
    elif hasattr(last, "log_likelihood_"):
        text += f"log-likelihood {last.log_likelihood_:.6g}"
    else:
        text += type(last).__name__
    iterations = f" after {last.n_iter_} iterations" if hasattr(last, "n_iter_") else ""
    return f"{text}{iterations}, {fit.seconds:.1f} s"


def fit(options: Any) -> None:
    """Fit a method to a table and save it with what must be known of the table."""
    outputs.check("--out", options.out, outputs.MODELS, options.force)
    methods.request(options)
    table = training_table(options)
    done = _fitted(options, table)
    models.write_model(options.out, done.model)
    print(f"{_summary(done, table)}\nsaved to {options.out}")
    if done.interrupted:
        raise KeyboardInterrupt


# With a model


def model_and_table(options: Any, method: str, others: str) -> tuple[Model, Table]:
    """Return a saved model that has a method, and the new rows."""
    model = models.read_model(options.model, options.trust)
    if not hasattr(model.estimator, method):
        raise TableError(
            f"{options.model} holds {type(model.last).__name__}, which has no {method}; {others}"
        )
    table = columns_to_apply(
        read_raw(options.data, reading(options)), model.known, options.id, options.target
    )
    tell(table.notes)
    new = preparation.unknown_categories(model.estimator, table.X, table.categories)
    if new:
        tell([f"{options.data}: warning: the model has not seen {'; '.join(new)}"])
    return model, table


_OF_A_FIT = ("queries", "features", "drop", "categories", "scale", "impute", "held_out", "set")


def refuse_options_of_a_fit(options: Any) -> None:
    """Raise if an option is given that a saved model would ignore."""
    for name in (*_OF_A_FIT, *methods.OPTIONS):
        if name != "jobs" and getattr(options, name, None) not in (None, "", False):
            raise TableError(
                f"--{name.replace('_', '-')} belongs to a fit and has no effect on the model of "
                "--model; leave one of them out"
            )


def rows_for(model: Model, table: Table) -> Any:
    """Return the rows as the estimator knows them: with names if it was fitted with names."""
    names = getattr(model.estimator, "feature_names_in_", None)
    return table.X.to_numpy() if names is None else table.X


def transform(options: Any) -> None:
    """Project the rows of a table with a saved model."""
    outputs.check("--out", options.out, outputs.TABLES, options.force)
    _check_picture(options)
    model, table = model_and_table(options, "transform", "`fastmetric info` says what it can do")
    Z = model.estimator.transform(rows_for(model, table))
    names = [str(name) for name in model.last.get_feature_names_out()]
    if options.picture and Z.shape[1] < 2:
        raise TableError("--picture needs a model with two dimensions or more")
    outputs.write_table(options.out, table, dict(zip(names, Z.T, strict=True)))
    if options.picture:
        labels = np.zeros(len(Z), int) if table.y is None else table.y
        if labels.dtype.kind == "O":  # some rows have no class
            labels = np.array(["?" if label is None else str(label) for label in labels])
        plane, axes = pictures.in_plane(Z, names)
        classes = [] if table.y is None else [str(c) for c in np.unique(labels)]
        title = f"{len(Z):,} rows of {_named(options)} under {type(model.last).__name__}"
        picture = pictures.Picture(options.picture, title, axes)
        pictures.draw_classes(picture, plane, labels, classes or [""])
    _report(options, f"{len(Z):,} rows projected to {Z.shape[1]} dimensions: {options.out}")


def predict(options: Any) -> None:
    """Predict the classes, or clusters, of the rows of a table with a saved model."""
    outputs.check("--out", options.out, outputs.TABLES, options.force)
    model, table = model_and_table(options, "predict", "`fastmetric info` says what it can do")
    X = rows_for(model, table)
    labels = model.estimator.predict(X)
    clusters = hasattr(model.last, "cluster_centers_")
    results = {"cluster" if clusters else "predicted": labels}
    if options.proba:
        if not hasattr(model.estimator, "predict_proba"):
            raise TableError(f"{type(model.last).__name__} has no probabilities: no --proba")
        P = model.estimator.predict_proba(X)
        columns = zip(model.estimator.classes_, P.T, strict=True)
        results |= {f"p({name})": column for name, column in columns}
    outputs.write_table(options.out, table, results)
    right = ""
    agree = as_given(table, labels)
    if len(agree) and not clusters:
        of = "them" if len(agree) == len(labels) else f"the {len(agree):,} with a class"
        right = f", {agree.mean():.1%} of {of} as column {table.target} says"
    what = "clusters" if clusters else "classes"
    _report(options, f"{what} of {len(labels):,} rows predicted{right}: {options.out}")


def as_given(table: Table, labels: np.ndarray) -> np.ndarray:
    """Return whether labels are those of the table, for each row that has one."""
    if table.y is None:
        return np.empty(0, bool)
    known = np.array([label is not None for label in table.y])
    found, given = labels[known], np.array(table.y[known].tolist())
    if found.dtype.kind in "biuf" and given.dtype.kind in "biuf":
        return found == given
    return found.astype(str) == given.astype(str)


# Without a model, or with one


def density(options: Any) -> None:
    """Write log densities of rows, and draw them."""
    if options.out is None and options.picture is None:
        raise TableError("give --out FILE, --picture FILE or both")
    outputs.check("--out", options.out, outputs.TABLES, options.force)
    _check_picture(options)
    if options.model is not None:
        refuse_options_of_a_fit(options)
        others = "fit a density: kernel-density, manifold-parzen, local-component"
        model, table = model_and_table(options, "score_samples", others)
    else:
        training = training_table(options)
        model, table = _fitted(options, training).model, training
        if options.queries is not None:
            known = model.known._replace(width=training.X.shape[1])
            table = columns_to_apply(read_raw(options.queries, reading(options)), known, options.id)
            tell(table.notes)
        else:
            tell(["each row is one of those that the density was fitted to, and counts itself"])
    X = rows_for(model, table)
    logs = np.asarray(model.estimator.score_samples(X), dtype=float)
    if options.out is not None:
        outputs.write_table(options.out, table, {"log_density": logs})
    if options.picture is not None:
        _draw_density(options, model, table, logs)
    written = ", ".join(str(path) for path in (options.out, options.picture) if path is not None)
    _report(options, f"log densities of {len(logs):,} rows, mean {logs.mean():.4f}: {written}")


def _draw_density(options: Any, model: Model, table: Table, logs: np.ndarray) -> None:
    """Draw a density and the rows of a table."""
    X, names = _drawable(model, table)

    axes = (names[0], "log density") if X.shape[1] == 1 else pictures.in_plane(X, names)[1]
    title = f"{type(model.last).__name__}: {len(logs):,} rows of {_named(options)}"
    picture = pictures.Picture(options.picture, title, axes)
    pictures.draw_density(picture, model.estimator, rows_for(model, table), X, logs)


def _named(options: Any) -> str:
    """Return the name of the file of the rows, for a title."""
    path = getattr(options, "queries", None) or options.data
    return "standard input" if str(path) == "-" else path.name


def cluster(options: Any) -> None:
    """Write the cluster of each row, and draw them."""
    outputs.check("--out", options.out, outputs.TABLES, options.force)
    _check_picture(options)
    table = training_table(options)
    done = _fitted(options, table)
    labels = done.model.last.labels_
    outputs.write_table(options.out, table, {"cluster": labels})
    if options.picture is not None:
        plane, axes = pictures.in_plane(*_drawable(done.model, table))
        title = f"{len(set(labels))} clusters of {len(labels):,} rows of {_named(options)}"
        picture = pictures.Picture(options.picture, title, axes)
        pictures.draw_classes(picture, plane, labels, [str(c) for c in np.unique(labels)])
    agreement = ""
    if table.y is not None:
        from sklearn.metrics import adjusted_rand_score

        score = adjusted_rand_score(table.y, labels)
        agreement = f", adjusted Rand index {score:.3f} with {table.target}"
    _report(options, f"{_summary(done, table)}{agreement}: {options.out}")
    if done.interrupted:
        raise KeyboardInterrupt


def _drawable(model: Model, table: Table) -> tuple[np.ndarray, list[str]]:
    """Return rows to draw and their names: one or two features as they are, more as prepared."""
    names = [str(column) for column in table.X.columns]
    if len(names) <= 2 and not table.categories and not table.X.isna().to_numpy().any():
        return table.X.to_numpy(), names
    X, estimator = rows_for(model, table), model.estimator
    prepared = estimator[:-1].transform(X) if hasattr(estimator, "steps") else X
    return np.asarray(prepared, dtype=float), names


def _check_picture(options: Any) -> None:
    """Raise if a picture cannot be drawn, before the work."""
    outputs.check("--picture", options.picture, outputs.PICTURES, options.force)
    if options.picture is not None:
        pictures.need_matplotlib()


def _report(options: Any, text: str) -> None:
    """Print a line; on standard error if the result goes to standard output."""
    print(text, file=sys.stderr if str(options.out) == "-" else sys.stdout)


def show_warnings(command: str) -> None:
    """Print every warning once, as one line on standard error."""
    shown: set[str] = set()

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            print(f"fastmetric {command}: warning: {text}", file=sys.stderr)

    warnings.simplefilter("default")
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    warnings.showwarning = show
