"""Workloads of ``pyqstore bench`` beside other software, and of the documents that pyqstore was
built from.

Not installed: in the root of a clone ``pyqstore bench WORKLOAD`` finds them, and ``python -m
benchmarks.laboratory WORKLOAD``.  Each is a module as those of ``pyqstore.bench`` are.
"""

import sys
from pathlib import Path

# Where -m put the clone on the path: the installed package, and not its sources, which have no
# extension.
_ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]
