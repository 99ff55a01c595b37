"""Rows in staged files, and what a store has of them when it has adopted the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import pyqstore

STREAM = {"x-queue-type": "stream"}


def rows(first: int, count: int, keys: int = 7) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "body": pa.array([b"body %d" % number for number in numbers], pa.binary()),
            "routing_key": pa.array([f"k{number % keys}" for number in numbers], pa.string()),
            "message_id": pa.array([str(number) for number in numbers], pa.string()),
        }
    )


def write(path: Path, first: int, count: int, **options: Any) -> pyqstore.StagedFile:
    with pyqstore.StagedWriter(path, **options) as writer:
        for at in range(first, first + count, 1000):
            assert writer.write_batch(rows(at, min(1000, first + count - at))) > 0
    return writer.result


def declare(store: pyqstore.Store, name: str, arguments: dict[str, Any] | None = None) -> None:
    with store.channel() as channel:
        channel.exchange_declare("e", "topic", durable=True)
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "e", "#")


def bodies(store: pyqstore.Store, stream: str, **options: Any) -> list[bytes]:
    return list(
        store.stream(stream).read(columns=["body"], **options).read_all()["body"].to_pylist()
    )


def drained(store: pyqstore.Store, queue: str) -> list[bytes]:
    found: list[bytes] = []
    with store.channel() as channel:
        while len(batch := channel.get_batch(queue, 1000, auto_ack=True)):
            found += batch["body"].to_pylist()
    return found


def named(count: int, first: int = 0) -> list[bytes]:
    return [b"body %d" % number for number in range(first, first + count)]
