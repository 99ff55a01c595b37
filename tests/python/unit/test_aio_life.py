"""The life of stores, connections and channels of pyqstore.aio: closing, errors, loops."""

import asyncio
import gc
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, fill_aio, wait_until

LARGE = bytes(10_000)  # goes to the message store, so publishing and reading it wait for files


async def test_an_error_closes_the_channel_and_frees_whoever_waits(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.queue_declare("nothing")
    waiting = [
        asyncio.create_task(anext(aio_channel.consume("nothing"))),
        asyncio.create_task(aio_channel.get_batch("nothing", timeout=None)),
    ]
    await asyncio.sleep(0)
    with pytest.raises(pyqstore.PreconditionFailed):
        await aio_channel.basic_ack(99)
    assert aio_channel.closed
    for task in waiting:
        with pytest.raises(pyqstore.ChannelClosed):
            await task
    with pytest.raises(pyqstore.ChannelClosed):
        await aio_channel.basic_get("q")


@pytest.mark.clock
@pytest.mark.options(commit_delay_us=1_000_000)  # the publish waits for longer than the test takes
async def test_an_error_frees_who_waits_for_a_confirm(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    waiting = asyncio.create_task(aio_channel.basic_publish("", "q", b"x", PERSISTENT))
    await asyncio.sleep(0)
    with pytest.raises(pyqstore.PreconditionFailed):
        await aio_channel.basic_ack(99)
    with pytest.raises(pyqstore.ChannelClosed):
        await waiting


@pytest.mark.parametrize("what", ["channel", "connection", "store"])
@pytest.mark.usefixtures("aio_channel")
async def test_closing_rejects_whoever_waits(aio_store: aio.Store, what: str) -> None:
    connection = await aio_store.connection("c")
    shared = await connection.channel()
    await shared.confirm_select()
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(anext(shared.consume("q"))),
        asyncio.create_task(shared.get_batch("q", timeout=None)),
    ]
    await asyncio.sleep(0.02)
    closing = {"channel": shared, "connection": connection, "store": aio_store}[what]
    await closing.close()
    # StoreClosed: on a slow machine the batch was still on its way to a thread.
    for task in waiting:
        with pytest.raises((pyqstore.ChannelClosed, pyqstore.StoreClosed)):
            await task
    assert shared.closed
    await shared.close()
    await connection.close()


def test_a_channel_belongs_to_its_loop(path: Path) -> None:
    async def open_both() -> tuple[aio.Store, aio.Channel]:
        store = await aio.open(path)
        return store, await store.channel()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        store, channel = first.run(open_both())
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run(channel.basic_get("q"))
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run(channel.close())
        first.run(channel.close())
        second.run(store.close())


def test_no_descriptor_is_left(path: Path) -> None:
    async def main() -> None:
        for _ in range(20):
            async with await aio.open(path) as store:
                channels = [await store.channel() for _ in range(10)]
                await channels[0].queue_declare("q")
                await asyncio.gather(
                    *(channel.basic_publish("", "q", b"x") for channel in channels)
                )
                for channel in channels:
                    await channel.close()

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_forgotten_channel_warns_and_is_closed(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    forgotten = await aio_store.channel()
    await fill_aio(aio_channel, 1)
    assert await forgotten.basic_get("q") is not None
    del forgotten
    with pytest.warns(ResourceWarning, match="unclosed channel"):
        gc.collect()
    while len(os.listdir("/proc/self/fd")) > before:
        await asyncio.sleep(0)
    assert (await aio_store.queue_status("q"))["messages_ready"] == 1


def test_a_loop_that_is_gone_leaves_no_thread_waiting(path: Path) -> None:
    async def leave() -> tuple[aio.Store, aio.Channel]:
        store = await aio.open(path)
        channel = await store.channel()
        await channel.queue_declare("q", durable=True)
        task = asyncio.create_task(channel.basic_publish("", "q", LARGE, PERSISTENT))
        await asyncio.sleep(0)
        task.cancel()
        return store, channel

    store, channel = asyncio.run(leave())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del channel
        gc.collect()
    asyncio.run(store.close())
    assert store.closed


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await aio.open(path)
    assert repr(store) == f"<aio.Store '{path}'>"
    await asyncio.gather(store.close(), store.close())
    assert repr(store) == f"<aio.Store '{path}' (closed)>"
    for verb in (store.sync, store.checkpoint, store.queues, store.channel, store.connection):
        with pytest.raises(pyqstore.StoreClosed):
            await verb()


async def test_a_cancelled_open_closes_the_store(path: Path) -> None:
    opening = asyncio.create_task(aio.open(path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    for _ in range(12_000):
        try:
            store = await aio.open(path)
        except (pyqstore.StoreLocked, pyqstore.StoreNotFound):
            await asyncio.sleep(0.005)
        else:
            await store.close()
            return
    pytest.fail("the store stayed open")


async def test_opening_needed_a_second_await(path: Path) -> None:
    async with aio.open(path) as store:
        assert store.path == str(path)
        assert not store.closed
    assert store.closed
    opened = await aio.open(path)
    await opened.close()
    task = asyncio.create_task(aio.open(path))
    await (await task).close()
    with pytest.raises(pyqstore.StoreNotFound):
        async with aio.open(path / "a" / "b"):
            pass
