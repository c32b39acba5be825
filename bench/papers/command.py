"""The command that the papers' scripts share: their options, a table for every case."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def options_of(script: str, description: str | None, quick: str) -> argparse.ArgumentParser:
    """Return the options of a script; `quick` says what --quick leaves out."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.papers.{script}", description=description
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("papers-figures"),
        metavar="FOLDER",
        help="where the pictures go (papers-figures in the current folder)",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    return parser


def add_cases(parser: argparse.ArgumentParser, cases: Iterable[str]) -> None:
    """Let the command choose among cases."""
    parser.add_argument(
        "--case", action="append", choices=cases, help="only this case; may be given again"
    )


def run(
    cases: Iterable[Any], tables: Callable[[Any], tuple[str, str, str]], markdown: Path | None
) -> None:
    """Run cases one by one; `tables` returns a title, a table to print and one in Markdown."""
    sections = []
    for case in cases:
        print(f"{case} ...", file=sys.stderr, flush=True)
        title, plain, formatted = tables(case)
        print(f"{title}\n\n{plain}\n", flush=True)
        sections.append(f"## {title}\n\n{formatted}\n")
        if markdown:  # after every case: the next one may take long
            markdown.write_text("\n".join(sections))
