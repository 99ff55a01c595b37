"""Opening after a kill: the cases of `pyqstore bench recovery --quick`."""

from collections.abc import Callable

from pyqstore.bench import recovery
from pyqstore.bench.runs import Case

WORKLOAD = recovery


def test_recovery(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
