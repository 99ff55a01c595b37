"""spark_udfs.workers: what Python's collector need not look at again after every task."""

from __future__ import annotations

import subprocess
import sys

_SETTLES = """
import gc, pyarrow, pyqstore
from spark_udfs.workers import settle
settle()
frozen, tracked = gc.get_freeze_count(), len(gc.get_objects())
settle()
print(frozen > 10 * tracked, gc.get_freeze_count() == frozen)
"""


def test_a_worker_settles_once() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SETTLES], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True\n"
