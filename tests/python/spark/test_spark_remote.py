"""The option ``url``: jobs and queries through Arrow Flight, with the store's owner at work."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

import pyqstore
import pyqstore.flight
from pyqstore.claiming import CHUNK_ROWS
from pyqstore.codec import shard_column
from pyqstore.flight.server import FlightListener
from spark_udfs import (
    QStoreDataSource,
    end_drain,
    is_committed,
    release_claims,
    remote_commit,
    remote_sink,
    sink,
)
from spark_udfs.dealing import deal
from spark_udfs.options import OptionError
from spark_udfs.reading import SourceError
from spark_udfs.remote import read_options, write_options

from ..serving import served

pytestmark = pytest.mark.spark
ROWS = 2000


class Shard:
    """An owner's store, open here, with a server in front of it."""

    def __init__(self, path: Path, **users: str) -> None:
        self.path = path
        self.store = pyqstore.open(path)
        with self.store.channel() as channel:
            channel.exchange_declare("n", "topic", durable=True)
            channel.queue_declare("all", durable=True)
            channel.queue_bind("all", "n", "#")
            channel.queue_declare("odd", durable=True)
            channel.queue_bind("odd", "n", "n.1")
        self.server: FlightListener = pyqstore.flight.serve(self.store, users=users or None)
        self.url = f"grpc://{self.server.address}"

    def close(self) -> None:
        self.server.close()
        self.store.close()

    def bodies(self, queue: str = "all") -> list[int]:
        found = self.store.browse(queue)
        return [int(body) for batch in found for body in batch["body"].to_pylist()]

    def staged(self) -> list[Path]:
        return [entry for entry in (self.path / "staging").rglob("*") if entry.is_file()]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    one = Shard(tmp_path / "one")
    yield one
    one.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Shard]:
    one = Shard(tmp_path / "other")
    yield one
    one.close()


def write(frame: Any, *shards: Shard, **options: str) -> None:
    url = ",".join(shard.url for shard in shards)
    frame.write.format("pyqstore").options(url=url, exchange="n", **options).mode("append").save()


def test_a_job_is_one_transaction_in_the_order_of_partitions(
    shard: Shard, numbered: Callable[..., Any], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    write(numbered(ROWS), shard, txnid="a", report=str(report))
    assert shard.bodies() == list(range(ROWS))
    assert shard.bodies("odd") == list(range(1, ROWS, 2))
    told = json.loads(report.read_text())
    counts = ("committed", "rows", "routed", "unroutable", "returned", "files")
    assert [told[name] for name in counts] == [True, ROWS, ROWS, 0, 0, 4]
    assert told["stats"]["messages_published"] == shard.store.stats().messages_published > 0
    write(numbered(ROWS), shard, txnid="a", report=str(report))
    assert len(shard.bodies()) == ROWS
    told = json.loads(report.read_text())
    assert [told[name] for name in counts] == [False, 0, 0, 0, 0, 0]
    assert is_committed(shard.url, "a")
    assert not is_committed(shard.url, "b")
    write(numbered(10, 1), shard, txnid="b")
    assert len(shard.bodies()) == ROWS + 10
    assert shard.staged() == []
    assert shard.store.transaction_known("a")


def test_attempts_that_fail_leave_nothing(
    spark: Any, shard: Shard, numbered: Callable[..., Any], tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails once in each partition, behind its first batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if not list(marks.glob(f"{context.partitionId()}-*")):
                (marks / f"{context.partitionId()}-{context.attemptNumber()}").touch()
                raise RuntimeError("stumbled")

    frame = numbered(ROWS).mapInArrow(stumble, "body string, routing_key string")
    write(frame, shard)
    assert len(list(marks.iterdir())) == 4
    assert shard.bodies() == list(range(ROWS))
    assert shard.staged() == []


def test_a_job_that_fails_publishes_nothing(
    spark: Any, shard: Shard, numbered: Callable[..., Any]
) -> None:
    frame = numbered(ROWS).selectExpr("if(body = '1999', null, body) body", "routing_key")
    with pytest.raises(PySparkException, match="partition 3: column 'body' is null in row 499"):
        write(frame, shard)
    assert shard.bodies() == []
    assert shard.staged() == []


def test_messages_without_a_queue_fail_the_job_before_its_commit(
    spark: Any, shard: Shard, other: Shard, numbered: Callable[..., Any], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    with other.store.channel() as channel:
        channel.queue_delete("all")
    with pytest.raises(PySparkException, match=r"no queue at grpc.* messages: exchange "):
        write(numbered(ROWS), shard, other, txnid="a", report=str(report))
    assert (shard.bodies(), other.bodies("odd")) == ([], [])
    counts = ("committed", "rows", "routed", "unroutable", "returned")
    told = json.loads(report.read_text())
    assert [told[name] for name in counts] == [False, 0, 0, ROWS // 4, ROWS // 4]
    options = {"txnid": "a", "mandatory": "false", "report": str(report)}
    write(numbered(ROWS), shard, other, **options)
    told = json.loads(report.read_text())
    assert [told[name] for name in counts] == [True, ROWS, ROWS * 3 // 4, ROWS // 4, 0]
    assert sorted(told["stats"]) == sorted([shard.url, other.url])
    assert len(shard.bodies()) == ROWS // 2
    assert len(other.bodies("odd")) == ROWS // 4


def test_shards_share_a_jobs_partitions_and_all_of_them_are_read(
    spark: Any, shard: Shard, other: Shard, numbered: Callable[..., Any]
) -> None:
    write(numbered(ROWS), shard, other)
    assert sorted(shard.bodies() + other.bodies()) == list(range(ROWS))
    assert len(shard.bodies()) == len(other.bodies()) == ROWS // 2
    reader = spark.read.format("pyqstore").options(url=f"{shard.url}, {other.url}", queue="all")
    frame = reader.load()
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(int(row.body) for row in frame.collect()) == list(range(ROWS))
    assert len(shard.bodies()) == ROWS // 2


def test_rows_go_to_the_shard_of_their_key_in_order(
    spark: Any, shard: Shard, other: Shard, numbered: Callable[..., Any]
) -> None:
    """Also where tasks stop in the middle: each shard has the rows of one try."""
    frame = numbered(ROWS).selectExpr(
        "body", "'k.1' routing_key", "if(body % 10 = 9, null, concat('key ', body % 10)) message_id"
    )
    write(frame, shard, other, shard_by="message_id", txnid="a")
    keys = [f"key {number}" for number in range(9)]
    places = dict(zip(keys, shard_column(pa.array(keys), 2).to_pylist(), strict=True))
    assert set(places.values()) == {0, 1}
    for number, one in enumerate((shard, other)):
        there = [row for row in one.bodies() if row % 10 != 9]
        expected = [row for row in range(ROWS) if places.get(f"key {row % 10}") == number]
        assert there == expected
    assert sorted(shard.bodies() + other.bodies()) == list(range(ROWS))
    assert (shard.staged(), other.staged()) == ([], [])
    write(frame, shard, other, shard_by="message_id", txnid="a")
    assert len(shard.bodies() + other.bodies()) == ROWS


def test_keys_of_shards_are_looked_for_before_a_row_is_computed(
    spark: Any, shard: Shard, other: Shard, numbered: Callable[..., Any], tmp_path: Path
) -> None:
    frame = numbered(ROWS)
    with pytest.raises(PySparkException, match="'shard_by' is 'key', and there is no such column"):
        write(frame, shard, other, shard_by="key")
    with pytest.raises(PySparkException, match="column 'priority' is int, not string"):
        write(frame.selectExpr("*", "1 priority"), shard, other, shard_by="priority")
    options = {"path": str(tmp_path / "x"), "shard_by": "routing_key", "create": "true"}
    by_path = frame.write.format("pyqstore").options(**options).mode("append")
    with pytest.raises(PySparkException, match="option 'shard_by' goes with 'url'"):
        by_path.save()
    assert (shard.bodies(), other.bodies()) == ([], [])


def test_what_one_shard_refuses_ends_the_task(shard: Shard, other: Shard) -> None:
    """Neither that shard's thread nor those of others are waited for without end."""
    rows = pa.record_batch({"key": [f"key {row}" for row in range(ROWS)]})

    def stage(number: int, batches: Iterator[pa.RecordBatch]) -> int:
        next(batches)
        if number == 1:
            raise OSError("gone")
        return sum(batch.num_rows for batch in batches)

    with pytest.raises(OSError, match="gone"):
        deal(itertools.repeat(rows), "key", 2, 0, stage)

    def fail() -> Iterator[pa.RecordBatch]:
        yield rows
        raise ValueError("stumbled")

    with pytest.raises(ValueError, match="stumbled"):
        deal(fail(), "key", 2, 0, lambda _, batches: sum(batch.num_rows for batch in batches))
    counts = deal([rows, rows], "key", 2, 0, lambda _, found: sum(each.num_rows for each in found))
    assert sum(counts.values()) == 2 * ROWS


def test_a_stream_is_read_in_parts_with_filters(spark: Any, shard: Shard, other: Shard) -> None:
    for number, one in enumerate((shard, other)):
        bodies = [b"%d" % row for row in range(number * ROWS, (number + 1) * ROWS)]
        keys = [f"k.{row % 2}" for row in range(ROWS)]
        one.store.stream("s").publish_batch(pa.table({"body": bodies, "routing_key": keys}))
    url = f"{shard.url},{other.url}"
    reader = spark.read.format("pyqstore").options(url=url, stream="s", minPartitions="3")
    frame = reader.load()
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(int(row.body) for row in frame.collect()) == list(range(2 * ROWS))
    between = reader.option("startingOffset", "10").option("endingOffset", "20").load()
    assert between.count() == 20
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = reader.option("pushdown", "true").load()
        found = pushed.where("offset >= 15 and offset < 17 and routing_key = 'k.1'").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert sorted(int(row.body) for row in found) == [15, ROWS + 15]
    with pytest.raises(PySparkException, match="give it as option 'stream'"):
        spark.read.format("pyqstore").options(url=url, queue="s").load().count()
    with pytest.raises(PySparkException, match="no stream 'x' at grpc"):
        spark.read.format("pyqstore").options(url=url, stream="x").load().count()


def test_queries_read_streams_of_shards_and_write_once(
    spark: Any, shard: Shard, other: Shard, tmp_path: Path
) -> None:
    for number, one in enumerate((shard, other)):
        bodies = [b"%d" % row for row in range(number * ROWS, (number + 1) * ROWS)]
        one.store.stream("s").publish_batch(pa.table({"body": bodies}))

    def run(checkpoint: str, *batches: int) -> None:
        frame = (
            spark.readStream.format("pyqstore")
            .options(url=f"{shard.url},{other.url}", stream="s", maxRowsPerBatch="3000", group="g")
            .load()
        )
        query = (
            frame.select("body")
            .writeStream.format("pyqstore")
            .options(url=shard.url, routing_key="all", appid="app")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [*batches]

    run("c", 3000, 1000)
    assert sorted(shard.bodies()) == list(range(2 * ROWS))
    other.store.stream("s").publish(str(2 * ROWS))
    run("c", 1)
    assert sorted(shard.bodies()) == list(range(2 * ROWS + 1))
    assert shard.staged() == []
    # A new checkpoint begins where the group is, and its first batch is known by appid.
    with shard.store.stream_consumer("s", group="g") as consumer:
        assert consumer.committed("s") == ROWS


def test_a_checkpoint_of_a_stream_that_was_made_anew_is_refused(shard: Shard) -> None:
    schema = StructType([StructField("offset", LongType())])
    given = {"url": shard.url, "stream": "s"}
    shard.store.stream("s").publish("body")
    log = QStoreDataSource(given).streamReader(schema)
    start = log.initialOffset()
    end = log.latestOffset(start, ReadAllAvailable())
    assert log.latestOffset(end, ReadAllAvailable()) == end
    shard.store.stream("s").delete()
    for body in ("one", "two"):
        shard.store.stream("s").publish(body)
    for more in ({}, {"group": "g"}):
        log = QStoreDataSource({**given, **more}).streamReader(schema)
        with pytest.raises(SourceError, match=r"at grpc.* was deleted and made anew"):
            log.latestOffset(end, ReadAllAvailable())
        with pytest.raises(SourceError, match=r"was deleted and made anew"):
            log.partitions(start, end)
    with pytest.raises(SourceError, match=r"was deleted and made anew"):
        log.commit(end)
    for more in ({}, {"group": "g"}):  # whose cursor cannot be moved there
        source = QStoreDataSource({"url": shard.url, "stream": "s", **more})
        with pytest.raises(SourceError, match=r"10 to 10 are to be read.*made anew"):
            source.streamReader(schema).latestOffset(
                {"stream": "s", "offsets": [10]}, ReadAllAvailable()
            )


@pytest.mark.parametrize("appid", [None, "app"])
def test_a_batch_is_published_once_under_an_appid_whatever_checkpoint_it_comes_from(
    shard: Shard, other: Shard, batch_of: Callable[..., Any], appid: str | None
) -> None:
    given = {"url": f"{shard.url},{other.url}", "exchange": "n"}
    options, remote = write_options(given | ({"appid": appid} if appid else {}))
    assert remote is not None
    for query in ("old", "old", "new"):
        job = sink.stream_job(options, query=query, batch=0)
        staged = [
            remote_sink.stage(job, remote, [batch_of(range(10 * part, 10 * part + 10))], part, "1")
            for part in range(2)
        ]
        remote_commit.commit(job, remote, staged)
    times = 1 if appid else 2
    assert shard.bodies() == [*range(10)] * times
    assert other.bodies() == [*range(10, 20)] * times
    assert shard.staged() == other.staged() == []


def fill(shard: Shard, first: int, count: int) -> None:
    with shard.store.channel() as channel:
        bodies = [b"%d" % row for row in range(first, first + count)]
        channel.publish_batch(pa.table({"body": bodies}), "", "all")


def claims_of(shard: Shard) -> list[str]:
    return [name for name in shard.store.queues() if name.startswith("spark-")]


def consume(spark: Any, folder: Path, *shards: Shard, fails: bool = False) -> list[int]:
    """Runs a query that writes what it reads to a stream's folder; the rows of its batches."""
    url = ",".join(shard.url for shard in shards)
    reader = spark.readStream.format("pyqstore").options(url=url, queue="all")
    frame = reader.option("maxRowsPerBatch", "3000").load().select("body")

    def keep(batch: Any, number: int) -> None:
        if fails:
            batch.count()
            raise RuntimeError("planted")
        batch.write.mode("overwrite").parquet(str(folder / "rows" / f"number={number}"))

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def kept(spark: Any, folder: Path) -> list[int]:
    return sorted(int(row.body) for row in spark.read.parquet(str(folder / "rows")).collect())


def test_a_query_consumes_queues_of_shards_once(
    spark: Any, shard: Shard, other: Shard, tmp_path: Path
) -> None:
    fill(shard, 0, ROWS)
    fill(other, ROWS, ROWS)
    with pytest.raises(PySparkException, match="planted"):
        consume(spark, tmp_path, shard, other, fails=True)
    assert len(claims_of(shard)) == len(claims_of(other)) == 1
    assert len(shard.bodies()) + len(other.bodies()) == 2 * ROWS - 3000
    fill(shard, 2 * ROWS, 5)
    assert consume(spark, tmp_path, shard, other) == [3000, 1005]
    assert kept(spark, tmp_path) == list(range(2 * ROWS + 5))
    assert (shard.bodies(), other.bodies()) == ([], [])
    assert claims_of(shard) == claims_of(other) == []


def test_claims_of_a_query_that_is_not_to_run_any_more_are_given_back(
    spark: Any, shard: Shard, tmp_path: Path
) -> None:
    fill(shard, 0, ROWS)
    with pytest.raises(PySparkException, match="planted"):
        consume(spark, tmp_path, shard, fails=True)
    assert shard.bodies() == []
    assert release_claims(shard.url, "all") == ROWS
    assert shard.bodies() == list(range(ROWS))
    with pytest.raises(PySparkException, match="it was released"):
        consume(spark, tmp_path, shard)
    assert shard.bodies() == list(range(ROWS))


def test_a_drain_consumes_once_under_its_txnid_until_it_is_ended(
    spark: Any, shard: Shard, other: Shard
) -> None:
    fill(shard, 0, ROWS)
    fill(other, ROWS, ROWS)
    url = f"{shard.url},{other.url}"
    reader = spark.read.format("pyqstore").options(url=url, queue="all", drain="true", txnid="a")
    for _ in range(2):
        found = reader.load().select("offset", "body").collect()
        assert sorted(int(row.body) for row in found) == list(range(2 * ROWS))
        assert sorted(row.offset for row in found) == sorted([*range(ROWS)] * 2)
        assert (shard.bodies(), other.bodies()) == ([], [])
    fill(shard, 2 * ROWS, 5)
    assert reader.load().count() == 2 * ROWS
    assert not end_drain(url.removeprefix("grpc://"), "all", "another")
    assert end_drain(url, "all", "a")
    assert not end_drain(url, "all", "a")
    assert claims_of(shard) == claims_of(other) == []
    with pytest.raises(PySparkException, match="was ended"):
        reader.load().count()
    assert reader.option("txnid", "b").load().count() == 5


# A server that runs this dies when it has claimed one chunk more, and the claim is not whole.
_DIES_IN_CLAIM = """
import os, signal
import pyqstore
commit = pyqstore.Channel.tx_commit
def tx_commit(channel, *, key=None):
    commit(channel, key=key)
    os.kill(os.getpid(), signal.SIGKILL)
pyqstore.Channel.tx_commit = tx_commit
"""


@pytest.mark.slow
def test_a_server_that_is_killed_in_a_claim_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path
) -> None:
    path, rows = tmp_path / "killed", 200_000
    shard = Shard(path)
    fill(shard, 0, rows)  # four chunks
    shard.close()
    reader = spark.read.format("pyqstore").options(queue="all", drain="true", txnid="a")
    for tries in range(3):
        with served(path, "--flight", "127.0.0.1:0", planted=_DIES_IN_CLAIM) as server:
            url = f"grpc://{server.addresses()['flight']}"
            with pytest.raises(PySparkException):
                reader.option("url", url).load().count()
            assert server.process.wait() == -signal.SIGKILL
        with pyqstore.open(path, read_only=True) as store:
            (name,) = (name for name in store.queues() if name.startswith("spark-drain-"))
            assert store.queue_status(name).messages_ready == tries + 1
            assert store.queue_status("all").messages_ready == rows - (tries + 1) * CHUNK_ROWS
            assert not store.transaction_known(name)
    with served(path, "--flight", "127.0.0.1:0") as server:
        url = f"grpc://{server.addresses()['flight']}"
        found = reader.option("url", url).load().select("body").collect()
    assert sorted(int(row.body) for row in found) == list(range(rows))


@pytest.mark.slow
def test_a_server_that_is_killed_fails_the_job_and_a_repeat_writes_once(
    spark: Any, tmp_path: Path, numbered: Callable[..., Any]
) -> None:
    path = tmp_path / "killed"
    Shard(path).close()
    with served(path, "--flight", "127.0.0.1:0") as server:
        url = f"grpc://{server.addresses()['flight']}"
        pid = server.process.pid

        def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os
            import signal

            yield from batches
            os.kill(pid, signal.SIGKILL)

        frame = numbered(ROWS).mapInArrow(kill, "body string, routing_key string")
        with pytest.raises(PySparkException, match=r"ConnectionLost"):
            frame.write.format("pyqstore").options(url=url, exchange="n", txnid="a").mode(
                "append"
            ).save()
    shard = Shard(path)
    assert shard.bodies() == []
    write(numbered(ROWS), shard, txnid="a")
    write(numbered(ROWS), shard, txnid="a")
    assert shard.bodies() == list(range(ROWS))
    shard.close()


def test_users_write_with_a_password_and_read_with_a_token(
    spark: Any, tmp_path: Path, numbered: Callable[..., Any]
) -> None:
    shard = Shard(tmp_path / "guarded", ann="secret")
    try:
        with pytest.raises(PySparkException, match="ACCESS_REFUSED"):
            write(numbered(10), shard)
        write(numbered(10), shard, user="ann", password="secret")
        with pyqstore.connect(shard.url, user="ann", password="secret") as client:
            token = client.token()
        reader = spark.read.format("pyqstore").options(url=shard.url, queue="all", token=token)
        assert reader.load().count() == 10
    finally:
        shard.close()


# What a server is started with, what a job has as options, and options that do not do.
_SERVER = {"--tls-cert": "server.pem", "--tls-key": "server.key"}
_KEPT: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str] | None]] = {
    "tls": (_SERVER, {"tls_ca": "ca.pem"}, {}),
    "mtls": (
        {**_SERVER, "--tls-ca": "ca.pem"},
        {"tls_ca": "ca.pem", "tls_cert": "client.pem", "tls_key": "client.key"},
        {"tls_ca": "ca.pem"},
    ),
    "token": ({"--token-file": "tokens"}, {"token_file": "tokens"}, {}),
    "unix": ({}, {}, None),
}


@pytest.mark.parametrize("kind", _KEPT)
def test_a_job_writes_and_reads_where_others_are_kept_out(
    spark: Any, tmp_path: Path, certificates: Path, numbered: Callable[..., Any], kind: str
) -> None:
    def found(options: dict[str, str]) -> dict[str, str]:
        return {name: str(certificates / file) for name, file in options.items()}

    serving, own, lacking = _KEPT[kind]
    (certificates / "tokens").write_text("fixed-token\n")
    path = tmp_path / "kept"
    Shard(path).close()
    address = f"unix:{tmp_path}/s" if kind == "unix" else "127.0.0.1:0"
    given = [word for pair in found(serving).items() for word in pair]
    with served(path, "--flight", address, *given) as server:
        scheme = {"unix": "grpc+", "token": "grpc://"}.get(kind, "grpc+tls://")
        url = scheme + server.addresses()["flight"]

        def write(rows: int, **options: str) -> None:
            writer = numbered(rows).write.format("pyqstore").options(url=url, exchange="n")
            writer.options(**options).mode("append").save()

        if lacking is not None:
            with pytest.raises(PySparkException, match=r"ConnectionLost|ACCESS_REFUSED"):
                write(10, **found(lacking))
        write(100, **found(own))
        options = {"token": "fixed-token"} if kind == "token" else found(own)
        reader = spark.read.format("pyqstore").options(url=url, queue="all", **options)
        assert [int(row.body) for row in reader.load().collect()] == list(range(100))


# Without a session.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "grpc://h:1", "path": "/x"}, "'path' does not go with 'url'"),
        ({"url": "grpc://h:1", "create": "true"}, "'create' does not go with 'url'"),
        ({"url": "grpc://h:1,grpc://h:1"}, "names a server twice"),
        ({"url": "http://h:1"}, "expected grpc://HOST:PORT"),
        ({"url": "grpc://h:1", "user": "ann"}, "go together"),
        ({"url": "grpc://h:1", "tls_ca": "/nowhere"}, "/nowhere"),
        ({"path": "/x", "token": "t"}, "'token' goes with 'url'"),
        ({"url": "grpc://h:1", "token_file": "/nowhere"}, "/nowhere"),
        ({}, "'path' is missing"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        write_options({"routing_key": "q", **options})


def test_what_a_server_cannot_do_is_refused() -> None:
    with pytest.raises(OptionError, match="'ack=take' goes with 'path'"):
        read_options({"url": "grpc://h:1", "queue": "q", "ack": "take"}, streaming=True)
    with pytest.raises(TypeError, match="token: for servers"):
        release_claims("/x", "q", token="t")


@pytest.mark.parametrize(
    ("ready", "most", "found"),
    [
        ([], 5, []),
        ([3, 3], 4, [2, 2]),
        ([9, 1], 6, [5, 1]),
        ([0, 9], 100, [0, 9]),
        ([5, 5], 1, [1, 0]),
    ],
)
def test_a_batchs_rows_are_shared_by_the_servers(
    ready: list[int], most: int, found: list[int]
) -> None:
    from spark_udfs.remote_stream_reader import shares

    assert shares(ready, most) == found
