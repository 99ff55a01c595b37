"""The data source "pyqstore" under Spark: found by name, refused early, exactly once."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

pytestmark = pytest.mark.spark
Frames = Callable[..., Any]


def marker_of(path: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow that leaves a file: proof that a task ran."""
    name = os.fspath(path)

    def touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(name).touch()
        yield from batches

    return touch


def test_write_is_found_by_name_and_every_column_arrives(spark: Any, disk: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.range(0, 5000, 1, 4).select(
        F.col("id").cast("string").cast("binary").alias("payload"),
        F.concat(F.lit("n."), F.col("id") % 2).alias("routing_key"),
        F.create_map(F.lit("k"), F.col("id").cast("string")).alias("headers"),
        F.col("id").cast("string").alias("message_id"),
        F.lit("c").alias("correlation_id"),
        F.lit("t").alias("type"),
        F.lit("a").alias("app_id"),
        F.lit("text/plain").alias("content_type"),
        F.lit("r").alias("reply_to"),
        F.lit("gzip").alias("content_encoding"),
        F.lit("u").alias("user_id"),
        (F.col("id") % 10).cast("tinyint").alias("priority"),
        F.lit(2).alias("delivery_mode"),
        F.lit(3_600_000).cast("bigint").alias("expiration_ms"),
        F.timestamp_seconds(F.lit(1_700_000_000)).alias("timestamp"),
    )
    disk.write(frame, body="payload")
    rows = disk.take()
    assert [int(row["body"]) for row in rows] == list(range(5000))
    row = rows[1234]
    assert (row["exchange"], row["routing_key"]) == ("events", "n.0")
    assert dict(row["headers"]) == {"k": "1234"}
    assert row["message_id"] == "1234"
    assert [row[name] for name in ("correlation_id", "type", "app_id", "reply_to")] == list("ctar")
    assert (row["content_encoding"], row["user_id"]) == ("gzip", "u")
    assert (row["content_type"], row["priority"], row["delivery_mode"]) == ("text/plain", 4, 2)
    assert row["expiration_ms"] == 3_600_000
    assert row["timestamp"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert len(disk.take("odd")) == 2500


def test_write_to_the_default_exchange_by_a_constant_key(disk: Any, numbered: Frames) -> None:
    disk.write(numbered(100).drop("routing_key"), exchange="", routing_key="all")
    assert disk.numbers() == list(range(100))
    assert disk.staged == []


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda frame: frame.withColumnRenamed("body", "text"), {}, "'body' .* is missing"),
        (lambda frame: frame.selectExpr("*", "1 AS prority"), {}, "'prority' is not known"),
        (lambda frame: frame.selectExpr("body", "1 AS routing_key"), {}, "'routing_key' is int"),
        (lambda frame: frame, {"mode": "overwrite"}, "'overwrite' is not supported"),
        (lambda frame: frame, {"exchange": "missing"}, "(?s)NotFound.*missing"),
        (lambda frame: frame, {"path": "/nowhere/typo.qs"}, "no such directory.*create=true"),
        (lambda frame: frame, {"rows": "1"}, "option 'rows' is not known.*routing_key"),
    ],
    ids=["body", "unknown", "type", "overwrite", "exchange", "typo", "option"],
)
def test_write_is_refused_before_a_task_runs(
    disk: Any,
    numbered: Frames,
    mapped: Frames,
    tmp_path: Path,
    change: Frames,
    options: dict[str, str],
    words: str,
) -> None:
    marker = tmp_path / "a task ran"
    with pytest.raises(Exception, match=words):
        disk.write(change(mapped(numbered(10), marker_of(marker))), **options)
    assert not marker.exists()
    assert disk.staged == []
    assert disk.ready() == 0


def test_write_to_a_store_in_use_names_the_owner_before_a_task_runs(
    disk: Any, numbered: Frames, mapped: Frames, tmp_path: Path
) -> None:
    marker = tmp_path / "a task ran"
    frame = mapped(numbered(10), marker_of(marker))
    with disk.owned(), pytest.raises(Exception, match=f"process {os.getpid()}"):
        disk.write(frame, lock_timeout="0.5")
    assert not marker.exists()
    disk.write(frame)
    assert marker.exists()
    assert disk.ready() == 10


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_task_that_fails_twice_is_published_once(
    disk: Any, numbered: Frames, mapped: Frames, failing: Frames, how: str
) -> None:
    disk.write(mapped(numbered(12_000), failing(how, attempts=2)))
    assert disk.numbers() == list(range(12_000))
    assert disk.staged == []


def test_job_that_fails_publishes_nothing(
    disk: Any, numbered: Frames, mapped: Frames, failing: Frames
) -> None:
    with pytest.raises(Exception, match="planted"):
        disk.write(mapped(numbered(12_000), failing("raise", attempts=3)))
    assert disk.ready() == 0
    assert disk.staged == []


def test_job_repeated_under_its_txnid_is_published_once(disk: Any, numbered: Frames) -> None:
    for _ in range(2):
        disk.write(numbered(3000), txnid="load of today")
    assert disk.knows("load of today")
    assert disk.numbers() == list(range(3000))
    disk.write(numbered(3000), txnid="load of tomorrow")
    assert disk.ready() == 3000


def test_the_tasks_of_a_job_that_was_committed_leave_their_rows_unread(
    spark: Any, disk: Any, tmp_path: Path
) -> None:
    name = os.fspath(tmp_path / "rows")

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Leaves how many rows it gave."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            Path(name).write_text(str(rows))
            yield batch

    # More than what fits between a task and the Python process that makes its rows.
    frame = spark.range(0, 60_000, 1, 1).selectExpr("repeat(cast(id % 10 as string), 2000) body")
    frame = frame.mapInArrow(count, frame.schema)
    disk.write(frame, txnid="once", exchange="", routing_key="all")
    assert int(Path(name).read_text()) == 60_000
    Path(name).write_text("0")
    disk.write(frame, txnid="once", exchange="", routing_key="all")
    assert int(Path(name).read_text()) < 60_000
    assert disk.ready() == 60_000


def test_rows_without_a_queue_fail_the_job_and_nothing_is_published(
    disk: Any, numbered: Frames
) -> None:
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.exchange_declare("narrow", "direct", durable=True)
        channel.queue_bind("odd", "narrow", "n.1")
    job = {"exchange": "narrow", "txnid": "once"}
    with pytest.raises(Exception, match=r"take 50 of 100 messages: .*'n\.0'.*Nothing is published"):
        disk.write(numbered(100), **job)
    assert disk.ready("odd") == 0
    assert disk.staged == []
    disk.write(numbered(100), mandatory="false", **job)
    assert disk.numbers("odd") == list(range(1, 100, 2))
    with pytest.raises(Exception, match="'ordrs'"):
        disk.write(numbered(10).drop("routing_key"), exchange="", routing_key="ordrs")


def test_null_body_names_its_row_and_nothing_is_published(spark: Any, disk: Any) -> None:
    frame = spark.range(0, 2000, 1, 1).selectExpr(
        "CASE WHEN id <> 1500 THEN 'x' END AS body", "'n.1' AS routing_key"
    )
    with pytest.raises(Exception, match="partition 0: column 'body' is null in row 1500"):
        disk.write(frame)
    assert disk.ready() == 0
    assert disk.staged == []
