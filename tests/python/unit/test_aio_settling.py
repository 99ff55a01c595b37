"""Who acknowledges all means what was handed out, not what is on its way."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import pyqstore
from pyqstore import aio

from ..support import number_of

LARGE = bytes(6000)  # read from a file, in a thread, with some more behind it

Run = Callable[..., None]
Fill = Callable[..., Awaitable[None]]


async def counts(store: aio.Store, queue: str = "q") -> tuple[float, float]:
    status = await store.queue_status(queue)
    return status["messages_ready"], status["messages_unacked"]


def test_acknowledging_all_leaves_what_was_not_handed_out(run_aio: Run, fill_aio: Fill) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill_aio(channel, 40, LARGE)
        messages = channel.consume("q")
        assert number_of(await anext(messages)) == 0
        await channel.basic_ack(multiple=True)
        await messages.aclose()
        await channel.basic_qos(0)
        assert await counts(store) == (39, 0)

    run_aio(work)


@pytest.mark.parametrize("verb", ["ack", "nack", "drop"])
def test_what_is_handed_out_after_all_was_settled_can_be_settled(
    run_aio: Run, fill_aio: Fill, verb: str
) -> None:
    async def settle_all(channel: aio.Channel, tag: int) -> None:
        if verb == "ack":
            await channel.basic_ack(tag, multiple=True)
        else:
            await channel.basic_nack(tag, multiple=True, requeue=verb == "nack")

    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill_aio(channel, 40, LARGE)
        async with channel.consume("q") as messages:
            for i in range(16):  # as many as were read together
                message = await anext(messages)
                assert number_of(message) == i
                assert not message.redelivered
                await settle_all(channel, message.delivery_tag if i % 2 else 0)
        await channel.basic_qos(0)
        assert await counts(store) == (40 if verb == "nack" else 24, 0)

    run_aio(work)


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("tag", ["all", "its own"])
def test_the_other_consumers_messages_are_not_acknowledged_with_mine(
    run_aio: Run, fill_aio: Fill, in_transaction: bool, tag: str
) -> None:
    """B's messages have lower tags than the one that A was handed."""

    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.queue_declare("a")
        await fill_aio(channel, 3)
        first = await channel.basic_consume("a")
        second = await channel.basic_consume("q")
        waiting = asyncio.create_task(channel.next_delivery(first))
        while (await counts(store))[1] < 3:  # A's asking took what came for B
            await asyncio.sleep(0)
        await channel.basic_publish("", "a", b"7")
        mine = await waiting
        assert number_of(mine) == 7
        assert mine is not None
        if in_transaction:
            await channel.tx_select()
        await channel.basic_ack(0 if tag == "all" else mine.delivery_tag, multiple=True)
        if in_transaction:
            await channel.tx_commit()
        assert await counts(store, "a") == (0, 0)
        assert await counts(store) == (0, 3)
        for i in range(3):
            message = await channel.next_delivery(second)
            assert number_of(message) == i
            assert message is not None
            await message.ack()
        if in_transaction:
            await channel.tx_commit()
        assert await counts(store) == (0, 0)

    run_aio(work)


@pytest.mark.parametrize("batch", [False, True])
def test_what_is_on_its_way_is_not_acknowledged_by_who_acknowledges_all(
    run_aio: Run, fill_aio: Fill, batch: bool
) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill_aio(channel, 2, LARGE)

        async def get() -> int:
            if batch:
                return int((await channel.get_batch("q", 1)).column("delivery_tag")[0].as_py())
            message = await channel.basic_get("q")
            assert message is not None
            return message.delivery_tag

        getting = asyncio.create_task(get())
        acknowledging = asyncio.create_task(channel.basic_ack(multiple=True))
        await acknowledging
        await channel.basic_ack(await getting)
        getting = asyncio.create_task(get())
        acknowledging = asyncio.create_task(channel.basic_ack(multiple=True))
        await asyncio.sleep(0)
        getting.cancel()
        await acknowledging
        with pytest.raises(asyncio.CancelledError):
            await getting
        await channel.basic_qos(0)
        while (await counts(store))[1]:  # until it is put back
            await asyncio.sleep(0)
        assert await counts(store) == (1, 0)

    run_aio(work)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_recovering_takes_back_what_was_not_handed_out_with_the_rest(
    run_aio: Run, fill_aio: Fill, auto_ack: bool
) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill_aio(channel, 40, LARGE)
        got = []
        async with channel.consume("q", auto_ack=auto_ack) as messages:
            got.append(number_of(await anext(messages)))
            await channel.basic_recover()
            while len(got) < (40 if auto_ack else 41):
                message = await anext(messages)
                got.append(number_of(message))
                if not auto_ack:
                    await message.ack()
        assert got == ([] if auto_ack else [0]) + list(range(40))
        await channel.basic_qos(0)
        assert await counts(store) == (0, 0)

    run_aio(work)


def test_settling_nothing_on_a_closed_channel_is_an_error(run_aio: Run) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await channel.basic_ack(multiple=True)
        await channel.basic_recover()
        with pytest.raises(ValueError):
            await channel.basic_ack(-1, multiple=True)
        with pytest.raises(pyqstore.PreconditionFailed):
            await channel.basic_ack(5, multiple=True)
        for verb in (channel.basic_recover, channel.basic_ack, channel.basic_nack):
            with pytest.raises(pyqstore.ChannelClosed):
                await (verb() if verb == channel.basic_recover else verb(0, multiple=True))

    run_aio(work)


def test_one_who_waits_has_one_fetch_made(run_aio: Run, fill_aio: Fill) -> None:
    async def work(store: aio.Store, channel: aio.Channel) -> None:
        await fill_aio(channel, 100, LARGE)
        async with channel.consume("q") as messages:
            assert number_of(await anext(messages)) == 0
            await channel.basic_qos(0)  # behind whatever else was begun
            assert await counts(store) == (84, 16)

    run_aio(work)


def test_the_synchronous_channel_acknowledges_what_it_handed_out(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_declare("a")
    for i in range(4):
        channel.basic_publish("", queue, b"%d" % i)
    first, second = channel.basic_consume("a"), channel.basic_consume(queue)
    assert channel.next_delivery(first, timeout=0) is None  # holds what came for the other
    channel.basic_publish("", "a", b"mine")
    mine = channel.next_delivery(first, timeout=0)
    assert mine is not None
    channel.basic_ack(mine.delivery_tag, multiple=True)
    channel.basic_ack(multiple=True)
    for i in range(2):
        message = channel.next_delivery(second, timeout=0)
        assert message is not None
        assert message.body == b"%d" % i
        message.ack()
    channel.basic_recover()
    for i in (2, 3):
        message = channel.next_delivery(second, timeout=0)
        assert message is not None
        assert (message.body, message.redelivered) == (b"%d" % i, True)
        channel.basic_nack(multiple=True, requeue=False)
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)
