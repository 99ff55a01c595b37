"""``spark.readStream.format("pyqstore")``: each row in one batch, whatever is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

import pyqstore
from spark_udfs import QStoreDataSource
from spark_udfs.reading import SourceError

from .killing import killing

ROWS = 3000
Run = Callable[..., list[int]]


@pytest.fixture
def run(spark: Any, disk: Any, tmp_path: Path) -> Run:
    """run(checkpoint="c", frame=None, **options): read all there is now; the numbers read so far
    under the checkpoint, and in ``run.batches`` the rows of each batch."""

    def make(
        checkpoint: str = "c", frame: Callable[[Any], Any] | None = None, **options: str
    ) -> list[int]:
        reader = spark.readStream.format("pyqstore").options(path=str(disk.path), **options)
        rows = reader.load().select("body")
        output = tmp_path / f"{checkpoint}.out"
        query = (
            (frame(rows) if frame else rows)
            .writeStream.format("parquet")
            .option("path", str(output))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            make.batches = [p.numInputRows for p in query.recentProgress if p.numInputRows]
        finally:
            query.stop()
        return sorted(int(row.body) for row in spark.read.parquet(str(output)).collect())

    return make


Readers = Callable[..., Any]


@pytest.fixture
def reader(disk: Any) -> Readers:
    """reader(**options): what a query has, in this process."""

    def make(**options: str) -> Any:
        source = QStoreDataSource({"path": str(disk.path), **options})
        return source.streamReader(StructType([StructField("offset", LongType())]))

    return make


def rows(reader: Any, start: Any, end: Any) -> list[int]:
    return [
        offset
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for offset in batch["offset"].to_pylist()
    ]


def queues(disk: Any) -> list[str]:
    with pyqstore.open(disk.path, read_only=True) as store:
        return sorted(store.queues())


def test_a_streams_offsets_are_its_own(disk: Any, reader: Readers) -> None:
    disk.publish(range(100), to="log")
    asked = reader(stream="log", startingOffset="40", maxRowsPerBatch="50", minPartitions="3")
    start = asked.initialOffset()
    end = asked.latestOffset(start, asked.getDefaultReadLimit())
    with pyqstore.open(disk.path, read_only=True) as store:
        id_ = store.stream("log").status().id
    assert start == {"stream": "log", "offset": 40, "id": id_}
    assert end == {**start, "offset": 90}
    assert len(asked.partitions(start, end)) == 3
    assert rows(asked, start, end) == list(range(40, 90))
    assert asked.latestOffset(end, ReadAllAvailable())["offset"] == 100
    assert asked.reportLatestOffset()["offset"] == 100
    asked.prepareForTriggerAvailableNow()
    disk.publish(range(100, 150), to="log")
    assert asked.latestOffset(end, ReadAllAvailable())["offset"] == 100
    assert reader(stream="log", startingOffset="next").initialOffset()["offset"] == 150
    assert rows(asked, end, end) == []


def test_a_streams_group_tells_how_far_a_query_is(disk: Any, reader: Readers) -> None:
    disk.publish(range(100), to="log")
    asked = reader(stream="log", startingOffset="40", group="g")
    assert asked.initialOffset()["offset"] == 40
    asked.commit({"stream": "log", "offset": 70})
    assert asked.initialOffset()["offset"] == 70
    assert reader(stream="log", group="other").initialOffset()["offset"] == 0
    with pyqstore.open(disk.path) as store, store.stream_consumer(["log"], group="g") as consumer:
        assert consumer.lag() == {"log": 30}


def test_a_checkpoint_of_another_source_is_refused(disk: Any, reader: Readers) -> None:
    disk.publish(range(10), to="log")
    log = reader(stream="log")
    end = log.latestOffset(log.initialOffset(), ReadAllAvailable())
    words = r"the checkpoint is that of a query that read .*'log'.* reads queue 'all'"
    with pytest.raises(SourceError, match=words):
        reader(queue="all").latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("count", [0, 20])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_checkpoint_of_a_stream_that_was_made_anew_is_refused(
    disk: Any, reader: Readers, count: int, is_old: bool
) -> None:
    """Also where the new one has its offsets; but for one of an earlier version."""
    disk.publish(range(10), to="log")
    log = reader(stream="log")
    start = log.initialOffset()
    end = log.latestOffset(start, ReadAllAvailable())
    assert log.latestOffset(end, ReadAllAvailable()) == end
    with pyqstore.open(disk.path) as store:
        store.stream("log").delete()
        store.stream("log")
    disk.publish(range(count), to="log")
    if is_old:
        del start["id"], end["id"]
    if is_old and count > 0:
        assert reader(stream="log").latestOffset(end, ReadAllAvailable())["offset"] == count
        return
    for options in ({}, {"group": "g"}):  # whose cursor cannot be moved there
        with pytest.raises(SourceError, match=r"was deleted and made anew"):
            reader(stream="log", **options).latestOffset(end, ReadAllAvailable())
    with pytest.raises(SourceError, match=r"was deleted and made anew"):
        reader(stream="log", group="g").commit(end)
    with pytest.raises(SourceError, match=r"was deleted and made anew"):
        reader(stream="log").partitions(start, end)
    assert reader(stream="log", group="g").initialOffset()["offset"] == 0


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_query_that_waits_leaves_the_store_alone(
    disk: Any, reader: Readers, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.publish(range(10), to="log")
    asked = reader(**{kind: {"stream": "log", "queue": "all"}[kind]})
    start = asked.initialOffset()
    end = asked.latestOffset(start, ReadAllAvailable())
    rows(asked, start, end)
    asked.latestOffset(end, ReadAllAvailable())  # the batch is done
    old = time.time() - 10
    for file in (disk.path / "journal").iterdir():
        os.utime(file, (old, old))
    assert asked.latestOffset(end, ReadAllAvailable()) == end

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the store was opened")

    with monkeypatch.context() as patch:
        patch.setattr("spark_udfs.reading.open_source", opened)
        assert [asked.latestOffset(end, ReadAllAvailable()) for _ in range(3)] == [end] * 3
    disk.publish(range(10), to="log" if kind == "stream" else "queues")
    assert asked.latestOffset(end, ReadAllAvailable()) != end


def test_a_delayed_message_is_read_when_it_is_due(disk: Any, reader: Readers) -> None:
    with pyqstore.open(disk.path) as store:
        store.queue("all").put(b"later", delay=0.8)
    asked = reader(queue="all")
    start = end = asked.initialOffset()
    deadline = time.monotonic() + 20
    while end == start and time.monotonic() < deadline:
        end = asked.latestOffset(start, ReadAllAvailable())
        time.sleep(0.05)
    assert rows(asked, start, end) == [0]


@pytest.mark.parametrize("ack", ["claim", "take"])
def test_a_queues_batch_is_consumed_when_its_rows_are_asked_for(
    disk: Any, reader: Readers, ack: str
) -> None:
    disk.publish(range(100))
    asked = reader(queue="all", maxRowsPerBatch="60", ack=ack)
    start = asked.initialOffset()
    assert asked.initialOffset()["query"] != start["query"]
    ends = [asked.latestOffset(start, asked.getDefaultReadLimit())]
    assert (ends[0]["batch"], ends[0]["rows"]) == (1, 60)
    assert disk.ready() == 100
    assert rows(asked, start, ends[0]) == list(range(60))
    assert disk.ready() == 40
    other = reader(queue="all")  # the query started again: its first batch is told by its end
    assert rows(other, other.initialOffset(), ends[0]) == list(range(60))
    ends.append(other.latestOffset(ends[0], ReadAllAvailable()))
    other.commit(ends[0])
    assert rows(other, ends[0], ends[1]) == list(range(40))
    assert other.latestOffset(ends[1], ReadAllAvailable()) == ends[1]
    assert disk.staged == []
    assert queues(disk) == ["all", "odd"]


def test_available_now_takes_all_there_is_when_a_batch_is_repeated_first(
    disk: Any, reader: Readers
) -> None:
    disk.publish(range(100))
    asked = reader(queue="all", maxRowsPerBatch="60")
    start = asked.initialOffset()
    ends = [asked.latestOffset(start, asked.getDefaultReadLimit())]
    rows(asked, start, ends[0])
    other = reader(queue="all", maxRowsPerBatch="60")
    other.prepareForTriggerAvailableNow()
    assert rows(other, start, ends[0]) == list(range(60))
    ends.append(other.latestOffset(ends[0], other.getDefaultReadLimit()))
    assert len(rows(other, *ends)) == 40


def test_available_now_takes_no_more_than_there_was(disk: Any, reader: Readers) -> None:
    disk.publish(range(100))
    asked = reader(queue="all", maxRowsPerBatch="60")
    asked.prepareForTriggerAvailableNow()
    disk.publish(range(100, 200))
    at, taken = asked.initialOffset(), []
    for _ in range(3):
        end = asked.latestOffset(at, asked.getDefaultReadLimit())
        taken.append(len(rows(asked, at, end)))
        at = end
    assert taken == [60, 40, 0]
    assert disk.ready() == 100


def test_a_batch_is_done_when_what_follows_it_is_asked_for(disk: Any, reader: Readers) -> None:
    disk.publish(range(10), to="log")
    log = reader(stream="log", group="g")
    end = log.latestOffset(log.initialOffset(), ReadAllAvailable())
    assert reader(stream="log", group="g").initialOffset()["offset"] == 0
    assert log.latestOffset(end, ReadAllAvailable()) == end
    assert reader(stream="log", group="g").initialOffset()["offset"] == 10


# ---- under Spark ----


def batches(run: Any) -> list[int]:
    return list(run.batches)


@pytest.mark.spark
def test_a_stream_is_read_in_batches_and_a_query_goes_on_where_it_was(disk: Any, run: Run) -> None:
    disk.publish(range(ROWS), to="log")
    options = {"stream": "log", "maxRowsPerBatch": "1300", "minPartitions": "2"}
    assert run(**options) == list(range(ROWS))
    assert batches(run) == [1300, 1300, 400]
    disk.publish(range(ROWS, ROWS + 100), to="log")
    assert run(**options) == list(range(ROWS + 100))
    assert batches(run) == [100]


@pytest.mark.spark
@pytest.mark.parametrize("ack", ["claim", "take"])
def test_a_queue_is_consumed_in_batches_and_the_last_one_is_not_left_unacked(
    disk: Any, run: Run, ack: str
) -> None:
    disk.publish(range(ROWS))
    options = {"queue": "all", "maxRowsPerBatch": "1300", "ack": ack}
    assert run(**options) == list(range(ROWS))
    assert batches(run) == [1300, 1300, 400]
    assert disk.ready() == 0
    assert disk.staged == []
    assert queues(disk) == ["all", "odd"]
    disk.publish(range(ROWS, ROWS + 100))
    assert run(**options) == list(range(ROWS + 100))
    assert batches(run) == [100]
    assert disk.ready("odd") == (ROWS + 100) // 2


@pytest.mark.spark
def test_a_query_takes_by_priority_and_leaves_what_expired_to_the_dead_letters(
    spark: Any, disk: Any, tmp_path: Path
) -> None:
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 3, **letters})
        for number in range(30):
            expires = "1" if number % 5 == 0 else None
            kept = pyqstore.Properties(delivery_mode=2, priority=number % 3, expiration=expires)
            channel.basic_publish("", "ranked", str(number).encode(), kept)
        while store.queue_status("dead").messages_ready < 6:
            time.sleep(0.01)

    def taken(queue: str) -> list[list[int]]:
        """The rows of each batch."""
        found: list[list[int]] = []
        reader = spark.readStream.format("pyqstore").options(path=str(disk.path), queue=queue)
        query = (
            reader.option("maxRowsPerBatch", "8")
            .load()
            .select("body")
            .writeStream.foreachBatch(
                lambda rows, _: found.append(sorted(int(row.body) for row in rows.collect()))
            )
            .option("checkpointLocation", str(tmp_path / queue))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch for batch in found if batch]

    left = [number for number in range(30) if number % 5]
    assert taken("ranked") == [[one for one in left if one % 3 == rank] for rank in (2, 1, 0)]
    assert taken("dead") == [[0, 5, 10, 15, 20, 25]]


@pytest.mark.spark
def test_a_query_reads_from_and_writes_to_one_store(spark: Any, disk: Any, tmp_path: Path) -> None:
    disk.publish(range(ROWS), to="log")
    query = (
        spark.readStream.format("pyqstore")
        .options(path=str(disk.path), stream="log", maxRowsPerBatch="2000")
        .load()
        .select("body", "routing_key")
        .writeStream.format("pyqstore")
        .options(path=str(disk.path), exchange="events")
        .option("checkpointLocation", str(tmp_path / "both"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert disk.numbers() == list(range(ROWS))
    assert disk.numbers("odd") == list(range(1, ROWS, 2))


@pytest.mark.spark
def test_a_query_that_cannot_read_fails(disk: Any, run: Run) -> None:
    with pytest.raises(Exception, match=r"no queue 'al' in the store .* there are 'all', 'odd'"):
        run(queue="al")


@pytest.fixture
def killer(disk: Any) -> Iterator[list[int]]:
    """Kills the process that consumes a batch."""
    with killing(disk.path, "python_streaming_source_runner") as killed:
        yield killed


@pytest.mark.spark
@pytest.mark.crash
def test_a_query_whose_source_is_killed_reads_each_message_once(
    disk: Any, run: Run, killer: list[int]
) -> None:
    disk.publish(range(ROWS))
    for _ in range(8):
        with suppress(Exception):
            found = run(queue="all", maxRowsPerBatch="1300")
            break
    else:
        pytest.fail("the query failed more often than it was killed")
    assert killer
    assert found == list(range(ROWS))
    assert disk.ready() == 0


@pytest.mark.spark
@pytest.mark.crash
def test_a_query_whose_tasks_are_killed_reads_each_message_once(
    disk: Any, run: Run, mapped: Callable[..., Any], failing: Callable[..., Any]
) -> None:
    disk.publish(range(2 * ROWS))
    killing = failing("kill", attempts=3)  # the whole batch fails, and is read again
    with pytest.raises(Exception, match=r"(?i)python worker"):
        run(frame=lambda rows: mapped(rows.repartition(2), killing), queue="all")
    assert disk.ready() == 0
    assert run(queue="all") == list(range(2 * ROWS))
