"""spark_udfs.publish: every row confirmed, at most a window of batches under way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import spark_udfs
from spark_udfs import gathering
from spark_udfs.columns import ColumnError
from spark_udfs.publisher import NackedError
from spark_udfs.sink import UnroutableError
from spark_udfs.staging import StagedFile, StagingFolder


class SlowReceipt:
    """A confirm that comes only when waited for."""

    def __init__(self, channel: SlowChannel, count: int) -> None:
        self.channel, self.count, self.done = channel, count, False
        self.unroutable = 0

    def wait(self, timeout: float | None = None) -> None:
        self.done = True
        self.channel.unconfirmed -= 1


class SlowChannel:
    """Counts batches that are not confirmed yet."""

    def __init__(self) -> None:
        self.unconfirmed = self.most = self.rows = self.refused = 0
        self.refusal = pyqstore.PublishRefused(1, queue="q")

    def confirm_select(self) -> None:
        pass

    def wait_for_confirms(self, timeout: float | None = None) -> bool:
        return self.refused == 0

    def publish_batch(self, data: pa.RecordBatch, *_: Any, **__: Any) -> SlowReceipt:
        self.unconfirmed += 1
        self.most = max(self.most, self.unconfirmed)
        self.rows += data.num_rows
        return SlowReceipt(self, data.num_rows)


def test_publish_streams_an_arrow_table(disk: Any, batch_of: Callable[..., Any]) -> None:
    table = pa.Table.from_batches([batch_of(range(100)), batch_of(range(100, 250))])
    seen: list[int] = []
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        result = spark_udfs.publish(table, channel, exchange="events", progress=seen.append)
        assert (result.rows, result.batches) == (250, 2)
        assert result.receipt is not None
        assert result.receipt.done
        assert result.receipt.last_publish_number == 250
        assert channel.wait_for_confirms(timeout=0)
    assert seen[-1] == 250
    assert disk.numbers() == list(range(250))


def test_publish_of_nothing_has_no_receipt(disk: Any, batch_of: Callable[..., Any]) -> None:
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        result = spark_udfs.publish(batch_of(range(0)), channel, exchange="events")
    assert (result.rows, result.batches, result.receipt) == (0, 0, None)


@pytest.mark.parametrize("window", [1, 3])
def test_publish_keeps_a_bounded_window(batch_of: Callable[..., Any], window: int) -> None:
    channel: Any = SlowChannel()
    table = pa.Table.from_batches([batch_of(range(10))] * 20)
    result = spark_udfs.publish(table, channel, window=window)
    assert (result.rows, result.batches) == (200, 20)
    assert channel.most <= window
    assert channel.unconfirmed == 0


def test_publish_cuts_large_batches(batch_of: Callable[..., Any]) -> None:
    channel: Any = SlowChannel()
    result = spark_udfs.publish(batch_of(range(150_000)), channel)
    assert (result.rows, result.batches, channel.rows) == (150_000, 3, 150_000)


def test_publish_raises_when_a_queue_refused(batch_of: Callable[..., Any]) -> None:
    channel: Any = SlowChannel()
    channel.refused = 1
    with pytest.raises(NackedError):
        spark_udfs.publish(batch_of(range(10)), channel)


def test_a_misspelt_routing_key_does_not_publish_into_nothing_in_silence(
    disk: Any, batch_of: Callable[..., Any]
) -> None:
    rows = batch_of(range(10)).select(["body"])
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        with pytest.raises(UnroutableError, match=r"10 of 10 rows .* routing key 'al'") as raised:
            spark_udfs.publish(rows, channel, routing_key="al")
        assert "0 rows had been confirmed" in raised.value.__notes__[0]
        dropped = spark_udfs.publish(rows, channel, routing_key="al", mandatory=False)
        assert (dropped.rows, dropped.unroutable) == (10, 10)
        assert spark_udfs.publish(rows, channel, routing_key="all").unroutable == 0


def test_publish_says_how_far_it_came(disk: Any, batch_of: Callable[..., Any]) -> None:
    bad = pa.RecordBatch.from_pydict(
        {"body": pa.array([None], pa.string()), "routing_key": ["n.1"]}
    )
    table = pa.Table.from_batches([batch_of(range(100)), bad])
    with (
        pyqstore.open(disk.path) as store,
        store.channel() as channel,
        pytest.raises(ColumnError, match="row 100") as failed,
    ):
        spark_udfs.publish(table, channel, "events")
    assert "100 handed to the channel" in failed.value.__notes__[0]


def test_publish_refuses_what_is_no_frame() -> None:
    channel: Any = SlowChannel()
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        spark_udfs.publish([1, 2], channel)
    with pytest.raises(ValueError, match="window"):
        spark_udfs.publish([1, 2], channel, window=0)


@pytest.mark.spark
@pytest.mark.parametrize("staged", [True, False])
def test_publish_streams_a_spark_frame(disk: Any, numbered: Any, staged: bool) -> None:
    frame = numbered(6000).selectExpr("*", "timestamp_seconds(1700000000) AS timestamp")
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        result = spark_udfs.publish(frame, channel, "events", progress=False, staged=staged)
    assert disk.staged == []
    assert (result.rows, result.batches) == (6000, 8)
    rows = disk.take()
    assert [int(row["body"]) for row in rows] == list(range(6000))
    assert rows[0]["timestamp"].replace(tzinfo=dt.UTC).timestamp() == 1_700_000_000


@pytest.mark.spark
def test_publish_computes_partitions_side_by_side_and_leaves_no_files_when_it_fails(
    disk: Any, numbered: Any, mapped: Any, tmp_path: Path
) -> None:
    def meet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (tmp_path / f"here-{context.partitionId()}").touch()
        while not (tmp_path / f"here-{1 - context.partitionId()}").exists():
            time.sleep(0.01)
        yield from batches

    frame = mapped(numbered(2000, 2), meet)
    bad = numbered(2000, 2).selectExpr("nullif(body, '1500') AS body", "routing_key")
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        assert spark_udfs.publish(frame, channel, "events", progress=False).rows == 2000
        with pytest.raises(ColumnError, match="row 1500"):
            spark_udfs.publish(bad, channel, "events", progress=False)
    assert disk.staged == []
    assert disk.numbers()[:2000] == list(range(2000))


@pytest.mark.spark
def test_publish_does_without_files_where_executors_do_not_see_them(
    disk: Any, numbered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = numbered(100)
    with monkeypatch.context() as patch:
        patch.setattr(StagingFolder, "create", lambda folder: None)
        for directory in ("/nowhere/typo.qs", disk.path):  # not there, and another one there
            with gathering.gathered(frame, str(directory)) as batches:
                assert batches is None
    elsewhere = [StagedFile(name="0-0.arrow", partition=0, rows=100, bytes=9, crc32=9)]
    monkeypatch.setattr(gathering, "_stage", lambda *_: elsewhere)
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        assert spark_udfs.publish(frame, channel, "events", progress=False).rows == 100
    assert disk.numbers() == list(range(100))
    assert disk.staged == []


@pytest.mark.spark
def test_publish_to_a_store_in_memory_makes_no_files(
    numbered: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bodies = numbered(100).select("body")
    with pyqstore.open(":memory:") as store, store.channel() as channel:
        channel.queue_declare("q")
        assert spark_udfs.publish(bodies, channel, "", "q", progress=False).rows == 100
        assert store.queue_status("q").messages_ready == 100
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_publish_leaves_nothing_in_java(spark: Any) -> None:
    """DataFrame.toLocalIterator keeps all it ever handed out."""

    def live_mib() -> float:
        runtime = spark._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20

    frame = spark.range(0, 100_000, 1, 10).selectExpr("repeat('x', 1000) AS body")
    channel: Any = SlowChannel()
    spark_udfs.publish(frame.limit(10), channel, progress=False)
    before = live_mib()
    result = spark_udfs.publish(frame, channel, progress=False)
    assert result.rows == 100_000
    assert live_mib() < before + 30  # of 95 MiB


@pytest.mark.spark
def test_publish_checks_a_spark_frame_before_it_runs(disk: Any, numbered: Any) -> None:
    with (
        pyqstore.open(disk.path) as store,
        store.channel() as channel,
        pytest.raises(ColumnError, match="'priority' is string"),
    ):
        spark_udfs.publish(numbered(10).selectExpr("*", "'high' AS priority"), channel, "events")
    assert disk.ready() == 0


@pytest.mark.spark
def test_messages_received_become_a_frame_that_can_be_written_again(
    spark: Any, disk: Any, numbered: Callable[..., Any]
) -> None:
    from spark_udfs import to_frame

    with pyqstore.open(disk.path) as store, store.channel() as channel:
        with channel.transaction() as tx:
            for number in range(10):
                properties = pyqstore.Properties(
                    delivery_mode=2,
                    priority=number,
                    headers={"k": str(number)},
                    timestamp=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                )
                tx.publish("events", f"n.{number % 2}", str(number), properties)
        batch = channel.get_batch("all")
        frame = to_frame(spark, batch)
        browsed = to_frame(spark, next(iter(store.browse("odd"))))
        channel.basic_ack(0, multiple=True)
    types = dict(frame.dtypes)
    assert types["delivery_tag"] == "bigint"
    assert types["priority"] == "smallint"
    assert types["exchange"] == types["routing_key"] == "string"
    assert types["timestamp"] == "timestamp"
    assert types["headers"] == "map<string,string>"
    assert [bytes(row.body) for row in frame.orderBy("delivery_tag").collect()] == [
        str(number).encode() for number in range(10)
    ]
    assert dict(browsed.dtypes)["sequence"] == "bigint"
    disk.write(frame)
    rows = disk.take()
    assert sorted(int(row["body"]) for row in rows) == list(range(10))
    assert {row["timestamp"] for row in rows} == {dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
    with pytest.raises(TypeError, match="int has neither"):
        to_frame(spark, 1)
