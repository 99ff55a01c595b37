"""A channel's calls one after another: what one of them does wrong is not the others' end."""

import asyncio
import threading
from pathlib import Path
from typing import Any, Never

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, until

LARGE = bytes(6000)


class Held:
    """A batch of one message that is ready when the test says so: until then it holds the lane."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __arrow_c_stream__(self, *arguments: Any) -> object:
        self.asked.set()
        assert self.go_on.wait(60)
        return pa.table({"body": [b"x"]}).__arrow_c_stream__(*arguments)


@pytest.mark.options(commit_delay_us=100_000)
async def test_publishes_begun_behind_confirm_select_are_confirmed(
    aio_channel: aio.Channel,
) -> None:
    held = Held()
    batch = asyncio.create_task(aio_channel.publish_batch(held, "", "q"))
    await until(held.asked.is_set)
    selecting = asyncio.create_task(aio_channel.confirm_select())
    publishing = asyncio.create_task(aio_channel.basic_publish("", "q", b"x", PERSISTENT))
    waiting = asyncio.create_task(aio_channel.wait_for_confirms())
    await asyncio.sleep(0)
    held.go_on.set()
    await asyncio.gather(batch, selecting)
    assert await publishing == 1
    assert await waiting is True
    receipt = await aio_channel.publish_batch(pa.table({"body": [b"y"]}), "", "q")
    assert await aio_channel.wait_for_confirms() is True
    assert receipt.done


@pytest.mark.options(commit_delay_us=100_000)
async def test_a_cancelled_confirm_select_that_was_made_is_known(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    held = Held()

    async def publish() -> int:
        await aio_channel.publish_batch(held, "", "q")
        selecting.cancel()  # it was made meanwhile, and its task does not know yet
        return await aio_channel.basic_publish("", "q", b"x", PERSISTENT)

    publishing = asyncio.create_task(publish())
    await until(held.asked.is_set)
    selecting = asyncio.create_task(aio_channel.confirm_select())
    await asyncio.sleep(0)
    held.go_on.set()
    assert await publishing == 1
    stats = await aio_store.stats()
    assert stats["durable_lsn"] == stats["appended_lsn"]
    with pytest.raises(asyncio.CancelledError):
        await selecting
    assert await aio_channel.wait_for_confirms() is True


@pytest.mark.parametrize("timeout", [0.01, 0.1])
async def test_a_timeout_is_not_prolonged_by_a_call_in_a_thread(
    aio_channel: aio.Channel, timeout: float
) -> None:
    await aio_channel.confirm_select()
    await aio_channel.queue_declare("other")
    await aio_channel.basic_publish("", "other", b"here", PERSISTENT)
    held = Held()
    batch = asyncio.create_task(aio_channel.publish_batch(held, "", "q"))
    await until(held.asked.is_set)
    with pytest.raises(TimeoutError):
        await aio_channel.wait_for_confirms(timeout=timeout)
    nothing = await aio_channel.get_batch("other", timeout=timeout)
    assert not batch.done()
    held.go_on.set()
    await batch
    something = await aio_channel.get_batch("other", timeout=60)
    assert (len(nothing), len(something)) == (0, 1)
    assert nothing.schema == something.schema
    assert something.column("redelivered").to_pylist() == [False]
    assert await aio_channel.wait_for_confirms(timeout=60) is True


async def test_a_call_that_raises_stop_iteration_does_not_end_the_lane(
    aio_channel: aio.Channel,
) -> None:
    class Over:
        def __arrow_c_stream__(self, *arguments: Any) -> Never:
            raise StopIteration

    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aio_channel.publish_batch(Over(), "", "q")
        assert (await aio_channel.queue_declare("another")).queue == "another"


async def test_progress_that_raises_stop_iteration_is_told(path: Path) -> None:
    def over(done: int, of: int) -> Never:
        raise StopIteration

    async with await aio.open(path) as store, await store.channel() as channel:
        await channel.queue_declare("q", durable=True)
        await channel.basic_publish("", "q", b"x", PERSISTENT)
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aio.open(path, progress=over)


async def test_closing_a_store_ends_thousands_of_calls_that_wait_for_their_turn(path: Path) -> None:
    store = await aio.open(path)
    channels = [await store.channel() for _ in range(5)]  # one more than there are threads
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    await channels[0].queue_declare("q")
    held = [Held() for _ in channels]
    batches = [
        asyncio.create_task(channel.publish_batch(batch, "", "q"))
        for channel, batch in zip(channels, held, strict=True)
    ]
    await until(lambda: all(batch.asked.is_set() for batch in held[:4]))
    calls = [asyncio.create_task(channels[0].queue_declare(f"{i}")) for i in range(1500)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    held[0].go_on.set()
    ended, waiting = await asyncio.wait(calls, timeout=30)
    for batch in held:
        batch.go_on.set()
    assert not waiting
    assert {type(call.exception()) for call in ended} == {pyqstore.ChannelClosed}
    await asyncio.wait(batches)
    # Their threads had them, but were still reading them.
    assert {type(batch.exception()) for batch in batches} <= {type(None), pyqstore.StoreClosed}
    await closing
    assert not reported
