"""`pyqstore bench wire`: its clients in C lose nothing and say what is wrong, every load runs on
both servers, and goals are held against the right figures."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks.laboratory.wire import loads, native, perftest, sides, work
from benchmarks.laboratory.wire.sides import CLASSIC_V1, QUORUM, SERVE, Sides
from pyqstore.bench import drawing
from pyqstore.bench.goals import told
from pyqstore.bench.report import Report
from pyqstore.bench.runs import Case, Options, Result, Sample, results_of, run_once

ROOT = Path(__file__).resolve().parents[3]
TINY = Options(quick=True, scale=0.05)
MESSAGES = {"waits_us": [100.0, 300.0], "published": 50, "publish_seconds": 0.5}


def absent(why: str) -> NoReturn:
    """Skip what is not here, but not where everything has to be."""
    (pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip)(why)


@pytest.fixture(scope="module")
def programs() -> native.Programs:
    found = native.Programs(ROOT / native.FOLDER)
    if (why := found.missing()) is not None:
        absent(why)
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides.started(tmp_path_factory.mktemp("sides"), lambda *_: None) as found:
        if found.left_out is not None:
            absent(found.left_out)
        yield found


@pytest.mark.slow
def test_every_load_runs_on_both_servers_and_reports(
    programs: native.Programs, running: Sides, tmp_path: Path
) -> None:
    wire = work.Work(programs, running, "it takes seconds a run")
    cases = wire.cases(TINY)
    assert len({(case.group, case.title) for case in cases}) == len(cases)
    samples = {place: run_once(case, tmp_path) for place, case in enumerate(cases)}
    results = results_of([samples], cases)
    assert {each.case.group for each in results} == {goal.group for goal in work.GOALS} - {
        work.PERFTEST
    } | {work.bodies(1024)}
    for result in results:
        assert result.metrics["seconds"].median > 0
    notes = wire.notes(results)
    assert sum(", goal " in note for note in notes) == sum(
        goal.group != work.PERFTEST for goal in work.GOALS
    )
    report = Report("wire", work.TITLE, {}, "", {}, wire.finished(results), work.PLOTS, notes)
    drawn = drawing.drawn(report)
    assert drawn == [plot for plot in work.PLOTS if plot.group != work.PERFTEST]
    report.png(tmp_path / "report.png")
    report.html(tmp_path / "report.html")


@pytest.mark.slow
def test_perftest_tells_the_rates_of_each_server(running: Sides) -> None:
    if (why := perftest.missing()) is not None:
        absent(why)
    kinds = [side for side in running.queues if side.name in (SERVE, QUORUM)]
    for side in kinds:
        for consumers in (0, 1):
            assert perftest.run(side.uri, side.argument, consumers, 1, 4) > 0


@pytest.mark.slow
def test_a_client_in_c_says_what_a_server_refused(
    programs: native.Programs, running: Sides
) -> None:
    with pytest.raises(RuntimeError, match=r"bench_wire: 50\.11 was to come.*20\.40.*x-expires"):
        programs.wire("messages", running.ours.port, "x-expires=no", 100, 0.01, 1)
    with pytest.raises(RuntimeError, match="bench_wire: nothing is no NAME=VALUE"):
        programs.wire("messages", running.ours.port, "nothing", 100, 0.01, 1)
    with (
        pytest.raises(RuntimeError, match="bench_wire idle: connect: Connection refused"),
        programs.idle(1, 1, 60),
    ):
        pass
    with pytest.raises(RuntimeError, match="bench_wire: connect: Connection refused"):
        programs.heartbeats(1, 2, 0.1)
    with pytest.raises(RuntimeError, match="bench_wire: usage: bench_wire messages"):
        programs.wire("nothing", 1)


def test_programs_that_are_not_built_are_told_before_a_server_starts(tmp_path: Path) -> None:
    options = Options(chosen={"programs": str(tmp_path)})
    with (
        pytest.raises(RuntimeError, match=r"there is no .*bench_wire: cmake --preset release"),
        work.begun(options, tmp_path, lambda *_: None),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_rates_are_over_the_seconds_that_each_took() -> None:
    given = {**MESSAGES, "consume_seconds": 0.25}
    metrics = loads.messages(given).metrics()
    assert (metrics["p50_us"], metrics[loads.PUBLISH], metrics[loads.CONSUME]) == (100, 100, 208)


def test_a_heartbeat_is_missed_for_each_two_seconds_of_a_wait() -> None:
    sample = loads.heartbeats({"gaps_s": [1.0, 2.1, 1.9, 4.2], "since_the_last_s": 2.5})
    assert sample.figures == {loads.LONGEST: 4.2, loads.MISSED: 4}
    assert sample.seconds == pytest.approx(11.7)
    assert loads.heartbeats({"gaps_s": [], "since_the_last_s": 1.5}).figures[loads.MISSED] == 0


def test_perftest_is_the_median_without_its_first_seconds_and_the_last() -> None:
    said = "".join(
        f"id: test, time {at}.0 s, sent: 9 msg/s, confirmed: {rate} msg/s, received: {rate * 2}"
        " msg/s, min/median latency: 1/2\n"
        for at, rate in enumerate([1, 1, 50, 70, 60, 2], 1)
    )
    assert perftest.rate_of(said, 0, 2) == 60
    assert perftest.rate_of(said, 1, 2) == 120
    with pytest.raises(RuntimeError, match="PerfTest said no rates:\nnothing"):
        perftest.rate_of("nothing", 0, 2)


def made(group: str, name: str, *rates: float) -> Result:
    samples = [Sample(1, figures={loads.PUBLISH: rate}) for rate in rates]
    return Result(Case(name, lambda _: samples[0], group=group), samples)


def test_goals_are_ratios_of_one_round() -> None:
    results = [made(work.SMALL, SERVE, 300, 100), made(work.SMALL, CLASSIC_V1, 10, 10)]
    lines = [note for note in told(work.GOALS, results) if CLASSIC_V1 in note]
    assert lines == [
        f"{work.SMALL}: {SERVE} over {CLASSIC_V1}, publish per s 20 (10 to 30), goal at least 15:"
        " met."
    ]
    alone = told(work.GOALS, results[:1])
    assert [note.split("goal ")[1] for note in alone] == ["at least 300,000: not met."]
