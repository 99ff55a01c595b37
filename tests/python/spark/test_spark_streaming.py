"""``writeStream``: each batch of a query is in the queues exactly once, whatever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_udfs import sink
from spark_udfs.options import OptionError, WriteOptions

from .killing import killing

Batches = Callable[[range], pa.RecordBatch]
FILES, ROWS = 5, 2000


def commit(
    disk: Any, rows: pa.RecordBatch, batch: int, query: str = "q", **given: str
) -> sink.CommitReport:
    """One partition of one batch, staged and committed."""
    options = WriteOptions.parse({"path": str(disk.path), "exchange": "events", **given})
    job = sink.stream_job(options, query=query, batch=batch)
    job.folder.join()
    return sink.commit(job, [sink.stage(job, [rows], partition=0, attempt=1)])


def test_a_batch_repeated_is_published_once_and_a_query_has_the_keys_of_its_last_batches(
    disk: Any, batch_of: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_BATCHES_KNOWN", 2)
    for number in range(4):
        rows = batch_of(range(10 * number, 10 * number + 10))
        assert commit(disk, rows, number).committed
        assert not commit(disk, rows, number).committed
        assert [disk.knows(f"spark-stream-q-{n}") for n in range(4)] == [
            n in (number - 1, number) for n in range(4)
        ]
    assert disk.numbers() == list(range(40))
    assert disk.staged == []


def test_batches_are_not_published_again_from_a_copy_of_the_checkpoint(
    disk: Any, batch_of: Batches
) -> None:
    for number in range(4):
        assert commit(disk, batch_of(range(number, number + 1)), number).committed
    for number in (1, 2, 3):  # the copy was made after batch 0
        assert not commit(disk, batch_of(range(number, number + 1)), number).committed
    assert commit(disk, batch_of(range(4, 5)), 4).committed
    assert disk.numbers() == list(range(5))


def test_queries_do_not_share_keys(disk: Any, batch_of: Batches) -> None:
    assert commit(disk, batch_of(range(10)), 0, "one").committed
    assert commit(disk, batch_of(range(10, 20)), 0, "two").committed
    assert disk.numbers() == list(range(20))


def test_an_appid_keeps_a_batch_from_being_published_again_after_a_new_checkpoint(
    disk: Any, batch_of: Batches
) -> None:
    for number in range(3):
        assert commit(disk, batch_of(range(number, number + 1)), number, "old", appid="a").committed
    for number in range(3):  # the new checkpoint numbers its batches from 0 again
        assert not commit(disk, batch_of(range(9)), number, "new", appid="a").committed
    assert commit(disk, batch_of(range(3, 5)), 3, "new", appid="a").committed
    assert commit(disk, batch_of(range(5, 6)), 0, "new", appid="b").committed
    assert disk.numbers() == list(range(6))
    assert disk.staged == []


def test_a_query_that_is_given_an_appid_does_not_publish_its_last_batch_again(
    disk: Any, batch_of: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_BATCHES_KNOWN", 1)
    for number in range(2):
        assert commit(disk, batch_of(range(number, number + 1)), number).committed
    assert not commit(disk, batch_of(range(1, 2)), 1, appid="a").committed
    assert commit(disk, batch_of(range(2, 3)), 2, appid="a").committed
    assert not disk.knows("spark-stream-q-1")
    assert disk.numbers() == [0, 1, 2]


@pytest.mark.parametrize("appid", ["", "a" * 256])
def test_an_appid_that_makes_no_key_is_refused(disk: Any, appid: str) -> None:
    with pytest.raises(OptionError, match=rf"'appid' has {len(appid)} bytes"):
        WriteOptions.parse({"path": str(disk.path), "appid": appid})


def test_a_query_killed_before_it_forgot_a_key_forgets_it_when_the_batch_is_repeated(
    disk: Any, batch_of: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_BATCHES_KNOWN", 1)
    commit(disk, batch_of(range(10)), 0)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pyqstore.Store.forget_transaction", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(disk, batch_of(range(10, 20)), 1)
    assert disk.knows("spark-stream-q-0")
    assert not commit(disk, batch_of(range(10, 20)), 1).committed
    assert not disk.knows("spark-stream-q-0")
    assert disk.knows("spark-stream-q-1")
    assert disk.numbers() == list(range(20))


def test_what_an_earlier_start_of_the_query_left_is_in_nobodys_way(
    disk: Any, batch_of: Batches
) -> None:
    options = WriteOptions.parse({"path": str(disk.path), "exchange": "events"})
    job = sink.stream_job(options, query="q", batch=0)
    job.folder.join()
    (job.folder.path / "0-77.arrow.tmp").write_bytes(b"half a file")
    job.folder.join()
    assert commit(disk, batch_of(range(10)), 0).committed
    assert disk.numbers() == list(range(10))
    assert disk.staged == []


# ---- under Spark ----


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Any:
    """A stream of FILES files, one a batch, with the numbers 0 to FILES * ROWS - 1."""
    from pyspark.sql import functions as F  # noqa: N812

    folder = tmp_path / "source"
    for number in range(FILES):
        rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, 2).select(
            F.col("id").cast("string").alias("body"),
            F.concat(F.lit("n."), F.col("id") % 2).alias("routing_key"),
        )
        rows.write.mode("append").parquet(str(folder / f"part{number}"))
        time.sleep(0.01)
    return (
        spark.readStream.schema("body string, routing_key string")
        .option("maxFilesPerTrigger", 2)
        .option("recursiveFileLookup", "true")
        .parquet(str(folder))
    )


def run(disk: Any, frame: Any, checkpoint: Path, mode: str = "append", **options: str) -> None:
    """Run the query until it has all there is."""
    writer = (
        frame.writeStream.format("pyqstore")
        .option("path", str(disk.path))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .outputMode(mode)
    )
    for name, value in {"exchange": "events", **options}.items():
        writer = writer.option(name, value)
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


@pytest.mark.spark
def test_each_batch_of_a_query_is_published_once(
    disk: Any, source: Any, spark: Any, tmp_path: Path
) -> None:
    run(disk, source, tmp_path / "checkpoint")
    run(disk, source, tmp_path / "checkpoint")  # nothing is new
    assert sorted(disk.numbers()) == list(range(FILES * ROWS))
    assert disk.staged == []


@pytest.mark.spark
def test_a_query_with_an_appid_publishes_nothing_again_from_a_new_checkpoint(
    disk: Any, source: Any, tmp_path: Path
) -> None:
    for checkpoint in ("old", "new"):
        run(disk, source, tmp_path / checkpoint, appid="daily")
    assert sorted(disk.numbers()) == list(range(FILES * ROWS))
    assert disk.staged == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"txnid": "t"}, "'txnid' is for jobs"),
        ({"path": "/nowhere/typo.qs"}, "does not see /nowhere/typo.qs"),
        ({"exchange": "", "routing_key": "ordrs"}, "routing key 'ordrs'|routing key 'n.0'"),
    ],
)
def test_a_query_that_would_lose_rows_fails(
    disk: Any, source: Any, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        run(disk, source, tmp_path / "checkpoint", **options)
    assert disk.ready() == 0


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "words"), [("complete", "use 'append'"), ("update", "does not support Update mode")]
)
def test_the_output_mode_is_append(
    disk: Any, source: Any, tmp_path: Path, mode: str, words: str
) -> None:
    totals = source.groupBy("routing_key").count()
    rows = totals.selectExpr("routing_key", "cast(count AS string) AS body")
    with pytest.raises(Exception, match=words):
        run(disk, rows, tmp_path / "checkpoint", mode=mode)
    assert disk.ready() == 0


@pytest.fixture
def killer(disk: Any) -> Iterator[list[int]]:
    """Kills the process that commits a batch."""
    with killing(disk.path, "python_streaming_sink_runner") as killed:
        yield killed


@pytest.mark.spark
@pytest.mark.crash
def test_a_query_whose_commits_are_killed_publishes_each_row_once(
    disk: Any, source: Any, tmp_path: Path, killer: list[int]
) -> None:
    for _ in range(6):
        with suppress(Exception):
            run(disk, source, tmp_path / "checkpoint")
            break
    else:
        pytest.fail("the query failed more often than it was killed")
    assert killer
    assert sorted(disk.numbers()) == list(range(FILES * ROWS))
    assert disk.staged == []
