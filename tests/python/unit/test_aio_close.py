"""Closing a store: every task that waits is told, and no descriptor is read that is another's."""

import asyncio
import gc
import os
import threading
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, wait_until

ROUNDS = 300
PUBLISHERS = 12
CONSUMERS = 4
PIPES = 64
ENDS = (pyqstore.ChannelClosed, pyqstore.StoreClosed)


class Stranger:
    """A thread that opens pipes and eventfds, writes 8 bytes into each and reads them back a while
    later.  It takes the numbers of descriptors that the store closes meanwhile."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.lost = 0
        self.opened = 0
        self.checked = 0
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop.set()
        self._thread.join()

    def _work(self) -> None:
        mine: deque[tuple[int, int]] = deque()
        while not self.stop.is_set():
            mine.append(self._opened())
            self.opened += 1
            if len(mine) > PIPES:
                self._check(*mine.popleft())
            self.stop.wait(0.0001)

        while mine:
            self._check(*mine.popleft())

    def _opened(self) -> tuple[int, int]:
        if self.checked % 2:
            reader = writer = os.eventfd(0, os.EFD_NONBLOCK)
        else:
            reader, writer = os.pipe2(os.O_NONBLOCK)
        os.write(writer, (1).to_bytes(8, "little"))
        return reader, writer

    def _check(self, reader: int, writer: int) -> None:
        self.checked += 1
        try:
            self.lost += os.read(reader, 8) != (1).to_bytes(8, "little")
        except BlockingIOError:
            self.lost += 1
        for descriptor in {reader, writer}:
            os.close(descriptor)


async def publish_for_ever(channel: aio.Channel) -> None:
    while True:
        await channel.basic_publish("", "q", b"x", PERSISTENT)


async def iterate(channel: aio.Channel) -> None:
    async for message in channel.consume("q"):
        await message.ack()


async def get_for_ever(channel: aio.Channel) -> None:
    while True:
        await channel.basic_get("q", auto_ack=True)


async def get_batches(channel: aio.Channel) -> None:
    while True:
        await channel.get_batch("empty", timeout=None)


async def listen(channel: aio.Channel) -> None:
    while True:
        await channel.process_events(None)


CONSUME = (iterate, get_for_ever, get_batches, listen)


def close_elsewhere(store: aio.Store) -> Awaitable[None]:
    return asyncio.to_thread(lambda: asyncio.run(store.close()))


async def one_round(path: Path, number: int) -> None:
    store = await aio.open(path, sync="none", journal_file_bytes="64KiB")
    shared = await store.connection()
    channels = [
        await (shared.channel() if i % 3 == 2 else store.channel())
        for i in range(PUBLISHERS + CONSUMERS)
    ]
    await channels[0].queue_declare("q", durable=True)
    await channels[0].queue_declare("empty")
    for channel in channels[:PUBLISHERS]:
        await channel.confirm_select()
    tasks = [asyncio.create_task(publish_for_ever(channel)) for channel in channels[:PUBLISHERS]]
    tasks += [
        asyncio.create_task(consume(channel))
        for consume, channel in zip(CONSUME, channels[PUBLISHERS:], strict=True)
    ]
    await asyncio.sleep(number % 7 * 0.001)
    if number % 5 == 4:
        await shared.close()
    if number % 3 == 2:
        await close_elsewhere(store)
    else:
        await store.close()
    _, waiting = await asyncio.wait(tasks, timeout=20)
    assert not waiting, f"round {number}: {waiting}"
    assert {type(task.exception()) for task in tasks} <= set(ENDS)
    for channel in channels:
        assert channel.closed
        await channel.close()


@pytest.mark.slow
def test_closing_leaves_no_task_waiting_and_reads_nothing_from_other_threads_pipes(
    path: Path,
) -> None:
    async def main() -> None:
        for number in range(ROUNDS):
            await one_round(path, number)

    gc.collect()  # what other tests left is not closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    with Stranger() as stranger:
        asyncio.run(main())
        wait_until(lambda: stranger.opened > ROUNDS)
    assert stranger.checked > ROUNDS
    assert stranger.lost == 0
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_descriptor_stays_the_loops_while_another_thread_closes_the_store(
    path: Path,
) -> None:
    """The loop has been told that the channel's descriptor is readable, and has not read it yet,
    when the store is closed and everything that was closed is opened as something else."""
    store = await aio.open(path)
    channel, other = await store.channel(), await store.channel()
    await channel.queue_declare("q")
    waiting = asyncio.create_task(anext(channel.consume("q")))
    await asyncio.sleep(0.05)
    pipes: list[tuple[int, int]] = []

    def close_and_reopen() -> None:
        loop.remove_reader(first[0])
        thread = threading.Thread(target=lambda: asyncio.run(store.close()))
        thread.start()
        thread.join()
        for _ in range(100):
            pipes.append(os.pipe2(os.O_NONBLOCK))
            os.write(pipes[-1][1], b"12345678")

    loop = asyncio.get_running_loop()
    first = os.pipe()
    loop.add_reader(first[0], close_and_reopen)
    # Both are there when the loop looks next, in this order.
    os.write(first[1], b"x")
    other._twin.basic_publish("", "q", b"x")
    await asyncio.wait([waiting], timeout=20)
    assert [os.read(pipe[0], 8) for pipe in pipes] == [b"12345678"] * len(pipes)
    assert waiting.done()
    assert isinstance(waiting.exception(), ENDS)
    for pipe in [first, *pipes]:
        os.close(pipe[0])
        os.close(pipe[1])


@pytest.mark.parametrize("what", ["store", "connection", "error"])
async def test_process_events_without_a_timeout_ends_with_the_channel(
    path: Path, what: str
) -> None:
    async with asyncio.timeout(20), await aio.open(path) as store:
        connection = await store.connection()
        channel = await connection.channel()
        listening = asyncio.create_task(channel.process_events(None))
        await asyncio.sleep(0.01)
        if what == "error":
            with pytest.raises(pyqstore.PreconditionFailed):
                await channel.basic_ack(99)
        else:
            await {"store": store, "connection": connection}[what].close()
        with pytest.raises(ENDS):
            await listening


async def test_an_iteration_that_begins_while_the_store_is_closed_ends(path: Path) -> None:
    """Its consumer is registered behind a call that a thread has, and so after the end."""
    store = await aio.open(path)
    channel = await store.channel()
    await channel.queue_declare("q")
    for turns in range(30):
        channel = await store.channel()
        declaring = asyncio.create_task(channel.queue_declare("q"))
        tasks = [asyncio.create_task(anext(channel.consume("q"))), declaring]
        tasks += [asyncio.create_task(channel.basic_get("q"))]
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.create_task(channel.close())
        _, waiting = await asyncio.wait(tasks, timeout=20)
        assert not waiting, f"after {turns} turns: {waiting}"
        await closing
    await store.close()


async def test_a_cancelled_close_goes_on_and_a_second_one_waits_for_it(path: Path) -> None:
    async with asyncio.timeout(20):
        store = await aio.open(path)
        connection = await store.connection()
        channels = [await connection.channel(), await store.channel(), await store.channel()]
        for closing in (connection.close, channels[1].close, store.close):
            task = asyncio.create_task(closing())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await closing()
        assert all(channel.closed for channel in channels)
        assert store.closed
        for channel in channels:
            await channel.close()
        (await aio.open(path))._store.close()


async def test_a_busy_thread_of_the_store_does_not_keep_a_loop_from_closing_channels(
    path: Path,
) -> None:
    """While a store is being closed nobody waits in the loop for that."""
    begun, go_on = threading.Event(), threading.Event()

    def keep() -> None:  # a call of which the store counts that it is under way
        begun.set()
        go_on.wait(200)

    async with asyncio.timeout(200):
        store = await aio.open(path)
        connection, channel = await store.connection(), await store.channel()
        busy = [asyncio.create_task(store._threads.run(keep)) for _ in range(4)]
        await asyncio.to_thread(begun.wait, 60)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        await channel.close()
        await connection.close()
        await asyncio.wait_for(closing, 60)  # which needs none of the four
        go_on.set()
        await asyncio.gather(*busy)


@pytest.mark.clock
def test_channels_of_a_loop_that_is_gone_leave_no_descriptor(path: Path) -> None:
    async def leave() -> tuple[aio.Store, list[aio.Channel]]:
        store = await aio.open(path)
        return store, [await store.channel() for _ in range(8)]

    asyncio.run(leave_and_close(path))
    before = len(os.listdir("/proc/self/fd"))
    store, channels = asyncio.run(leave())
    asyncio.run(store.close())
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(channel.closed for channel in channels)


async def leave_and_close(path: Path) -> None:
    await (await aio.open(path)).close()
