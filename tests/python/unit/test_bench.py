"""Benchmarks: the mathematics of rounds, reports that can be read, workloads that run, the command.

Works run every case they have once, in sizes that take milliseconds: that they run, that what they
count is there and that their plots show something is tested, not how fast anything is.
"""

import dataclasses
import functools
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench import asynchronous, consume, drawing, floor, loads, machine
from pyqstore.bench.command import WORKLOADS, _ended_cleanly
from pyqstore.bench.plots import Plot, label, shown_number
from pyqstore.bench.report import Report, cells
from pyqstore.bench.runs import (
    Case,
    Options,
    Result,
    Sample,
    Spread,
    percentile,
    repeated,
    results_of,
    run_once,
    run_rounds,
    spread,
)
from pyqstore.bench.stores import opened, settle, wait_until_quiet

TINY = Options(quick=True, scale=0.01)
# These workloads have a stranger to start, or are tested with their own sizes elsewhere.
OWN_TESTS = {"paging", "recovery", "scaling", "rivals"}
PNG = b"\x89PNG\r\n\x1a\n"


def never(_directory: Path) -> Sample:
    raise AssertionError("not to be run")


def results(*rounds: tuple[Sample, Sample]) -> list[Result]:
    """Of a floor and a case held against it."""
    cases = [Case("disk", never), Case("ours", never, {"rows": 10}, floor="disk")]
    return results_of([dict(enumerate(samples)) for samples in rounds], cases)


# The mathematics.


def test_a_ratio_is_taken_in_each_round_and_then_the_median() -> None:
    disk, ours = results(
        (Sample(1.0, bytes=100), Sample(2.0, bytes=100)),  # 0.5
        (Sample(10.0, bytes=100), Sample(10.0, bytes=100)),  # 1, in a slow round
        (Sample(1.0, bytes=100), Sample(4.0, bytes=100)),  # 0.25
    )
    assert disk.ratio_to_floor is None
    assert ours.ratio_to_floor == Spread(0.5, 0.25, 1.0)
    assert ours.ratio_of == "bytes_per_s"
    # The ratio of the medians would be another: 25 over 100 bytes a second.
    assert ours.metrics["bytes_per_s"] == Spread(25.0, 10.0, 50.0)
    assert disk.metrics["bytes_per_s"] == Spread(100.0, 10.0, 100.0)


def test_latencies_are_compared_by_p50_where_both_have_them() -> None:
    disk, ours = Sample(1.0, 2, 10, [10.0, 30.0]), Sample(1.0, 2, 10, [20.0, 90.0])
    assert results((disk, ours))[1].ratio_to_floor == Spread(2.0, 2.0, 2.0)
    assert results((disk, ours))[1].ratio_of == "p50_us"
    without = dataclasses.replace(disk, latencies_us=())
    assert results((without, ours))[1].ratio_of == "bytes_per_s"


def test_nothing_in_common_with_the_floor_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing in common"):
        results((Sample(1.0), Sample(1.0, messages=5)))


def test_metrics_of_a_sample() -> None:
    sample = Sample(2.0, 10, 1000, [4.0, 1.0, 3.0, 2.0], {"disk_bytes": 7.0})
    assert sample.metrics() == {
        "seconds": 2.0,
        "messages_per_s": 5.0,
        "bytes_per_s": 500.0,
        "p50_us": 2.0,
        "p99_us": 4.0,
        "disk_bytes": 7.0,
    }
    assert Sample(2.0).metrics() == {"seconds": 2.0}


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.5) == percentile([7.0], 0.99) == 7
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_repeated_times_each_and_all() -> None:
    sample = repeated(4, lambda: time.sleep(0.002), 10, 100)
    assert (sample.messages, sample.bytes, len(sample.latencies_us)) == (40, 4000, 4)
    assert min(sample.latencies_us) >= 2000
    assert sample.seconds >= sum(sample.latencies_us) / 1e6


def test_options_scale_counts_and_thin_sweeps() -> None:
    assert Options().count(500) == 500
    assert Options(quick=True, scale=2).count(500) == 100
    assert Options(scale=0.001).count(500, least=3) == 3
    assert Options().sweep(1, 2, 3, 4, 5) == (1, 2, 3, 4, 5)
    assert Options(quick=True).sweep(1, 2, 3, 4, 5) == (1, 3, 5)
    assert Options(quick=True).sweep(1, 2) == (1, 2)


# Rounds.


def test_rounds_turn_round_and_the_first_does_not_count(tmp_path: Path) -> None:
    ran: list[str] = []

    def run(name: str, directory: Path) -> Sample:
        ran.append(name)
        assert list(directory.iterdir()) == []
        (directory / "left").write_text("behind")
        return Sample(float(len(ran)))

    cases = [Case(name, functools.partial(run, name)) for name in "abc"]
    told: list[tuple[str, int, int]] = []
    found = run_rounds(cases, tmp_path, 2, lambda *what: told.append(what))
    assert "".join(ran) == "cba" + "abc" + "cba"
    assert [[sample.seconds for sample in each.samples] for each in found] == [
        [4.0, 9.0],
        [5.0, 8.0],
        [6.0, 7.0],
    ]
    assert [done for _, done, _ in told] == list(range(9))
    assert {total for _, _, total in told} == {9}
    assert told[0][0] == "warming up: c"
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_fails_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    def run(directory: Path) -> Sample:
        (directory / "left").write_text("behind")
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room") as caught:
        run_once(Case("full", run, {"rows": 5}), tmp_path)
    assert caught.value.__notes__ == ["in the benchmark case: full, rows 5"]
    assert list(tmp_path.iterdir()) == []


def test_a_floor_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'disk', to hold 'ours' against"):
        run_rounds([Case("other", never), Case("ours", never, floor="disk")], tmp_path, 1)


def test_a_floor_of_the_same_group_is_nearer() -> None:
    cases = [
        Case("disk", never, group="one"),
        Case("disk", never, group="two"),
        Case("ours", never, floor="disk", group="two"),
        Case("ours", never, floor="disk", group="three"),
    ]
    rates = [Sample(1.0, bytes=size) for size in (10, 20, 40, 40)]
    found = results_of([dict(enumerate(rates))], cases)
    assert [each.ratio_to_floor and each.ratio_to_floor.median for each in found] == [
        None,
        None,
        2.0,
        4.0,
    ]


@pytest.mark.parametrize(
    ("case", "size"),
    [
        (floor.stream(3 * floor.MIB), 3 * floor.MIB),
        (floor.sync(100, 7), 700),
        (floor.new_files(3 * floor.MIB, file_bytes=2 * floor.MIB), 3 * floor.MIB),
        (floor.read(2 * floor.MIB), 2 * floor.MIB),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_floors_do_what_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, size: int
) -> None:
    counted = {"fdatasync": 0, "bytes": 0}

    def count(name: str, value: Callable[[Any], int]) -> None:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            done = real(*arguments)
            counted["bytes" if name == "preadv" else name] += value(done)
            return done

        monkeypatch.setattr(os, name, call)

    count("fdatasync", lambda _none: 1)
    count("preadv", int)
    sample = run_once(case, tmp_path)
    assert sample.bytes == size
    assert sample.seconds > 0
    if case.name == floor.READ:
        assert counted == {"fdatasync": 0, "bytes": size}
    else:
        assert counted["fdatasync"] == (sample.messages or size // floor.MIB)
        assert len(sample.latencies_us) == sample.messages


# Reports.


@pytest.fixture
def report() -> Report:
    found = []
    for rows in (1, 10, 100):
        samples = [
            Sample(
                1 / rows / factor, 100, 10_000, [50.0 / factor], curves={"rate": [(0, 1), (1, 2)]}
            )
            for factor in (1.0, 1.5)
        ]
        found.append(
            Result(
                Case("<ours>", never, {"rows": rows, "kind": "a"}, "disk", "sweep"),
                samples,
                Spread(0.5, 0.04, 0.75),
                "bytes_per_s",
            )
        )
    disk = Case("disk", never, group="sweep")
    found.append(Result(disk, [Sample(0.01, bytes=10_000, latencies_us=[20.0])] * 2))
    plots = [
        Plot("rates", "rows", "messages_per_s", log_x=True, log_y=True),
        Plot("latencies", "rows", "p50_us", "kind", lines={"aim": 30.0}),
        Plot("ratios", "rows", "ratio_to_floor", even=True),
        Plot("bars", "case", "messages_per_s"),
        Plot("curves", "", "rate"),
    ]
    facts = {"processor": "one & only", "file system": "ext4"}
    return Report("work", "A title", facts, "today", {"rounds": 2}, found, plots, ["Note <b>."])


def test_json_has_medians_and_spreads_and_no_single_round(report: Report, tmp_path: Path) -> None:
    report.json(tmp_path / "report.json")
    told: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert (told["format"], told["work"], told["machine"]) == (2, "work", dict(report.machine))
    assert told["notes"] == ["Note <b>."]
    first = told["results"][0]
    assert first["case"] == "<ours>"
    assert first["parameters"] == {"rows": 1, "kind": "a"}
    assert first["messages_per_s"] == {"median": 125.0, "low": 100.0, "high": 150.0}
    assert first["ratio_to_floor"] == {"median": 0.5, "low": 0.04, "high": 0.75}
    assert (first["floor"], first["ratio_of"]) == ("disk", "bytes_per_s")
    assert (first["rounds"], first["messages"]) == (2, report.results[0].typical.messages)
    assert first["curves"] == {"rate": [[0, 1], [1, 2]]}
    assert told["results"][3]["ratio_to_floor"] is None


def test_table_has_ratios_and_what_they_are_of(report: Report) -> None:
    headings, rows = cells(report.results)
    first = dict(zip(headings, rows[0], strict=True))
    assert first["case"] == "<ours>"
    assert first["messages/s"] == "125"
    assert first["ratio to floor"] == "0.50"
    assert first["least to most"] == "0.04 to 0.75"
    assert first["floor"] == "disk, bytes/s"
    assert dict(zip(headings, rows[3], strict=True))["ratio to floor"] == ""
    assert [table.row_count for table in report.tables()] == [4]


def test_png_is_one(report: Report, tmp_path: Path) -> None:
    report.png(tmp_path / "report.png")
    contents = (tmp_path / "report.png").read_bytes()
    assert contents.startswith(PNG)
    assert contents.endswith(b"IEND\xaeB\x60\x82")


def test_html_stands_alone(report: Report, tmp_path: Path) -> None:
    report.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == len(report.plots)
    for loaded in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)\)""", text):
        assert "".join(loaded).startswith("#")
    assert not re.search(r"<(script|link|img|iframe)\b|@import", text)
    assert "&lt;ours&gt;" in text
    assert "Note &lt;b&gt;." in text
    assert "one &amp; only" in text
    assert "0.04 to 0.75" in text


def test_html_has_its_words_as_text_and_is_light(report: Report, tmp_path: Path) -> None:
    report.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for plot in report.plots:
        assert f">{plot.title}</text>" in text
    assert len(text) < 15_000 * len(report.plots)
    pictures = re.findall(r"<svg.*?</svg>", text)
    names = [set(re.findall(r' id="([^"]*)"', picture)) for picture in pictures]
    for picture, defined in zip(pictures, names, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^)"]*)', picture)) == defined
    assert sum(map(len, names)) == len(set().union(*names))  # of one page, so no two the same


def test_a_lighter_picture_is_the_same() -> None:
    heavy = """<svg id="figure_1">
 <defs> <path id="m1" d="M 0 0 \nL 0 3.5 \n" style="fill: #f00; opacity: 0.7"/> </defs>
 <g id="text_1"> <text x="1.23987" transform="rotate(-0 1.2 3)">0.12345: a  b</text> </g>
 <g> <use xlink:href="#m1" x="10.0071" style="fill: #f00; opacity: 0.7"/> </g>
 <g> <use xlink:href="#m1" x="20" style="fill: #0f0"/> </g>
</svg>"""
    assert drawing.light(heavy) == (
        '<svg><defs><path id="m1" d="M 0 0 L 0 3.5 " style="fill:#f00;opacity:0.7"/></defs>'
        '<g><text x="1.23">0.12345: a b</text></g>'
        '<g><use xlink:href="#m1" x="10.00"/></g>'
        '<g><use xlink:href="#m1" x="20" style="fill:#0f0"/></g></svg>'
    )


def test_pictures_name_their_units_floor_and_spread(report: Report) -> None:
    axes: Any = drawing.Figure().subplots()
    drawing.draw(axes, report.plots[0], report)
    assert axes.get_ylabel() == "messages/s"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["disk", "<ours>"]
    dashed = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    # A floor of 1,000,000 B/s takes 10,000 of these messages a second.
    assert list(dashed[0].get_ydata()) == [10_000] * 3
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10", "100"]
    span = axes.containers[0].lines[2][0].get_segments()[0]
    assert [round(y) for _, y in span] == [100, 150]


def test_pictures_of_latencies_tell_time(report: Report) -> None:
    axes: Any = drawing.Figure().subplots()
    drawing.draw(axes, report.plots[1], report)
    assert axes.yaxis.get_major_formatter()(1500.0) == "1.5 ms"
    assert "aim" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_an_axis_of_times_is_named_without_their_unit(report: Report) -> None:
    def named(metric: str) -> str:
        axes: Any = drawing.Figure().subplots()
        drawing.draw(axes, Plot("times", "rows", metric), report)
        return str(axes.get_ylabel())

    assert (named("p50_us"), named("longest_call_us")) == ("p50", "longest call")


def test_numbers_for_people() -> None:
    assert label("bytes_per_s") == "MiB/s"
    assert label("peak_rss_bytes") == "peak rss, MiB"
    assert label("ns_per_message") == "ns per message"
    assert [shown_number(each) for each in (0, 0.00012, 0.5, 12.345, 1234567)] == [
        "0",
        "1.20e-04",
        "0.5",
        "12.3",
        "1,234,567",
    ]
    assert [floor.size(each) for each in (100, 1024, 1500, 3 << 20)] == [
        "100 B",
        "1 KiB",
        "1500 B",
        "3 MiB",
    ]


def test_machine_tells_what_the_numbers_are_from(tmp_path: Path) -> None:
    facts = machine.facts(tmp_path)
    for name in ("processor", "cores", "memory", "kernel", "python", "pyarrow", "pyqstore"):
        assert facts[name]
    assert facts["file system"]
    assert machine.in_memory({"file system": "tmpfs"})
    assert not machine.in_memory({"file system": "ext4"})


# Lists of the workloads.

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def listed(text: str) -> list[str]:
    """The first column of the table of workloads."""
    table = re.search(r"^\| workload \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    assert table is not None
    return re.findall(r"^\| `?(\w+)`? \|", table[1], re.M)


def test_the_benchmarks_readme_lists_every_workload() -> None:
    assert listed((BENCHMARKS / "README.md").read_text()) == list(WORKLOADS)


def test_results_are_listed_and_whole() -> None:
    results = BENCHMARKS / "results"
    text = (results / "README.md").read_text()
    kept = {path.stem for path in results.iterdir() if path.suffix in (".json", ".png")}
    assert listed(text) == [name for name in WORKLOADS if name in kept]
    assert kept <= set(WORKLOADS)
    for name in kept:
        for kind in ("png", "json"):
            assert (results / f"{name}.{kind}").is_file()
            assert f"({name}.{kind})" in text


def test_every_workload_has_its_regression_run_but_those_that_keep_something_running() -> None:
    workloads = {name: importlib.import_module(f"pyqstore.bench.{name}") for name in WORKLOADS}
    runs = {path.stem.removeprefix("bench_") for path in BENCHMARKS.glob("bench_*.py")}
    assert runs == {name for name, workload in workloads.items() if not hasattr(workload, "begun")}
    for name in runs:
        assert f"\nWORKLOAD = {name}\n" in (BENCHMARKS / f"bench_{name}.py").read_text()


# Workloads.


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - OWN_TESTS))
@pytest.mark.parametrize(
    "options",
    [Options(), Options(quick=True), Options(scale=0.05)],
    ids=["full", "quick", "scaled"],
)
def test_every_plot_of_a_work_has_something_to_show(name: str, options: Options) -> None:
    workload = importlib.import_module(f"pyqstore.bench.{name}")
    cases = workload.cases(options)
    assert len({(case.group, case.title) for case in cases}) == len(cases)
    for plot in workload.PLOTS:
        shown = [case for case in cases if not plot.group or case.group == plot.group]
        assert shown
        if plot.x != "case":
            assert len({case.parameters[plot.x] for case in shown if plot.x in case.parameters}) > 1


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - OWN_TESTS))
def test_a_work_runs_and_reports(name: str, tmp_path: Path) -> None:
    workload = importlib.import_module(f"pyqstore.bench.{name}")
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


def test_works_together_are_timed_until_the_last() -> None:
    meet = threading.Barrier(3, timeout=20)  # or they were not at work at once
    seconds, given = loads.together([lambda: (meet.wait(), time.sleep(0.02))[1]] * 3)
    assert (len(given), seconds >= 0.02) == (3, True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_work_that_fails_beside_others_ends_the_round() -> None:
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


# The command.


def bench(*arguments: object, code: str = "") -> "subprocess.CompletedProcess[str]":
    start = ["-m", "pyqstore"] if not code else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )


def test_command_measures_and_writes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    files = {name: tmp_path / f"report.{name}" for name in ("json", "plot", "html")}
    done = bench(
        *("fanout", "--quick", "--scale", 0.01, "--rounds", 1, "--directory", disk),
        *(part for name, path in files.items() for part in (f"--{name}", path)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("ratio to", "least to", "bodies of 8 KiB", "raw stream, bytes/s", "file system: "):
        assert word in done.stdout
    assert "…" not in done.stdout  # in 80 columns
    told: dict[str, Any] = json.loads(files["json"].read_text())
    assert told["options"] == {"rounds": 1, "quick": True, "scale": 0.01}
    assert told["results"][1]["ratio_to_floor"]["median"] > 0
    assert files["plot"].read_bytes().startswith(PNG)
    assert "<svg" in files["html"].read_text()
    assert list(disk.iterdir()) == []


def test_json_goes_to_stdout_alone(tmp_path: Path) -> None:
    work = ("routing", "--quick", "--scale", 0.001, "--rounds", 1)
    done = bench(*work, "--directory", tmp_path, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["work"] == "routing"


# What follows "pyqstore bench", with one case that fails.
FAILING = """
import sys
from pyqstore.bench import fsync
from pyqstore.bench.runs import Case
from pyqstore.cli import main

def run(directory):
    raise {error}

fsync.cases = lambda options: [Case("ours", run, {{"rows": 10}})]
main(prog_name="pyqstore")
"""


@pytest.mark.parametrize(
    "error",
    ["RuntimeError('it broke')", "OSError('it broke')", "pyqstore.StoreCorrupt('it broke')"],
)
def test_a_failure_is_told_in_a_line_with_its_case(tmp_path: Path, error: str) -> None:
    code = "import pyqstore\n" + FAILING.format(error=error)
    done = bench("fsync", "--directory", tmp_path, code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pyqstore: it broke; in the benchmark case: ours, rows 10\n"
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_the_benchmark_shows_where_it_is(tmp_path: Path) -> None:
    code = FAILING.format(error="KeyError('it broke')")
    done = bench("fsync", "--directory", tmp_path, code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" in done.stderr
    assert "ours, rows 10" in done.stderr


def test_a_reader_that_goes_away_takes_no_numbers_along(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    work = ("routing", "--quick", "--scale", "0.001", "--rounds", "1", "--json", str(written))
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "bench", *work],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(120) == 3
    assert json.loads(written.read_text())["work"] == "routing"


def test_numbers_that_cannot_be_written_are_printed(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    work = ("routing", "--quick", "--scale", 0.001, "--rounds", 1)
    done = bench(*work, "--directory", tmp_path, "--json", full)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "default exchange" in done.stdout


def test_command_lists_the_works_and_their_options() -> None:
    text = bench("--help").stdout
    for name in WORKLOADS:
        assert re.search(rf"^  {name}  +\w", text, re.M)
    assert "Exit status" in text
    text = bench("fsync", "--help").stdout
    for option in ("--directory", "--rounds", "--quick", "--scale", "--json", "--plot", "--html"):
        assert option in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("fsync", "--directory", "nowhere"),
        ("fsync", "--json", "nowhere/report.json"),
        ("fsync", "--rounds", "0"),
        ("fsync", "--scale", "0"),
        ("fsync", "--scale", "nan"),
        ("fsync", "--html", "-"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert arguments[-1].partition("/")[0] in done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pyqstore.cli import main; main(prog_name='pyqstore')"
    )
    done = bench("fsync", "--quick", code=code)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pyqstore: matplotlib missing: pip install 'pyqstore[bench]'\n"


def test_other_commands_import_nothing_of_it() -> None:
    code = (
        "import sys; from pyqstore.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([name for name in sys.modules if name.startswith('pyqstore.bench')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_takes_everything_away(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pyqstore", "bench", "fsync", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests may ignore it (nohup), and what is ignored stays so.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("pyqstore-bench-*/case")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (3, "", "pyqstore: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_does_not_stop_taking_away() -> None:
    taken_away = []

    def impatient() -> None:
        with _ended_cleanly():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGINT)
                taken_away.append(True)

    with pytest.raises(SystemExit, match="3"):
        impatient()
    assert taken_away == [True]


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _ended_cleanly():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
