"""Writes, reads and streams through a Spark that is not the tests' own: local-cluster, standalone,
Connect.  Run as a process; the first argument is JSON, ``Told``; prints JSON, what it saw.

Each job loses what it is told to in the middle: a Python worker, an executor, or the driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import pyarrow as pa


class Told(TypedDict):
    """What to run on, and on which store; rows: of each job, in 4 partitions."""

    master: str
    remote: str
    conf: dict[str, str]
    store: str
    folder: str
    rows: int
    loses: str
    jobs: list[str]


def session(told: Told) -> Any:
    """A classic session on a master, or a client of a remote one."""
    if not told["remote"]:
        from spark_udfs.session import local_session

        folder = Path(told["folder"]) / "session"
        conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000", **told["conf"]}
        spark = local_session(told["master"], directory=folder, log=folder / "log", conf=conf)
        while not told["master"].startswith("local[") and executors(spark) < 2:
            time.sleep(0.05)
        return spark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(told["remote"])
    for name, value in told["conf"].items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def executors(spark: Any) -> int:
    """How many there are now, beside the driver."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def losing(told: Told, job: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """In partition 1, behind its first batch, the first attempt of a job kills what is named, or
    waits as long as there is a flag."""
    what, folder = told["loses"], Path(told["folder"])

    def lose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and context.partitionId() == 1 and is_first():
                if what == "worker":
                    os.kill(os.getpid(), signal.SIGKILL)
                if what == "executor":
                    # Its child is the daemon that this worker was forked from.
                    status = Path(f"/proc/{os.getppid()}/stat").read_text()
                    os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
                while what == "time" and (folder / "flag").exists():
                    time.sleep(0.05)

    def is_first() -> bool:
        # Spark's numbers of attempts begin anew when a stage does.
        with suppress(FileExistsError):
            (folder / f"lost-{job}").touch(exist_ok=False)
            return True
        return False

    return lose


def write(spark: Any, told: Told) -> None:
    """One job with a ``txnid``: to the queues, and to the stream beside them."""
    rows = spark.range(0, told["rows"], 1, 4).selectExpr(
        "cast(id as string) as body", "concat('n.', id % 2) as routing_key"
    )
    rows = rows.mapInArrow(losing(told, "write"), rows.schema)
    writer = rows.write.format("pyqstore").mode("append").option("path", told["store"])
    writer.option("exchange", "events").option("txnid", "once").save()


def read(spark: Any, told: Told) -> dict[str, int]:
    """Both kinds of batch reads."""
    reader = spark.read.format("pyqstore").option("path", told["store"])
    log = reader.option("stream", "log").option("minPartitions", "4").load()
    log = log.select("body").mapInArrow(losing(told, "read"), "body binary")
    total = log.selectExpr("sum(cast(cast(body as string) as bigint)) as n").collect()[0].n
    reader = spark.read.format("pyqstore").option("path", told["store"])
    return {"log": total, "all": reader.option("queue", "all").load().count()}


def stream(spark: Any, told: Told) -> None:
    """A query from the queue "all" to the queue "copies"."""
    rows = (
        spark.readStream.format("pyqstore")
        .options(path=told["store"], queue="all", maxRowsPerBatch=str(told["rows"] // 2 + 1))
        .load()
        .select("body")
        .repartition(2)
        .mapInArrow(losing(told, "stream"), "body binary")
    )
    query = (
        rows.writeStream.format("pyqstore")
        .options(path=told["store"], routing_key="copies", appid="copy")
        .option("checkpointLocation", os.path.join(told["folder"], "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None


def main() -> None:
    """Does the jobs in their order."""
    told: Told = json.loads(sys.argv[1])
    spark = session(told)
    seen: dict[str, Any] = {}
    for job in told["jobs"]:
        seen[job] = {"write": write, "read": read, "stream": stream}[job](spark, told)
    spark.stop()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
