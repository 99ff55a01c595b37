"""The installed workloads of `pyqstore bench`, small, as runs to compare with earlier ones.

A test for every case.  The time that pytest-benchmark keeps is what the case itself measured:
opening a store, filling a queue and taking all away again are not in it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench.command import WORKLOADS
from pyqstore.bench.runs import Case, Options, Sample, run_once

ROUNDS = 5


class Clock:
    """As late as all that was measured until now was long."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


CLOCK = Clock()


def cases() -> Iterator[Any]:
    for name in WORKLOADS:
        workload = importlib.import_module(f"pyqstore.bench.{name}")
        for case in workload.cases(Options(quick=True)):
            mark = pytest.mark.benchmark(group=f"{name}: {case.group}", timer=CLOCK)
            yield pytest.param(case, marks=mark, id=f"{name}: {case.title}")


@pytest.mark.parametrize("case", list(cases()))
def test_workload(case: Case, benchmark: Any, tmp_path: Path) -> None:
    """In rounds; the figures of the last one are its extra_info."""
    samples: list[Sample] = []

    def once() -> None:
        samples.append(run_once(case, tmp_path))
        CLOCK.seconds += samples[-1].seconds

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info.update(samples[-1].metrics())
