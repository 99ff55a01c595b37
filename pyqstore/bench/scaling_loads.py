"""What the workload `scaling` does with a store in a round.

Stores have room in memory for what is measured, where nothing else is said: what paging costs is in
the parts that say so.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import pyqstore

from .backlogs import BUDGET
from .loads import (
    PERSISTENT,
    QUEUE,
    batch_of,
    bodies,
    confirm,
    drained,
    expect,
    once_confirmed,
    parts,
    publish_batches,
    publish_rows,
    rows_of,
    together,
)
from .runs import Sample, repeated
from .stores import disk_bytes, opened, opened_store, prepared

_BODY_BYTES = 100
_BODY = b"x" * _BODY_BYTES
_ROWS = 10_000
_ROOM = 1 << 30
_TRANSACTION_BUDGET = 2 << 20
_T = TypeVar("_T")


def _batch(rows: int, keys: Sequence[str]) -> Any:
    """Bodies that go to the queues in turn."""
    every = list(itertools.islice(itertools.cycle(keys), rows))
    keys_column = pa.array(every).dictionary_encode()
    return pa.record_batch({"body": bodies(rows, _BODY_BYTES), "routing_key": keys_column})


def _sample(seconds: float, messages: int, body_bytes: int = _BODY_BYTES) -> Sample:
    return Sample(seconds, messages, messages * body_bytes)


# Threads, each with a channel and a queue of its own.


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


def _each(work: Callable[..., _T], channels: Sequence[pyqstore.Channel]) -> tuple[float, list[_T]]:
    """The work with each channel and its queue's name, all at once."""
    return together([partial(work, each, f"q{place}") for place, each in enumerate(channels)])


def wait_in_threads(count: int, waits: int, directory: Path) -> Sample:
    """One message, its confirm, the next."""

    def work(channel: pyqstore.Channel, queue: str) -> Sample:
        once = partial(once_confirmed, channel, 1, _BODY, queue)
        return repeated(waits, once, 1, _BODY_BYTES)

    with _several(directory, count, count * waits) as channels:
        seconds, samples = _each(work, channels)
    latencies = [latency for sample in samples for latency in sample.latencies_us]
    return Sample(seconds, len(latencies), len(latencies) * _BODY_BYTES, latencies)


def publish_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Single messages, confirmed at the end."""
    each = messages // count

    def work(channel: pyqstore.Channel, queue: str) -> None:
        once_confirmed(channel, each, _BODY, queue)

    with _several(directory, count, messages) as channels:
        seconds, _ = _each(work, channels)
    return _sample(seconds, each * count)


def batch_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Record batches, confirmed at the end."""
    each = messages // count
    batch = batch_of(min(each, _ROWS), _BODY_BYTES)

    def work(channel: pyqstore.Channel, queue: str) -> None:
        publish_batches(channel, batch, each, key=queue)

    with _several(directory, count, messages) as channels:
        seconds, _ = _each(work, channels)
    return _sample(seconds, each * count)


def get_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """Record batches out again."""
    each = messages // count
    batch = batch_of(min(each, _ROWS), _BODY_BYTES)

    def work(channel: pyqstore.Channel, queue: str) -> int:
        return drained(channel, _ROWS, queue)

    with _several(directory, count, messages) as channels:
        for place, channel in enumerate(channels):
            publish_batches(channel, batch, each, key=f"q{place}")
        seconds, received = _each(work, channels)
    for there in received:
        expect(there, each)
    return _sample(seconds, each * count)


def wake_in_threads(count: int, messages: int, directory: Path) -> Sample:
    """A message for each queue in turn, when the thread that waits there has the one before."""
    each = max(1, messages // count)
    received = threading.Semaphore(0)

    def work(channel: pyqstore.Channel, queue: str) -> None:
        for _ in range(each):
            expect(channel.get_batch(queue, 1, auto_ack=True, timeout=None).num_rows, 1)
            received.release()

    def feed(channel: pyqstore.Channel) -> None:
        for place in itertools.chain.from_iterable(itertools.repeat(range(count), each)):
            channel.basic_publish("", f"q{place}", _BODY)
            received.acquire()

    with _several(directory, count + 1, messages) as (*channels, publisher):
        tasks = [partial(work, channel, f"q{place}") for place, channel in enumerate(channels)]
        seconds, _ = together([*tasks, partial(feed, publisher)])
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
        batch = _batch(min(messages, _ROWS), names)
        start = time.perf_counter()
        publish_batches(channel, batch, messages, key=None)
        return _sample(time.perf_counter() - start, messages)


def get_from_queues(count: int, messages: int, directory: Path) -> Sample:
    """Each queue received to its end."""
    with _queues(directory, count, messages) as (_, channel, names):
        publish_batches(channel, _batch(min(messages, _ROWS), names), messages, key=None)
        start = time.perf_counter()
        received = sum(drained(channel, _ROWS, name) for name in names)
        seconds = time.perf_counter() - start
        expect(received, messages)
        return _sample(seconds, messages)


def checkpoint_queues(count: int, messages: int, directory: Path) -> Sample:
    """A checkpoint of all of them, which batches filled in turn."""
    with _queues(directory, count, messages) as (store, channel, names):
        publish_batches(channel, _batch(min(messages, _ROWS), names), messages, key=None)
        start = time.perf_counter()
        store.checkpoint()
        return _sample(time.perf_counter() - start, messages)


def checkpoint_small(count: int, messages: int, directory: Path) -> Sample:
    """A checkpoint of so many queues with a few messages each; then what it takes on the disk for
    each byte of a body, and how long the next open takes."""
    total = count * messages
    with _queues(directory, count, total) as (store, channel, names):
        for first in range(0, count, _ROWS):
            keys = names[first : first + _ROWS]
            publish_batches(channel, _batch(len(keys), keys), len(keys) * messages, key=None)
        start = time.perf_counter()
        store.checkpoint()
        seconds = time.perf_counter() - start
        path = Path(store.path)
        used = sum(disk_bytes(path / part) for part in ("checkpoint", "index", "messages"))
    start = time.perf_counter()
    pyqstore.open(path, memory_budget=_ROOM).close()
    figures = {"disk_over_live": used / (total * _BODY_BYTES)}
    figures["open_close_s"] = time.perf_counter() - start
    return Sample(seconds, total, total * _BODY_BYTES, figures=figures)


# Bodies.


def wait_for_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """One message, its confirm, the next."""
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:
        once = partial(once_confirmed, channel, 1, b"x" * body_bytes)
        return repeated(count, once, 1, body_bytes)


def publish_bodies(body_bytes: int, count: int, directory: Path) -> Sample:
    """Single messages, confirmed at the end."""
    body = b"x" * body_bytes
    with opened(directory, count, body_bytes, memory_budget=_ROOM) as channel:
        start = time.perf_counter()
        once_confirmed(channel, count, body)
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
        rows = rows_of(body_bytes)
        start = time.perf_counter()
        received = drained(channel, rows)
        seconds = time.perf_counter() - start
        expect(received, count)
        return _sample(seconds, count, body_bytes)


# Beyond memory.


def batches_beyond_memory(rows: int, messages: int, directory: Path) -> Sample:
    """Batches of so many rows, and how long a call made its publisher wait at most."""
    batch = batch_of(min(rows, messages), _BODY_BYTES)
    longest = 0.0
    with opened(directory, messages, _BODY_BYTES, memory_budget=BUDGET) as channel:
        start = time.perf_counter()
        for part in parts(batch, messages):
            begin = time.perf_counter()
            channel.publish_batch(part, "", QUEUE)
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
