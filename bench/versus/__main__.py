"""Side by side with the peers: same process, same data, same start, taking turns.

python -m bench.versus METHOD [--quick] [--case NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.shared import report
from bench.shared.report import Row
from bench.shared.setup import UnavailableError
from bench.versus import (
    class_trees,
    kd_tree,
    kernel_density,
    latent_coincidence,
    lattice,
    local_component,
    manifold_parzen,
    mean_shift,
    nca,
)

METHODS = {
    "nca": nca,
    "class_trees": class_trees,
    "kernel_density": kernel_density,
    "lattice": lattice,
    "local_component": local_component,
    "mean_shift": mean_shift,
    "manifold_parzen": manifold_parzen,
    "kd_tree": kd_tree,
    "latent_coincidence": latent_coincidence,
}
SHORT = {
    "tree": "class_trees",
    "kde": "kernel_density",
    "grid": "lattice",
    "local": "local_component",
    "meanshift": "mean_shift",
    "manifold": "manifold_parzen",
    "neighbors": "kd_tree",
    "coincidence": "latent_coincidence",
}


def main(arguments: list[str] | None = None) -> None:
    """Run the cases of one method, print the table, write the JSON."""
    options = _options(arguments)
    method = METHODS[options.method]
    plan = method.QUICK if options.quick else method.FULL
    names = options.case or list(method.CASES)
    rows = [row for name in names for row in _rows(name, method.CASES[name], plan)]
    # The JSON must have the standard output for itself if it goes there.
    print(report.table(rows), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        _write(json.dumps(report.as_json(options.method, options.quick, rows), indent=2), options)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line, parsed."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description=__doc__)
    parser.add_argument(
        "method",
        type=lambda name: SHORT.get(name, name),
        choices=METHODS,
        help="a module's name, or short: " + ", ".join(SHORT),
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--case", action="append", help="only this case; may be given again")
    parser.add_argument("--json", metavar="FILE", help="write all figures; - for standard output")
    options = parser.parse_args(arguments)
    known = METHODS[options.method].CASES
    if unknown := [name for name in options.case or () if name not in known]:
        parser.error(f"no case {', '.join(unknown)}; choose from {', '.join(known)}")
    return options


def _rows(name: str, case: Callable[[Any], Iterator[Row]], plan: Any) -> Iterator[Row]:
    """Yield the rows of a case; one that says why, if it cannot run or go on."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        yield from case(plan)
    except (UnavailableError, MemoryError) as error:
        yield Row(name, note=f"not run: {error or type(error).__name__}")


def _write(text: str, options: argparse.Namespace) -> None:
    """Write the JSON where it was asked for."""
    if options.json == "-":
        print(text)
    else:
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
