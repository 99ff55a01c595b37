"""Receiving and acknowledging: the cases of `pyqstore bench consume --quick`."""

from collections.abc import Callable

from pyqstore.bench import consume
from pyqstore.bench.runs import Case

WORKLOAD = consume


def test_consume(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
