"""The command line: which commands there are, and what their errors look like."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastmetric import __version__, warmup
from fastmetric.cli import options as shared
from fastmetric.cli import work
from fastmetric.cli.files import outputs
from fastmetric.cli.files.text_tables import TableError
from fastmetric.cli.methods import DENSITIES
from fastmetric.cli.model_info import info

_EPILOG = """examples:
  fastmetric demo
  fastmetric evaluate iris.csv --target species
  fastmetric fit iris.csv --target species --out iris.skops
  fastmetric transform iris.skops new.csv --out projected.csv
  fastmetric predict iris.skops new.csv --out classes.csv
  fastmetric density geyser.csv --scale --picture density.png
  fastmetric cluster geyser.csv --scale --out clusters.csv
  fastmetric info iris.skops
  fastmetric warmup

`fastmetric COMMAND --help` lists the options of a command.
"""
_USAGE = {  # argparse's own would list every option
    "demo": "[--out PICTURE] [--force]",
    "evaluate": "DATA [--method METHOD] [--target COLUMN] [options]\n"
    "       fastmetric evaluate DATA --model MODEL [options]",
    "fit": "DATA --out MODEL [--method METHOD] [--target COLUMN] [options]",
    "transform": "MODEL DATA --out FILE [options]",
    "predict": "MODEL DATA --out FILE [--proba] [options]",
    "density": "DATA [--queries TABLE] [--out FILE] [--picture FILE] [options]",
    "cluster": "DATA --out FILE [--picture FILE] [options]",
    "info": "MODEL [--trust]",
    "warmup": "[--jobs N] [--quiet]",
}
_MODEL = "made by `fastmetric fit`, or by fastmetric.save in Python"
_TABLE = "a table, beside ids and target: .csv, .tsv, .parquet, .arrow, .npz, .npy, or - (stdout)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    if str(getattr(options, "out", None)) == "-":
        options.quiet = True
    with warnings.catch_warnings():
        work.show_warnings(options.command)
        return _exit_code(options)


def _exit_code(options: Any) -> int:
    """Run a command; print an error as one line."""
    try:
        outputs.refuse_inputs(options)
        options.run(options)
    except BrokenPipeError:  # the reader of standard output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TableError, ValueError, TypeError, ImportError, OSError) as error:
        text = " ".join(str(error).split())
        print(f"fastmetric {options.command}: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"fastmetric {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser with its commands."""
    parser = argparse.ArgumentParser(
        prog="fastmetric",
        description="Learn metrics and densities from tables, and apply them to new rows.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastmetric {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_demo,
        _add_evaluate,
        _add_fit,
        _add_transform,
        _add_predict,
        _add_density,
        _add_cluster,
        _add_info,
        _add_warmup,
    ):
        add(commands)
    return parser


def _add_command(commands: Any, name: str, run: Callable[[Any], None], text: str) -> Any:
    """Add a command with its help text; return its parser."""
    command = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        usage=f"fastmetric {name} {_USAGE[name]}",
    )
    command.set_defaults(run=run)
    return command


def _add_demo(commands: Any) -> None:
    """Add the command `demo`."""
    text = "compare NCA with PCA and scikit-learn's NCA on handwritten digits, draw a picture"
    demo = _add_command(commands, "demo", _demo, text)
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("fastmetric-demo.png"),
        metavar="PICTURE",
        help="where the picture goes (default: %(default)s)",
    )
    demo.add_argument("--force", action="store_true", help="replace a picture that exists")


def _add_evaluate(commands: Any) -> None:
    """Add the command `evaluate`."""
    text = "measure a method on rows held out, beside raw features, PCA and scikit-learn's own"
    command = _add_command(commands, "evaluate", _evaluate, text)
    shared.add_data(command)
    command.add_argument(
        "--model", type=Path, metavar="MODEL", help="measure this saved model on DATA; no fit"
    )
    command.add_argument(
        "--folds", type=int, default=5, help="of cross-validation (default: %(default)s)"
    )
    command.add_argument(
        "--held-out", type=float, metavar="SHARE", help="hold out this share once, no folds"
    )
    command.add_argument(
        "--neighbors",
        type=int,
        default=1,
        metavar="K",
        help="neighbours that vote for the class under a map (default: %(default)s)",
    )
    command.add_argument("--slow", action="store_true", help="run scikit-learn's on many rows, too")
    shared.add_method(command, "nca")
    shared.add_columns(command)
    shared.add_reading(command)
    shared.add_trust(command)


def _add_fit(commands: Any) -> None:
    """Add the command `fit`."""
    fit = _add_command(commands, "fit", work.fit, "fit a method to a table and save the model")
    shared.add_data(fit)
    model = "a .skops file, which holds no code; or a .joblib file, for your own use"
    shared.add_out(fit, model, metavar="MODEL")
    shared.add_method(fit, "nca")
    shared.add_columns(fit)
    shared.add_reading(fit)


def _add_applied(commands: Any, name: str, run: Callable[[Any], None], text: str) -> Any:
    """Add a command that applies a saved model; return its parser."""
    command = _add_command(commands, name, run, text)
    shared.add_data(command, "model", _MODEL)
    shared.add_data(command)
    shared.add_out(command, _TABLE)
    shared.add_matching(command)
    shared.add_reading(command)
    shared.add_trust(command)
    return command


def _add_transform(commands: Any) -> None:
    """Add the command `transform`."""
    text = "project the rows of a table with a saved model"
    command = _add_applied(commands, "transform", work.transform, text)
    shared.add_picture(command, "the projected rows in a plane")


def _add_predict(commands: Any) -> None:
    """Add the command `predict`."""
    text = "predict the classes, or clusters, of the rows of a table with a saved model"
    command = _add_applied(commands, "predict", work.predict, text)
    command.add_argument("--proba", action="store_true", help="the probability of every class, too")


def _add_density(commands: Any) -> None:
    """Add the command `density`."""
    text = "compute the log density of rows, and draw it"
    command = _add_command(commands, "density", work.density, text)
    shared.add_data(command)
    command.add_argument(
        "--queries", type=Path, metavar="TABLE", help="rows to take densities at (default: DATA)"
    )
    command.add_argument(
        "--model", type=Path, metavar="MODEL", help="take a saved density instead of fitting one"
    )
    shared.add_out(command, _TABLE, required=False)
    shared.add_picture(command, "the density")
    shared.add_method(command, "kernel-density", list(DENSITIES))
    shared.add_columns(command)
    shared.add_reading(command)
    shared.add_trust(command)


def _add_cluster(commands: Any) -> None:
    """Add the command `cluster`."""
    text = "find clusters around the modes of the density, by mean shift"
    command = _add_command(commands, "cluster", work.cluster, text)
    shared.add_data(command)
    shared.add_out(command, _TABLE)
    shared.add_picture(command, "the clusters")
    shared.add_method(command, "mean-shift", ["mean-shift"])
    shared.add_columns(command)
    shared.add_reading(command)


def _add_info(commands: Any) -> None:
    """Add the command `info`."""
    command = _add_command(commands, "info", info, "say what a saved model is")
    shared.add_data(command, "model", _MODEL)
    shared.add_trust(command)


def _add_warmup(commands: Any) -> None:
    """Add the command `warmup`."""
    text = "compile everything now, so that no later call has to"
    command = _add_command(commands, "warmup", _warmup, text)
    command.add_argument("--jobs", type=int, help="processes that compile (default: all cores)")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _evaluate(options: Any) -> None:
    """Compare methods."""
    from fastmetric.cli.comparison import evaluate  # here, since it imports much of scikit-learn

    evaluate(options)


def _warmup(options: Any) -> None:
    """Compile everything."""
    warmup(n_jobs=options.jobs, verbose=0 if options.quiet else 1)


def _demo(options: Any) -> None:
    """Run the demonstration on digits."""
    from fastmetric.cli.demo import run

    run(options.out, options.force)
