"""In a child of fork() every call says so, at once, and the parent does not notice."""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio

from ..support import fill_aio


async def ask(store: aio.Store, channel: aio.Channel, receipt: aio.Receipt | None = None) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "sync": store.sync,
        "checkpoint": store.checkpoint,
        "stats": store.stats,
        "queue_status": lambda: store.queue_status("q"),
        "queue_declare": lambda: channel.queue_declare("q"),
        "publish": lambda: channel.basic_publish("", "q", b"x"),
        "get": lambda: channel.basic_get("q"),
        "batch": lambda: channel.get_batch("q"),
        "ack": lambda: channel.basic_ack(1),
        "channel": store.channel,
    }
    if receipt is not None:
        calls["receipt"] = receipt.wait
    for name, call in calls.items():
        try:
            await asyncio.wait_for(call(), 10)
        except pyqstore.ForkedStore:
            continue
        raise AssertionError(f"{name} returned")
    async with asyncio.timeout(10):
        await channel.close()
        await store.close()


def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def prepared(path: Path) -> tuple[aio.Store, aio.Channel, aio.Receipt]:
    store = await aio.open(path, commit_delay_us=1_000_000)
    channel = await store.channel()
    await channel.queue_declare("q")
    await channel.queue_declare("durable", durable=True)
    return store, channel, await channel.publish_batch(pa.table({"body": [b"x"]}), "", "durable")


# A receipt must not be done before the fork.
@pytest.mark.parametrize("with_receipt", [False, pytest.param(True, marks=pytest.mark.clock)])
def test_a_loop_of_the_child_is_told(path: Path, with_receipt: bool) -> None:
    async def end(store: aio.Store, channel: aio.Channel) -> None:
        await channel.close()
        await store.close()

    with asyncio.Runner() as runner:
        store, channel, receipt = runner.run(prepared(path))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asked = ask(store, channel, receipt if with_receipt else None)
                asyncio.new_event_loop().run_until_complete(asked)
                code = 0
            finally:
                os._exit(code)
        assert exit_code_of(child) == 0
        runner.run(end(store, channel))


async def test_the_parents_bell_rings_after_the_child_closed_its_channel(path: Path) -> None:
    """The child's loop watches through the same kernel object as the parent's."""
    async with await aio.open(path) as store, await store.channel() as channel:
        await channel.queue_declare("q")
        forgotten = await store.channel()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                await channel.close()
                del forgotten
                gc.collect()
                await asyncio.sleep(0)
                code = 0
            finally:
                os._exit(code)
        assert exit_code_of(child) == 0
        tag = await forgotten.basic_consume("q")
        waiting = asyncio.create_task(forgotten.next_delivery(tag))
        await asyncio.sleep(0)
        await channel.basic_publish("", "q", b"x")
        async with asyncio.timeout(10):
            assert await waiting is not None
        await channel.confirm_select()
        await channel.basic_publish("", "q", b"x")
        await forgotten.close()


async def test_a_forked_child_is_told(aio_channel: aio.Channel) -> None:
    await fill_aio(aio_channel, 1)
    child = os.fork()
    if child == 0:
        told = 1
        try:
            await aio_channel.basic_get("q")
        except pyqstore.ForkedStore:
            told = 0
        finally:
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (await aio_channel.basic_get("q")) is not None
