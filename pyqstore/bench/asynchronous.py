"""asyncio: what pyqstore.aio takes beside the synchronous channel, for the same work.

Persistent messages of 100 B.  Held against the synchronous case of the same round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyqstore
from pyqstore import aio

from .consume import by_iterator
from .loads import (
    PERSISTENT,
    QUEUE,
    WAIT_SECONDS,
    batch_of,
    once_confirmed,
    parts,
    publish_rows,
    rows_of,
)
from .report import Plot
from .runs import Case, Options, Result, Sample
from .stores import opened_store, prepared, settle

TITLE = "asyncio beside the synchronous channel"
BODY_BYTES = 100
RECEIVING = "An iterator, an ack each"
SYNCHRONOUS = "synchronous"
ASYNCIO = "asyncio"

_GROUP_SIZES = (1, 10, 100, 1000, 10_000)
_MESSAGES = 20_000
_WAITS = 500
_FULL_SIZE_MESSAGES = 1_000_000
_BODY = b"x" * BODY_BYTES

PLOTS = [
    Plot(RECEIVING, "case", "messages_per_s", group=RECEIVING),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """Publishing in groups, receiving; each with and without await."""
    return [*groups(options), *receiving(options)]


def groups(options: Options) -> list[Case]:
    """Publish so many at once, wait until all are confirmed, and again."""
    found = []
    for group in options.sweep(*_GROUP_SIZES):
        times = options.count(min(_WAITS, max(1, _MESSAGES // group)))
        table = f"Confirms, messages outstanding at once: {group}"
        asynchronous = partial(_run, _publish_async, group, times)
        found += [
            Case(SYNCHRONOUS, partial(_publish, group, times), group=table),
            Case(ASYNCIO, asynchronous, floor=SYNCHRONOUS, group=table),
        ]
    return found


def receiving(options: Options) -> list[Case]:
    """Receive all and acknowledge each."""
    count = options.count(_MESSAGES, 20)
    return [
        Case(SYNCHRONOUS, partial(_receive, count), group=RECEIVING),
        Case(
            ASYNCIO,
            partial(_run, _receive_async, count),
            floor=SYNCHRONOUS,
            group=RECEIVING,
        ),
    ]


def _publish(group: int, times: int, directory: Path) -> Sample:
    with _reopened(_made(directory)) as channel:
        start = time.perf_counter()
        for _ in range(times):
            once_confirmed(channel, group, _BODY)
        return _sample(start, group * times)


def _receive(count: int, directory: Path) -> Sample:
    with _reopened(_made(directory)) as channel:
        publish_rows(channel, count, BODY_BYTES)
        start = time.perf_counter()
        by_iterator(channel, count)
        return _sample(start, count)


def _sample(start: float, messages: int) -> Sample:
    return Sample(time.perf_counter() - start, messages, messages * BODY_BYTES)


def _made(directory: Path) -> str:
    """A store for either side to open again, its journal files of their full size."""
    with opened_store(directory) as store:
        prepared(store, _FULL_SIZE_MESSAGES, BODY_BYTES).close()
        return store.path


@contextmanager
def _reopened(path: str) -> Iterator[pyqstore.Channel]:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.confirm_select()
        settle(Path(path))
        yield channel


Measured = Callable[..., Awaitable[Sample]]


def _run(measured: Measured, *arguments: int | Path) -> Sample:
    """As `_reopened`, in a loop."""
    *numbers, directory = arguments
    assert isinstance(directory, Path)
    path = _made(directory)

    async def main() -> Sample:
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.confirm_select()
            settle(Path(path))
            async with asyncio.timeout(WAIT_SECONDS):
                return await measured(channel, *numbers)

    return asyncio.run(main())


async def _publish_async(channel: aio.Channel, group: int, times: int) -> Sample:
    start = time.perf_counter()
    for _ in range(times):
        await asyncio.gather(
            *(channel.basic_publish("", QUEUE, _BODY, PERSISTENT) for _ in range(group))
        )
    return _sample(start, group * times)


async def _receive_async(channel: aio.Channel, count: int) -> Sample:
    for part in parts(batch_of(rows_of(BODY_BYTES), BODY_BYTES), count):
        await channel.publish_batch(part, "", QUEUE)
    if not await channel.wait_for_confirms():
        raise RuntimeError("the store refused messages")
    received = 0
    start = time.perf_counter()
    async with channel.consume(QUEUE) as messages:
        async for message in messages:
            await message.ack()
            received += 1
            if received == count:
                break
    return _sample(start, count)


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    del results
    return [
        "Either side opens a store again whose journal files have their full size.",
        "A ratio of 1 is as fast as the synchronous channel; a task and a future for each publish"
        " are in it.",
        "The synchronous channel leads its commits itself; in a loop the committer does, and the"
        " loop is told.",
    ]
