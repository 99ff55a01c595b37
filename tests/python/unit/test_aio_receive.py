"""Receiving with pyqstore.aio: tasks, callbacks and iterations that wait for messages."""

import asyncio
import gc
import threading
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, fill_aio, number_of

LARGE = bytes(10_000)  # goes to the message store, so publishing and reading it wait for files


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("body", [b"", LARGE])
async def test_messages_are_iterated_as_they_come(
    aio_store: aio.Store, aio_channel: aio.Channel, body: bytes, auto_ack: bool
) -> None:
    async def publish() -> None:
        async with await aio_store.channel() as other:
            for i in range(100):
                await other.basic_publish("", "q", b"%d" % i + body, PERSISTENT)
                if i % 10 == 0:
                    await asyncio.sleep(0.002)

    publishing = asyncio.create_task(publish())
    seen = []
    async with aio_channel.consume("q", auto_ack=auto_ack) as messages:
        async for message in messages:
            assert isinstance(message, pyqstore.Message)
            assert not message.redelivered
            seen.append(number_of(message))
            if not auto_ack:
                await message.ack()
            if len(seen) == 100:
                break
    await publishing
    assert seen == list(range(100))
    status = await aio_store.queue_status("q")
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)
    assert status["consumers"] == 0


async def test_an_iteration_ends_for_want_of_messages_and_with_its_queue(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await fill_aio(aio_channel, 3)
    async with aio_channel.consume("q") as messages:
        assert [number_of(await anext(messages)) for _ in range(3)] == [0, 1, 2]
    assert [m async for m in aio_channel.consume("q", inactivity_timeout=0.01)] == []
    cancelled: list[str] = []
    aio_channel.add_cancel_listener(cancelled.append)

    async def iterate() -> int:
        return len([message async for message in aio_channel.consume("q")])

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0.01)
    async with await aio_store.channel() as other:
        await other.queue_delete("q")
    assert await iterating == 0
    assert len(cancelled) == 1


async def test_a_forgotten_iterator_cancels_its_consumer(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await fill_aio(aio_channel, 3)
    async for message in aio_channel.consume("q"):
        assert number_of(message) == 0
        break
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    status = await aio_store.queue_status("q")
    assert (status["consumers"], status["messages_ready"]) == (0, 2)


async def test_callbacks_run_by_themselves(aio_store: aio.Store, aio_channel: aio.Channel) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def slow(message: aio.Message) -> None:
        await asyncio.sleep(0)
        seen.append(number_of(message))
        await message.ack()
        if len(seen) == 20:
            done.set()

    await aio_channel.basic_qos(prefetch_count=3)
    tag = await aio_channel.basic_consume("q", slow)
    await fill_aio(aio_channel, 20)
    await done.wait()
    assert seen == list(range(20))
    await aio_channel.basic_cancel(tag)
    plain: list[bytes] = []
    await aio_channel.basic_consume("q", lambda message: plain.append(message.body), auto_ack=True)
    await fill_aio(aio_channel, 5)
    while len(plain) < 5:
        await asyncio.sleep(0.001)
    consuming = asyncio.create_task(aio_channel.start_consuming())
    await asyncio.sleep(0)
    assert not consuming.done()
    await aio_channel.stop_consuming()
    await consuming
    assert (await aio_store.queue_status("q"))["messages_unacked"] == 0


async def test_who_takes_a_message_leaves_the_others_their_wake_up(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    async with await aio_store.channel() as other, asyncio.timeout(50):
        await aio_channel.queue_declare("b")
        await aio_channel.confirm_select()
        busy, patient = await aio_channel.basic_consume("q"), await aio_channel.basic_consume("b")
        waiting = asyncio.create_task(aio_channel.next_delivery(patient))
        await asyncio.sleep(0.01)  # its eventfd is armed now
        await fill_aio(other, 1)
        assert number_of(await aio_channel.next_delivery(busy)) == 0
        await other.basic_publish("", "b", b"7")
        assert number_of(await waiting) == 7
        publishing = asyncio.create_task(aio_channel.basic_publish("", "nobody", b"", PERSISTENT))
        await fill_aio(other, 1)
        assert number_of(await aio_channel.next_delivery(busy)) == 0
        assert await publishing == 1
        cancelled = asyncio.Event()
        aio_channel.add_cancel_listener(lambda _: cancelled.set())
        await fill_aio(other, 1)
        assert number_of(await aio_channel.next_delivery(busy)) == 0
        await other.queue_delete("b")
        await cancelled.wait()


async def test_what_a_callback_raises_is_reported_and_the_consumer_goes_on(
    aio_channel: aio.Channel,
) -> None:
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    seen: list[int] = []

    def callback(message: aio.Message) -> None:
        seen.append(number_of(message))
        raise ValueError(len(seen))

    await aio_channel.basic_consume("q", callback)
    await fill_aio(aio_channel, 2)
    while len(reported) < 2:
        await asyncio.sleep(0.001)
    assert seen == [0, 1]
    assert [str(error) for error in reported] == ["1", "2"]


def test_channels_of_several_loops_share_a_store(path: Path) -> None:
    counts = {}

    async def consume(store: aio.Store, name: int) -> None:
        async with await store.channel() as channel:
            await channel.basic_qos(1)
            counts[name] = 0
            async for message in channel.consume("q"):
                await message.ack()
                if message.body == b"end":
                    break
                counts[name] += 1

    async def main() -> None:
        async with await aio.open(path) as store, await store.channel() as channel:
            await channel.queue_declare("q")
            threads = [
                threading.Thread(target=lambda i=i: asyncio.run(consume(store, i)))
                for i in range(3)
            ]
            for thread in threads:
                thread.start()
            for _ in range(300):
                await channel.basic_publish("", "q", b"x")
            for _ in threads:
                await channel.basic_publish("", "q", b"end")
            await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))

    asyncio.run(main())
    assert sum(counts.values()) == 300


async def test_what_leaves_a_queue_is_seen_off_behind_the_loop(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    await aio_channel.queue_declare("short", durable=True, arguments=arguments)
    for i in range(10):
        await aio_channel.basic_publish("", "short", b"%d" % i, PERSISTENT)
    while (await aio_store.queue_status("q"))["messages_ready"] < 8:
        await asyncio.sleep(0.001)
    message = await aio_channel.basic_get("short")
    assert message is not None
    await message.reject(requeue=False)
    while (await aio_store.queue_status("q"))["messages_ready"] < 9:
        await asyncio.sleep(0.001)
    batch = await aio_channel.get_batch("q")
    assert batch.column("body").to_pylist() == [b"%d" % i for i in range(9)]
    assert (await aio_store.queue_status("short"))["messages_ready"] == 1


async def test_who_asks_for_what_a_callback_gets_is_refused(aio_channel: aio.Channel) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    async def callback(message: aio.Message) -> None:
        began.set()
        await go_on.wait()
        seen.append(number_of(message))
        await message.ack()

    tag = await aio_channel.basic_consume("q", callback)
    await fill_aio(aio_channel, 2)
    await began.wait()
    with pytest.raises(RuntimeError, match="callback"):
        await aio_channel.next_delivery(tag)
    go_on.set()
    while len(seen) < 2:
        await asyncio.sleep(0.001)
    assert seen == [0, 1]
    with pytest.raises(RuntimeError, match="callback"):
        await aio_channel.next_delivery(tag)


async def test_a_callback_does_not_wait_for_its_own_end(aio_channel: aio.Channel) -> None:
    raised: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def callback(message: aio.Message) -> None:
        try:
            await aio_channel.start_consuming()
        except RuntimeError as error:
            raised.set_result(error)

    await aio_channel.basic_consume("q", callback)
    await fill_aio(aio_channel, 1)
    async with asyncio.timeout(10):
        assert "consuming already" in str(await raised)
    await aio_channel.stop_consuming()


async def test_a_tag_can_be_taken_again_while_its_old_consumer_ends(
    aio_channel: aio.Channel,
) -> None:
    came: asyncio.Future[aio.Message] = asyncio.get_running_loop().create_future()
    await aio_channel.basic_consume("q", lambda _: None, consumer_tag="mine")
    await asyncio.sleep(0)
    await asyncio.gather(
        aio_channel.basic_cancel("mine"),
        aio_channel.basic_consume("q", came.set_result, consumer_tag="mine"),
    )
    await fill_aio(aio_channel, 1)
    async with asyncio.timeout(10):
        assert number_of(await came) == 0


async def test_events_are_counted_as_they_come(aio_channel: aio.Channel) -> None:
    acked: list[int] = []
    aio_channel.add_confirm_listener(lambda number, multiple: acked.append(number), None)
    await aio_channel.confirm_select()
    assert await aio_channel.process_events() == 0
    publishing = asyncio.create_task(aio_channel.basic_publish("", "q", b"", PERSISTENT))
    assert await aio_channel.process_events(timeout=None) == 1
    assert acked == [1]
    await publishing
    with pytest.raises(ValueError):
        await aio_channel.process_events(-1)
    waiting = asyncio.create_task(aio_channel.process_events(timeout=None))
    await asyncio.sleep(0)
    await aio_channel.close()
    with pytest.raises(pyqstore.ChannelClosed):
        await waiting


async def test_a_full_queue_hands_out_nothing_that_it_should_have_dropped(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    """Dropping its head was left to another thread, which came too late for most of the gets."""
    await aio_channel.queue_declare("one", durable=True, arguments={"x-max-length": 1})
    for number in range(500):
        await aio_channel.basic_publish("", "one", b"dropped", PERSISTENT)
        await aio_channel.basic_publish("", "one", b"%d" % number, PERSISTENT)
        assert number_of(await aio_channel.basic_get("one", auto_ack=True)) == number
        assert await aio_channel.basic_get("one", auto_ack=True) is None
    status = await aio_store.queue_status("one")
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


async def test_a_full_queue_with_dead_letters_hands_out_nothing_that_it_should_have_dropped(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await aio_channel.queue_declare("dead", durable=True)
    await aio_channel.queue_declare("one", durable=True, arguments={"x-max-length": 1} | letters)
    for number in range(500):
        await aio_channel.basic_publish("", "one", b"dropped", PERSISTENT)
        await aio_channel.basic_publish("", "one", b"%d" % number, PERSISTENT)
        assert number_of(await aio_channel.basic_get("one", auto_ack=True)) == number
        assert await aio_channel.basic_get("one", auto_ack=True) is None
    while (await aio_store.queue_status("dead"))["messages_ready"] < 500:
        await asyncio.sleep(0.01)
