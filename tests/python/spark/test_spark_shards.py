"""Jobs and batches over several servers: each server's rows are of one try, or none are there.

Servers are processes; one of them runs code, planted beforehand, that kills it in the middle of the
commit.  The repeat deals the rows to partitions in another way.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import pyqstore
from pyqstore.codec import shard_column
from spark_udfs import is_committed, remote_commit, remote_sink, sink
from spark_udfs.remote import write_options

from ..machines import Machine, machines
from ..serving import served

pytestmark = pytest.mark.spark
ROWS = 2000
TOKEN = "of-these-tests"
FLIGHT = ("--flight", "127.0.0.1:0")
# A server that runs this dies with its part prepared and not committed,
DIES_BEFORE_COMMIT = """
import os, signal
from pyqstore.flight.committing import Committing
Committing.commit_prepared = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
"""
# or before it has prepared it.
DIES_BEFORE_PREPARE = DIES_BEFORE_COMMIT.replace("commit_prepared", "prepare")


def store_at(path: Path) -> Path:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("all", durable=True)
    return path


@contextmanager
def servers(paths: list[Path], *, last: str = "") -> Iterator[tuple[str, Any]]:
    """Their URLs, and the process of the last one, in which ``last`` is planted."""
    with served(paths[0], *FLIGHT) as one, served(paths[1], *FLIGHT, planted=last) as other:
        addresses = [each.addresses()["flight"] for each in (one, other)]
        yield ",".join(f"grpc://{address}" for address in addresses), other.process


@contextmanager
def four_servers(paths: list[Path], there: list[Machine]) -> Iterator[tuple[str, list[Any]]]:
    """Each at a machine of its own; their URLs and processes."""
    tokens = paths[0].with_name("tokens")
    tokens.touch(mode=0o600)
    tokens.write_text(TOKEN)
    with ExitStack() as running:
        each = [
            running.enter_context(
                served(
                    path,
                    *("--flight", f"{machine.address}:0", "--token-file", str(tokens)),
                    planted=machine.planted,
                )
            )
            for path, machine in zip(paths, there, strict=True)
        ]
        urls = [f"grpc://{one.addresses()['flight']}" for one in each]
        yield ",".join(urls), [one.process for one in each]


def bodies(path: Path) -> list[int]:
    with pyqstore.open(path, read_only=True) as store:
        found = store.browse("all")
        return [int(body) for batch in found for body in batch["body"].to_pylist()]


def staged(path: Path) -> list[Path]:
    return list((path / "staging").glob("*"))


def save(frame: Any, url: str, **options: str) -> None:
    options = {"url": url, "routing_key": "all", **options}
    frame.write.format("pyqstore").options(**options).mode("append").save()


def dealt(spark: Any, turned: bool) -> Any:
    """The same rows, in four partitions that are dealt the other way round."""
    order = f"({ROWS - 1} - id)" if turned else "id"
    return spark.range(0, ROWS, 1, 4).selectExpr(f"cast({order} as string) body")


@pytest.mark.slow
@pytest.mark.parametrize("planted", [DIES_BEFORE_COMMIT, DIES_BEFORE_PREPARE])
def test_a_job_is_there_once_when_a_server_dies_in_its_commit_and_the_repeat_deals_otherwise(
    spark: Any, tmp_path: Path, planted: str
) -> None:
    paths = [store_at(tmp_path / name) for name in ("one", "other")]
    with servers(paths, last=planted) as (url, process):
        with pytest.raises(PySparkException, match="ConnectionLost"):
            save(dealt(spark, turned=False), url, txnid="a")
        assert process.wait() == -signal.SIGKILL
    is_decided = planted is DIES_BEFORE_COMMIT
    first = [row for row in range(ROWS) if row // 500 % 2 == 0]  # of partitions 0 and 2
    assert bodies(paths[0]) == (first if is_decided else [])
    assert bodies(paths[1]) == []
    with servers(paths) as (url, _):
        save(dealt(spark, turned=True), url, txnid="a")
        assert is_committed(url, "a")
        save(dealt(spark, turned=False), url, txnid="a")
    there = [bodies(path) for path in paths]
    assert sorted(there[0] + there[1]) == list(range(ROWS))
    assert (sorted(there[0]) == first) == is_decided
    assert staged(paths[0]) == []
    # What the dead server had staged and not prepared is removed when it is old.
    left = [entry.name.partition("-")[0] for entry in staged(paths[1])]
    assert left == ([] if is_decided else ["flight"])


@pytest.mark.slow
def test_a_job_by_key_is_there_once_when_one_of_four_servers_dies_in_its_middle(
    spark: Any, tmp_path: Path
) -> None:
    """At four machines.  The key's order is that of the rows at its server."""
    with machines(4) as there:
        _dies_in_the_middle(spark, tmp_path, there)


def _dies_in_the_middle(spark: Any, tmp_path: Path, there: list[Machine]) -> None:
    paths = [store_at(tmp_path / name) for name in "abcd"]

    def keyed(of: Any) -> Any:
        return of.selectExpr("body", "concat('key ', cast(body as int) % 50) message_id")

    with four_servers(paths, there) as (url, processes):
        killed = processes[3].pid

        def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                if 1900 in map(int, batch.column("body").to_pylist()):
                    os.kill(killed, signal.SIGKILL)

        frame = keyed(dealt(spark, turned=False)).mapInArrow(kill, "body string, message_id string")
        with pytest.raises(PySparkException, match="ConnectionLost"):
            save(frame, url, txnid="a", shard_by="message_id", token=TOKEN)
        assert processes[3].wait() == -signal.SIGKILL
    assert [bodies(path) for path in paths] == [[]] * 4
    frame = keyed(dealt(spark, turned=False))
    with four_servers(paths, there) as (url, _):
        for _ in range(2):
            save(frame, url, txnid="a", shard_by="message_id", token=TOKEN)
        assert is_committed(url, "a", token=TOKEN)
    found = [bodies(path) for path in paths]
    assert sorted(itertools.chain(*found)) == list(range(ROWS))
    keys = shard_column(pa.array([f"key {number}" for number in range(50)]), 4).to_pylist()
    assert found == [[row for row in range(ROWS) if keys[row % 50] == shard] for shard in range(4)]


@pytest.mark.slow
def test_a_batch_is_there_once_when_a_server_dies_in_its_commit_and_is_dealt_otherwise(
    spark: Any, tmp_path: Path
) -> None:
    paths = [store_at(tmp_path / name) for name in ("one", "other")]
    source = tmp_path / "source"
    source.mkdir()
    (source / "rows").write_text("\n".join(map(str, range(ROWS))))

    def run(url: str, partitions: int) -> None:
        query = (
            spark.readStream.text(str(source))
            .withColumnRenamed("value", "body")
            .repartition(partitions)
            .writeStream.format("pyqstore")
            .options(url=url, routing_key="all", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with servers(paths, last=DIES_BEFORE_COMMIT) as (url, process):
        with pytest.raises(PySparkException, match="ConnectionLost"):
            run(url, 2)
        assert process.wait() == -signal.SIGKILL
    with servers(paths) as (url, _):
        run(url, 3)
    there = [bodies(path) for path in paths]
    assert sorted(there[0] + there[1]) == list(range(ROWS))
    assert all(there)
    assert [staged(path) for path in paths] == [[], []]


def test_a_job_whose_key_was_forgotten_meanwhile_fails_and_commits_nothing(
    tmp_path: Path, batch_of: Any
) -> None:
    paths = [store_at(tmp_path / name) for name in ("one", "other")]
    report = tmp_path / "report.json"
    with servers(paths) as (urls, _):
        for url in (urls, urls.split(",")[0]):
            given = {"url": url, "routing_key": "all", "txnid": url, "report": str(report)}
            options, remote = write_options(given)
            assert remote is not None
            columns = [("body", "string")]
            rows = [batch_of(range(5)).select(["body"])]
            job = remote_sink.prepare(options, remote, columns, sink.Job(options, "a", url))
            assert not job.repeated
            told = [remote_sink.stage(job, remote, rows, 0, "1")]
            remote_commit.commit(job, remote, told)
            counts = json.loads(report.read_text())
            assert (counts["rows"], counts["files"]) == (5, 1)
            job = remote_sink.prepare(options, remote, columns, sink.Job(options, "b", url))
            assert job.repeated
            told = [remote_sink.stage(job, remote, rows, 0, "1")]
            remote_commit.commit(job, remote, told)
            for address in url.split(","):
                with pyqstore.connect(address) as client:
                    assert client.forget_transaction(url) == 1
            with pytest.raises(sink.StagingError, match="is this still the same store"):
                remote_commit.commit(job, remote, told)
    assert [len(bodies(path)) for path in paths] == [10, 0]
