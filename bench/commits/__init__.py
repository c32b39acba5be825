"""The asv suite: time, memory and accuracy over the commits."""

import sys
from pathlib import Path

# Last on the path: the package `bench` is found here, but fastmetric only if none is
# installed, because asv installs the commit that it measures.
ROOT = str(Path(__file__).resolve().parent.parent.parent)
sys.path.append(ROOT)
