"""Who acknowledges all means what was handed out, not what is on its way."""

import asyncio

import pytest

import pyqstore
from pyqstore import aio

from ..support import fill_aio, number_of, publish_numbers

LARGE = bytes(6000)  # read from a file, in a thread, with some more behind it


async def counts(store: aio.Store, queue: str = "q") -> tuple[float, float]:
    status = await store.queue_status(queue)
    return status["messages_ready"], status["messages_unacked"]


async def test_acknowledging_all_leaves_what_was_not_handed_out(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await fill_aio(aio_channel, 40, LARGE)
    messages = aio_channel.consume("q")
    assert number_of(await anext(messages)) == 0
    await aio_channel.basic_ack(multiple=True)
    await messages.aclose()
    await aio_channel.basic_qos(0)
    assert await counts(aio_store) == (39, 0)


@pytest.mark.parametrize("verb", ["ack", "nack", "drop"])
async def test_what_is_handed_out_after_all_was_settled_can_be_settled(
    aio_store: aio.Store, aio_channel: aio.Channel, verb: str
) -> None:
    async def settle_all(channel: aio.Channel, tag: int) -> None:
        if verb == "ack":
            await channel.basic_ack(tag, multiple=True)
        else:
            await channel.basic_nack(tag, multiple=True, requeue=verb == "nack")

    await fill_aio(aio_channel, 40, LARGE)
    async with aio_channel.consume("q") as messages:
        for i in range(16):  # as many as were read together
            message = await anext(messages)
            assert number_of(message) == i
            assert not message.redelivered
            await settle_all(aio_channel, message.delivery_tag if i % 2 else 0)
    await aio_channel.basic_qos(0)
    assert await counts(aio_store) == (40 if verb == "nack" else 24, 0)


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("tag", ["all", "its own"])
async def test_the_other_consumers_messages_are_not_acknowledged_with_mine(
    aio_store: aio.Store, aio_channel: aio.Channel, in_transaction: bool, tag: str
) -> None:
    """B's messages have lower tags than the one that A was handed."""
    await aio_channel.queue_declare("a")
    await fill_aio(aio_channel, 3)
    first = await aio_channel.basic_consume("a")
    second = await aio_channel.basic_consume("q")
    waiting = asyncio.create_task(aio_channel.next_delivery(first))
    while (await counts(aio_store))[1] < 3:  # A's asking took what came for B
        await asyncio.sleep(0)
    await aio_channel.basic_publish("", "a", b"7")
    mine = await waiting
    assert number_of(mine) == 7
    assert mine is not None
    if in_transaction:
        await aio_channel.tx_select()
    await aio_channel.basic_ack(0 if tag == "all" else mine.delivery_tag, multiple=True)
    if in_transaction:
        await aio_channel.tx_commit()
    assert await counts(aio_store, "a") == (0, 0)
    assert await counts(aio_store) == (0, 3)
    for i in range(3):
        message = await aio_channel.next_delivery(second)
        assert number_of(message) == i
        assert message is not None
        await message.ack()
    if in_transaction:
        await aio_channel.tx_commit()
    assert await counts(aio_store) == (0, 0)


@pytest.mark.parametrize("batch", [False, True])
async def test_what_is_on_its_way_is_not_acknowledged_by_who_acknowledges_all(
    aio_store: aio.Store, aio_channel: aio.Channel, batch: bool
) -> None:
    await fill_aio(aio_channel, 2, LARGE)

    async def get() -> int:
        if batch:
            return int((await aio_channel.get_batch("q", 1)).column("delivery_tag")[0].as_py())
        message = await aio_channel.basic_get("q")
        assert message is not None
        return message.delivery_tag

    getting = asyncio.create_task(get())
    acknowledging = asyncio.create_task(aio_channel.basic_ack(multiple=True))
    await acknowledging
    await aio_channel.basic_ack(await getting)
    getting = asyncio.create_task(get())
    acknowledging = asyncio.create_task(aio_channel.basic_ack(multiple=True))
    await asyncio.sleep(0)
    getting.cancel()
    await acknowledging
    with pytest.raises(asyncio.CancelledError):
        await getting
    await aio_channel.basic_qos(0)
    while (await counts(aio_store))[1]:  # until it is put back
        await asyncio.sleep(0)
    assert await counts(aio_store) == (1, 0)


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_recovering_takes_back_what_was_not_handed_out_with_the_rest(
    aio_store: aio.Store, aio_channel: aio.Channel, auto_ack: bool
) -> None:
    await fill_aio(aio_channel, 40, LARGE)
    got = []
    async with aio_channel.consume("q", auto_ack=auto_ack) as messages:
        got.append(number_of(await anext(messages)))
        await aio_channel.basic_recover()
        while len(got) < (40 if auto_ack else 41):
            message = await anext(messages)
            got.append(number_of(message))
            if not auto_ack:
                await message.ack()
    assert got == ([] if auto_ack else [0]) + list(range(40))
    await aio_channel.basic_qos(0)
    assert await counts(aio_store) == (0, 0)


async def test_settling_nothing_on_a_closed_channel_is_an_error(aio_channel: aio.Channel) -> None:
    await aio_channel.basic_ack(multiple=True)
    await aio_channel.basic_recover()
    with pytest.raises(ValueError):
        await aio_channel.basic_ack(-1, multiple=True)
    with pytest.raises(pyqstore.PreconditionFailed):
        await aio_channel.basic_ack(5, multiple=True)
    for verb in (aio_channel.basic_recover, aio_channel.basic_ack, aio_channel.basic_nack):
        with pytest.raises(pyqstore.ChannelClosed):
            await (verb() if verb == aio_channel.basic_recover else verb(0, multiple=True))


async def test_one_who_waits_has_one_fetch_made(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await fill_aio(aio_channel, 100, LARGE)
    async with aio_channel.consume("q") as messages:
        assert number_of(await anext(messages)) == 0
        await aio_channel.basic_qos(0)  # behind whatever else was begun
        assert await counts(aio_store) == (84, 16)


def test_the_synchronous_channel_acknowledges_what_it_handed_out(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_declare("a")
    publish_numbers(channel, queue, 4)
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
