"""The options of the commands, in groups that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastmetric.cli.files.tables import READABLE
from fastmetric.cli.methods import METHODS
from fastmetric.cli.preparation import IMPUTATIONS

_TABLE = f"a table: {READABLE}"


def add_data(command: Any, name: str = "data", text: str = _TABLE) -> None:
    """Add the table that a command reads."""
    command.add_argument(name, type=Path, metavar=name.upper(), help=text)


def add_reading(command: Any) -> None:
    """Add how text files are read; all is found out if it is not given."""
    group = command.add_argument_group("text files")
    group.add_argument("--delimiter", metavar="SIGN", help="between fields; also tab, space")
    group.add_argument("--decimal", metavar="SIGN", choices=[".", ","], help=". or ,")
    group.add_argument("--encoding", default="utf-8", help="default: %(default)s")
    group.add_argument("--no-header", action="store_true", help="columns are numbered from 0")
    group.add_argument(
        "--missing",
        action="append",
        metavar="MARK",
        help="marks a missing value, besides an empty field, NA and NaN; may be repeated",
    )


def add_columns(command: Any) -> None:
    """Add which columns are what, for a command that fits."""
    group = command.add_argument_group(
        "columns", "lists of names separated by commas, * for any letters, or numbers from 0"
    )
    group.add_argument(
        "--target",
        default="",
        metavar="COLUMN",
        help="the class of each row: a column, an array of a .npz, or a number from 0, negative "
        "from the end",
    )
    group.add_argument("--features", default="", metavar="COLUMNS", help="default: all others")
    group.add_argument("--drop", default="", metavar="COLUMNS", help="to leave out")
    group.add_argument(
        "--id", default="", metavar="COLUMNS", help="no features, but written beside the result"
    )
    group.add_argument(
        "--categories",
        default="",
        metavar="COLUMNS",
        help="one column of 0 and 1 for each value; where classes are learnt, columns of texts are "
        "taken so unasked",
    )
    group = command.add_argument_group("preparation, saved with the model")
    group.add_argument("--scale", action="store_true", help="features to mean 0 and variance 1")
    group.add_argument(
        "--impute", choices=IMPUTATIONS, help="what missing values become (default: an error)"
    )


def add_matching(command: Any) -> None:
    """Add what may be said of the columns of new data."""
    group = command.add_argument_group("columns", "default: those of the fit, by their names")
    group.add_argument("--target", default="", metavar="COLUMN", help="the class of each row")
    group.add_argument("--id", default="", metavar="COLUMNS", help="written beside the result")


def add_method(command: Any, default: str, which: list[str] | None = None) -> None:
    """Add a method and its parameters."""
    group = command.add_argument_group("method")
    if which is None or len(which) > 1:
        group.add_argument(
            "--method",
            choices=which or list(METHODS),
            default=default,
            metavar="METHOD",
            help="%(choices)s (default: %(default)s)",
        )
    else:
        command.set_defaults(method=default)
    names = METHODS if which is None else which
    if any(name not in ("mean-shift", "kernel-density") for name in names):
        group.add_argument(
            "--components", type=int, metavar="D", help="dimensions of the result (default: 2)"
        )
    if any(name in ("nca", "coincidence") for name in names):
        group.add_argument("--init", help="the start: auto, rca, lda, pca, identity or random")
        group.add_argument("--alpha", type=float, help="weight of NCA's penalty on the map")
    if any("density" in name or name in ("mean-shift", "manifold-parzen") for name in names):
        rules = "" if which == ["mean-shift"] else ", scott, silverman or loo"
        group.add_argument("--bandwidth", metavar="H", help=f"a number{rules}")
    group.add_argument("--max-iter", type=int, help="most iterations")
    group.add_argument("--seed", type=int, help="of random draws")
    group.add_argument("--jobs", type=int, help="threads (default: all cores)")
    group.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help="any other parameter of the estimator, as in Python; may be repeated",
    )
    group.add_argument("--quiet", action="store_true", help="no line per iteration")


def add_out(command: Any, what: str, required: bool = True, metavar: str = "FILE") -> None:
    """Add the file that a command writes."""
    command.add_argument("--out", type=Path, required=required, metavar=metavar, help=what)
    command.add_argument("--force", action="store_true", help="replace files that exist")


def add_picture(command: Any, what: str) -> None:
    """Add a picture."""
    command.add_argument("--picture", type=Path, metavar="FILE", help=f"{what}: .png, .pdf or .svg")


def add_trust(command: Any) -> None:
    """Add the permission to run the code of a pickle."""
    command.add_argument(
        "--trust",
        action="store_true",
        help="load a .joblib or pickle file, which runs the code that it names: only for files of "
        "your own",
    )
