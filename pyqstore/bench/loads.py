"""What the workloads do with a channel, the same thing in the same way in each of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

import pyqstore

QUEUE = "q"
PERSISTENT = pyqstore.Properties(delivery_mode=2)
WAIT_SECONDS = 120.0
_ROWS_MOST = 10_000
_BATCH_BYTES_MOST = 4 << 20
_T = TypeVar("_T")


def confirm(channel: pyqstore.Channel) -> None:
    """Wait for all confirms; a refusal ends the benchmark."""
    if not channel.wait_for_confirms(WAIT_SECONDS):
        raise RuntimeError("the store refused messages")


def once_confirmed(channel: pyqstore.Channel, count: int, body: bytes, queue: str = QUEUE) -> None:
    """Publish so many, one by one, then wait once."""
    for _ in range(count):
        channel.basic_publish("", queue, body, PERSISTENT)
    confirm(channel)


def bodies(rows: int, body_bytes: int) -> Any:
    """A column of bodies."""
    return pa.array([b"x" * body_bytes] * rows, pa.binary())


def batch_of(rows: int, body_bytes: int) -> Any:
    """A record batch of bodies alone."""
    return pa.record_batch({"body": bodies(rows, body_bytes)})


def rows_of(body_bytes: int) -> int:
    """Of a record batch as large as is of use."""
    return max(1, min(_ROWS_MOST, _BATCH_BYTES_MOST // body_bytes))


def parts(batch: Any, messages: int) -> Iterator[Any]:
    """The batch again and again, until its rows are so many: the last part is shorter."""
    for left in range(messages, 0, -batch.num_rows):
        yield batch if left >= batch.num_rows else batch.slice(0, left)


def publish_batches(
    channel: pyqstore.Channel,
    batch: Any,
    messages: int,
    exchange: str = "",
    key: str | None = QUEUE,
) -> None:
    """So many messages, and a wait for their confirms."""
    for part in parts(batch, messages):
        channel.publish_batch(part, exchange, key)
    confirm(channel)


def publish_rows(channel: pyqstore.Channel, messages: int, body_bytes: int) -> None:
    """Fill the queue, as fast as it goes."""
    publish_batches(channel, batch_of(rows_of(body_bytes), body_bytes), messages)


def take(channel: pyqstore.Channel, most: int, queue: str = QUEUE) -> int:
    """Receive and acknowledge up to so many; how many there were."""
    got = channel.get_batch(queue, max_messages=most)
    if got.num_rows:
        channel.basic_ack(got["delivery_tag"][-1].as_py(), multiple=True)
    return int(got.num_rows)


def drained(channel: pyqstore.Channel, rows: int, queue: str = QUEUE) -> int:
    """Receive and acknowledge all of a queue; how many there were."""
    count = 0
    while got := take(channel, rows, queue):
        count += got
    return count


def expect(there: float, messages: int) -> None:
    """A benchmark that lost something measured nothing."""
    if there != messages:
        raise RuntimeError(f"{there} messages came back of {messages}")


def together(tasks: Sequence[Callable[[], _T]]) -> tuple[float, list[_T]]:
    """All at once, each in a thread: the seconds until the last has ended, and what they gave."""
    ready = threading.Barrier(len(tasks) + 1, timeout=WAIT_SECONDS)
    given: list[_T] = []

    def go(task: Callable[[], _T]) -> None:
        ready.wait()
        given.append(task())

    # Daemons: whoever is interrupted before all are ready does not wait for them.
    threads = [threading.Thread(target=go, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if len(given) < len(tasks):
        raise RuntimeError("a thread failed")
    return seconds, given
