"""Reading by path a store that another process has open: it is asked, and goes on meanwhile."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import pyqstore
from pyqstore.control.operations import OPERATIONS
from pyqstore.flight import asked as asked_module
from pyqstore.flight.asked import Owner
from spark_udfs import QStoreDataSource, claims, end_drain, reading, release_claims, spool
from spark_udfs.claims import QueueBatch
from spark_udfs.lease import take as take_lease
from spark_udfs.opening import StoreBusyError, asking, open_store
from spark_udfs.options import ReadOptions
from spark_udfs.reading import SourceError
from spark_udfs.spool import drain_spool

ROWS = 3000
SCHEMA = pa.schema([("offset", pa.int64())])
BODIES = pa.schema([("body", pa.binary())])
OFFSET = StructType([StructField("offset", LongType())])

# Has the store until its standard input ends, and publishes what it reads there, a line each.
SERVICE = """
import sys, pyqstore
with pyqstore.open(sys.argv[1], control=sys.argv[2] == "listens") as store:
    print("ready", flush=True)
    for line in sys.stdin:
        store.queue("all").put(line.strip().encode())
        store.stream("log").publish(line.strip().encode())
        print("published", flush=True)
"""


class Service:
    """A process that has the store open."""

    def __init__(self, path: Path, listens: str = "listens") -> None:
        command = [sys.executable, "-c", SERVICE, str(path), listens]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._hear("ready")

    def _hear(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def publish(self, body: str) -> None:
        """To the queue and to the stream."""
        assert self.process.stdin is not None
        print(body, file=self.process.stdin, flush=True)
        self._hear("published")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@contextmanager
def owner(disk: Any, listens: str = "listens") -> Iterator[Service]:
    service = Service(disk.path, listens)
    try:
        yield service
        if service.process.poll() is None:
            service.end()
    finally:
        service.process.kill()
        service.process.wait()
        for end in (service.process.stdin, service.process.stdout):
            assert end is not None
            end.close()


@pytest.fixture
def options(disk: Any) -> Callable[..., ReadOptions]:
    def make(*, streaming: bool = False, **given: str) -> ReadOptions:
        lowered = {name.lower(): value for name, value in given.items()}
        return ReadOptions.parse({"path": str(disk.path), **lowered}, streaming=streaming)

    return make


Readers = Callable[..., Any]


@pytest.fixture
def reader(disk: Any) -> Readers:
    """reader(**options): what a query has, in this process."""

    def make(**given: str) -> Any:
        source = QStoreDataSource({"path": str(disk.path), **given})
        return source.streamReader(OFFSET)

    return make


def rows(reader: Any, start: Any, end: Any) -> list[int]:
    return [
        offset
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for offset in batch["offset"].to_pylist()
    ]


def offsets(options: ReadOptions, parts: list[reading.Part]) -> list[int]:
    read = reading.read_stream if options.stream else reading.read_queue
    return [
        number
        for part in parts
        for batch in read(options, part, SCHEMA)
        for number in batch["offset"].to_pylist()
    ]


def test_a_stream_is_read_in_parts_while_its_owner_publishes(disk: Any, options: Any) -> None:
    disk.publish(range(ROWS), to="log")
    asked = options(stream="log", minPartitions="3")
    with owner(disk) as service:
        parts = reading.stream_parts(asked)
        service.publish("another")
        assert len(parts) == 3
        assert offsets(asked, parts) == list(range(ROWS))
        assert offsets(asked, reading.stream_parts(asked)) == list(range(ROWS + 1))


def test_a_queue_is_browsed_at_its_owner_and_nothing_is_delivered(disk: Any, options: Any) -> None:
    disk.publish(range(ROWS))
    asked = options(queue="all")
    with owner(disk) as service:
        assert offsets(asked, reading.queue_parts(asked)) == list(range(ROWS))
        service.publish("another")
        assert offsets(asked, reading.queue_parts(asked)) == list(range(ROWS + 1))
        with asking(str(disk.path), wait_s=0) as store:
            status = store.queue_status("all")
    assert (status.messages_ready, status.messages_unacked) == (ROWS + 1, 0)


def test_what_is_planned_with_an_owner_is_read_without_and_the_other_way(
    disk: Any, options: Any
) -> None:
    disk.publish(range(ROWS), to="log")
    asked = options(stream="log", minPartitions="2")
    with owner(disk):
        first = reading.stream_parts(asked)
    assert offsets(asked, first) == list(range(ROWS))
    second = reading.stream_parts(asked)
    with owner(disk):
        assert offsets(asked, second) == list(range(ROWS))


def test_a_task_whose_owner_ends_fails_and_reads_all_when_it_is_tried_again(
    disk: Any, options: Any
) -> None:
    with pyqstore.open(disk.path) as store:
        big = [b"%07d" % number * 1000 for number in range(20_000)]
        store.stream("log").publish_batch(pa.record_batch({"body": pa.array(big)}))
    asked = options(stream="log")
    with owner(disk) as service:
        (whole, *_) = reading.stream_parts(options(stream="log"))
        batches = reading.read_stream(asked, whole, SCHEMA)
        next(batches)
        service.process.kill()
        service.process.wait()
        with pytest.raises(pyqstore.StoreClosed, match="had the store open, has closed it or ende"):
            list(batches)
    assert offsets(asked, [whole]) == list(range(whole.start, whole.stop or 0))


def test_an_owner_that_does_not_listen_keeps_readers_out(disk: Any, options: Any) -> None:
    asked = options(queue="all", lock_timeout="0.2")
    with (
        owner(disk, "listens not"),
        pytest.raises(StoreBusyError, match=r"(?s)0\.2 s: process \d+ .* has it open"),
    ):
        reading.queue_parts(asked)


def test_an_owner_of_another_version_keeps_readers_out(
    disk: Any, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(OPERATIONS, "ask")
    with pyqstore.open(disk.path), pytest.raises(StoreBusyError, match="has it open"):
        reading.queue_parts(options(queue="all", lock_timeout="0.2"))


def test_an_owner_answers_what_it_knows_and_says_what_it_does_not(disk: Any) -> None:
    with owner(disk), asking(str(disk.path), wait_s=0) as store:
        with pytest.raises(ValueError, match="no such verb: 'purge'; there are hello, queues"):
            store.call("purge", queue="all")
        with pytest.raises(ValueError, match="no such ticket: 'take'; there are read, browse"):
            store.get(b'{"do": "take"}')
        with pytest.raises(pyqstore.NotFound, match="queue 'lg'"):
            store.stream("lg").read()
        assert store.queue_status("all").messages_ready == 0
    with pytest.raises(pyqstore.ConnectionLost, match="no process that listens"):
        store.queues()


def test_a_reader_waits_while_its_owner_has_all_that_it_takes_and_tools_come_in(
    disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pyqstore.open(disk.path) as store:
        rows = pa.array([bytes(10_000)] * 500)
        store.stream("log").publish_batch(pa.record_batch({"body": rows}))
    with owner(disk), asking(str(disk.path), wait_s=0) as store:
        idle = [store.stream("log").read() for _ in range(24)]  # each has what its socket holds
        with monkeypatch.context() as patch:
            patch.setattr(asked_module, "_BUSY_S", 0.0)
            with pytest.raises(pyqstore.ConnectionLost, match="as many readers as it takes"):
                store.stream("log").read()
        assert store.queue_status("log").messages_ready == 500
        naps = []

        def nap(seconds: float) -> None:
            naps.append(seconds)
            idle.clear()

        monkeypatch.setattr(asked_module.time, "sleep", nap)
        assert store.stream("log").read().read_all().num_rows == 500
        assert naps


def test_what_is_not_there_is_named_by_its_owner_as_well(disk: Any, options: Any) -> None:
    disk.publish(range(1), to="log")
    with owner(disk):
        with pytest.raises(SourceError, match=r"no queue 'al' in the store .*; there are '"):
            reading.queue_parts(options(queue="al"))
        with pytest.raises(SourceError, match="'all' is a queue: give it as option 'queue'"):
            reading.stream_parts(options(stream="all"))
        with pytest.raises(SourceError, match="the offsets 0 to 0, and 5 to 8 are to be read"):
            offsets(options(stream="log"), [reading.Part(5, 9)])


def test_a_query_goes_on_with_an_owner_and_without(disk: Any, reader: Readers) -> None:
    disk.publish(range(10), to="log")
    asked = reader(stream="log", group="g")
    start = asked.initialOffset()
    with owner(disk) as service:
        first = asked.latestOffset(start, ReadMaxRows(4))
        assert rows(asked, start, first) == [0, 1, 2, 3]
        second = asked.latestOffset(first, ReadAllAvailable())
        assert rows(asked, first, second) == list(range(4, 10))
        assert asked.latestOffset(second, ReadAllAvailable()) == second
        service.publish("another")
        third = asked.latestOffset(second, ReadAllAvailable())
        assert rows(asked, second, third) == [10]
    asked.commit(third)
    assert reader(stream="log", group="g").initialOffset() == third
    with owner(disk):
        assert reader(stream="log", group="g").initialOffset() == third


def test_a_query_takes_its_lease_at_the_owner(disk: Any, reader: Readers) -> None:
    disk.publish(range(10), to="log")
    asked = reader(stream="log", lease="600")
    start = asked.initialOffset()
    with owner(disk):
        asked.latestOffset(start, ReadAllAvailable())
        with asking(str(disk.path), wait_s=0) as store:
            (name,) = [each for each in store.queues() if each.startswith("spark-lease-")]
            take_lease(store, "log", 0, 600)
            store.queue_delete(name)
            assert name not in store.queues()


def test_a_job_takes_its_lease_at_the_owner(disk: Any, options: Any) -> None:
    disk.publish(range(10), to="log")
    asked = options(stream="log", lease="600")
    with owner(disk):
        assert offsets(asked, reading.stream_parts(asked)) == list(range(10))
    with pyqstore.open(disk.path, read_only=True) as store:
        assert [each.startswith("spark-lease-") for each in store.queues()].count(True) == 1


def test_a_batch_of_a_queue_is_the_same_with_an_owner_and_without(
    disk: Any, reader: Readers
) -> None:
    disk.publish(range(100))
    asked = reader(queue="all")
    start = asked.initialOffset()
    with owner(disk) as service:
        first = asked.latestOffset(start, ReadMaxRows(60))
        seen = rows(asked, start, first)
        service.publish("another")
        assert rows(reader(queue="all"), start, first) == seen
    assert rows(reader(queue="all"), start, first) == seen
    second = asked.latestOffset(first, ReadAllAvailable())
    again = rows(asked, first, second)
    with owner(disk):
        assert rows(reader(queue="all"), first, second) == again
        asked.commit(second)
        with asking(str(disk.path), wait_s=0) as store:
            left = [each for each in store.queues() if each.startswith("spark-claim-")]
            assert store.queue_status("all").messages_ready == 0
    assert (len(seen), len(again), left) == (60, 41, [])


def test_claims_are_given_back_at_the_owner(disk: Any, options: Any) -> None:
    disk.publish(range(100))
    asked = options(streaming=True, queue="all")
    batch = QueueBatch(str(disk.path), "q", 1)
    with owner(disk):
        assert claims.take(asked, batch, rows_max=None).rows == 100
        assert release_claims(disk.path, "all") == 100
        with pytest.raises(SourceError, match="it was released"):
            claims.take(asked, batch, rows_max=None)
        with asking(str(disk.path), wait_s=0) as store:
            assert store.queue_status("all").messages_ready == 100


def test_what_is_taken_for_good_is_claimed_at_the_owner_and_told_again_without(
    disk: Any, reader: Readers
) -> None:
    disk.publish(range(100))
    asked = reader(queue="all", ack="take")
    start = asked.initialOffset()
    with owner(disk):
        first = asked.latestOffset(start, ReadMaxRows(60))
        seen = rows(asked, start, first)
    assert rows(reader(queue="all", ack="take"), start, first) == seen
    second = asked.latestOffset(first, ReadAllAvailable())
    assert rows(asked, first, second) == list(range(40))  # in files
    with owner(disk):
        assert rows(reader(queue="all", ack="take"), first, second) == list(range(40))
        asked.commit(second)
        with asking(str(disk.path), wait_s=0) as store:
            assert [each for each in store.queues() if each.startswith("spark-claim-")] == []
    assert len(seen) == 60


@pytest.mark.parametrize("begins", ["with", "without"])
def test_a_drain_is_the_same_with_an_owner_and_without(disk: Any, begins: str) -> None:
    disk.publish(range(100))
    source = QStoreDataSource(
        {"path": str(disk.path), "queue": "all", "drain": "true", "txnid": "t"}
    )

    def drained() -> list[int]:
        job = source.reader(OFFSET)
        return [
            offset
            for partition in job.partitions()
            for batch in job.read(partition)
            for offset in batch["offset"].to_pylist()
        ]

    def once(where: str) -> list[int]:
        if where == "without":
            return drained()
        with owner(disk):
            return drained()

    other = {"with": "without", "without": "with"}[begins]
    first = once(begins)
    disk.publish(range(10))
    assert first == list(range(100)) == once(other) == once(begins)
    with owner(disk):
        assert end_drain(disk.path, "all", "t")
        assert not end_drain(disk.path, "all", "t")
        with pytest.raises(SourceError, match="was ended"):
            drained()
    with pytest.raises(SourceError, match="was ended"):
        drained()


def test_the_end_of_a_drain_ends_it_whatever_an_attempt_left(disk: Any) -> None:
    """One that was killed with its files whole, and before its commit."""
    disk.publish(range(10))
    left = drain_spool(str(disk.path), "all", "t")
    left.folder.create()
    spool._write_manifest(left, [])
    given = {"path": str(disk.path), "queue": "all", "drain": "true", "txnid": "t"}
    source = QStoreDataSource(given)
    with owner(disk):
        assert len(source.reader(OFFSET).partitions()) == 1
    assert end_drain(disk.path, "all", "t")
    assert not end_drain(disk.path, "all", "t")
    with pytest.raises(SourceError, match="was ended"):
        source.reader(OFFSET).partitions()


def test_a_query_waits_while_services_come_and_go(disk: Any, reader: Readers) -> None:
    disk.publish(range(10), to="log")
    asked = reader(stream="log", group="g")
    start = asked.initialOffset()
    over = threading.Event()

    def come_and_go() -> None:
        try:
            for _ in range(20):
                with open_store(str(disk.path), wait_s=60):
                    time.sleep(0.002)
        finally:
            over.set()

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        while not over.is_set():
            end = asked.latestOffset(start, ReadMaxRows(4))
            assert (end["offset"], len(asked.partitions(start, end))) == (4, 1)
    finally:
        coming.join()


def test_a_step_that_lost_its_owner_is_done_again_for_some_time(
    disk: Any, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = reader(stream="log", lock_timeout="0.3")
    disk.publish(range(10), to="log")
    start = asked.initialOffset()
    calls = []

    def goes(owner: Owner, do: str, /, **_: Any) -> Any:
        calls.append(do)
        if do == "hello":
            return {}
        raise pyqstore.StoreClosed("it went")

    with owner(disk):
        monkeypatch.setattr(Owner, "call", goes)
        with pytest.raises(pyqstore.StoreClosed, match="it went"):
            asked.latestOffset(start, ReadAllAvailable())
    assert calls.count("hello") > 2
    assert asked.latestOffset(start, ReadAllAvailable())["offset"] == 10


def test_an_owner_with_many_descriptors_answers(disk: Any) -> None:
    disk.publish(range(10), to="log")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("the system lets nobody have so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with ExitStack() as many, pyqstore.open(disk.path):
            for _ in range(1100):
                many.enter_context(open(os.devnull))
            with asking(str(disk.path), wait_s=0) as store:
                assert store.stream("log").read().read_all().num_rows == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_spark_reads_what_the_drivers_process_has_open(spark: Any, disk: Any) -> None:
    disk.publish(range(ROWS), to="log")
    disk.publish(range(ROWS))
    read = spark.read.format("pyqstore").option("path", str(disk.path))
    with pyqstore.open(disk.path) as store:
        log = read.option("stream", "log").option("minPartitions", "4").load()
        assert sorted(int(row.body) for row in log.collect()) == list(range(ROWS))
        queue = spark.read.format("pyqstore").option("path", str(disk.path)).option("queue", "all")
        assert queue.load().count() == ROWS
        store.queue("all").put(b"more")
        assert queue.load().count() == ROWS + 1
