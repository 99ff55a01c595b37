"""Backlogs larger than memory: the cases of `pyqstore bench paging --quick`."""

from collections.abc import Callable

from pyqstore.bench import paging
from pyqstore.bench.runs import Case

WORKLOAD = paging


def test_paging(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
