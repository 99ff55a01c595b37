"""The flights out of New York in 2013 through Spark, a store, a kill and back; all reconciled.

``run`` is the whole demonstration:

1. 336,776 flights are read by Spark, which also says what each queue has to hold: how many
   messages, and the sum of the CRC32 of their bodies.
2. January to June goes through the data source, in one transaction.
3. July to December goes through ``publish`` in a process of its own, which is killed (SIGKILL, with
   its Java) right after its last confirm.
4. The store is opened again, the queues are drained with acknowledgements, and what came is held
   against 1.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .flights import (
    BINDINGS,
    EXCHANGE,
    DemoError,
    Half,
    Outcome,
    Tally,
    declare,
    drain,
    expectations,
    flights_csv,
    half,
    messages,
    reconcile,
)
from .session import local_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import pyqstore

    from .progress import Stages

_CHILD_START_S = 300.0
# A partition of 4 MiB of CSV: a bar that moves, and a bounded window in the driver.
_SMALL_SPLITS = {"spark.sql.files.maxPartitionBytes": "4m"}


def through_datasource(
    frame: DataFrame, path: Path, report: Path, rows: int, show: Callable[[int], object]
) -> Half:
    """Write a half as one Spark job and one transaction."""
    started = time.monotonic()
    with _job_progress(frame.sparkSession, rows, show):
        (
            frame.write.format("pyqstore")
            .option("path", str(path))
            .option("exchange", EXCHANGE)
            .option("content_type", "application/json")
            .option("txnid", "flights-first-half")
            .option("report", str(report))
            .mode("append")
            .save()
        )
    seconds = time.monotonic() - started
    done = json.loads(report.read_text(encoding="utf-8"))
    return Half(
        rows=rows,
        confirmed=done["rows"],
        seconds=seconds,
        store_seconds=done["seconds"],
        stats=done["stats"],
    )


def through_child(
    path: Path, csv: Path, scratch: Path, rows: int, show: Callable[[int], object]
) -> Half:
    """Publish a half from a process of its own; kill that the moment it says all is confirmed.

    The process tells what it does as lines of JSON on a pipe; it never closes the store.

    Raises:
        DemoError: it ended by itself, or said nothing for too long.
    """
    reading, writing = os.pipe()
    log = scratch / "child.log"
    command = [sys.executable, "-m", "spark_udfs", "publish-half"]
    command += [
        "--path",
        str(path),
        "--csv",
        str(csv),
        "--scratch",
        str(scratch),
        "--pipe",
        str(writing),
    ]
    with log.open("wb") as errors, os.fdopen(reading, "rb") as pipe:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=[writing],
            start_new_session=True,
        )
        try:
            os.close(writing)
            done = _follow(pipe, show)
        except DemoError as error:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise DemoError(f"{error}; its last words:\n{tail}") from None
        finally:
            # The process is the leader of its group, and its Java is in it.
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
    if status != -signal.SIGKILL:
        raise DemoError(f"the publishing process was not killed: it had ended with status {status}")
    return Half(
        rows=rows,
        confirmed=done["confirmed"],
        seconds=done["seconds"],
        store_seconds=done["store_seconds"],
        stats=done["stats"],
    )


def _follow(pipe: IO[bytes], show: Callable[[int], object]) -> dict[str, Any]:
    """Read the child's lines until the last confirm."""
    buffered = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], _CHILD_START_S)
        if not ready:
            raise DemoError(f"the publishing process said nothing for {_CHILD_START_S:.0f} s")
        read = os.read(pipe.fileno(), 65536)
        if not read:
            raise DemoError("the publishing process ended before its last confirm")
        *lines, buffered = (buffered + read).split(b"\n")
        for line in lines:
            told: dict[str, Any] = json.loads(line)
            if "confirmed" in told:
                return told
            show(told["rows"])


def publish_half(path: Path, csv: Path, scratch: Path, pipe: int) -> None:
    """The child's whole life: publish July to December, say so, and wait to be killed."""
    import pyqstore

    from .publisher import publish

    parent = os.getppid()
    with os.fdopen(pipe, "wb", buffering=0) as out:

        def tell(**words: Any) -> None:
            out.write(json.dumps(words, default=str).encode() + b"\n")

        spark = local_session(directory=scratch / "child", conf=_SMALL_SPLITS)
        frame = half(messages(spark, csv), "publish")
        store = pyqstore.open(path)
        channel = store.channel()
        properties = pyqstore.Properties(content_type="application/json", delivery_mode=2)
        result = publish(
            frame, channel, EXCHANGE, properties=properties, progress=lambda rows: tell(rows=rows)
        )
        tell(
            confirmed=result.rows,
            seconds=result.seconds,
            store_seconds=result.store_seconds,
            stats=store.stats().to_dict(),
        )
        while os.getppid() == parent:
            time.sleep(0.2)


def run(path: Path | None = None, *, keep: bool = False) -> int:
    """The demonstration.

    Args:
        path: directory for the store, made when missing; it may not hold a store. None: a temporary
            one.
        keep: leave the store there afterwards (implied by path).

    Returns:
        The exit status: 0 when everything agrees, 1 when anything does not.

    Raises:
        DemoError: it could not be run.
    """
    from .progress import Stages
    from .tables import print_tables

    if path and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DemoError(f"{path} is not an empty directory: name one, or none")
    scratch = Path(tempfile.mkdtemp(prefix="pyqstore-demo-"))
    store_path = path or scratch / "flights.qs"
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        with Stages() as stages:
            outcome = _run(store_path, scratch, stages)
        outcome.faults = reconcile(outcome)
        print_tables(outcome)
    finally:
        if keep and path is None:
            kept = Path(tempfile.mkdtemp(prefix="pyqstore-flights-"))
            if store_path.exists():
                shutil.move(str(store_path), kept)
            print(f"the store is kept in {kept / store_path.name}")
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if outcome.faults else 0


def _run(path: Path, scratch: Path, stages: Stages) -> Outcome:
    import pyqstore

    outcome = Outcome()
    with stages.stage("Starting Spark"):
        csv = flights_csv(scratch)
        spark = local_session(
            directory=scratch / "spark", log=scratch / "spark.log", conf=_SMALL_SPLITS
        )
    try:
        with stages.stage("Counting with Spark") as show_rows:
            frame = messages(spark, csv)
            outcome.expected, rows = expectations(frame)
            outcome.rows = sum(rows.values())
            show_rows(outcome.rows)
        with pyqstore.open(path) as store:
            declare(store)
        with stages.stage("Data source, January to June", rows["datasource"]) as show_rows:
            outcome.halves["datasource"] = through_datasource(
                half(frame, "datasource"),
                path,
                scratch / "report.json",
                rows["datasource"],
                show_rows,
            )
    finally:
        stop_session(spark)
    with stages.stage("publish(), July to December", rows["publish"]) as show_rows:
        outcome.halves["publish"] = through_child(path, csv, scratch, rows["publish"], show_rows)
    with stages.stage("Killed; opening again"):
        started = time.monotonic()
        store = pyqstore.open(path)
        outcome.open_ms = (time.monotonic() - started) * 1000
    with store:
        stats = store.stats()
        outcome.recovery_ms = float(stats["recovery_ms"])
        outcome.recovered = int(stats["recovered_messages"])
        copies = sum(tally.rows for tally in outcome.expected.values())
        with stages.stage("Draining the queues", copies, "messages") as show_rows:
            outcome.found, outcome.drain_s = _drain_all(store, show_rows)
    with pyqstore.open(path) as store:
        outcome.left = sum(int(store.queue_status(queue)["messages_ready"]) for queue in BINDINGS)
    return outcome


def _drain_all(
    store: pyqstore.Store, show_rows: Callable[[int], object]
) -> tuple[dict[str, Tally], float]:
    started = time.monotonic()
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        show_rows(done)

    found = {queue: drain(store, queue, on_rows=count) for queue in BINDINGS}
    return found, time.monotonic() - started


@contextmanager
def _job_progress(
    spark: SparkSession, rows: int, show_rows: Callable[[int], object]
) -> Iterator[None]:
    """Meanwhile, show a job's rows as its share of finished tasks; Spark counts no sink's rows."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def poll() -> None:
        while not over.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = sum(info.numTasks for info in infos if info)
            if tasks:
                show_rows(rows * sum(info.numCompletedTasks for info in infos if info) // tasks)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
