"""One store, threads and loops on it at once."""

import asyncio
import threading
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, publish_numbers


async def test_threads_and_a_loop_use_one_store(store: pyqstore.Store, queue: str) -> None:
    count = 500

    def publish() -> None:
        with store.channel() as channel:
            channel.confirm_select()
            publish_numbers(channel, "q", count, properties=PERSISTENT)
            assert channel.wait_for_confirms(60)

    seen = []
    async with aio.Store(store) as both, await both.channel() as channel:
        await channel.confirm_select()
        thread = threading.Thread(target=publish)
        thread.start()
        await asyncio.gather(
            *(channel.basic_publish("", "q", b"%d" % n) for n in range(count, 2 * count))
        )
        async with asyncio.timeout(60):
            async for message in channel.consume("q"):
                seen.append(int(message.body))
                await message.ack()
                if len(seen) == 2 * count:
                    break
        thread.join()
    assert both.closed
    assert sorted(seen) == list(range(2 * count))
    assert not store.closed
    status = store.queue_status("q")
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


async def test_closing_gives_back_what_its_channels_hold_and_leaves_the_store_open(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    for _ in range(3):
        channel.basic_publish("", "q", b"x", PERSISTENT)

    both = aio.Store(store)
    first = await both.channel()
    async with await both.connection() as connection:
        await (await connection.channel()).queue_declare("mine", exclusive=True)
    kept = await both.connection("kept")
    await (await kept.channel()).queue_declare("yours", exclusive=True)
    assert await first.basic_get("q") is not None
    waiting = asyncio.create_task(first.process_events(None))
    await asyncio.sleep(0)
    assert store.queue_status("q")["messages_unacked"] == 1
    await both.close()
    await both.close()
    with pytest.raises(pyqstore.ChannelClosed):
        await waiting
    with pytest.raises(pyqstore.StoreClosed):
        await both.channel()
    with pytest.raises(pyqstore.StoreClosed):
        await both.stats()
    with pytest.raises(pyqstore.StoreClosed):
        await both.sync()
    assert both.closed
    assert store.queues() == ["q"]
    assert store.queue_status("q")["messages_ready"] == 3
    assert channel.basic_get("q") is not None


async def test_a_loop_that_waits_learns_that_a_thread_closed_the_store(path: Path) -> None:
    store = pyqstore.open(path)
    both = aio.Store(store)
    channel = await both.channel()
    await channel.queue_declare("q", durable=True)
    tag = await channel.basic_consume("q")
    waiting = asyncio.create_task(channel.next_delivery(tag))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(store.close)
    async with asyncio.timeout(60):
        with pytest.raises(pyqstore.ChannelClosed):
            await waiting
    assert both.closed
    await both.close()


def test_only_an_open_store_is_wrapped(path: Path) -> None:
    store = pyqstore.open(path)
    store.close()
    with pytest.raises(pyqstore.StoreClosed):
        aio.Store(store)
    with pytest.raises(TypeError, match=r"pyqstore\.Store, not str"):
        aio.Store("x")  # type: ignore[arg-type]
