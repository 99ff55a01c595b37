"""What the work `scaling` does with a store in a round.

Stores have room in memory for what is measured, where nothing else is said: what paging costs is in
the parts that say so.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyqstore

from .backlogs import BUDGET
from .runs import Sample, repeated
from .stores import PERSISTENT, QUEUE, confirm, opened, opened_store, prepared, publish_rows

_BODY_BYTES = 100
_BODY = b"x" * _BODY_BYTES
_ROWS = 10_000
_ROOM = 1 << 30
_TRANSACTION_BUDGET = 2 << 20


def _batch(rows: int, body_bytes: int = _BODY_BYTES, keys: Sequence[str] = ()) -> Any:
    columns = {"body": pa.array([b"x" * body_bytes] * rows, pa.binary())}
    if keys:
        every = list(itertools.islice(itertools.cycle(keys), rows))
        columns["routing_key"] = pa.array(every).dictionary_encode()
    return pa.record_batch(columns)


def _sample(seconds: float, messages: int, body_bytes: int = _BODY_BYTES) -> Sample:
    return Sample(seconds, messages, messages * body_bytes)


def _drained(channel: pyqstore.Channel, queue: str, rows: int) -> int:
    """Receive and acknowledge all of a queue; how many there were."""
    count = 0
    while True:
        got = channel.get_batch(queue, max_messages=rows)
        if not got.num_rows:
            return count
        count += got.num_rows
        channel.basic_ack(got["delivery_tag"][-1].as_py(), multiple=True)


# Threads, each with a channel and a queue of its own.

Work = Callable[[pyqstore.Channel, str], Sample | None]


@contextmanager
def _several(directory: Path, count: int, messages: int) -> Iterator[list[pyqstore.Channel]]:
    """So many channels in confirm mode, and queues "q0", "q1" ... of a store with room."""
    with opened_store(directory, memory_budget=_ROOM) as store:
        prepared(store, messages, _BODY_BYTES).close()
        channels = [store.channel() for _ in range(count)]
        for place, channel in enumerate(channels):
            channel.queue_declare(f"q{place}", durable=True)
            channel.confirm_select()
        yield channels


def _together(channels: Sequence[pyqstore.Channel], work: Work) -> tuple[float, list[Sample]]:
    """Each channel's work in a thread: how long it took them, and what they say."""
    ready = threading.Barrier(len(channels) + 1)
    told: list[Sample | None] = []

    def go(place: int, channel: pyqstore.Channel) -> None:
        ready.wait()
        told.append(work(channel, f"q{place}"))

    # Daemons: whoever is interrupted before all are ready does not wait for them.
    workers = [threading.Thread(target=go, args=each, daemon=True) for each in enumerate(channels)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if len(told) < len(channels):
        raise RuntimeError("a thread failed")
    return seconds, [sample for sample in told if sample is not None]


def wait_in_threads(count: int, waits: int, directory: Path) -> Sample:
    """One message, its confirm, the next."""

    def work(channel: pyqstore.Channel, queue: str) -> Sample:
        def once() -> None:
            channel.basic_publish("", queue, _BODY, PERSISTENT)
            confirm(channel)

        return repeated(waits, once, 1, _BODY_BYTES)

    with _several(directory, count, count * waits) as channels:
        seconds, samples = _together(channels, work)
    latencies = [latency for sample in samples for latency in sample.latencies_us]
    return Sample(seconds, len(latencies), len(latencies) * _BODY_BYTES, latencies)


def publish_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Single messages, confirmed at the end."""

    def work(channel: pyqstore.Channel, queue: str) -> None:
        for _ in range(messages // count):
            channel.basic_publish("", queue, _BODY, PERSISTENT)
        confirm(channel)

    with _several(directory, count, messages) as channels:
        seconds, _ = _together(channels, work)
    return _sample(seconds, messages // count * count)


def batch_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Record batches, confirmed at the end."""
    each = messages // count
    batch = _batch(min(each, _ROWS))

    def work(channel: pyqstore.Channel, queue: str) -> None:
        _publish(channel, batch, each, queue)
        confirm(channel)

    with _several(directory, count, messages) as channels:
        seconds, _ = _together(channels, work)
    return _sample(seconds, each * count)


def _publish(channel: pyqstore.Channel, batch: Any, messages: int, queue: str = "") -> None:
    for left in range(messages, 0, -batch.num_rows):
        channel.publish_batch(batch.slice(0, left), "", queue)


def get_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Record batches out again."""
    each = messages // count
    batch = _batch(min(each, _ROWS))

    def work(channel: pyqstore.Channel, queue: str) -> None:
        if _drained(channel, queue, _ROWS) != each:
            raise RuntimeError("messages are missing")

    with _several(directory, count, messages) as channels:
        for place, channel in enumerate(channels):
            _publish(channel, batch, each, f"q{place}")
            confirm(channel)
        seconds, _ = _together(channels, work)
    return _sample(seconds, each * count)


# Queues, one after the other.


@contextmanager
def _queues(
    directory: Path, count: int, messages: int
) -> Iterator[tuple[pyqstore.Store, pyqstore.Channel, list[str]]]:
    """A store with room and so many queues.  They are declared without syncs, which say nothing
    here."""
    names = [f"q{place}" for place in range(count)]
    with opened_store(directory, sync="none") as store, store.channel() as channel:
        for name in names:
            channel.queue_declare(name, durable=True)
    options: pyqstore.StoreOptions = {"checkpoint_bytes": 0, "checkpoint_interval": None}
    options["memory_budget"] = _ROOM
    with opened_store(directory, **options) as store:
        channel = prepared(store, messages, _BODY_BYTES)
        yield store, channel, names
        channel.close()


def publish_to_queues(count: int, messages: int, directory: Path) -> Sample:
    """Single messages in turn, confirmed at the end."""
    with _queues(directory, count, messages) as (_, channel, names):
        start = time.perf_counter()
        for name in itertools.islice(itertools.cycle(names), messages):
            channel.basic_publish("", name, _BODY, PERSISTENT)
        confirm(channel)
        return _sample(time.perf_counter() - start, messages)


def batch_to_queues(count: int, messages: int, directory: Path) -> Sample:
    """Record batches whose rows take turns, confirmed at the end."""
    with _queues(directory, count, messages) as (_, channel, names):
        batch = _batch(min(messages, _ROWS), keys=names)
        start = time.perf_counter()
        _publish(channel, batch, messages)
        confirm(channel)
        return _sample(time.perf_counter() - start, messages)


def get_from_queues(count: int, messages: int, directory: Path) -> Sample:
    """Each queue received to its end."""
    with _queues(directory, count, messages) as (_, channel, names):
        _publish(channel, _batch(min(messages, _ROWS), keys=names), messages)
        confirm(channel)
        start = time.perf_counter()
        received = sum(_drained(channel, name, _ROWS) for name in names)
        seconds = time.perf_counter() - start
        if received != messages:
            raise RuntimeError(f"{received} messages came back of {messages}")
        return _sample(seconds, messages)


def checkpoint_queues(count: int, messages: int, directory: Path) -> Sample:
    """A checkpoint of all of them, which batches filled in turn."""
    with _queues(directory, count, messages) as (store, channel, names):
        _publish(channel, _batch(min(messages, _ROWS), keys=names), messages)
        confirm(channel)
        start = time.perf_counter()
        store.checkpoint()
        return _sample(time.perf_counter() - start, messages)


# Bodies.


def wait_for_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """One message, its confirm, the next."""
    body = b"x" * body_bytes
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:

        def once() -> None:
            channel.basic_publish("", QUEUE, body, PERSISTENT)
            confirm(channel)

        return repeated(count, once, 1, body_bytes)


def publish_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """Single messages, confirmed at the end."""
    body = b"x" * body_bytes
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:
        start = time.perf_counter()
        for _ in range(count):
            channel.basic_publish("", QUEUE, body, PERSISTENT)
        confirm(channel)
        return _sample(time.perf_counter() - start, count, body_bytes)


def batch_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """Record batches of up to 4 MiB, confirmed at the end."""
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:
        start = time.perf_counter()
        publish_rows(channel, count, body_bytes)
        return _sample(time.perf_counter() - start, count, body_bytes)


def get_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """Record batches out again."""
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:
        publish_rows(channel, count, body_bytes)
        rows = max(1, min(_ROWS, (4 << 20) // body_bytes))
        start = time.perf_counter()
        received = _drained(channel, QUEUE, rows)
        seconds = time.perf_counter() - start
        if received != count:
            raise RuntimeError(f"{received} messages came back of {count}")
        return _sample(seconds, count, body_bytes)


# Beyond memory.


def batches_beyond_memory(rows: int, messages: int, directory: Path) -> Sample:
    """Batches of so many rows, and how long a call made its publisher wait at most."""
    batch = _batch(min(rows, messages))
    longest = 0.0
    with opened(directory, messages, _BODY_BYTES, memory_budget=BUDGET) as channel:
        start = time.perf_counter()
        for left in range(messages, 0, -batch.num_rows):
            begin = time.perf_counter()
            channel.publish_batch(batch.slice(0, left), "", QUEUE)
            longest = max(longest, time.perf_counter() - begin)
        confirm(channel)
        seconds = time.perf_counter() - start
    figures = {"longest_call_us": longest * 1e6}
    return Sample(seconds, messages, messages * _BODY_BYTES, figures=figures)


def transaction(count: int, directory: Path) -> Sample:
    """So many single messages in one transaction."""
    with opened_store(directory, memory_budget=_TRANSACTION_BUDGET) as store:
        prepared(store, count, _BODY_BYTES).close()
        with store.channel() as channel:
            channel.tx_select()
            start = time.perf_counter()
            for _ in range(count):
                channel.basic_publish("", QUEUE, _BODY, PERSISTENT)
            begin = time.perf_counter()
            channel.tx_commit()
            end = time.perf_counter()
    figures = {"commit_us_per_message": (end - begin) * 1e6 / count}
    return Sample(end - start, count, count * _BODY_BYTES, figures=figures)
