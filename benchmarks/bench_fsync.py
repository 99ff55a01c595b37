"""Confirms and syncs: the cases of `pyqstore bench fsync --quick`."""

from collections.abc import Callable

from pyqstore.bench import fsync
from pyqstore.bench.runs import Case

WORKLOAD = fsync


def test_fsync(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
