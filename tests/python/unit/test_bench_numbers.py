"""Benchmarks: the mathematics of rounds, and floors that do what they count."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench import floor
from pyqstore.bench.machine import Quiet
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


def test_a_round_begins_when_the_load_has_faded_and_a_busy_machine_is_refused(
    tmp_path: Path,
) -> None:
    loads, slept, told = [0.2, 2.1, 0.7, 0.4], list[float](), list[str]()
    quiet = Quiet(lambda what, *_: told.append(what), lambda: loads.pop(0), slept.append)
    cases = [Case("ours", lambda _: Sample(1, figures={"rate": 1}))]
    run_rounds(cases, tmp_path, 2, ready=quiet)
    assert (quiet.told(), len(slept), loads) == ("0.20 0.40", 2, [])
    assert told == [
        "round 2 of 2: the load is 2.10, waiting",
        "round 2 of 2: the load is 0.70, waiting",
    ]
    busy = Quiet(lambda *_: None, lambda: 1.0, slept.append)
    with pytest.raises(RuntimeError, match=r"round 1 of 1: the load is 1\.00, .* without --quiet"):
        run_rounds(cases, tmp_path, 1, ready=busy)
