"""What grows, and what it costs: the cases of `pyqstore bench scaling --quick`."""

from collections.abc import Callable

from pyqstore.bench import scaling
from pyqstore.bench.runs import Case

WORKLOAD = scaling


def test_scaling(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
