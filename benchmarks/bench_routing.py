"""Finding a message's queues: the cases of `pyqstore bench routing --quick`."""

from collections.abc import Callable

from pyqstore.bench import routing
from pyqstore.bench.runs import Case

WORKLOAD = routing


def test_routing(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
