"""warmup compiles every function of the core that Python calls."""

import subprocess
import sys

import pytest

from fastmetric import warmup

CHECK = """
import ast, importlib
from pathlib import Path
import fastmetric
from fastmetric._jit import _Entry

fastmetric.warmup(n_jobs=1, verbose=0)
root = Path(fastmetric.__file__).parent
entries = {}
for file in root.rglob("*.py"):
    if "core" in file.relative_to(root).parts:
        continue
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastmetric.core"):
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                found = getattr(module, name)
                entries[name] = found
                for use in ast.walk(tree):  # dense_pairs.row_log_sums
                    if isinstance(use, ast.Attribute) and getattr(use.value, "id", "") == name:
                        entries[f"{name}.{use.attr}"] = getattr(found, use.attr, None)
left = sorted(k for k, v in entries.items() if isinstance(v, _Entry) and not v.overloads)
left = [k for k in left if not k.startswith("kernels.")]  # scalar formulas, not compiled for Python
print("left:", *left)
assert len([v for v in entries.values() if isinstance(v, _Entry)]) > 40
"""


def test_warmup_leaves_no_function_uncompiled():
    found = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["left:"]


def test_warmup_in_processes_draws_a_bar(capsys):
    warmup(n_jobs=2)
    assert "compiling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"), [("n_jobs", "all"), ("n_jobs", 0), ("n_jobs", 1.5), ("verbose", "no")]
)
def test_warmup_refuses_wrong_values(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        warmup(**{name: value})
