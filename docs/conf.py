"""Configuration of the documentation."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

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
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "examples"]
templates_path = ["_templates"]
default_role = "literal"  # single backticks in docstrings are code
nitpicky = True  # with -W a reference to nothing ends the build

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {"version": version}

# The class template lists the members; numpydoc would list them a second time.
numpydoc_show_class_members = False
autodoc_typehints = "none"  # the docstrings say the types, with shapes

# Formulas are set by MathJax from beside the pages; nothing is fetched when one is read.
mathjax_path = "mathjax/tex-chtml.js"
_MATHJAX = "sphinx-mathjax-offline"  # the package that carries MathJax
_MATHJAX_PARTS = ["tex-chtml.js", "output/chtml/fonts", "input/tex/extensions"]

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "thumbnail_size": (560, 420),
    "within_subsection_order": "ExampleTitleSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = f"fastmetric {version}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {
    "logo": {"text": f"fastmetric {version}"},
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
copybutton_prompt_text = "$ "

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


# Where the pages of other libraries stand, by the first part of a name.
_PAGES = {
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
}


def link_elsewhere(app: Any, env: Any, node: Any, contents: Any) -> Any:
    """Return the link to a name of another library; none if that library does not have it.

    Names are looked up in the installed library, so that building needs no network.
    """
    name = node.get("reftarget", "")
    page = _PAGES.get(name.split(".")[0])
    module, _, last = name.rpartition(".")
    if page is None or not module or not hasattr(importlib.import_module(module), last):
        return None
    return nodes.reference("", "", contents, internal=False, refuri=page.format(name))


def copy_mathjax(app: Any, error: Exception | None) -> None:
    """Put the parts of MathJax that pages of these need beside them."""
    if error is not None or app.builder.format != "html":
        return
    package = importlib.util.find_spec(_MATHJAX)
    if package is None or package.origin is None:
        raise ImportError(f"Formulas need {_MATHJAX}: pip install fastmetric[docs]")
    source = Path(package.origin).parent / "static" / "mathjax"
    for part in _MATHJAX_PARTS:
        target = Path(app.outdir) / "_static" / "mathjax" / part
        if (source / part).is_dir():
            shutil.copytree(source / part, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / part, target)


def setup(app: Any) -> None:
    """Escape docstrings before numpydoc, at priority 500, reads them; link; add MathJax."""
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
    app.connect("missing-reference", link_elsewhere)
    app.connect("build-finished", copy_mathjax)
