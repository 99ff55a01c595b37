"""Data frames in and out: polars publishes, duckdb reads what a batch holds, one acknowledgement.

python examples/frames.py STORE
"""

import sys

import duckdb
import polars

import pyqstore


def main(path: str) -> None:
    trips = polars.DataFrame(
        {
            "body": [f"trip {number}" for number in range(10_000)],
            "routing_key": [("eu.rome", "us.nyc")[number % 2] for number in range(10_000)],
            "priority": polars.Series([number % 3 for number in range(10_000)], dtype=polars.UInt8),
        }
    )
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.exchange_declare("trips", "topic", durable=True)
        channel.queue_declare("europe", durable=True)
        channel.queue_bind("europe", "trips", "eu.#")
        channel.confirm_select()
        receipt = channel.publish_batch(trips, "trips")  # read in place: polars speaks Arrow
        receipt.wait()
        print(f"{receipt.count} rows are durable")

        batch = channel.get_batch("europe")  # a pyarrow.RecordBatch
        counts = duckdb.sql(
            "select routing_key, priority, count(*) as rows from batch group by all order by all"
        )
        for row in counts.fetchall():
            print(*row)
        frame = polars.from_arrow(batch)
        print(f"{frame.height} rows in polars")
        channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
        print(f"{store.queue_status('europe')['messages_ready']} are left")


if __name__ == "__main__":
    main(sys.argv[1])
