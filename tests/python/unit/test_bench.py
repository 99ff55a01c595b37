"""Workloads of the benchmarks: each is listed, and runs every case it has once.

The sizes take milliseconds: that they run, that what they count is there and that their plots
show something is tested, not how fast anything is.
"""

import importlib
import re
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from pyqstore.bench import asynchronous, consume, drawing, laboratory, loads
from pyqstore.bench.command import WORKLOADS
from pyqstore.bench.report import Report, read
from pyqstore.bench.runs import Options, results_of, run_once
from pyqstore.bench.stores import opened, settle, wait_until_quiet

TINY = Options(quick=True, scale=0.01)
# Workloads that are tested with their own sizes elsewhere, as those of the laboratory are.
OWN_TESTS = {"paging", "recovery", "scaling"}
ALL = [*WORKLOADS, *laboratory.WORKLOADS]


def module(name: str) -> ModuleType:
    package = laboratory.PACKAGE if name in laboratory.WORKLOADS else "pyqstore.bench"
    return importlib.import_module(f"{package}.{name}")


# Lists of the workloads.

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def listed(text: str) -> list[str]:
    """The first column of the table of workloads."""
    table = re.search(r"^\| workload \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    assert table is not None
    return re.findall(r"^\| `?(\w+)`? \|", table[1], re.M)


def test_the_benchmarks_readme_lists_every_workload() -> None:
    assert listed((BENCHMARKS / "README.md").read_text()) == ALL


def test_results_are_listed_and_whole() -> None:
    results = BENCHMARKS / "results"
    text = (results / "README.md").read_text()
    kept = {path.stem for path in results.iterdir() if path.suffix in (".json", ".png")}
    assert listed(text) == [name for name in ALL if name in kept]
    assert kept <= set(ALL)
    for name in kept:
        for kind in ("png", "json"):
            assert (results / f"{name}.{kind}").is_file()
            assert f"({name}.{kind})" in text


@pytest.mark.parametrize("table", sorted((BENCHMARKS / "results").glob("*.json")), ids=str)
def test_a_table_of_results_is_small_and_has_all_that_its_picture_shows(table: Path) -> None:
    assert len(table.read_text().splitlines()) < 200
    workload = module(table.stem)
    report = read(table, table.stem, workload.PLOTS)
    groups = {"", *report.groups()}  # of others the plots are newer than the table
    assert drawing.drawn(report) == [plot for plot in workload.PLOTS if plot.group in groups]
    for plot in drawing.drawn(report):
        drawing.draw(drawing.Figure().subplots(), plot, report)


# Workloads.


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - OWN_TESTS))
@pytest.mark.parametrize(
    "options",
    [Options(), Options(quick=True), Options(scale=0.05)],
    ids=["full", "quick", "scaled"],
)
def test_every_plot_of_a_workload_has_something_to_show(name: str, options: Options) -> None:
    workload = module(name)
    cases = workload.cases(options)
    assert len({(case.group, case.title) for case in cases}) == len(cases)
    for plot in workload.PLOTS:
        shown = [case for case in cases if not plot.group or case.group == plot.group]
        assert shown
        if plot.x != "case":
            assert len({case.parameters[plot.x] for case in shown if plot.x in case.parameters}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - OWN_TESTS))
def test_a_workload_runs_and_reports(name: str, tmp_path: Path) -> None:
    workload = module(name)
    cases = workload.cases(TINY)
    samples = {place: run_once(case, tmp_path) for place, case in enumerate(cases)}
    found = results_of([samples], cases)
    for result in found:
        assert result.metrics["seconds"].median > 0
        assert (result.ratio_to_floor is None) == (result.case.floor is None)
    notes = list(workload.notes(found))
    assert notes
    report = Report(name, workload.TITLE, {}, "", {}, found, workload.PLOTS, notes)
    for plot in workload.PLOTS:
        assert drawing.chosen(plot, report), plot.title
    report.png(tmp_path / "report.png")
    report.html(tmp_path / "report.html")


def test_batches_are_cut_to_the_messages_and_come_back_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as channel:
        batch = loads.batch_of(4, 10)
        assert [part.num_rows for part in loads.parts(batch, 10)] == [4, 4, 2]
        loads.publish_batches(channel, batch, 10)
        loads.once_confirmed(channel, 2, b"single")
        assert (loads.take(channel, 3), loads.drained(channel, 4)) == (3, 9)
        assert channel.basic_get(loads.QUEUE) is None
    loads.expect(12, 12)
    with pytest.raises(RuntimeError, match="9 messages came back of 12"):
        loads.expect(9, 12)


def test_workloads_together_are_timed_until_the_last() -> None:
    meet = threading.Barrier(3, timeout=20)  # or they were not at work at once
    seconds, given = loads.together([lambda: (meet.wait(), time.sleep(0.02))[1]] * 3)
    assert (len(given), seconds >= 0.02) == (3, True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_workload_that_fails_beside_others_ends_the_round() -> None:
    with pytest.raises(RuntimeError, match="a thread failed"):
        loads.together([time.perf_counter, lambda: 1 / 0])


def test_quiet_is_when_nothing_changed_for_so_long() -> None:
    seen: list[float] = []

    def look() -> int:
        seen.append(time.monotonic())
        return min(len(seen), 4)

    wait_until_quiet(look, 0.1)
    assert seen[-1] - seen[3] >= 0.1


def test_either_side_of_asyncio_finds_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[tuple[str, int]]] = []

    def look(store: Path) -> None:
        settle(store)
        journal = sorted((store / "journal").iterdir())
        found.append([(file.name, file.stat().st_size) for file in journal])

    monkeypatch.setattr(asynchronous, "settle", look)
    cases = [case for case in asynchronous.cases(TINY) if case.group == asynchronous.RECEIVING]
    for case in cases:
        run_once(case, tmp_path)
    assert [case.name for case in cases] == [asynchronous.SYNCHRONOUS, asynchronous.ASYNCIO]
    assert found[0] == found[1]
    assert max(size for _, size in found[0]) >= 16 << 20


def test_messages_that_do_not_come_end_a_round(tmp_path: Path) -> None:
    with opened(tmp_path) as channel:
        loads.publish_rows(channel, 3, 10)
        with pytest.raises(RuntimeError, match="2 messages did not come"):
            consume.by_batch(channel, 5, rows=3)
