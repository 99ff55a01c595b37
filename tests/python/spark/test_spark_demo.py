"""The demonstration: runs on the real flights, and notices when a figure is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import pyqstore
from spark_udfs import demo, flights, steps
from spark_udfs.__main__ import main
from spark_udfs.demo import Batches
from spark_udfs.flights import FIGURES, KEYS, QUEUES, STREAM, DemoError, declare
from spark_udfs.outcome import Outcome, compare
from spark_udfs.tables import print_tables


def totals(*numbers: int) -> pl.DataFrame:
    """One route for each number of flights."""
    keys = {key: [f"{key}-{n}" for n in range(len(numbers))] for key in KEYS}
    return pl.DataFrame({**keys, **{name: list(numbers) for name in FIGURES}}).with_columns(
        origin=pl.lit("EWR")
    )


def agreeing() -> Outcome:
    return Outcome(totals(3, 7), totals(3, 7), ready={"EWR": 10, "JFK": 0, "LGA": 0}, published=4)


def test_compare_is_content_when_all_agrees() -> None:
    assert compare(agreeing()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outcome: setattr(outcome, "found", totals(3, 6)), "only the stream has flights 6"),
        (lambda outcome: setattr(outcome, "found", totals(3, 6)), "only Spark has flights 7"),
        (lambda outcome: setattr(outcome, "found", totals(3)), "only Spark has flights 7"),
        (lambda outcome: setattr(outcome, "found", totals(3, 7, 1)), "only the stream has"),
        (
            lambda outcome: setattr(
                outcome, "found", outcome.found.with_columns(crc32_sum=pl.lit(1, pl.Int64))
            ),
            "crc32_sum 1",
        ),
        (lambda outcome: outcome.ready.update(EWR=9), "'newark': 9 messages written, not 10"),
        (lambda outcome: setattr(outcome, "left", 1), "1 messages are in queues"),
    ],
)
def test_compare_names_what_disagrees(
    change: Callable[[Outcome], object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = agreeing()
    change(outcome)
    outcome.faults = compare(outcome)
    assert words in " ".join(outcome.faults)
    print_tables(outcome)
    assert "MISMATCH" in capsys.readouterr().out


@pytest.mark.parametrize(("left", "status"), [(0, 0), (1, 1)])
def test_run_exits_by_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: int, status: int
) -> None:
    outcome = agreeing()
    outcome.left = left
    monkeypatch.setattr(demo, "_run", lambda *_: outcome)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # what ends this process stays
    assert main(["demo", "--path", str(tmp_path / "flights.qs")]) == status


def test_the_totals_of_batches_are_added_up(tmp_path: Path) -> None:
    outcome = agreeing()
    rows = pl.concat([totals(1, 7), totals(3), totals(-1)])
    bodies = [row.encode() for row in rows.select(pl.struct(pl.all()).struct.json_encode())[:, 0]]
    with pyqstore.open(tmp_path / "flights.qs") as store:
        declare(store)
        store.stream(STREAM).publish_batch(pa.table({"body": bodies}))
        demo._read(store, outcome)
    assert outcome.found.sort(KEYS).equals(totals(3, 7).select(outcome.found.columns))
    assert outcome.published == 4


def test_a_task_adds_up_its_rows() -> None:
    rows = pl.concat([totals(1, 7), totals(3), totals(-1)], rechunk=True)
    batches = rows.to_arrow().to_batches(max_chunksize=3)
    found = pl.DataFrame(pa.Table.from_batches(flights._sums(iter(batches))))
    assert found.sort(KEYS).equals(totals(3, 7).select(found.columns))
    assert list(flights._sums(iter([]))) == []


def test_a_flight_comes_into_the_queue_of_its_origin(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "flights.qs") as store:
        declare(store)
        with store.channel() as channel:
            channel.confirm_select()
            for key in ("EWR.UA", "LGA.DL", "EWR.AA"):
                channel.basic_publish("flights", key, b"x")
            channel.wait_for_confirms(timeout=60)
        assert demo.ready(store) == {"EWR": 2, "JFK": 0, "LGA": 1}


def test_batches_are_counted_without_files_that_are_being_written(tmp_path: Path) -> None:
    batches = Batches(tmp_path / "checkpoint")
    assert (batches.begun, batches.ended) == (0, 0)
    for log, names in {"offsets": ["0", "1", ".2.tmp", ".0.crc"], "commits": ["0"]}.items():
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for name in names:
            (tmp_path / "checkpoint" / log / name).touch()
    assert (batches.begun, batches.ended) == (2, 1)


def test_staged_files_are_counted_while_folders_come_and_go(tmp_path: Path) -> None:
    assert demo.staged(tmp_path) == 0
    for name in ("job/0-1.blocks", "job/1-2.blocks.tmp", "other/0-3.blocks"):
        (tmp_path / "staging" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "staging" / name).touch()
    (tmp_path / "staging" / "gone").symlink_to("nowhere")
    assert demo.staged(tmp_path) == 2


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """running(code): a step that runs this code in place of Spark's."""
    started: list[steps.Step] = []
    popen = subprocess.Popen

    def make(code: str) -> steps.Step:
        monkeypatch.setattr(
            subprocess,
            "Popen",
            lambda _, **given: popen([sys.executable, "-c", code, str(tmp_path / "told")], **given),
        )
        started.append(steps.Step("count", tmp_path, tmp_path))
        return started[-1]

    yield make
    for step in started:
        step.__exit__()


# Its child is in a group of its own, as Spark's workers are.
_COUNTS = """
import itertools, os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
for number in itertools.count():
    open(f"{sys.argv[1]}-{os.getpid()}", "w").write(str(number))
    time.sleep(0.001)
"""


def test_a_step_is_killed_in_the_state_that_was_asked_for_with_all_of_its_processes(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    step = running(_COUNTS)
    seen: list[dict[Path, str]] = []

    def both() -> bool:
        seen.append({path: path.read_text() for path in tmp_path.glob("told-*")})
        return len(seen[-1]) == 2 and len(seen) > 20

    step.kill_when(both, lambda: None)
    assert set(step._processes().values()) <= {"Z"}
    assert {path: path.read_text() for path in tmp_path.glob("told-*")} == seen[-1]


def test_a_step_goes_on_when_the_state_was_over_before_it_was_stopped(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    answers = iter([True, False, True, True])
    looks: list[set[str]] = []
    step = running(_COUNTS)
    step.kill_when(lambda: next(answers), lambda: looks.append(set(step._processes().values())))
    assert list(answers) == []
    assert len(looks) == 1


@pytest.mark.parametrize("code", ["print('last words'); raise SystemExit(3)", "pass"])
def test_a_step_that_ends_before_it_could_be_killed_is_an_error(
    running: Callable[..., Any], code: str
) -> None:
    words = "before it could be killed" if code == "pass" else "last words"
    with pytest.raises(DemoError, match=words):
        running(code).kill_when(lambda: False, lambda: None)


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_figure_is_equal_to_sparks_after_three_kills(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    # As users have it, with Spark as it is installed.
    unset = ("HOME", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-m", "spark_udfs", "demo", "--path", str(tmp_path / "flights.qs")],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("EWR 120,835", "JFK 111,279", "LGA 104,662", "336,776 flights", "equal"):
        assert words in done.stdout
    for words in ("the job that writes", "the query in batch", "the query before batch"):
        assert words in done.stdout
    assert "MISMATCH" not in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    with pyqstore.open(tmp_path / "flights.qs", create=False) as store:
        assert sorted(store.queues()) == sorted([*QUEUES.values(), STREAM])


@pytest.mark.spark
def test_demo_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "spark_udfs", "demo"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    while not list(tmp_path.glob("pyqstore-demo-*/spark/conf")):
        assert started.poll() is None
        time.sleep(0.01)
    started.terminate()
    assert started.wait() == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            assert str(tmp_path) not in (process / "cmdline").read_text(errors="replace")


def test_demo_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = subprocess.run(
        [sys.executable, "-m", "spark_udfs", "demo", "--path", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "not an empty directory" in done.stderr
