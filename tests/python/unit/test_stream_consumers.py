"""Consuming from streams by AMQP's verbs: basic_consume, consume, process_events, asyncio."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import aio
from pyqstore.stream_consumer import StreamConsumer

STREAM = {"x-queue-type": "stream"}
FIRST = {"x-stream-offset": "first"}
TRACKED: dict[str, Any] = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}


def filled(store: pyqstore.Store, count: int, first: int = 0) -> pyqstore.Stream:
    stream = store.stream("events")
    for number in range(first, first + count):
        stream.publish(b"%d" % number, key="k")
    return stream


def offset_of(message: Any) -> int:
    return int(message.properties.headers["x-stream-offset"])


def test_consume_iterates_a_stream_from_where_it_is_asked_to(store: pyqstore.Store) -> None:
    filled(store, 20)
    with store.channel() as channel:
        channel.basic_qos(5)
        for start, first in (("first", 0), (7, 7), (timedelta(hours=1), None)):
            arguments = {"x-stream-offset": "1h" if first is None else start}
            with channel.consume("events", inactivity_timeout=0.2, arguments=arguments) as messages:
                heard = []
                for message in messages:
                    assert message.redelivered is False
                    assert (message.routing_key, message.queue) == ("k", "events")
                    heard.append((offset_of(message), message.body))
                    message.ack()
            assert heard == [(n, b"%d" % n) for n in range(first or 0, 20)]
    assert store.queue_status("events").messages_ready == 20
    assert store.queue_status("events").messages_unacked == 0


def test_a_time_is_a_start(store: pyqstore.Store) -> None:
    filled(store, 3)
    with store.channel() as channel:
        channel.basic_qos(5)
        arguments = {"x-stream-offset": datetime(1970, 1, 2, tzinfo=UTC)}
        messages = channel.consume("events", inactivity_timeout=0.2, arguments=arguments)
        assert [message.body for message in messages] == [b"0", b"1", b"2"]


def test_callbacks_get_what_is_published_meanwhile(store: pyqstore.Store) -> None:
    stream = filled(store, 2)
    heard: list[bytes] = []
    with store.channel() as channel:

        def handle(message: pyqstore.Message) -> None:
            heard.append(message.body)
            message.ack()
            if len(heard) == 52:
                channel.stop_consuming()

        channel.basic_qos(3)
        channel.basic_consume("events", handle, arguments=FIRST)

        def publish() -> None:
            for number in range(2, 52):
                stream.publish(b"%d" % number)

        thread = threading.Thread(target=publish)
        thread.start()
        channel.start_consuming()
        thread.join()
    assert heard == [b"%d" % number for number in range(52)]


def test_a_waiting_consumer_gets_what_nobody_waits_for(store: pyqstore.Store) -> None:
    """Rows become durable by the committer alone: no publisher waits for a confirm."""
    filled(store, 0)
    with store.channel() as channel, store.channel() as publisher:
        channel.basic_qos(3)
        tag = channel.basic_consume("events")
        threading.Timer(0.05, lambda: publisher.basic_publish("", "events", b"late")).start()
        message = channel.next_delivery(tag, timeout=20)
        assert message is not None
        assert (message.body, offset_of(message)) == (b"late", 0)


def test_what_streams_do_not_do_is_refused_in_rabbitmqs_words(store: pyqstore.Store) -> None:
    filled(store, 3)
    with pytest.raises(pyqstore.PreconditionFailed, match="consumer prefetch count is not set"):
        store.channel().basic_consume("events", arguments=FIRST)
    channel = store.channel()
    channel.basic_qos(5)
    with pytest.raises(
        pyqstore.NotImplementedByBroker, match="automatic acknowledgement not supported"
    ):
        channel.basic_consume("events", auto_ack=True)
    channel = store.channel()
    channel.basic_qos(5)
    with pytest.raises(pyqstore.PreconditionFailed, match="x-stream-offset"):
        channel.basic_consume("events", arguments={"x-stream-offset": "yesterday"})
    channel = store.channel()
    channel.basic_qos(5)
    tag = channel.basic_consume("events", arguments=FIRST)
    message = channel.next_delivery(tag, timeout=30)
    assert message is not None
    with pytest.raises(pyqstore.NotImplementedByBroker, match=r"basic\.nack and basic\.reject"):
        message.nack()


def test_a_filter_selects_by_a_header(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    for number in range(30):
        value = (None, "eu", "us")[number % 3]
        headers = {} if value is None else {"x-stream-filter-value": value}
        stream.publish(b"%d" % number, headers=headers)
    with store.channel() as channel:
        channel.basic_qos(100)
        for wanted, unfiltered, rests in ((["eu"], False, {1}), ("us", True, {0, 2}),
                                          (["eu", "us"], False, {1, 2})):  # fmt: skip
            arguments = FIRST | {"x-stream-filter": wanted, "x-stream-match-unfiltered": unfiltered}
            messages = channel.consume("events", inactivity_timeout=0.2, arguments=arguments)
            heard = [offset_of(message) for message in messages]
            assert heard == [number for number in range(30) if number % 3 in rests]


def test_acknowledgements_note_how_far_a_consumer_is(path: Path) -> None:
    with pyqstore.open(path) as store:
        filled(store, 10)
        for begin, count in ((0, 4), (4, 3)):
            with store.channel() as channel:
                channel.basic_qos(100)
                tag = channel.basic_consume("events", consumer_tag="billing", arguments=TRACKED)
                for number in range(begin, begin + count):
                    message = channel.next_delivery(tag, timeout=30)
                    assert message is not None
                    assert offset_of(message) == number
                    message.ack()
        store.sync()
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        read = stream.read(pyqstore.Committed("billing")).read_all()
        assert read["offset"].to_pylist() == [7, 8, 9]


def test_a_callback_that_fails_leaves_its_message_unacknowledged(store: pyqstore.Store) -> None:
    filled(store, 3)
    with store.channel() as channel:
        channel.basic_qos(1)
        channel.basic_consume("events", lambda message: 1 / 0, arguments=FIRST)
        with pytest.raises(ZeroDivisionError):
            channel.process_events(30)
        assert store.queue_status("events").messages_unacked == 1
    assert store.queue_status("events").messages_unacked == 0


def test_the_deletion_of_a_stream_ends_an_iteration(store: pyqstore.Store) -> None:
    stream = filled(store, 3)
    with store.channel() as channel:
        channel.basic_qos(10)
        heard = 0
        for _ in channel.consume("events", arguments=FIRST):
            heard += 1
            if heard == 3:
                stream.delete()
        assert heard == 3


async def _heard(channel: aio.Channel, count: int, arguments: dict[str, Any]) -> list[bytes]:
    heard: list[bytes] = []
    async with channel.consume("events", arguments=arguments) as messages:
        async for message in messages:
            assert offset_of(message) == len(heard)
            heard.append(message.body)
            await message.ack()
            if len(heard) == count:
                return heard
    return heard


async def test_asyncio_consumes_a_stream_that_grows(aio_store: aio.Store) -> None:
    stream = await aio_store.stream("events")
    for number in range(10):
        await stream.publish(b"%d" % number)
    async with await aio_store.channel() as one, await aio_store.channel() as other:
        await one.basic_qos(3)
        await other.basic_qos(100)
        tasks = [asyncio.create_task(_heard(channel, 40, FIRST)) for channel in (one, other)]
        await asyncio.sleep(0.05)
        for number in range(10, 40):
            await stream.publish(b"%d" % number)
        for heard in await asyncio.wait_for(asyncio.gather(*tasks), 60):
            assert heard == [b"%d" % number for number in range(40)]


async def test_asyncio_reads_what_is_in_files_in_a_thread(path: Path) -> None:
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        for number in range(100):
            stream.publish(b"%d" % number, headers={"padding": "." * 2000})
        store.checkpoint()
    async with await aio.open(path) as store, await store.channel() as channel:
        await channel.basic_qos(10)
        heard = await asyncio.wait_for(_heard(channel, 100, FIRST), 60)
        assert heard == [b"%d" % number for number in range(100)]


async def test_asyncio_gives_back_what_a_cancelled_task_took(aio_store: aio.Store) -> None:
    stream = await aio_store.stream("events")
    for number in range(20):
        await stream.publish(b"%d" % number)
    async with await aio_store.channel() as channel:
        await channel.basic_qos(5)
        tag = await channel.basic_consume("events", arguments=FIRST)
        first = await channel.next_delivery(tag, timeout=30)
        assert first is not None
        await channel.basic_cancel(tag)
        assert await _heard(channel, 20, FIRST) == [b"%d" % n for n in range(20)]
    assert (await aio_store.queue_status("events")).messages_unacked == 0


async def test_an_event_loop_is_refused_automatic_acknowledgement_of_a_stream(
    aio_store: aio.Store,
) -> None:
    """It acknowledges by itself, and the stream took that for a consumer of its own."""
    await aio_store.stream("events")
    async with await aio_store.channel() as channel:
        await channel.basic_qos(5)
        with pytest.raises(
            pyqstore.NotImplementedByBroker, match="automatic acknowledgement not supported"
        ):
            await channel.basic_consume("events", print, auto_ack=True)
    async with await aio_store.channel() as channel:
        await channel.basic_qos(5)
        with pytest.raises(pyqstore.NotImplementedByBroker):
            async for _message in channel.consume("events", auto_ack=True):
                pass


def test_several_streams_are_waited_for_without_looking_again_and_again(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [store.stream(f"s{number}") for number in range(3)]
    looks = 0
    find = StreamConsumer._find

    def counted(consumer: StreamConsumer, *arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return find(consumer, *arguments)

    monkeypatch.setattr(StreamConsumer, "_find", counted)
    with store.stream_consumer([stream.name for stream in streams], group="g") as consumer:
        assert len(consumer.poll(timeout=1.0)) == 0
        assert looks <= 3 * 15  # a slice of waiting is 0.1 s
        timer = threading.Timer(0.05, lambda: streams[2].publish(b"late"))
        timer.start()
        batch = consumer.poll(timeout=30.0)
        timer.join()
        assert (batch["body"].to_pylist(), batch["stream"].to_pylist()) == ([b"late"], ["s2"])


def test_a_stream_that_is_deleted_ends_the_wait_for_several(store: pyqstore.Store) -> None:
    streams = [store.stream(name) for name in ("s", "t")]
    with store.stream_consumer(["s", "t"], group="g") as consumer:
        assert len(consumer.poll()) == 0
        timer = threading.Timer(0.05, streams[1].delete)
        timer.start()
        with pytest.raises(pyqstore.NotFound):
            consumer.poll(timeout=30.0)
        timer.join()
