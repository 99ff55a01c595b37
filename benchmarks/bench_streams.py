"""Streams, and what is read from the page cache: the cases of `pyqstore bench streams --quick`."""

from collections.abc import Callable

from pyqstore.bench import streams
from pyqstore.bench.runs import Case

WORKLOAD = streams


def test_streams(case: Case, measure: Callable[[Case], None]) -> None:
    measure(case)
