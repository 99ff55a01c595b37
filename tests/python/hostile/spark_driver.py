"""A driver of Spark that does what it is told: a line of JSON for each job, and one for its end.

The first argument is JSON: ``master``, ``folder`` for what Spark writes, ``conf``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def write(spark: Any, told: dict[str, Any]) -> None:
    """A job with a ``txnid``: the numbers from ``first`` on, to the exchange "events"."""
    first, rows = told["first"], told["rows"]
    frame = spark.range(first, first + rows, 1, 3).selectExpr(
        "cast(id as string) as body", "concat('n.', id % 2) as routing_key"
    )
    writer = frame.write.format("pyqstore").mode("append").options(**told["at"])
    writer.options(exchange="events", txnid=told["key"]).save()


def copy(spark: Any, told: dict[str, Any]) -> None:
    """A query that moves all there is from the queue "all" to the queue "copies"."""
    query = (
        spark.readStream.format("pyqstore")
        .options(**told["at"], queue="all", maxRowsPerBatch=str(told["batch"]))
        .load()
        .select("body")
        .writeStream.format("pyqstore")
        .options(**told["at"], routing_key="copies")
        .option("checkpointLocation", told["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def session(told: dict[str, Any]) -> Any:
    """On ``local-cluster``: once both executors are there."""
    from spark_udfs.session import local_session

    folder = Path(told["folder"])
    spark = local_session(
        told["master"], directory=folder, log=folder / "log", conf=dict(told["conf"])
    )
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    while told["master"].startswith("local-cluster") and executors().size() < 3:
        time.sleep(0.05)
    return spark


def main() -> None:
    """One job after the other until the end of stdin."""
    spark = session(json.loads(sys.argv[1]))
    print("{}", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        said: dict[str, str] = {}
        try:
            {"write": write, "copy": copy}[told["job"]](spark, told)
        except Exception as error:
            said["error"] = str(error) or repr(error)
        print(json.dumps(said), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
