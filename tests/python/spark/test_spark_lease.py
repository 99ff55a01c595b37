"""The option ``lease``: a stream keeps what a job or a query has not read yet.

The stream drops all but its last segment at each checkpoint, which an owner makes between the
planning of a read and its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import pyqstore
import pyqstore.flight
from spark_udfs import lease
from spark_udfs.options import OptionError, ReadOptions
from spark_udfs.reader import QStoreReader, RowsPartition
from spark_udfs.reading import SourceError
from spark_udfs.remote import read_options
from spark_udfs.remote_reader import RemoteReader
from spark_udfs.remote_stream_reader import RemoteStreamReader
from spark_udfs.stream_reader import QStoreStreamReader

pytestmark = pytest.mark.spark
SCHEMA = StructType([StructField("offset", LongType())])
ROWS = 20


@contextmanager
def owned(path: Path) -> Iterator[tuple[pyqstore.Store, str]]:
    """The store, open here, and where its server is."""
    with pyqstore.open(path) as store, pyqstore.flight.serve(store) as server:
        yield store, f"grpc://{server.address}"


def publish(store: pyqstore.Store, rows: int = ROWS) -> None:
    """A segment for every few rows."""
    stream = store.stream("s", max_messages=1, segment_bytes=20_000)
    for _ in range(rows // 10):
        stream.publish_batch(pa.table({"body": [bytes(5000)] * 10}))
        store.checkpoint()


def pinned(store: pyqstore.Store) -> list[str]:
    return [name for name in store.queues() if name.startswith("spark-lease-")]


def offsets(reader: Any, parts: Any) -> list[int]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def fill(path: Path) -> list[int]:
    """The offsets that are there."""
    with pyqstore.open(path) as store:
        publish(store)
        stream = store.stream("s")
        return [*range(stream.first, stream.next)]


def drop(path: Path) -> None:
    with pyqstore.open(path) as store:
        publish(store)


@pytest.mark.parametrize("seconds", ["0", "600"])
def test_a_job_by_path_reads_what_was_there_when_it_was_planned(
    tmp_path: Path, seconds: str
) -> None:
    path = tmp_path / "store"
    there = fill(path)
    options = ReadOptions.parse(
        {"path": str(path), "stream": "s", "lease": seconds}, streaming=False
    )
    reader = QStoreReader(options, SCHEMA)
    parts = reader.partitions()
    drop(path)
    if options.lease:
        assert offsets(reader, parts) == there
        assert offsets(reader, [RowsPartition(parts[0].part)]) == there  # again
    else:
        with pytest.raises(SourceError, match="were dropped"):
            offsets(reader, parts)


@pytest.mark.parametrize("seconds", ["0", "600"])
def test_a_job_through_a_server_reads_what_was_there_when_it_was_planned(
    tmp_path: Path, seconds: str
) -> None:
    there = fill(tmp_path / "store")
    with owned(tmp_path / "store") as (store, url):
        given = {"url": url, "stream": "s", "lease": seconds}
        options, remote = read_options(given, streaming=False)
        assert remote is not None
        reader = RemoteReader(options, SCHEMA, remote)
        parts = reader.partitions()
        publish(store)
        if options.lease:
            assert offsets(reader, parts) == there
        else:
            with pytest.raises(SourceError, match="were dropped"):
                offsets(reader, parts)


def test_a_lease_goes_by_itself_and_the_stream_drops_what_it_kept(tmp_path: Path) -> None:
    there = fill(tmp_path / "store")
    with pyqstore.open(tmp_path / "store") as store:
        with store.channel() as channel:
            name = lease.take(channel, "s", there[0], 0.001)
        while store.queues() == ["s", name]:
            pass
        assert store.queues() == ["s"]
        publish(store)
        assert store.stream("s").first > there[0]


def test_a_lease_outlives_the_process_that_took_it(tmp_path: Path) -> None:
    there = fill(tmp_path / "store")
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        lease.take(channel, "s", there[0], 600)
    drop(tmp_path / "store")
    with pyqstore.open(tmp_path / "store") as store:
        assert store.stream("s").first == there[0]
        assert len(pinned(store)) == 1


def test_tasks_renew_a_lease_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Asked:
        def queue_declare(self, name: str, **how: Any) -> None:
            asked.append((now, name, how["passive"]))
            if now > 100:
                raise pyqstore.NotFound(404, "NOT_FOUND - it is over")

    now = 0
    monkeypatch.setattr(lease.time, "monotonic", lambda: now)
    renewal = lease.Renewal(Asked(), "l", 30)
    for now in (0, 5, 9, 10, 15, 21, 200, 201):  # noqa: B007 the clock reads it
        renewal.keep()
    assert asked == [(0, "l", True), (10, "l", True), (21, "l", True), (200, "l", True)]
    lease.Renewal(Asked(), "", 0).keep()
    assert len(asked) == 4


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What leases go by here; the store has its own."""
    one = Clock()
    monkeypatch.setattr(lease.time, "monotonic", lambda: one.now)
    return one


def test_a_query_by_path_keeps_what_it_has_not_read(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store"
    there = fill(path)
    given = {"path": str(path), "stream": "s", "lease": "600"}
    reader = QStoreStreamReader(ReadOptions.parse(given, streaming=True), SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    drop(path)
    assert offsets(reader, reader.partitions(start, end)) == there[:5]
    clock.now = 300.0
    rest = reader.latestOffset(end, ReadAllAvailable())
    drop(path)
    with pyqstore.open(path, read_only=True) as store:
        assert pinned(store) == [reader._lease.name]
        assert store.stream("s").first <= end["offset"]
    found = offsets(reader, reader.partitions(end, rest))
    assert found == [*range(end["offset"], rest["offset"])]


def test_a_query_through_a_server_keeps_what_it_has_not_read(tmp_path: Path, clock: Clock) -> None:
    there = fill(tmp_path / "store")
    with owned(tmp_path / "store") as (store, url):
        options, remote = read_options({"url": url, "stream": "s", "lease": "600"}, streaming=True)
        assert remote is not None
        reader = RemoteStreamReader(options, SCHEMA, remote)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(5))
        first = pinned(store)
        publish(store)
        assert offsets(reader, reader.partitions(start, end)) == there[:5]
        assert pinned(store) == first
        clock.now = 300.0
        reader.latestOffset(end, ReadAllAvailable())
        (second,) = pinned(store)
        assert [second] != first
        publish(store)
        assert store.stream("s").first <= end["offsets"][0]
        reader.stop()


@pytest.mark.parametrize("seconds", ["0.5", "2592001", "soon", "-1"])
def test_a_lease_of_no_sensible_length_is_refused(tmp_path: Path, seconds: str) -> None:
    given = {"path": str(tmp_path), "stream": "s", "lease": seconds}
    with pytest.raises(OptionError, match="option 'lease' is"):
        ReadOptions.parse(given, streaming=False)
    with pytest.raises(OptionError, match="option 'lease' is for streams"):
        ReadOptions.parse({"path": str(tmp_path), "queue": "q", "lease": "60"}, streaming=False)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", ["0", "600"])
def test_a_query_gets_all_rows_while_the_stream_drops_what_is_behind_it(
    spark: Any, tmp_path: Path, seconds: str
) -> None:
    there = fill(tmp_path / "store")
    found: list[int] = []
    with owned(tmp_path / "store") as (store, url):

        def keep(batch: Any, _: int) -> None:
            found.extend(row.offset for row in batch.select("offset").collect())
            publish(store)

        query = (
            spark.readStream.format("pyqstore")
            .options(url=url, stream="s", lease=seconds, maxRowsPerBatch="4")
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if seconds == "0":
            with pytest.raises(PySparkException, match="were dropped"):
                query.awaitTermination()
        else:
            query.awaitTermination()
            assert found == there
            assert len(pinned(store)) == 1
