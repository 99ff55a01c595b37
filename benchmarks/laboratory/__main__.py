"""``python -m benchmarks.laboratory WORKLOAD``: ``pyqstore bench WORKLOAD``."""

import sys

from pyqstore.cli import main

main(["bench", *sys.argv[1:]], prog_name="pyqstore")
