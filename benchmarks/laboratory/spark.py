"""Spark's writers: the data source, publish(), a writer that only counts, and Parquet.

Two million rows of 100 B in four partitions, written by each of them in turn; the same through
Arrow Flight to one, two and four servers, by a key; the commit alone, of eight million rows with
1,000 routing keys, in a process of its own: how long, how much memory, how much disk.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyqstore
from pyqstore.bench import child, goals
from pyqstore.bench.goals import Goal
from pyqstore.bench.loads import QUEUE, expect
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Progress, Result, Sample

from . import spark_shards
from .spark_commit import (
    ARGUMENTS,
    BODY_BYTES,
    COMMIT_MS,
    DISK,
    KEYS,
    MEMORY,
    PARTITIONS,
    TO_QUEUE,
    adopt,
    content_bytes,
    stage,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Spark: writing into a store"
WRITE = "Writing rows of 100 B in four partitions"
COMMIT = "The commit alone, rows of 100 B with 1,000 routing keys"
SHARDS = "The same rows by a key, through Arrow Flight, to several servers"
COUNTING, PARQUET = "an Arrow writer that counts", "Parquet"
SOURCE = {to: f"the data source, {to}" for to in ARGUMENTS}
PUBLISH = "publish(), to a queue"
SERVERS = {1: "1 server", 2: "2 servers", 4: "4 servers"}
_ROWS = 2_000_000
_COMMIT_ROWS = 8_000_000
_MOST_CORES = 4
_MIB = 1 << 20
GOALS = (
    *(Goal(WRITE, name, "seconds", 1.35, COUNTING, less=True) for name in SOURCE.values()),
    *(Goal(WRITE, name, "seconds", 1.1, PARQUET, less=True) for name in SOURCE.values()),
    Goal(WRITE, PUBLISH, "seconds", 1.5, SOURCE[TO_QUEUE], less=True),
    *(Goal(WRITE, name, DISK, 1.2, less=True) for name in SOURCE.values()),
    *(Goal(COMMIT, to, COMMIT_MS, 50, less=True) for to in ARGUMENTS),
    *(Goal(COMMIT, to, MEMORY, 96 * _MIB, less=True) for to in ARGUMENTS),
    *(Goal(COMMIT, to, DISK, 1.2, less=True) for to in ARGUMENTS),
)
PLOTS = [
    Plot("Writing from Spark", "case", "messages_per_s", group=WRITE, unit="rows/s"),
    Plot("Writing from Spark to several servers", "case", "messages_per_s", group=SHARDS,
         unit="rows/s"),
    Plot("The commit alone (less is better)", "case", COMMIT_MS, group=COMMIT, log_y=True,
         unit="ms"),
]  # fmt: skip


def missing() -> str | None:
    """How to get what is not there."""
    absent = [name for name in ("pyspark", "spark_udfs") if importlib.util.find_spec(name) is None]
    return f"Python has no {', '.join(absent)}: pip install 'pyqstore[spark]'" if absent else None


@dataclass(frozen=True)
class Work:
    """A session that runs: stands in for a workload's module."""

    spark: SparkSession
    staged: Path
    """Where the files for commits are, or will be."""

    def cases(self, options: Options) -> list[Case]:
        """Every way to write, then the commits."""
        rows = options.count(_ROWS, 1000)
        ways: dict[str, Callable[[Path, int], Sample]] = {
            COUNTING: self._count,
            PARQUET: self._write_parquet,
            **{name: partial(self._write, to) for to, name in SOURCE.items()},
            PUBLISH: self._publish,
        }
        found = [
            Case(
                name,
                partial(_run, way, rows),
                {"rows": rows},
                None if name == COUNTING else COUNTING,
                WRITE,
            )
            for name, way in ways.items()
        ]
        found += [
            Case(
                name,
                partial(_run, partial(self._deal, count), rows),
                {"rows": rows},
                group=SHARDS,
            )
            for count, name in SERVERS.items()
        ]
        rows = options.count(_COMMIT_ROWS, 1000)
        return found + [
            Case(to, partial(self._commit, to, rows), {"rows": rows}, group=COMMIT)
            for to in ARGUMENTS
        ]

    def notes(self, results: Sequence[Result]) -> list[str]:
        """What the numbers are, and each goal beside what came."""
        return [
            "A job is timed from its action to its return: rows are computed in Java, go to Python"
            " as Arrow batches, and are durable at the end. Counting is what Spark itself costs."
            " Parquet is written by Java alone, and synced by nobody.",
            "All servers and Spark share this machine, so that more servers do not have more"
            " processors here: what a row costs all of them together shows, and that dealing it by"
            " its key costs little.",
            f"The commit adopts {PARTITIONS} staged files whose rows have {KEYS:,} routing keys. A"
            " stream gets the files as they are; into queues their rows are published in one"
            " transaction, which memory holds. Memory is the largest that the process had, over"
            " what it had before; disk is all but the journal, after a checkpoint.",
            *goals.told(GOALS, results),
        ]

    def _frame(self, rows: int) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        body = F.rpad(F.col("id").cast("string"), BODY_BYTES, "x").cast("binary")
        return self.spark.range(0, rows, 1, PARTITIONS).select(body.alias("body"))

    def _count(self, directory: Path, rows: int) -> Sample:
        from .spark_counting import NAME

        report = directory / "rows"
        writer = self._frame(rows).write.format(NAME).option("report", str(report))
        seconds = _timed(writer.mode("append").save)
        expect(int(report.read_text()), rows)
        return _sample(seconds, rows)

    def _write_parquet(self, directory: Path, rows: int) -> Sample:
        writer = self._frame(rows).write
        return _sample(_timed(lambda: writer.parquet(str(directory / "parquet"))), rows)

    def _write(self, to: str, directory: Path, rows: int) -> Sample:
        path = directory / "store"
        with pyqstore.open(path) as store:
            _declare(store, to)
        writer = self._frame(rows).write.format("pyqstore").option("path", str(path))
        seconds = _timed(writer.option("routing_key", QUEUE).mode("append").save)
        with pyqstore.open(path) as store:
            store.checkpoint()
            _expect(store, rows)
            occupied = content_bytes(path)
        return _sample(seconds, rows, occupied)

    def _publish(self, directory: Path, rows: int) -> Sample:
        from spark_udfs import publish

        with pyqstore.open(directory / "store") as store, store.channel() as channel:
            _declare(store, TO_QUEUE)
            frame = self._frame(rows)
            seconds = _timed(lambda: publish(frame, channel, "", QUEUE, progress=False))
            _expect(store, rows)
        return _sample(seconds, rows)

    def _deal(self, servers: int, directory: Path, rows: int) -> Sample:
        from pyspark.sql import functions as F  # noqa: N812

        key = (F.xxhash64("body") % KEYS).cast("string")
        with spark_shards.served(directory, servers) as urls:
            writer = self._frame(rows).withColumn("message_id", key).write.format("pyqstore")
            writer = writer.options(url=urls, routing_key=QUEUE, shard_by="message_id")
            seconds = _timed(writer.mode("append").save)
        expect(spark_shards.count_of(directory, servers), rows)
        return _sample(seconds, rows)

    def _commit(self, to: str, rows: int, directory: Path) -> Sample:
        if not self.staged.exists():
            stage(self.staged, rows)
        figures = child.call(adopt, path=directory / "store", folder=self.staged, to=to)
        return Sample(figures.pop("seconds"), rows, rows * BODY_BYTES, figures=figures)


@contextmanager
def begun(_options: Options, directory: Path, progress: Progress) -> Iterator[Work]:
    """Start Spark; end it with the block."""
    if (why := missing()) is not None:
        raise RuntimeError(why)
    from spark_udfs import QStoreDataSource, local_session

    from .spark_counting import registered

    progress("starting Spark", 0, 1)
    directory = directory.resolve()
    own = directory / "spark"
    own.mkdir()
    cores = min(_MOST_CORES, len(os.sched_getaffinity(0)))
    spark = local_session(f"local[{cores}]", directory=own, log=directory / "spark.log")
    try:
        spark.dataSource.register(QStoreDataSource)
        registered(spark)
        yield Work(spark, directory / "staged")
    finally:
        spark.stop()


def _run(way: Callable[[Path, int], Sample], rows: int, directory: Path) -> Sample:
    sample = way(directory, rows)
    os.sync()  # what is left for later must not burden the next one
    return sample


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _sample(seconds: float, rows: int, occupied: int = 0) -> Sample:
    figures = {DISK: occupied / (rows * BODY_BYTES)} if occupied else {}
    return Sample(seconds, rows, rows * BODY_BYTES, figures=figures)


def _declare(store: pyqstore.Store, to: str) -> None:
    with store.channel() as channel:
        channel.queue_declare(QUEUE, durable=True, arguments=ARGUMENTS[to])


def _expect(store: pyqstore.Store, rows: int) -> None:
    with store.channel() as channel:
        expect(channel.queue_declare(QUEUE, passive=True).message_count, rows)
