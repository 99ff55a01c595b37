"""Dealing: of n consumers of a queue the m-th message is for the one at m modulo n, whoever asks
first."""

import asyncio
import itertools
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, declare, publish, publish_numbers, rest, wait_until
from ..taking import consume, take

NUMBERS = [str(number).encode() for number in range(12)]


def bodies(channel: pyqstore.Channel) -> list[bytes]:
    return [body for _, body in take(channel)]


@pytest.fixture
def three(store: pyqstore.Store, queue: str) -> list[pyqstore.Channel]:
    """Channels with a consumer each."""
    channels = [store.channel() for _ in range(3)]
    for channel in channels:
        consume(channel, queue, "c")
    return channels


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("waits", [False, True], ids=["come later", "wait already"])
def test_the_mth_message_is_for_the_consumer_at_m_modulo_n(
    store: pyqstore.Store,
    channel: pyqstore.Channel,
    queue: str,
    order: tuple[int, ...],
    auto_ack: bool,
    waits: bool,
) -> None:
    channels = [store.channel() for _ in range(3)]
    if waits:
        publish_numbers(channel, queue, 12)
    for each in channels:
        consume(each, queue, "c", auto_ack=auto_ack)
    if not waits:
        publish_numbers(channel, queue, 12)
    got = {place: bodies(channels[place]) for place in order}
    assert [got[place] for place in range(3)] == [NUMBERS[first::3] for first in range(3)]
    assert store.queue_status(queue)["messages_ready"] == 0


async def test_asyncio_deals_as_well(tmp_path: Path) -> None:
    async with await pyqstore.aio.open(tmp_path / "s.qs") as store:
        publisher, one, other = [await store.channel() for _ in range(3)]
        await publisher.queue_declare("q")
        tags = [await each.basic_consume("q") for each in (one, other)]
        for number in range(6):
            await publisher.basic_publish("", "q", str(number).encode())
        found: list[list[bytes]] = [[], []]
        for place in (1, 0):
            for _ in range(3):
                message = await (one, other)[place].next_delivery(tags[place], 20)
                assert message is not None
                found[place].append(message.body)
        assert found == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_nobody_is_dealt_more_than_its_prefetch(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, prefetch: int
) -> None:
    with store.channel() as idle, store.channel() as busy:
        idle.basic_qos(prefetch)
        consume(idle, queue, "idle")
        consume(busy, queue, "busy")
        publish_numbers(channel, queue, 12)
        dealt = [NUMBERS[2 * place] for place in range(prefetch)]
        assert bodies(busy) == [body for body in NUMBERS if body not in dealt]
        assert store.queue_status(queue)["messages_unacked"] == 12
        assert bodies(idle) == dealt
        idle.basic_ack(multiple=True)
        publish_numbers(channel, queue, 2, first=20)
        assert bodies(busy) == [b"20"]
        assert bodies(idle) == [b"21"]


def test_consumers_that_are_full_do_not_stand_in_the_way(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 40)
    channels = [store.channel() for _ in range(20)]
    for each in channels:
        each.basic_qos(1)
        consume(each, queue, "c")
    assert [bodies(each) for each in channels] == [[str(number).encode()] for number in range(20)]
    for number, each in enumerate(reversed(channels), 20):
        each.basic_ack(multiple=True)
        assert bodies(each) == [str(number).encode()]


@pytest.mark.parametrize("how", ["cancel", "close", "limit", "connection"])
def test_what_nobody_asked_for_is_ready_again_as_if_never_dealt(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, how: str
) -> None:
    publish_numbers(channel, queue, 12)
    connection = store.connection()
    idle, busy = connection.channel(), store.channel()
    idle.basic_qos(4)
    consume(idle, queue, "idle")
    consume(busy, queue, "busy")
    assert bodies(busy) == [NUMBERS[place] for place in (1, 3, 5, 7, 8, 9, 10, 11)]
    if how == "cancel":
        idle.basic_cancel("idle")
    elif how == "close":
        idle.close()
    elif how == "limit":  # of all its consumers
        idle.basic_qos(1, global_=True)
        assert bodies(idle) == [b"2"]  # the turn of the other one was before
    else:
        connection.close()
    again: list[pyqstore.Message] = []
    busy.basic_cancel("busy")
    busy.basic_consume(queue, again.append)
    busy.process_events(0)
    left = [0, 4, 6] if how == "limit" else [0, 2, 4, 6]
    assert [(message.body, message.redelivered, message.delivery_count) for message in again] == [
        (NUMBERS[place], False, 0) for place in left
    ]


def test_a_queue_is_deleted_with_what_was_dealt(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, three: list[pyqstore.Channel]
) -> None:
    publish_numbers(channel, queue, 12)
    assert len(bodies(three[1])) == 4
    channel.queue_delete(queue)
    assert bodies(three[0]) == []
    assert store.queues() == []
    channel.queue_declare(queue)
    publish_numbers(channel, queue, 1)
    assert rest(channel, queue) == [(b"0", False)]


def test_purging_leaves_what_was_dealt(
    channel: pyqstore.Channel, queue: str, three: list[pyqstore.Channel]
) -> None:
    publish_numbers(channel, queue, 3)
    assert bodies(three[2]) == [b"2"]
    publish_numbers(channel, queue, 4, first=3)
    assert channel.queue_purge(queue) == 4  # what was not dealt when somebody asked last
    assert [bodies(each) for each in three] == [[b"0"], [b"1"], []]


def test_what_comes_back_comes_behind_what_was_dealt(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    with store.channel() as one, store.channel() as other:
        consume(one, queue, "c")
        consume(other, queue, "c")
        publish_numbers(channel, queue, 4)
        assert bodies(one) == [b"0", b"2"]
        one.basic_nack(1, requeue=True)
        one.close()
        assert bodies(other) == [b"1", b"3", b"0", b"2"]


def test_queues_with_priorities_deal_the_highest_first(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declare(channel, "p", max_priority=3)
    with store.channel() as one, store.channel() as other:
        consume(one, "p", "c")
        consume(other, "p", "c")
        for priority in (0, 1, 2, 3):
            publish(channel, "p", f"{priority}".encode(), priority=priority)
        assert bodies(other) == [b"2", b"0"]
        assert bodies(one) == [b"3", b"1"]


@pytest.mark.parametrize("consumers", [2, 3])
def test_a_backlog_on_the_disk_is_dealt_once_each(tmp_path: Path, consumers: int) -> None:
    count = 6_000
    with pyqstore.open(tmp_path / "s.qs", memory_budget="8MiB") as store:
        with store.channel() as publisher:
            declare(publisher, "q")
            for number in range(count):
                publish(publisher, "q", str(number).encode().ljust(3_000, b"."))
        channels = [store.channel() for _ in range(consumers)]
        for each in channels:
            each.basic_qos(50)
            consume(each, "q", "c")
        found: list[list[int]] = [[] for _ in channels]
        while sum(map(len, found)) < count:
            for place, each in enumerate(channels):
                found[place] += [int(body.rstrip(b".")) for body in bodies(each)]
                each.basic_ack(multiple=True)
        assert sorted(number for one in found for number in one) == list(range(count))
        assert all(one == sorted(one) for one in found)
        assert store.queue_status("q")["messages_unacked"] == 0


@pytest.mark.parametrize("kind", ["large", "limited"])
@pytest.mark.parametrize("priority", [0, 1])
def test_loops_get_what_was_dealt_in_order(tmp_path: Path, kind: str, priority: int) -> None:
    """Of messages that a loop cannot hand out at once: a file is read, or written, before."""
    size, arguments = (9_000, {}) if kind == "large" else (9, {"x-delivery-limit": 5})

    async def main() -> list[list[int]]:
        async with await pyqstore.aio.open(tmp_path / "s.qs") as store:
            publisher, one, other = [await store.channel() for _ in range(3)]
            await publisher.queue_declare("q", durable=True, arguments=arguments)
            tags = []
            for channel, rank in ((one, priority), (other, 0)):
                await channel.basic_qos(8)
                tags.append(await channel.basic_consume("q", arguments={"x-priority": rank}))

            async def read(channel: pyqstore.aio.Channel, tag: str) -> list[int]:
                found = []
                for _ in range(8):
                    message = await channel.next_delivery(tag, 20)
                    assert message is not None
                    assert (message.redelivered, message.delivery_count) == (False, 0)
                    found.append(int(message.body[:4]))
                return found

            readers = [
                asyncio.create_task(read(*each)) for each in zip((one, other), tags, strict=True)
            ]
            for number in range(16):
                await publisher.basic_publish("", "q", b"%04d" % number + bytes(size), PERSISTENT)
            return list(await asyncio.gather(*readers))

    found = asyncio.run(main())
    assert sorted(number for one in found for number in one) == list(range(16))
    assert all(one == sorted(one) for one in found)
    if priority == 0:
        assert [one[0] for one in found] == [0, 1]


async def test_a_lower_consumer_that_waits_has_what_a_higher_one_has_no_room_for(
    tmp_path: Path,
) -> None:
    """Though that one was dealt fewer than its prefetch at first, which is more than it may be."""
    room, count = 20_000, 20_010

    async with await pyqstore.aio.open(tmp_path / "s.qs") as store:
        publisher, high, low = [await store.channel() for _ in range(3)]
        await publisher.queue_declare("q")
        await high.basic_qos(room)
        above = await high.basic_consume("q", arguments={"x-priority": 1})
        below = await low.basic_consume("q")
        waiting = asyncio.create_task(low.next_delivery(below, 20))
        await publisher.publish_batch(pa.table({"body": [b"x"] * count}), routing_key="q")
        for _ in range(room):
            assert await high.next_delivery(above, 20) is not None
        assert await waiting is not None
        assert (await store.queue_status("q"))["messages_unacked"] in (room + 1, count)


def test_what_was_dealt_leaves_a_turn_to_other_queues_of_the_channel(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    declare(channel, "beside")
    with store.channel() as both, store.channel() as other:
        consume(both, queue, "dealt")
        consume(both, "beside", "beside")
        consume(other, queue, "c")
        publish_numbers(channel, queue, 20)
        publish_numbers(channel, "beside", 3)
        assert len(bodies(other)) == 10
        found = take(both)
        assert [body for tag, body in found if tag == "dealt"] == [
            str(number).encode() for number in range(0, 20, 2)
        ]
        assert [tag for tag, _ in found[:6]] == ["dealt", "beside"] * 3


def test_who_waits_for_a_batch_has_what_the_last_consumer_was_dealt(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    with store.channel() as idle, store.channel() as busy, store.channel() as getter:
        for each in (idle, busy):
            consume(each, queue, "c")
        publish_numbers(channel, queue, 4)
        assert bodies(busy) == [b"1", b"3"]
        busy.basic_cancel("c")
        found: list[list[bytes]] = []

        def wait() -> None:
            found.append(getter.get_batch(queue, 10, timeout=20).column("body").to_pylist())

        waiter = threading.Thread(target=wait)
        waiter.start()
        idle.basic_cancel("c")
        waiter.join()
        assert found == [[b"0", b"2"]]


def test_a_session_that_pulled_keeps_nothing_from_others(store: pyqstore.Store) -> None:
    with (
        pyqstore.session.connect(store) as connection,
        connection.session() as pulling,
        connection.session() as other,
        connection.session() as sending,
    ):
        puller = pulling.consumer(pulling.queue("q"), prefetch=0)
        pushed = other.consumer(other.queue("q"), prefetch=100)
        pulled: list[pyqstore.session.Message | None] = []
        waiter = threading.Thread(target=lambda: pulled.append(puller.receive(timeout=20)))
        waiter.start()
        wait_until(lambda: puller._registration.is_paused is False)
        producer = sending.producer(sending.queue("q"))
        for number in range(20):
            producer.send(str(number))
        waiter.join()
        texts = [message.text for message in pulled if message is not None]
        while len(texts) < 20:
            message = pushed.receive(timeout=20)
            assert message is not None
            texts.append(message.text)
        assert len(pulled) == 1
        assert sorted(texts, key=int) == [str(each) for each in range(20)]


def test_a_store_closes_and_opens_with_what_was_dealt(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "s.qs") as store:
        channels = [store.channel() for _ in range(3)]
        declare(channels[0], "q")
        for each in channels[:2]:
            consume(each, "q", "c")
        publish(channels[2], "q", b"0", b"1", b"2", b"3")
        assert bodies(channels[1]) == [b"1", b"3"]
    with pyqstore.open(tmp_path / "s.qs") as store, store.channel() as channel:
        assert rest(channel, "q") == [
            (b"0", False), (b"1", True), (b"2", False), (b"3", True)
        ]  # fmt: skip
