"""``spark.read.format("pyqstore")``: rows once whatever fails, refused before a task runs."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, InputPartition, LessThanOrEqual
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import pyqstore
from spark_udfs import QStoreDataSource, end_drain
from spark_udfs.reader import QStoreFilteringReader, QStoreReader

pytestmark = pytest.mark.spark
ROWS = 6000
Read = Callable[..., Any]


@pytest.fixture
def read(spark: Any, disk: Any) -> Read:
    """read(schema=None, **options): a frame of the store."""

    def make(schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("pyqstore").options(**{"path": str(disk.path), **options})
        return (reader.schema(schema) if schema else reader).load()

    return make


def numbers(frame: Any) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_browsing_a_queue_shows_its_messages_and_leaves_them(
    spark: Any, disk: Any, read: Read
) -> None:
    now = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    properties = pyqstore.Properties(
        headers={"k": "v"}, message_id="m", priority=4, timestamp=now, delivery_mode=2
    )
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.basic_publish("events", "n.1", b"body", properties)
    for _ in range(2):
        (row,) = read(queue="all").collect()
        assert (row.offset, row.exchange, row.routing_key) == (0, "events", "n.1")
        assert (row.body, row.headers, row.message_id) == (b"body", {"k": "v"}, "m")
        assert (row.priority, row.delivery_mode, row.delivery_count) == (4, 2, 0)
        assert (row.redelivered, row.unacked, row.delayed) == (False, False, False)
        assert row.timestamp.timestamp() == now.timestamp()
    assert disk.ready() == 1
    disk.write(read(queue="all"))  # a frame of messages is one to publish
    assert disk.ready() == 2


def test_a_stream_is_read_in_parts_with_the_columns_that_are_asked_for(
    disk: Any, read: Read
) -> None:
    disk.publish(range(ROWS), to="log")
    frame = read("body binary, offset bigint", stream="log", minPartitions="4")
    assert frame.columns == ["body", "offset"]
    assert frame.rdd.getNumPartitions() == 4
    assert [(int(row.body), row.offset) for row in frame.collect()] == [
        (number, number) for number in range(ROWS)
    ]
    assert numbers(read(stream="log", startingOffset="100", endingOffset="200")) == list(
        range(100, 200)
    )
    assert read(stream="log", startingOffset="next").collect() == []
    assert read(stream="log").take(1)[0].body == b"0"
    assert [row.redelivered for row in read("redelivered boolean", stream="log").take(3)] == [
        False
    ] * 3
    pyqstore.open(disk.path).close()  # nobody reads any more


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "al"}, "no queue 'al' in the store .* there are 'all', 'odd'"),
        ({"stream": "all"}, "'all' is a queue: give it as option 'queue'"),
        ({"queue": "all", "path": "/nowhere/typo.qs"}, "'/nowhere/typo.qs': .*no such directory"),
        ({"queue": "all", "schema": "offset int"}, "'offset' is int, expected bigint"),
        ({"queue": "all", "schema": "bdy binary"}, "'bdy' is not known .did you mean 'body'"),
    ],
    ids=["queue", "kind", "path", "type", "column"],
)
def test_a_read_is_refused_before_a_task_runs(
    spark: Any, read: Read, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words) as refused:
        read(**options).collect()
    assert "PythonException" not in str(refused.value)  # that of a task


def test_sql_reads_through_a_view_and_tells_so_who_makes_a_table(
    spark: Any, tmp_path: Path
) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        store.stream("s").publish("1")
    options = f"(path '{tmp_path / 'store'}', stream 's')"
    spark.sql(f"create or replace temporary view seen using pyqstore options {options}")
    assert spark.sql("select count(*) from seen").collect()[0][0] == 1
    spark.catalog.dropTempView("seen")

    def keep() -> None:
        spark.sql(f"create table kept using pyqstore options {options}")
        spark.sql("select * from kept").collect()

    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            keep()
    finally:
        spark.sql("drop table if exists kept")


def test_a_read_of_a_store_in_use_names_its_owner_before_a_task_runs(disk: Any, read: Read) -> None:
    disk.publish(range(10))
    frame = read(queue="all", lock_timeout="0.3")
    opened = pyqstore.open(disk.path, control=False)
    with opened, pytest.raises(Exception, match=f"process {os.getpid()}"):
        frame.collect()
    assert numbers(frame) == list(range(10))


@pytest.mark.parametrize("source", ["stream", "drain"])
def test_tasks_that_are_killed_read_each_row_once(
    spark: Any, disk: Any, read: Read, mapped: Read, failing: Read, source: str
) -> None:
    options = {"stream": "log", "minPartitions": "3"}
    if source == "drain":
        options = {"queue": "all", "drain": "true", "txnid": "t"}
    disk.publish(range(ROWS), to="log" if source == "stream" else "queues")
    frame = read("body binary", **options).repartition(2)
    assert numbers(mapped(frame, failing("kill", attempts=2))) == list(range(ROWS))


def test_readers_that_are_killed_read_each_row_once(spark: Any, disk: Any, tmp_path: Path) -> None:
    disk.publish(range(ROWS), to="log")
    died = tmp_path / "died"

    class Dying(QStoreReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in super().read(partition):
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch.slice(half)

    class Source(QStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "pyqstore-dying"

        def reader(self, schema: StructType) -> Any:
            reader = super().reader(schema)
            return Dying(reader.options, schema)  # type: ignore[attr-defined]

    spark.dataSource.register(Source)
    options = {"path": str(disk.path), "stream": "log", "minPartitions": "3"}
    frame = spark.read.format("pyqstore-dying").options(**options).load()
    assert numbers(frame) == list(range(ROWS))
    assert died.exists()
    pyqstore.open(disk.path).close()


def test_draining_consumes_once_and_a_repeated_job_reads_the_same(
    spark: Any, disk: Any, read: Read
) -> None:
    disk.publish(range(ROWS))
    frame = read(queue="all", drain="true", txnid="monday")
    assert numbers(frame) == list(range(ROWS))
    assert disk.ready() == 0
    disk.publish(range(ROWS, ROWS + 10))
    assert numbers(read(queue="all", drain="true", txnid="monday")) == list(range(ROWS))
    assert numbers(read(queue="all", drain="true", txnid="tuesday")) == list(range(ROWS, ROWS + 10))
    assert disk.ready("odd") == (ROWS + 10) // 2
    end_drain(disk.path, "all", "monday")
    end_drain(disk.path, "all", "tuesday")
    assert disk.staged == []
    with pytest.raises(Exception, match="it was ended"):
        read(queue="all", drain="true", txnid="monday").collect()


def filtering(disk: Any, **options: str) -> QStoreFilteringReader:
    source = QStoreDataSource({"path": str(disk.path), "pushdown": "true", **options})
    reader = source.reader(
        StructType([StructField("offset", LongType()), StructField("body", BinaryType())])
    )
    assert isinstance(reader, QStoreFilteringReader)
    return reader


def rows(reader: QStoreReader) -> list[int]:
    return [
        offset
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for offset in batch["offset"].to_pylist()
    ]


def test_filters_narrow_what_is_read(disk: Any) -> None:
    disk.publish(range(100))
    disk.publish(range(100), to="log")
    long_ago, later = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2000, 2200))
    between: list[Filter] = [
        GreaterThan(("offset",), 9),
        LessThanOrEqual(("offset",), 19),
        In(("routing_key",), ("n.0", "n.7")),
    ]
    for options in ({"stream": "log"}, {"queue": "all"}):
        reader = filtering(disk, **options)
        assert list(reader.pushFilters(between)) == []
        assert rows(reader) == [10, 12, 14, 16, 18]
        reader = filtering(disk, **options)
        assert list(reader.pushFilters([EqualTo(("offset",), 7)])) == []
        assert rows(reader) == [7]
        reader = filtering(disk, **options)
        left: list[Filter] = [EqualTo(("routing_key",), "n.#"), EqualTo(("body",), b"1")]
        assert list(reader.pushFilters(left)) == left
        assert len(rows(reader)) == 100
    for times, expected in (
        ([GreaterThan(("timestamp",), long_ago)], 100),
        ([GreaterThan(("timestamp",), later)], 0),
        ([LessThanOrEqual(("timestamp",), long_ago.replace(tzinfo=None))], 0),
    ):
        reader = filtering(disk, stream="log")
        assert list(reader.pushFilters(times)) == times
        assert len(rows(reader)) == expected
        reader = filtering(disk, queue="all")  # whose messages have no time
        assert list(reader.pushFilters(times)) == times
        assert rows(reader) == []


def test_filters_of_a_query_give_the_same_rows_with_and_without_pushdown(
    spark: Any, disk: Any, read: Read
) -> None:
    disk.publish(range(1000), to="log")
    setting = "spark.sql.python.filterPushdown.enabled"
    where = (
        "offset >= 10 AND offset < 500 AND routing_key = 'n.1' "
        "AND timestamp > '2020-01-01 00:00:00' AND length(body) = 2"
    )
    frames = [read(stream="log", pushdown=word).where(where) for word in ("true", "false")]
    expected = list(range(11, 100, 2))
    assert numbers(frames[1]) == expected
    with pytest.raises(Exception, match="filterPushdown"):
        frames[0].collect()
    spark.conf.set(setting, "true")
    try:
        assert numbers(read(stream="log", pushdown="true").where(where)) == expected
    finally:
        spark.conf.unset(setting)
