"""What a Spark job's commit does, without Spark: staged files that a store adopts, in a process of
its own."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

import pyqstore
from pyqstore.bench import gauges
from pyqstore.bench.child import Figures
from pyqstore.bench.loads import bodies, expect
from pyqstore.bench.stores import disk_bytes

PARTITIONS = 4
KEYS = 1000
BODY_BYTES = 100
TO_STREAM, TO_QUEUE = "to a stream", "to a queue"
ARGUMENTS: dict[str, dict[str, str]] = {TO_STREAM: {"x-queue-type": "stream"}, TO_QUEUE: {}}
COMMIT_MS = "commit_ms"
MEMORY = "memory_bytes"
DISK = "disk_bytes_per_byte_of_body"
_EXCHANGE = "events"
_QUEUE = "all"
_ROWS = 10_000  # of a batch
_JOURNAL = "journal"
_RESERVE = "RESERVE"


def stage(folder: Path, rows: int) -> None:
    """Files as the tasks of a job leave them: so many rows, with 1,000 routing keys."""
    folder.mkdir(mode=0o700)
    keys = pa.array([f"key.{number % KEYS}" for number in range(_ROWS)])
    batch = pa.record_batch({"body": bodies(_ROWS, BODY_BYTES), "routing_key": keys})
    for partition in range(PARTITIONS):
        left = rows // PARTITIONS
        with pyqstore.StagedWriter(folder / f"{partition}.qsb", exchange=_EXCHANGE) as writer:
            for begin in range(0, left, _ROWS):
                writer.write_batch(batch.slice(0, min(_ROWS, left - begin)))


def adopt(path: str, folder: str, to: str) -> Figures:
    """Have a new store adopt the files: seconds, the memory that took, the room on the disk."""
    with pyqstore.open(path) as store:
        with store.channel() as channel:
            channel.exchange_declare(_EXCHANGE, "topic", durable=True)
            channel.queue_declare(_QUEUE, durable=True, arguments=ARGUMENTS[to])
            channel.queue_bind(_QUEUE, _EXCHANGE, "#")
        before = gauges.rss_bytes()
        start = time.perf_counter()
        adopted = store.adopt(folder, "job")
        seconds = time.perf_counter() - start
        memory = gauges.peak_rss_bytes() - before
        store.checkpoint()
        with store.channel() as channel:
            there = channel.queue_declare(_QUEUE, passive=True).message_count
        expect(there, adopted.rows)
        occupied = content_bytes(Path(path))
    return {
        "seconds": seconds,
        COMMIT_MS: seconds * 1e3,
        MEMORY: memory,
        DISK: occupied / (adopted.rows * BODY_BYTES),
    }


def content_bytes(store: Path) -> int:
    """What messages occupy after a checkpoint: all but the journal, and the room held free."""
    kept = disk_bytes(store) - disk_bytes(store / _JOURNAL)
    reserve = store / _RESERVE
    return kept - (reserve.stat().st_blocks * 512 if reserve.exists() else 0)
