"""One quiet Spark session for all tests here, frames to publish, and a store to write to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyqstore
from spark_udfs.session import local_session

from .. import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:PySpark does not yet fully support pandas:FutureWarning"
                )
            )


@pytest.fixture(scope="session", autouse=True)
def light_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Python processes of Spark's start faster from it."""
    home = spark_home.light_home(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", home)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in which a task may fail twice, with batches of 1,000 rows."""
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "local[2,3]",
        directory=folder,
        log=folder / "spark.log",
        conf={
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
            # Snappy's native library does not load where musl lies beside another libc.
            "spark.sql.parquet.compression.codec": "uncompressed",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def numbered(spark: SparkSession) -> Callable[..., Any]:
    """numbered(rows, partitions=4): messages 0 to rows - 1 in order; the key says even or odd."""
    from pyspark.sql import functions as F  # noqa: N812

    def make(rows: int, partitions: int = 4) -> Any:
        return spark.range(0, rows, 1, partitions).select(
            F.col("id").cast("string").alias("body"),
            F.concat(F.lit("n."), F.col("id") % 2).alias("routing_key"),
        )

    return make


@pytest.fixture
def mapped() -> Callable[..., Any]:
    """mapped(frame, function): the frame with function run over each partition's batches."""

    def make(frame: Any, function: Callable[..., Any]) -> Any:
        return frame.mapInArrow(function, frame.schema)

    return make


@pytest.fixture
def failing() -> Callable[..., Any]:
    """failing(how, attempts): for mapInArrow, "kill" or "raise" in partition 1 after its first
    batch, in as many attempts."""

    def make(how: str, attempts: int) -> Callable[..., Iterator[pa.RecordBatch]]:
        def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            for number, batch in enumerate(batches):
                planted = number == 1 and context.partitionId() == 1
                if planted and context.attemptNumber() < attempts:
                    if how == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise RuntimeError("planted")
                yield batch

        return fail

    return make


class StoreOnDisk:
    """A store that is closed except while a helper here looks into it.

    Topic exchange "events"; queue "all" gets everything, "odd" what has the key n.1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with pyqstore.open(path) as store, store.channel() as channel:
            channel.exchange_declare("events", "topic", durable=True)
            for queue, pattern in {"all": "#", "odd": "n.1"}.items():
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "events", pattern)

    def write(self, frame: Any, *, mode: str = "append", **options: Any) -> None:
        """The data source, to the exchange "events" unless told otherwise."""
        writer = frame.write.format("pyqstore").mode(mode).option("path", os.fspath(self.path))
        for name, value in {"exchange": "events", **options}.items():
            writer = writer.option(name, str(value))
        writer.save()

    def publish(self, numbers: range, *, to: str = "queues") -> None:
        """Messages with these numbers as bodies, into the queues or the stream of that name."""
        rows = pa.table(
            {
                "body": [str(number) for number in numbers],
                "routing_key": [f"n.{number % 2}" for number in numbers],
            }
        )
        with pyqstore.open(self.path) as store, store.channel() as channel:
            if to == "queues":
                channel.confirm_select()
                channel.publish_batch(rows, "events").wait()
            else:
                store.stream(to).publish_batch(rows)

    def take(self, queue: str = "all") -> list[dict[str, Any]]:
        """Everything in the queue, acknowledged."""
        rows: list[dict[str, Any]] = []
        with pyqstore.open(self.path) as store, store.channel() as channel:
            while (batch := channel.get_batch(queue)).num_rows:
                rows += batch.to_pylist()
                channel.basic_ack(rows[-1]["delivery_tag"], multiple=True)
        return rows

    def numbers(self, queue: str = "all") -> list[int]:
        """The bodies of everything in the queue, as numbers; acknowledged."""
        return [int(row["body"]) for row in self.take(queue)]

    def ready(self, queue: str = "all") -> int:
        with pyqstore.open(self.path) as store:
            return int(store.queue_status(queue)["messages_ready"])

    def knows(self, key: str) -> bool:
        with pyqstore.open(self.path) as store:
            return bool(store.transaction_known(key))

    @contextmanager
    def owned(self) -> Iterator[pyqstore.Store]:
        """Open here, by an owner that takes nothing in."""
        with pyqstore.open(self.path) as store:
            (self.path / "inbox").rmdir()
            yield store

    @property
    def staged(self) -> list[str]:
        """What lies below the staging folder."""
        root = self.path / "staging"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def disk(tmp_path: Path) -> StoreOnDisk:
    return StoreOnDisk(tmp_path / "store.qs")


@pytest.fixture
def batch_of() -> Callable[..., pa.RecordBatch]:
    """batch_of(numbers): a record batch of messages with these numbers as bodies."""

    def make(numbers: range) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {
                "body": pa.array([str(number) for number in numbers]),
                "routing_key": pa.array([f"n.{number % 2}" for number in numbers]),
            }
        )

    return make
