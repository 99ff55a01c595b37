"""`pyqstore bench shovel`: the client and the shovel, each way, with few messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.laboratory import shovel as workload
from benchmarks.laboratory import shovel_kafka
from pyqstore.bench import drawing
from pyqstore.bench.report import Report
from pyqstore.bench.runs import Options, results_of, run_once

TINY = Options(quick=True, scale=0.01)


@pytest.mark.rivals
def test_both_ways_run_and_report(tmp_path: Path) -> None:
    if (why := workload.missing()) is not None:
        (pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip)(why)
    with workload.begun(TINY, tmp_path, lambda *_: None) as work:
        cases = work.cases(TINY)
        samples = {number: run_once(case, tmp_path) for number, case in enumerate(cases)}
        results = results_of([samples], cases)
        assert all(result.metrics["messages_per_s"].median > 0 for result in results)
        notes = work.notes(results)
    assert sum(", goal " in note for note in notes) == len(workload.GOALS)
    report = Report("shovel", workload.TITLE, {}, "", {}, results, workload.PLOTS, notes)
    for plot in workload.PLOTS:
        assert drawing.chosen(plot, report), plot.title


def test_without_pika_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pika", None)
    monkeypatch.setattr(
        workload.importlib.util, "find_spec", lambda name: None if name == "pika" else name
    )
    assert "pyqstore[amqp]" in str(workload.missing())


def test_without_confluent_kafka_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shovel_kafka.importlib.util,
        "find_spec",
        lambda name: None if name == "confluent_kafka" else name,
    )
    assert "pyqstore[kafka]" in str(shovel_kafka.missing())
