"""`pyqstore bench spark`: each way to write, and the commit alone, at a tiny size."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.laboratory import spark as workload
from benchmarks.laboratory.spark_commit import COMMIT_MS, DISK, MEMORY, TO_STREAM
from pyqstore.bench import drawing
from pyqstore.bench.goals import Goal, told
from pyqstore.bench.report import Report
from pyqstore.bench.runs import Case, Options, Result, Sample, results_of, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TINY = Options(quick=True, scale=0.01)


@pytest.mark.slow
def test_every_way_to_write_runs_and_reports(spark: "SparkSession", tmp_path: Path) -> None:
    from benchmarks.laboratory.spark_counting import registered
    from spark_udfs import QStoreDataSource

    spark.dataSource.register(QStoreDataSource)
    registered(spark)
    work = workload.Work(spark, tmp_path / "staged")
    cases = work.cases(TINY)
    results = results_of([{n: run_once(case, tmp_path) for n, case in enumerate(cases)}], cases)
    for result in results:
        assert result.metrics["seconds"].median > 0
        if result.case.group == workload.COMMIT:
            assert {COMMIT_MS, MEMORY, DISK} <= result.metrics.keys()
    notes = work.notes(results)
    assert sum(", goal " in note for note in notes) == len(workload.GOALS)
    report = Report("spark", workload.TITLE, {}, "", {}, results, workload.PLOTS, notes)
    for plot in workload.PLOTS:
        assert drawing.chosen(plot, report), plot.title
    report.png(tmp_path / "report.png")
    report.html(tmp_path / "report.html")


def test_a_goal_is_held_against_what_came() -> None:
    samples = [Sample(seconds, figures={COMMIT_MS: 1e3 * seconds}) for seconds in (0.02, 0.06)]
    results = [Result(Case(TO_STREAM, lambda _: samples[0], group="g"), samples)]
    goal = Goal("g", TO_STREAM, COMMIT_MS, 50, less=True)
    assert told([goal, Goal("g", "nobody", COMMIT_MS, 1)], results) == [
        "g: to a stream, commit ms 40 (20 to 60), goal at most 50: met."
    ]


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert workload.missing() is None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(
        workload.importlib.util, "find_spec", lambda name: None if name == "pyspark" else name
    )
    with (
        pytest.raises(RuntimeError, match=r"Python has no pyspark: pip install .*\[spark\]"),
        workload.begun(Options(), Path(), lambda *_: None),
    ):
        pass
