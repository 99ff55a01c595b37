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
from typing import Any

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
from .plots import Plot
from .runs import Case, Options, Result, Sample
from .stores import opened_store, prepared, settle

TITLE = "asyncio beside the synchronous channel"
BODY_BYTES = 100
RECEIVING = "An iterator, an ack each"
SYNCHRONOUS = "synchronous"
ASYNCIO = "asyncio"
GATHERED = "Python's own floor: 1,000 outstanding, gathered"
IN_TASKS = "Python's own floor: 1,000 outstanding, a task for each, which goes on"
FUTURES = "bare futures, resolved together"

_GROUP_SIZES = (1, 10, 100, 1000, 10_000)
_OUTSTANDING = 1000
_MESSAGES = 20_000
_WAITS = 500
_FULL_SIZE_MESSAGES = 1_000_000
_BODY = b"x" * BODY_BYTES

PLOTS = [
    Plot(RECEIVING, "case", "messages_per_s", group=RECEIVING),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """Publishing in groups, receiving; each with and without await; and what asyncio takes for
    futures that nothing is published for."""
    return [*groups(options), *floors(options), *receiving(options)]


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


def floors(options: Options) -> list[Case]:
    """Await so many confirms, again and again, beside awaiting as many futures."""
    outstanding = min(_OUTSTANDING, options.count(_OUTSTANDING, 10))
    times = options.count(_MESSAGES // _OUTSTANDING * 5)
    found = []
    for table, bare, published in (
        (GATHERED, _gather_futures, _publish_async),
        (IN_TASKS, _futures_in_tasks, _publish_in_tasks),
    ):
        found += [
            Case(FUTURES, partial(_run_bare, bare, outstanding, times), group=table),
            Case(
                ASYNCIO,
                partial(_run, published, outstanding, times),
                floor=FUTURES,
                group=table,
            ),
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


def _sample(start: float, messages: int, cpu_start: float | None = None) -> Sample:
    """With what the thread took of a processor, which other work on the machine hardly changes."""
    seconds = time.perf_counter() - start
    figures = {}
    if cpu_start is not None:
        figures["loop_cpu_us"] = (time.thread_time() - cpu_start) / messages * 1e6
    return Sample(seconds, messages, messages * BODY_BYTES, figures=figures)


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
    start, cpu = time.perf_counter(), time.thread_time()
    for _ in range(times):
        await asyncio.gather(
            *(channel.basic_publish("", QUEUE, _BODY, PERSISTENT) for _ in range(group))
        )
    return _sample(start, group * times, cpu)


async def _publish_in_tasks(channel: aio.Channel, tasks: int, times: int) -> Sample:
    async def publisher() -> None:
        for _ in range(times):
            await channel.basic_publish("", QUEUE, _BODY, PERSISTENT)

    start, cpu = time.perf_counter(), time.thread_time()
    await asyncio.gather(*(publisher() for _ in range(tasks)))
    return _sample(start, tasks * times, cpu)


def _run_bare(measured: Callable[[_Futures, int, int], Awaitable[None]], *rest: Any) -> Sample:
    """Without a store."""
    group, times, _ = rest

    async def main() -> Sample:
        futures = _Futures()
        start, cpu = time.perf_counter(), time.thread_time()
        async with asyncio.timeout(WAIT_SECONDS):
            await measured(futures, group, times)
        return _sample(start, group * times, cpu)

    return asyncio.run(main())


class _Futures:
    """Futures that are resolved together, in the loop's next turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[int]] = []

    def make(self) -> asyncio.Future[int]:
        if not self._waiting:
            self._loop.call_soon(self._resolve)
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _resolve(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(0)


async def _gather_futures(futures: _Futures, group: int, times: int) -> None:
    for _ in range(times):
        await asyncio.gather(*(futures.make() for _ in range(group)))


async def _futures_in_tasks(futures: _Futures, tasks: int, times: int) -> None:
    async def waiter() -> None:
        for _ in range(times):
            await futures.make()

    await asyncio.gather(*(waiter() for _ in range(tasks)))


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
        "A ratio of 1 is as fast as the synchronous channel, or as Python awaits futures that are"
        " resolved together and stand for nothing.",
        "The synchronous channel leads its commits itself; in a loop the committer does, and the"
        " loop is told.",
    ]
