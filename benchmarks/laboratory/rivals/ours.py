"""pyqstore itself, through the same door as its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

import pyqstore
from pyqstore.bench.runs import timed
from pyqstore.fields import FieldValue

from .contract import ANSWER_SECONDS, BATCH, Rival, package_version

QUEUE = "queue"
PERSISTENT = pyqstore.Properties(delivery_mode=2)


class Pyqstore(Rival):
    """A durable queue, a channel in confirm mode.

    Bodies begin and end as Python bytes, as with the rivals: turning them into Arrow and back is
    part of what is measured.
    """

    name = "pyqstore"
    _arguments: Mapping[str, FieldValue] = {}

    def __init__(self) -> None:
        self._store: pyqstore.Store | None = None

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return package_version("pyqstore")

    def start(self, directory: Path) -> None:
        self._store = pyqstore.open(directory / "store.qs")
        self._channel = self._store.channel()
        self._channel.queue_declare(QUEUE, durable=True, arguments=self._arguments)
        self._channel.confirm_select()

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        def publish() -> None:
            self._channel.basic_publish("", QUEUE, body, PERSISTENT)
            self._confirmed()

        return timed(publish, count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._channel.basic_publish("", QUEUE, body, PERSISTENT)
        self._confirmed()

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            rows = pa.record_batch({"body": pa.array(batch, pa.binary())})
            self._channel.publish_batch(rows, "", QUEUE)
            self._confirmed()

    def consume(self, count: int) -> list[bytes]:
        assert self._store is not None
        bodies: list[bytes] = []
        while len(bodies) < count:
            rows = self._channel.get_batch(QUEUE, min(BATCH, count - len(bodies)))
            if not rows.num_rows:
                raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
            bodies += rows.column("body").to_pylist()
            self._channel.basic_ack(multiple=True)
            self._store.sync()
        return bodies

    def stop(self) -> None:
        if self._store is not None:
            self._store.close()

    def _confirmed(self) -> None:
        if not self._channel.wait_for_confirms(ANSWER_SECONDS):
            raise RuntimeError("a message was refused")


class PyqstoreStream(Pyqstore):
    """A stream: published to like the queue, and read by offset in record batches."""

    name = "pyqstore stream"
    is_stream = True
    _arguments: Mapping[str, FieldValue] = {"x-queue-type": "stream"}

    def start(self, directory: Path) -> None:
        super().start(directory)
        self._next = 0

    def consume(self, count: int) -> list[bytes]:
        assert self._store is not None
        bodies: list[bytes] = []
        end = self._next + count
        for rows in self._store.stream(QUEUE).read(self._next, end, columns=["body"]):
            bodies += rows.column("body").to_pylist()
        if len(bodies) < count:
            raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
        self._next = end
        return bodies
