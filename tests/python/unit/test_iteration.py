"""Iterating the messages of a queue: whose consumer goes when, and what becomes of the message in
hand."""

import gc
import threading
import time

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, get, publish_numbers


def consumers(channel: pyqstore.Channel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).consumer_count


def counts(store: pyqstore.Store, queue: str) -> tuple[int, int]:
    status = store.queue_status(queue)
    return int(status["messages_ready"]), int(status["messages_unacked"])


def test_iterator_in_a_variable_kept_its_consumer_behind_a_break(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 3)
    with channel.consume(queue) as messages:
        for message in messages:
            message.ack()
            break
    assert consumers(channel, queue) == 0
    assert counts(store, queue) == (2, 0)
    assert list(messages) == []
    kept = channel.consume(queue)
    next(kept).ack()
    assert consumers(channel, queue) == 1
    kept.close()
    kept.close()
    assert consumers(channel, queue) == 0
    forgotten = channel.consume(queue)
    next(forgotten).ack()
    del forgotten
    gc.collect()
    assert consumers(channel, queue) == 0


def test_break_out_of_a_loop_ends_its_consumer(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 3)
    for message in channel.consume(queue):
        message.ack()
        break
    assert consumers(channel, queue) == 0


@pytest.mark.faces("sync", "aio")
@pytest.mark.parametrize("acked", [False, True])
def test_message_in_hand_was_forgotten_when_the_body_raised(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, acked: bool
) -> None:
    publish_numbers(channel, queue, 3)

    def work() -> None:
        with channel.consume(queue) as messages:
            for message in messages:
                if message.body == b"1":
                    if acked:
                        channel.basic_ack(message.delivery_tag)
                    raise LookupError
                message.ack()

    with pytest.raises(LookupError):
        work()
    assert counts(store, queue) == (1 if acked else 2, 0)
    assert not channel.closed
    message = get(channel, queue)
    assert (message.body, message.redelivered) == ((b"2", False) if acked else (b"1", True))


@pytest.mark.faces("sync", "aio")
def test_messages_that_an_iteration_handed_out_may_be_acknowledged_behind_it(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 3)
    with channel.consume(queue, inactivity_timeout=0) as messages:
        handed_out = list(messages)
    assert counts(store, queue) == (0, 3)
    channel.basic_ack(handed_out[-1].delivery_tag, multiple=True)
    assert counts(store, queue) == (0, 0)


def fail_at_once(channel: pyqstore.Channel, queue: str) -> None:
    for _ in channel.consume(queue):
        raise LookupError


def test_body_that_raises_without_a_with_leaves_its_message_unacknowledged(
    store: pyqstore.Store, queue: str
) -> None:
    with store.channel() as channel:
        publish_numbers(channel, queue, 2)
        with pytest.raises(LookupError):
            fail_at_once(channel, queue)
        gc.collect()
        assert consumers(channel, queue) == 0
        assert counts(store, queue) == (1, 1)
    assert counts(store, queue) == (2, 0)


def test_iterator_forgotten_by_another_thread_during_a_call_ends_its_consumer(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 1)
    kept = [channel.consume(queue)]
    next(kept[0]).ack()
    waiting = threading.Thread(target=channel.process_events, args=(0.5,))
    waiting.start()
    time.sleep(0.05)  # in the call, most likely: the outcome is the same
    kept.clear()
    waiting.join()
    channel.process_events()
    assert consumers(channel, queue) == 0


def test_closed_channel_ends_an_iteration(store: pyqstore.Store, queue: str) -> None:
    channel = store.channel()
    publish_numbers(channel, queue, 2)
    messages = channel.consume(queue)
    next(messages)
    channel.close()
    with pytest.raises(pyqstore.ChannelClosed):
        next(messages)
    assert list(messages) == []
    messages.close()
    assert counts(store, queue) == (2, 0)


async def test_an_asynchronous_iterator_in_a_variable_keeps_its_consumer(
    aio_channel: aio.Channel,
) -> None:
    async def consumers() -> int:
        return (await aio_channel.queue_declare("q", passive=True)).consumer_count

    await aio_channel.basic_publish("", "q", b"0", PERSISTENT)
    kept = aio_channel.consume("q")
    async for message in kept:
        await message.ack()
        break
    assert await consumers() == 1
    await kept.aclose()
    assert await consumers() == 0
