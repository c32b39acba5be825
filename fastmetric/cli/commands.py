"""The command line: `fastmetric demo`, `fastmetric fit`, `fastmetric transform`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from fastmetric import NCA, __version__
from fastmetric.cli import models
from fastmetric.cli.tables import TableError, read_table, write_rows

_EPILOG = """examples:
  fastmetric demo
  fastmetric fit iris.csv --target species --components 2 --out iris.skops
  fastmetric transform iris.skops iris.csv --out projected.csv
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (TableError, ValueError, TypeError, ImportError, OSError) as error:
        print(f"fastmetric {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"fastmetric {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser with its three commands."""
    parser = argparse.ArgumentParser(
        prog="fastmetric",
        description="Learn a metric from labelled data: rows of one class end up close together.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastmetric {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_fit(commands)
    _add_transform(commands)
    return parser


def _add_command(commands: Any, name: str, run: Callable[[Any], None], text: str) -> Any:
    """Add a command with its help text; return its parser."""
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(run=run)
    return command


def _add_demo(commands: Any) -> None:
    """Add the command `demo`."""
    demo = _add_command(
        commands,
        "demo",
        _demo,
        "learn a 2-D metric on scikit-learn's digits, compare it with PCA, draw a picture",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("fastmetric-demo.png"),
        metavar="PICTURE",
        help="where the picture goes (default: %(default)s)",
    )


def _add_fit(commands: Any) -> None:
    """Add the command `fit`."""
    fit = _add_command(commands, "fit", _fit, "learn a metric (NCA) from a file and save the model")
    fit.add_argument("data", type=Path, metavar="DATA", help=".csv with a header, .npz or .npy")
    fit.add_argument(
        "--target",
        required=True,
        metavar="COLUMN",
        help="the class of each row: a column's name (.csv), an array's name (.npz), "
        "or a column's number from 0, negative from the end",
    )
    fit.add_argument(
        "--components",
        type=int,
        default=2,
        metavar="D",
        help="dimension of the projected space (default: %(default)s)",
    )
    fit.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="MODEL",
        help="a .skops file, which holds no code; or a .joblib file, for your own use",
    )
    fit.add_argument("--init", default="auto", help="auto, rca, lda, pca, identity or random")
    fit.add_argument("--alpha", type=float, default=0.0, help="weight of the penalty on the map")
    fit.add_argument("--max-iter", type=int, default=50, help="iterations (default: %(default)s)")
    fit.add_argument("--jobs", type=int, default=None, help="threads (default: all cores)")
    fit.add_argument("--quiet", action="store_true", help="no line per iteration")


def _add_transform(commands: Any) -> None:
    """Add the command `transform`."""
    transform = _add_command(
        commands, "transform", _transform, "project the rows of a file with a saved model"
    )
    transform.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="made by `fastmetric fit`, or by fastmetric.save in Python",
    )
    transform.add_argument(
        "data", type=Path, metavar="DATA", help="as in fit; the target may be missing"
    )
    transform.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".csv, .npz or .npy"
    )
    transform.add_argument(
        "--trust",
        action="store_true",
        help="load a .joblib or pickle file, which runs the code that it names: only for files of "
        "your own",
    )


def _fit(options: Any) -> None:
    """Fit NCA on a file and save it with what `transform` must know of the file."""
    models.check_name(options.out)
    table = read_table(options.data, options.target)
    assert table.y is not None
    nca = NCA(
        options.components,
        init=options.init,
        alpha=options.alpha,
        max_iter=options.max_iter,
        n_jobs=options.jobs,
        verbose=0 if options.quiet else 1,
    )
    began, interrupted = time.perf_counter(), False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            nca.fit(table.X, table.y)
    except KeyboardInterrupt:
        if not hasattr(nca, "components_"):
            raise
        interrupted = True
    seconds = time.perf_counter() - began
    models.write_model(options.out, models.Model(nca, table.names, options.target))
    rows, features = table.X.shape
    print(
        f"{rows} rows, {features} features, {len(nca.classes_)} classes: mean probability of the "
        f"right class {nca.objective_:.4f} after {nca.n_iter_} iterations, {seconds:.1f} s\n"
        f"saved to {options.out}"
    )
    if interrupted:
        raise KeyboardInterrupt


def _transform(options: Any) -> None:
    """Project a file with a saved model."""
    model = models.read_model(options.model, options.trust)
    table = read_table(options.data, model.target, target_required=False)
    models.check_columns(model, options.data, table.names)
    Z = models.project(model, table.X)
    write_rows(options.out, Z, model.estimator.get_feature_names_out())
    print(f"{len(Z)} rows projected to {Z.shape[1]} dimensions: {options.out}")


def _demo(options: Any) -> None:
    """Run the demonstration on digits."""
    from fastmetric.cli.demo import run

    run(options.out)
