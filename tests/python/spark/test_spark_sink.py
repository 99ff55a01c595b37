"""spark_udfs.sink and spark_udfs.staging, driven without Spark: what a commit lets in, and once."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from spark_udfs import opening, sink
from spark_udfs.columns import ColumnError
from spark_udfs.opening import StoreBusyError
from spark_udfs.options import OptionError, WriteOptions
from spark_udfs.staging import StagedFile, StagingError, StagingFolder

COLUMNS = [("body", "string"), ("routing_key", "string")]
Batches = Callable[[range], pa.RecordBatch]


@pytest.fixture
def prepare(disk: Any) -> Callable[..., sink.Job]:
    """prepare(name="job", **options): a job to the exchange "events"."""

    def make(name: str = "job", **options: Any) -> sink.Job:
        given = {"path": str(disk.path), "exchange": "events", **options}
        key = given.get("txnid", f"spark-{name}")
        return sink.prepare(WriteOptions.parse(given), COLUMNS, job=name, key=key)

    return make


def test_commit_publishes_the_files_by_partition(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    second = sink.stage(job, [batch_of(range(10, 20))], partition=1, attempt=7)
    first = sink.stage(job, [batch_of(range(5)), batch_of(range(5, 10))], partition=0, attempt=8)
    empty = sink.stage(job, [batch_of(range(0))], partition=2, attempt=9)
    assert (first.rows, second.rows, empty.name) == (10, 10, "")
    report = sink.commit(job, [second, empty, first])
    assert (report.committed, report.rows, report.files) == (True, 20, 2)
    assert disk.numbers() == list(range(20))
    assert disk.numbers("odd") == list(range(1, 20, 2))
    assert disk.staged == []
    assert disk.knows("spark-job")


def test_commit_makes_no_checkpoint_while_the_journal_is_short(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def journal_left() -> int:
        with pyqstore.open(disk.path, read_only=True) as store:
            return store.stats().recovered_records

    for number in range(2):
        job = prepare(f"job {number}")
        rows = batch_of(range(10 * number, 10 * number + 10))
        sink.commit(job, [sink.stage(job, [rows], partition=0, attempt=1)])
        assert (journal_left() > 0) is (number == 0)
        monkeypatch.setattr(opening, "JOURNAL_BYTES_KEPT", 1)
    assert disk.numbers() == list(range(20))


def test_commit_leaves_out_what_it_was_not_told_of(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    (job.folder.path / "0-2.arrow.tmp").write_bytes(b"half a file")
    won = sink.stage(job, [batch_of(range(10))], partition=0, attempt=3)
    sink.commit(job, [won])
    assert disk.numbers() == list(range(10))
    assert disk.staged == []


def test_commit_repeated_publishes_once(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    for name in ("first", "second"):
        job = prepare(name)
        job = sink.Job(job.options, job.name, key="the same")
        staged = sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
        assert sink.commit(job, [staged]).committed is (name == "first")
    assert disk.numbers() == list(range(10))
    assert disk.staged == []


def test_job_whose_key_is_known_stages_nothing(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare("first", txnid="t")
    sink.commit(job, [sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)])

    def never() -> Iterator[pa.RecordBatch]:
        raise AssertionError("the rows were computed again")
        yield

    again = prepare("second", txnid="t")
    staged = sink.stage(again, never(), partition=0, attempt=1)
    assert again.repeated
    assert not sink.commit(again, [staged]).committed
    assert disk.ready() == 10


def test_commit_of_no_rows_records_its_key(disk: Any, prepare: Callable[..., sink.Job]) -> None:
    job = prepare(txnid="nothing")
    assert sink.commit(job, []).committed
    assert disk.knows("nothing")
    assert disk.ready() == 0


def test_abort_sweeps_and_does_not_undo(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    staged = sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    sink.commit(job, [staged])
    sink.abort(job)
    assert disk.ready() == 10
    job = prepare("other")
    sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    sink.abort(job)
    assert disk.ready() == 10
    assert disk.staged == []


def narrow_job(disk: Any, **options: str) -> sink.Job:
    """A job to an exchange where the key n.0 leads nowhere."""
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.exchange_declare("narrow", "direct", durable=True)
        channel.queue_bind("odd", "narrow", "n.1")
    given = WriteOptions.parse({"path": str(disk.path), "exchange": "narrow", **options})
    return sink.prepare(given, COLUMNS, job="job", key="key")


def test_messages_without_a_queue_fail_the_job_before_its_commit(
    disk: Any, tmp_path: Path, batch_of: Batches
) -> None:
    job = narrow_job(disk, report=str(tmp_path / "report"))
    staged = sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    words = r"take 5 of 10 messages: exchange 'narrow', routing key 'n\.0'\. Nothing is published"
    with pytest.raises(sink.UnroutableError, match=words):
        sink.commit(job, [staged])
    report = json.loads((tmp_path / "report").read_text())
    assert [report[name] for name in ("rows", "routed", "unroutable", "returned")] == [0, 0, 5, 5]
    assert not report["committed"]
    assert disk.staged == []
    assert not disk.knows("key")
    assert disk.ready("odd") == 0


def test_messages_without_a_queue_are_dropped_and_counted_when_the_job_says_so(
    disk: Any, batch_of: Batches
) -> None:
    job = narrow_job(disk, mandatory="false")
    staged = sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    report = sink.commit(job, [staged])
    assert (report.rows, report.routed, report.unroutable, report.returned) == (10, 5, 5, 0)
    assert disk.numbers("odd") == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("most", [1, 10])
def test_routes_of_rows_with_a_due_time_are_found_also_if_they_are_too_many_to_name(
    disk: Any, monkeypatch: pytest.MonkeyPatch, batch_of: Batches, most: int
) -> None:
    monkeypatch.setattr("spark_udfs.staging.ROUTES_MAX", most)
    job = narrow_job(disk)
    staged = sink.stage(job, [with_due(batch_of(range(10)))], partition=0, attempt=1)
    assert staged.routes == (None if most == 1 else {(None, "n.0"), (None, "n.1")})
    with pytest.raises(sink.UnroutableError, match="5 of 10"):
        sink.commit(job, [staged])


def with_due(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A column that only Arrow files have."""
    return rows.append_column("due", pa.nulls(rows.num_rows, pa.timestamp("us")))


@pytest.mark.parametrize(
    ("damage", "shape"),
    [
        *((damage, with_due) for damage in ("flip", "cut", "remove", "rows")),
        *((damage, lambda rows: rows) for damage in ("flip", "cut", "remove")),
    ],
)
def test_commit_refuses_a_file_that_is_not_what_its_task_reported(
    disk: Any,
    prepare: Callable[..., sink.Job],
    batch_of: Batches,
    damage: str,
    shape: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> None:
    job = prepare()
    good = sink.stage(job, [shape(batch_of(range(10)))], partition=0, attempt=1)
    bad = sink.stage(job, [shape(batch_of(range(10)))], partition=1, attempt=2)
    path = job.folder.path / bad.name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "remove":
        path.unlink()
    else:
        bad = StagedFile(bad.name, bad.partition, 11, bad.bytes, bad.crc32)
    with pytest.raises(StagingError, match=bad.name):
        sink.commit(job, [good, bad])
    assert disk.ready() == 0
    assert not disk.knows(job.key)


def test_commit_refuses_two_attempts_at_one_partition(
    prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    both = [sink.stage(job, [batch_of(range(3))], partition=0, attempt=n) for n in (1, 2)]
    with pytest.raises(StagingError, match="two attempts"):
        sink.commit(job, both)


def test_commit_waits_for_the_store_then_names_its_owner(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare(lock_timeout="0.3")
    staged = sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    with disk.owned():
        began = time.monotonic()
        with pytest.raises(StoreBusyError, match=f"process {os.getpid()}") as refused:
            sink.commit(job, [staged])
    assert time.monotonic() - began >= 0.3
    assert refused.value.pid == os.getpid()
    assert disk.staged != []
    assert sink.commit(job, [staged]).committed
    assert disk.ready() == 10


def test_stage_after_the_job_is_over_leaves_nothing(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    sink.abort(job)
    with pytest.raises(StagingError, match="the job is over"):
        sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)
    assert disk.staged == []


def test_stage_where_the_store_is_not_seen_names_the_machine_and_the_path(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare()
    disk.path.rename(disk.path.with_name("elsewhere"))
    words = f"executor {socket.gethostname()} does not see {disk.path}"
    with pytest.raises(StagingError, match=words):
        sink.stage(job, [batch_of(range(10))], partition=0, attempt=1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("timestamp", dt.datetime(1960, 1, 1), "timestamp is -"),
        ("headers", [("CC", "x")], "CC"),
        ("headers", [("k" * 300, "x")], "key of 300 bytes"),
        ("expiration_ms", 2**40, "invalid expiration"),
        ("due", dt.datetime(2960, 1, 1), "100 years"),
    ],
)
def test_stage_names_partition_and_row_of_what_is_no_message(
    disk: Any,
    prepare: Callable[..., sink.Job],
    batch_of: Batches,
    name: str,
    value: Any,
    words: str,
) -> None:
    types = {"headers": pa.map_(pa.string(), pa.string()), "expiration_ms": pa.int64()}
    column = pa.array([None, value, None], types.get(name, pa.timestamp("us")))
    bad = batch_of(range(3)).append_column(name, column)
    good = batch_of(range(4)).append_column(name, pa.nulls(4, column.type))
    job = prepare()
    with pytest.raises(ColumnError, match=rf"partition 7: .*row 5\b.*{words}"):
        sink.stage(job, [good, bad], partition=7, attempt=1)
    assert disk.staged == ["job"]
    assert disk.ready() == 0


def test_stage_that_fails_removes_its_file(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch_of(range(10))
        yield pa.RecordBatch.from_pydict({"body": pa.array([None], pa.string())})

    job = prepare()
    with pytest.raises(ColumnError, match="row 10"):
        sink.stage(job, failing(), partition=0, attempt=1)
    assert disk.staged == ["job"]


def test_prepare_refuses_before_it_makes_anything(
    disk: Any, prepare: Callable[..., sink.Job]
) -> None:
    with pytest.raises(pyqstore.NotFound, match="missing"):
        prepare(exchange="missing")
    options = WriteOptions.parse({"path": str(disk.path)})
    with pytest.raises(OptionError, match="routing_key"):
        sink.prepare(options, [("body", "string")], job="job", key="key")
    options = replace(options, routing_key="nobody", mandatory=True)
    with pytest.raises(pyqstore.NotFound, match="nobody"):
        sink.prepare(options, [("body", "string")], job="job", key="key")
    assert disk.staged == []


def test_prepare_makes_a_store_that_is_missing_only_when_told_to(tmp_path: Path) -> None:
    given = {"path": str(tmp_path / "new.qs"), "routing_key": "q", "mandatory": "false"}
    with pytest.raises(OptionError, match=r"'path' is '.*new\.qs'.*create=true"):
        sink.prepare(WriteOptions.parse(given), [("body", "binary")], job="job", key="key")
    assert not (tmp_path / "new.qs").exists()
    options = WriteOptions.parse({**given, "create": "true"})
    job = sink.prepare(options, [("body", "binary")], job="job", key="key")
    assert job.folder.path.is_dir()
    assert (tmp_path / "new.qs").stat().st_mode & 0o777 == 0o700


def test_prepare_waits_as_long_as_the_job_says(disk: Any, prepare: Callable[..., sink.Job]) -> None:
    with disk.owned() as store:
        with pytest.raises(StoreBusyError, match=r"was for 0\.3 s"):
            prepare(lock_timeout="0.3")
        closing = threading.Timer(1.5, store.close)
        closing.start()
        assert prepare(lock_timeout="60").folder.path.is_dir()
        closing.join()


class Clock:
    """Goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("free_after", [None, 20])
def test_who_finds_the_store_locked_again_and_again_waits_longer_up_to_a_bound(
    disk: Any, monkeypatch: pytest.MonkeyPatch, free_after: int | None
) -> None:
    clock = Clock()
    monkeypatch.setattr(opening, "time", clock)
    with pyqstore.open(disk.path) as owner:

        def leave(seconds: float) -> None:
            Clock.sleep(clock, seconds)
            if len(clock.naps) == free_after:
                owner.close()

        monkeypatch.setattr(clock, "sleep", leave)
        if free_after is None:
            with pytest.raises(StoreBusyError, match=r"was for 30 s: process"):
                opening.open_store(str(disk.path), wait_s=30, read_only=True)
            assert clock.now == pytest.approx(1030)
            assert 120 <= len(clock.naps) <= 260
        else:
            opening.open_store(str(disk.path), wait_s=30, read_only=True).close()
            assert len(clock.naps) == free_after
    for number, nap in enumerate(clock.naps[:-1]):
        most = min(0.01 * 2**number, 0.25)
        assert most / 2 <= nap <= most
    assert len(set(clock.naps)) == len(clock.naps)  # no two tasks in step


def test_a_store_that_another_job_has_is_to_be_waited_for(
    disk: Any, prepare: Callable[..., sink.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_command", lambda pid: "python -m pyspark.daemon")
    with disk.owned(), pytest.raises(StoreBusyError, match="another Spark job"):
        prepare(lock_timeout="0")


def test_options_become_properties_and_a_column_beats_them(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    job = prepare(content_type="text/plain")
    batch = batch_of(range(2)).append_column("content_type", pa.array(["text/html", None]))
    plain = sink.stage(job, [batch_of(range(2, 3))], partition=1, attempt=1)
    sink.commit(job, [sink.stage(job, [batch], partition=0, attempt=2), plain])
    rows = disk.take()
    assert [row["content_type"] for row in rows][::2] == ["text/html", "text/plain"]
    assert [row["delivery_mode"] for row in rows] == [2, 2, 2]


def test_stale_folders_of_dead_jobs_are_swept(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    dead, slow = StagingFolder(str(disk.path), "dead"), StagingFolder(str(disk.path), "slow")
    for folder in (dead, slow):
        folder.create()
        folder.write([batch_of(range(3))], partition=0, attempt=1)
    long_ago = time.time() - 30 * 24 * 3600
    os.utime(dead.path, (long_ago, long_ago))
    job = prepare()
    sink.commit(job, [sink.stage(job, [batch_of(range(3))], partition=0, attempt=1)])
    assert disk.staged == ["slow", "slow/0-1.arrow"]


@pytest.mark.parametrize("is_owned", [False, True])
def test_the_key_of_a_job_without_a_txnid_that_was_killed_in_its_commit_is_forgotten(
    disk: Any,
    prepare: Callable[..., sink.Job],
    batch_of: Batches,
    monkeypatch: pytest.MonkeyPatch,
    is_owned: bool,
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    def own_job() -> sink.Job:
        name = uuid.uuid4().hex
        return replace(prepare(name), forgets=(sink.own_key(name),))

    def commit(job: sink.Job) -> None:
        sink.commit(job, [sink.stage(job, [batch_of(range(3))], partition=0, attempt=1)])

    dead, at_work = own_job(), own_job()
    # A query that stopped long ago goes on from its checkpoint, which has this batch.
    query = sink.stream_job(dead.options, query=str(uuid.uuid4()), batch=0)
    query.folder.create()
    commit(query)
    query.folder.create()
    for name in ("_forget", "_forget_by_owner"):
        owner = pyqstore.open(disk.path) if name == "_forget_by_owner" else nullcontext()
        with monkeypatch.context() as patch, owner:
            patch.setattr(sink, name, die)
            with pytest.raises(KeyboardInterrupt):
                commit(dead if name == "_forget" else at_work)
    assert disk.knows(dead.key)
    assert disk.knows(at_work.key)
    assert disk.staged == sorted([dead.name, at_work.name, query.name])
    for job in (dead, at_work, query):
        os.utime(job.folder.path, (0, 0))
    with pyqstore.open(disk.path) if is_owned else nullcontext():
        commit(own_job())
    assert disk.staged == []
    assert disk.knows(query.key)
    with pyqstore.open(disk.path) as store:
        assert store.forget_transaction(older_than=0) == 1


def test_staged_rows_are_blocks_for_the_store_or_arrow_if_they_have_due_times(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    parts = [batch_of(range(4)), batch_of(range(4, 6))]
    blocks, arrow = prepare("blocks"), prepare("arrow")
    for job, shape, name in ((blocks, list, "3-11.qsb"), (arrow, None, "3-11.arrow")):
        rows = parts if shape else [with_due(part) for part in parts]
        staged = sink.stage(job, rows, partition=3, attempt=11)
        assert (staged.name, staged.rows) == (name, 6)
        assert sink.commit(job, [staged]).rows == 6
    assert disk.numbers() == [*range(6), *range(6)]


def test_a_stream_gets_the_files_of_tasks_as_they_are(
    disk: Any, prepare: Callable[..., sink.Job], batch_of: Batches
) -> None:
    with pyqstore.open(disk.path) as store:
        store.stream("log")
    job = prepare(exchange="", routing_key="log")
    rows = batch_of(range(20)).select(["body"])
    staged = [
        sink.stage(job, [rows.slice(10 * part, 10)], partition=part, attempt=1) for part in (1, 0)
    ]
    inodes = {(job.folder.path / file.name).stat().st_ino for file in staged}
    assert sink.commit(job, staged).routed == 20
    assert inodes == {file.stat().st_ino for file in (disk.path / "streams").iterdir()}
    with pyqstore.open(disk.path, read_only=True) as store:
        found = store.stream("log").read(columns=["body"]).read_all()["body"].to_pylist()
    assert [int(body) for body in found] == list(range(20))
    assert disk.staged == []
