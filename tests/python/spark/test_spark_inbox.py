"""Jobs that write to a store which a service has open: its engine adopts what they staged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyqstore
from spark_udfs import is_committed, sink
from spark_udfs.opening import StoreBusyError
from spark_udfs.options import WriteOptions
from spark_udfs.staging import StagingError, StagingFolder

COLUMNS = [("body", "string"), ("routing_key", "string")]
Batches = Callable[[range], pa.RecordBatch]
Prepare = Callable[..., sink.Job]

SERVICE = """
import sys, threading, pyqstore
with pyqstore.open(sys.argv[1]) as store, store.channel() as channel:
    channel.queue_declare("own", durable=True)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print("ready", flush=True)
    while not over.is_set():
        channel.basic_publish("", "own", b"of the service")
        while (message := channel.basic_get("own")) is not None:
            channel.basic_ack(message.delivery_tag)
        over.wait(0.001)
"""


@pytest.fixture
def prepare(disk: Any) -> Prepare:
    """prepare(name="job", **options): a job to the exchange "events"."""

    def make(name: str = "job", columns: Any = COLUMNS, **options: Any) -> sink.Job:
        given = {"path": str(disk.path), "exchange": "events", **options}
        key = given.get("txnid", f"spark-{name}")
        forgets = () if "txnid" in given else (key,)
        parsed = WriteOptions.parse(given)
        return sink.prepare(parsed, columns, job=name, key=key, forgets=forgets)

    return make


@pytest.fixture
def service(disk: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that publishes and consumes."""
    command = [sys.executable, "-c", SERVICE, str(disk.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def stage(job: sink.Job, rows: pa.RecordBatch) -> Any:
    return sink.stage(job, [rows], partition=0, attempt=1)


def test_a_job_is_adopted_by_the_owner_once_under_its_txnid(
    disk: Any, prepare: Prepare, batch_of: Batches
) -> None:
    with pyqstore.open(disk.path) as store:
        job = prepare(txnid="day 1")
        report = sink.commit(job, [stage(job, batch_of(range(10)))])
        assert (report.committed, report.rows, report.routed, report.stats) == (True, 10, 10, {})
        again = prepare(txnid="day 1")
        assert again.repeated
        assert not sink.commit(again, [stage(again, batch_of(range(10)))]).committed
        assert store.queue_status("all").messages_ready == 10
        assert store.transaction_known("day 1")
    assert disk.staged == []


def test_a_driver_is_told_whether_a_job_was_committed_whoever_has_the_store(
    disk: Any, prepare: Prepare, batch_of: Batches, tmp_path: Path
) -> None:
    assert not is_committed(tmp_path / "nowhere", "day 1")
    assert not (tmp_path / "nowhere").exists()
    with pyqstore.open(disk.path) as store:
        assert not is_committed(disk.path, "day 1")
        job = prepare(txnid="day 1")
        sink.commit(job, [stage(job, batch_of(range(10)))])
        assert is_committed(disk.path, "day 1")
        store.forget_transaction("day 1")
        assert store.forget_transaction(older_than=0) == 0
    job = prepare(txnid="day 2")
    sink.commit(job, [stage(job, batch_of(range(10)))])
    assert (is_committed(disk.path, "day 1"), is_committed(disk.path, "day 2")) == (False, True)
    with pyqstore.open(disk.path, read_only=True):
        assert is_committed(disk.path, "day 2")
    with disk.owned(), pytest.raises(StoreBusyError, match=f"process {os.getpid()}"):
        is_committed(disk.path, "day 2", lock_timeout=0.1)


def test_jobs_without_a_txnid_leave_no_key_with_the_owner(
    disk: Any, prepare: Prepare, batch_of: Batches
) -> None:
    with pyqstore.open(disk.path) as store:
        for number in range(3):
            job = prepare(f"job {number}")
            assert sink.commit(job, [stage(job, batch_of(range(number, number + 1)))]).committed
    with pyqstore.open(disk.path) as store:
        assert store.forget_transaction(older_than=0) == 0
    assert disk.numbers() == [0, 1, 2]


def test_a_job_that_died_before_its_files_were_swept_is_not_adopted_twice(
    disk: Any, prepare: Prepare, batch_of: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(folder: StagingFolder) -> None:
        raise KeyboardInterrupt

    with pyqstore.open(disk.path) as store:
        job = prepare()
        file = stage(job, batch_of(range(10)))
        with monkeypatch.context() as patch:
            patch.setattr(StagingFolder, "clear", die)
            with pytest.raises(KeyboardInterrupt):
                sink.commit(job, [file])
        assert not sink.commit(job, [file]).committed
        assert store.queue_status("all").messages_ready == 10
    with pyqstore.open(disk.path) as store:
        assert not store.transaction_known(job.key)


def test_a_commit_repeated_after_its_files_were_swept_is_no_failure(
    disk: Any, prepare: Prepare, batch_of: Batches
) -> None:
    with pyqstore.open(disk.path) as store:
        job = prepare(txnid="day 1")
        file = stage(job, batch_of(range(10)))
        assert sink.commit(job, [file]).committed
        assert not sink.commit(job, [file]).committed
        assert store.queue_status("all").messages_ready == 10


def test_a_look_whose_own_key_is_known_does_not_make_a_job_repeated(
    disk: Any, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_look_key", lambda: "look")
    with pyqstore.open(disk.path):
        assert pyqstore.adopt_into(disk.path, [], "look").committed  # its answer was lost
        assert not prepare(txnid="day 1").repeated


def test_what_the_owner_finds_unroutable_or_missing_fails_the_job(
    disk: Any, prepare: Prepare, batch_of: Batches, tmp_path: Path
) -> None:
    rows = batch_of(range(10))
    rows = rows.set_column(1, "routing_key", pa.array(["no queue"] * 10))
    with pyqstore.open(disk.path) as store:
        job = prepare(exchange="", routing_key="all", report=str(tmp_path / "report"))
        with pytest.raises(sink.UnroutableError, match=r"routing key 'no queue'.*mandatory=false"):
            sink.commit(job, [stage(job, rows)])
        assert '"returned": 10' in (tmp_path / "report").read_text()
        job = prepare("dropped", exchange="", routing_key="all", mandatory="false")
        assert sink.commit(job, [stage(job, rows)]).unroutable == 10
        job = prepare("gone")
        file = stage(job, rows)
        job.folder.path_of(file).unlink()
        with pytest.raises(StagingError):
            sink.commit(job, [file])
        sink.abort(job)
        assert store.queue_status("all").messages_ready == 0
    assert disk.staged == []


def test_rows_with_due_times_wait_for_a_store_that_is_closed(disk: Any, prepare: Prepare) -> None:
    with pyqstore.open(disk.path), pytest.raises(StoreBusyError, match=f"process {os.getpid()}"):
        prepare(columns=[*COLUMNS, ("due", "timestamp")], lock_timeout="0.3")


def test_an_owner_that_is_killed_after_the_start_leaves_the_store_to_the_job(
    disk: Any, prepare: Prepare, batch_of: Batches, service: subprocess.Popen[str]
) -> None:
    job = prepare()
    file = stage(job, batch_of(range(10)))
    service.kill()
    assert sink.commit(job, [file]).committed
    assert disk.numbers() == list(range(10))


def end(service: subprocess.Popen[str]) -> None:
    assert service.poll() is None
    service.communicate("")
    assert service.returncode == 0


@pytest.mark.spark
def test_a_job_writes_while_a_service_publishes_and_consumes(
    disk: Any, numbered: Callable[..., Any], service: subprocess.Popen[str]
) -> None:
    for _ in range(2):
        disk.write(numbered(20_000), txnid="once")
    end(service)
    assert disk.numbers() == list(range(20_000))
    assert disk.staged == []


@pytest.mark.spark
def test_a_query_writes_while_a_service_publishes_and_consumes(
    disk: Any, spark: Any, service: subprocess.Popen[str], tmp_path: Path, batch_of: Batches
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    pq.write_table(pa.Table.from_batches([batch_of(range(3000))]), folder / "0.parquet")
    query = (
        spark.readStream.schema("body string, routing_key string")
        .parquet(str(folder))
        .writeStream.format("pyqstore")
        .options(path=str(disk.path), exchange="events", create="true")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    end(service)
    assert sorted(disk.numbers()) == list(range(3000))
    assert disk.staged == []
