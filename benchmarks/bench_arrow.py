"""Publishing record batches: the cases of `pyqstore bench arrow --quick`."""

from collections.abc import Callable

from pyqstore.bench import arrow
from pyqstore.bench.runs import Case

WORKLOAD = arrow


def test_arrow(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
