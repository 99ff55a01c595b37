"""Benchmarks of paging, recovery and scaling: their processes, their figures, their notes.

Workloads run every case they have once, in sizes that take milliseconds beside starting the
processes that they are in.
"""

import dataclasses
import importlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore.bench import backlogs, child, drawing, gauges, paging, recovery, scaling
from pyqstore.bench.loads import QUEUE
from pyqstore.bench.report import Report
from pyqstore.bench.runs import Case, Options, Result, Sample, run_once

TINY = Options(quick=True, scale=0.001)
PNG = b"\x89PNG\r\n\x1a\n"


# Processes of their own.  The functions are called there by their module's name: ours are of the
# package.


def test_a_child_answers_from_a_process_of_its_own(tmp_path: Path) -> None:
    filled = child.call(
        backlogs.fill_journal,
        path=tmp_path / "store",
        journal_bytes=50_000,
        body_bytes=100,
        singly=True,
    )
    with pyqstore.open(tmp_path / "store") as store:  # or the child would still own it
        assert store.queue_status(QUEUE)["messages_ready"] == filled["messages"] > 100
        assert store.recovery_report.bytes >= 50_000  # it was killed: all of it was replayed


def test_a_child_that_fails_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    child.call(backlogs.fill, path=tmp_path / "store", messages=100, body_bytes=10)
    with pytest.raises(RuntimeError, match="reopen ended with 1"):
        child.call(backlogs.reopen, path=tmp_path / "store", messages=101, cold=False)
    assert "100 messages came back of 101" in capfd.readouterr().err


def test_a_child_is_killed_with_its_parent_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    class Interrupted(subprocess.Popen[str]):
        def wait(self, timeout: float | None = None) -> int:
            if not begun:
                begun.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        child.call(backlogs.fill, path=tmp_path / "store", messages=100, body_bytes=10)
    assert begun[0].returncode is not None
    pyqstore.open(tmp_path / "store").close()  # nobody has it


# Figures.


def test_memory_of_a_process_and_its_peak() -> None:
    before = gauges.rss_bytes()
    block = bytearray(os.urandom(1) * (64 << 20))
    assert gauges.rss_bytes() - before > 60 << 20
    del block
    assert gauges.peak_rss_bytes() >= before + (60 << 20)


def test_rates_are_between_samples() -> None:
    samples = [(0.0, 0, 5), (1.0, 100, 5), (2.0, 100, 5), (4.0, 500, 5)]
    assert gauges.rates(samples) == [(100.0, 100.0), (500.0, 200.0)]


def test_filling_counts_what_lives_and_what_is_used(tmp_path: Path) -> None:
    filled = child.call(backlogs.fill, path=tmp_path / "store", messages=5000, body_bytes=1000)
    assert filled["disk_over_live"] > 1
    assert filled["seconds"] > 0
    assert 0 <= filled["peak_rss_over_idle_bytes"] < 1 << 30


def test_draining_leaves_nothing_but_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "store"
    child.call(backlogs.fill, path=path, messages=30_000, body_bytes=100)
    drained = child.call(backlogs.drain, path=path, messages=30_000, body_bytes=100)
    assert drained["left_on_disk_bytes"] < 1 << 20
    with pyqstore.open(path) as store:
        assert store.queue_status(QUEUE)["messages_ready"] == 0


# The workloads.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paging", "recovery", "scaling"])
@pytest.mark.timeout(600)
def test_every_case_of_a_work_runs_and_every_plot_shows_something(
    name: str, tmp_path: Path
) -> None:
    workload = importlib.import_module(f"pyqstore.bench.{name}")
    (tmp_path / "runs").mkdir()
    cases: list[Case] = workload.cases(TINY)
    results = [Result(case, [run_once(case, tmp_path / "runs")]) for case in cases]
    assert list((tmp_path / "runs").iterdir()) == []
    notes = workload.notes(results)
    # A fill of milliseconds has no curve: the sampler looks every 20 ms.
    results = [_with_curves(result) for result in results]
    report = Report(name, workload.TITLE, {}, "now", {}, results, workload.PLOTS, notes)
    for plot in workload.PLOTS:
        assert drawing.chosen(plot, report), plot.title
    report.png(tmp_path / "plots.png")
    assert (tmp_path / "plots.png").read_bytes().startswith(PNG)
    report.json(tmp_path / "results.json")
    told = json.loads((tmp_path / "results.json").read_text())
    assert len(told["results"]) == len(cases)
    for result in results:
        assert result.samples[0].seconds > 0, result.case.title


def _with_curves(result: Result) -> Result:
    sample = result.samples[0]
    if not sample.curves:
        return result
    curves = {name: curve or [(1.0, 1.0)] for name, curve in sample.curves.items()}
    return Result(result.case, [dataclasses.replace(sample, curves=curves)])


def test_only_the_parts_that_are_named() -> None:
    options = dataclasses.replace(TINY, chosen={"only": ("sparse", "pause")})
    assert {case.group for case in paging.cases(options)} == {paging.SPARSE, paging.PAUSE}
    options = dataclasses.replace(TINY, chosen={"only": ("threads",), "full": False})
    assert {case.group for case in scaling.cases(options)} == {scaling.THREADS}


def test_full_adds_the_largest_backlog() -> None:
    def most(full: bool) -> int:
        options = Options(chosen={"only": ("backlog",), "full": full})
        return max(int(case.parameters.get("messages", 0)) for case in scaling.cases(options))

    assert (most(False), most(True)) == (10_000_000, 100_000_000)


def test_recovery_goes_cold_alone_when_quick() -> None:
    assert not any("warm" in case.name for case in recovery.cases(Options(quick=True)))
    assert any("warm" in case.name for case in recovery.cases(Options()))


def _never(_directory: Path) -> Sample:
    raise AssertionError("not to be run")


def _line(parameter: str, *seconds: float) -> list[Result]:
    return [
        Result(
            Case("publish", _never, {parameter: 10**place}, group="g"),
            [Sample(each, messages=1, bytes=10**place)],
        )
        for place, each in enumerate(seconds)
    ]


def test_a_bend_is_told_where_a_message_takes_much_longer() -> None:
    assert scaling.bends(_line("queues", 1.0, 1.5, 2.0)) == []
    (told,) = scaling.bends(_line("queues", 1.0, 1.5, 15.0))
    assert told == "BEND: g: publish, queues 100: 10.0 times slower."


def test_a_larger_body_may_take_longer_in_proportion() -> None:
    assert scaling.bends(_line("body_bytes", 1.0, 10.0, 100.0)) == []
    assert len(scaling.bends(_line("body_bytes", 1.0, 10.0, 1000.0))) == 1


def test_memory_above_its_aim_is_told() -> None:
    def verdict(peak_bytes: float) -> str:
        case = Case("publish", _never, group="g")
        sample = Sample(1.0, figures={"peak_rss_over_idle_bytes": peak_bytes})
        return paging.notes([Result(case, [sample])])[-1]

    assert verdict(128 << 20).endswith("128 MiB over idle, within budget + 64 MiB.")
    assert verdict(129 << 20).endswith("129 MiB over idle, ABOVE budget + 64 MiB.")
