"""One message to many queues: the cases of `pyqstore bench fanout --quick`."""

from collections.abc import Callable

from pyqstore.bench import fanout
from pyqstore.bench.runs import Case

WORKLOAD = fanout


def test_fanout(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
