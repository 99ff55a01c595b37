"""The workloads of `pyqstore bench`, small, as runs to compare with earlier ones.

A file here names its workload as WORKLOAD and has one test, run for every case.  The time that
pytest-benchmark keeps is what the case itself measured: opening a store, filling a queue and taking
all away again are not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench.runs import Case, Options, Sample, run_once

ROUNDS = 5


class Clock:
    """As late as all that was measured until now was long."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


CLOCK = Clock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each case of the file's workload."""
    if "case" in metafunc.fixturenames:
        cases = metafunc.module.WORKLOAD.cases(Options(quick=True))
        marked = [
            pytest.param(case, marks=pytest.mark.benchmark(group=case.group or None, timer=CLOCK))
            for case in cases
        ]
        metafunc.parametrize("case", marked, ids=[case.title for case in cases])


@pytest.fixture
def measure(benchmark: Any, tmp_path: Path) -> Callable[[Case], None]:
    """Run a case in rounds; the figures of the last one are its extra_info."""

    def run(case: Case) -> None:
        samples: list[Sample] = []

        def once() -> None:
            samples.append(run_once(case, tmp_path))
            CLOCK.seconds += samples[-1].seconds

        benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=1)
        benchmark.extra_info.update(samples[-1].metrics())

    return run
