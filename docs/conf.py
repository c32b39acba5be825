"""Configuration of the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

# The docs describe the sources beside them, installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fastmetric

project = "fastmetric"
author = "the fastmetric developers"
copyright = author  # the name that Sphinx reads
version = release = fastmetric.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "examples"]
templates_path = ["_templates"]
default_role = "literal"  # single backticks in docstrings are code

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The class template lists the members; numpydoc would list them a second time.
numpydoc_show_class_members = False
autodoc_typehints = "none"  # the docstrings say the types, with shapes

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "fastmetric"
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"**": []}

_CODE = re.compile(r"(`+[^`]*`+)")
_MARKUP = re.compile(r"\||(?<=\w)_(?!\w)")  # |x| and components_ would be references in reST


def _escape(text: str) -> str:
    """Return plain text as reST, with code in backticks left alone."""
    parts = _CODE.split(text)
    parts[::2] = [_MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Escape a docstring, which is written to be read in a terminal, up to its examples."""
    end = lines.index("Examples") if "Examples" in lines else len(lines)
    for k, line in enumerate(lines[:end]):
        head, colon, text = line.partition(" : ")
        lines[k] = head + colon + _escape(text) if colon else _escape(line)


def setup(app: Any) -> None:
    """Escape docstrings before numpydoc, at priority 500, reads them."""
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
