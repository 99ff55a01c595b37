"""asyncio: the cases of `pyqstore bench asynchronous --quick`."""

from collections.abc import Callable

from pyqstore.bench import asynchronous
from pyqstore.bench.runs import Case

WORKLOAD = asynchronous


def test_asynchronous(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
