"""Clients that open a transaction and do not commit: they may not use up the memory of all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import pyqstore

from ..differential.wire import Wire, content, long, method, short
from ..serving import resident, served
from ..support import wait_until

TRANSIENT = pyqstore.Properties(delivery_mode=1)
TX, QUEUE, BASIC, CHANNEL = 90, 50, 60, 20
DECLARE = method(1, QUEUE, 10, b"\0\0" + short("q") + b"\x02" + long(b""))
EMPTY = method(1, BASIC, 40, b"\0\0" + short("") + short("q") + b"\0") + content(1, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "small.qs", memory_budget="16MiB") as store:
        yield store


@pytest.fixture
def listener(store: pyqstore.Store) -> pyqstore.Listener:
    return store.listen("127.0.0.1:0")


def connect(listener: pyqstore.Listener, **more: Any) -> pika.BlockingConnection:
    port = int(listener.address.rpartition(":")[2])
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, **more))


@pytest.fixture
def connections(listener: pyqstore.Listener) -> Iterator[list[pika.BlockingConnection]]:
    two = [connect(listener, heartbeat=0) for _ in range(2)]
    yield two
    for connection in two:
        connection.close()


def publish_until_refused(channel: BlockingChannel, body: bytes, most: int) -> int:
    """How many it took."""
    for count in range(most):
        try:
            channel.basic_publish("", "q", body)
            if count % 8 == 0:
                channel.connection.process_data_events(0)
        except pika.exceptions.AMQPChannelError:
            return count
    raise AssertionError(f"{most} messages were not refused")


def test_a_client_that_never_commits_is_refused_and_others_go_on(
    connections: list[pika.BlockingConnection], store: pyqstore.Store
) -> None:
    greedy, other = (connection.channel() for connection in connections)
    other.queue_declare("q", durable=True)
    other.confirm_delivery()
    greedy.tx_select()
    refusals: list[BaseException] = []
    greedy.add_on_return_callback(lambda *_: None)
    greedy._impl.add_on_close_callback(lambda _, reason: refusals.append(reason))
    publish_until_refused(greedy, bytes(100_000), 10_000)
    assert [refusal.reply_code for refusal in refusals] == [406]  # type: ignore[attr-defined]
    for _ in range(20):
        other.basic_publish("", "q", b"confirmed", mandatory=True)
    assert store.queue_status("q")["messages_ready"] == 20
    again = connections[0].channel()
    again.tx_select()
    again.basic_publish("", "q", b"small")
    again.tx_commit()
    assert store.queue_status("q")["messages_ready"] == 21


def test_returns_of_a_client_that_never_commits_leave_room_for_those_of_others(
    connections: list[pika.BlockingConnection], store: pyqstore.Store
) -> None:
    greedy, other = (connection.channel() for connection in connections)
    other.confirm_delivery()
    greedy.tx_select()
    refusals: list[BaseException] = []
    greedy._impl.add_on_close_callback(lambda _, reason: refusals.append(reason))
    for _ in range(10_000):
        if greedy.is_closed:
            break
        with suppress(pika.exceptions.ChannelClosedByBroker):  # it may hear of it while it sends
            greedy.basic_publish("", "nowhere", bytes(10_000), mandatory=True)
            connections[0].process_data_events(0)
    assert "returned messages" in str(refusals[0])
    greedy = connections[0].channel()
    greedy.tx_select()
    for _ in range(40):
        greedy.basic_publish("", "nowhere", bytes(10_000), mandatory=True)
    greedy.queue_declare("q", durable=True)  # all have come
    for _ in range(50):
        with pytest.raises(pika.exceptions.UnroutableError):
            other.basic_publish("", "nowhere", bytes(10_000), mandatory=True)
    returned: list[bytes] = []
    greedy.add_on_return_callback(lambda *message: returned.append(message[3]))
    greedy.tx_commit()
    connections[0].process_data_events(0)
    assert returned == [bytes(10_000)] * 40


def test_transactions_of_any_number_pass_one_after_the_other(
    connections: list[pika.BlockingConnection], store: pyqstore.Store
) -> None:
    channel = connections[0].channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    for _ in range(20):
        for _ in range(10):
            channel.basic_publish("", "q", bytes(100_000))
        channel.tx_commit()
    assert store.queue_status("q")["messages_ready"] == 200


def test_a_transaction_is_committed_while_memory_is_short(
    connections: list[pika.BlockingConnection], store: pyqstore.Store
) -> None:
    """The owner's own transaction takes what there is; it goes on, and its clients are held
    back."""
    blocked = threading.Event()
    connections[0].add_on_connection_blocked_callback(lambda *_: blocked.set())
    client, greedy = connections[0].channel(), store.channel()
    client.queue_declare("q", durable=True)
    client.tx_select()
    client.basic_publish("", "q", b"begun before")
    client.queue_declare("q", passive=True)
    greedy.tx_select()
    for _ in range(24 << 4):  # 24 MiB
        greedy.basic_publish("", "q", bytes(1 << 16), TRANSIENT)

    def has_heard() -> bool:
        connections[0].process_data_events(0)
        return blocked.is_set()

    wait_until(has_heard, 60)
    client.basic_publish("", "q", b"while it is short")
    client.tx_commit()
    assert store.queue_status("q")["messages_ready"] == 2
    greedy.tx_rollback()


@pytest.mark.clock
def test_empty_messages_that_are_never_committed_take_little(tmp_path: Path) -> None:
    count = 400_000
    with served(tmp_path / "s.qs", "--listen", "127.0.0.1:0") as server:
        wire = Wire(int(server.addresses()["amqp"].rpartition(":")[2]), 60)
        wire.ready()
        wire.send(DECLARE)
        wire.expect(QUEUE, 11)
        wire.send(method(1, TX, 10))
        wire.expect(TX, 11)
        before = resident(server.process.pid)
        for _ in range(100):
            wire.send(EMPTY * (count // 100))
        assert wire.expect(CHANNEL, 40)[:2] == (406).to_bytes(2)
        wire.send(method(1, CHANNEL, 41) + method(2, CHANNEL, 10, b"\0"))
        wire.expect(CHANNEL, 11)  # all was read
        grown = resident(server.process.pid) - before
        wire.close()
        assert server.end()[0] == 0
    assert grown < 80 << 20, grown >> 20  # a transaction of all would take 130 MiB


def test_a_consumer_gets_messages_after_a_commit_on_its_channel(
    connections: list[pika.BlockingConnection], store: pyqstore.Store
) -> None:
    connection = connections[0]
    consumer = connection.channel()
    got: list[bytes] = []
    consumer.queue_declare("q")
    consumer.basic_consume("q", lambda *delivery: got.append(delivery[3]), auto_ack=True)
    consumer.tx_select()

    def has_come(count: int) -> bool:
        connection.process_data_events(0.01)  # sends nothing
        return len(got) == count

    for number in range(3):
        consumer.tx_commit()
        with store.channel() as owner:
            owner.basic_publish("", "q", b"%d" % number)
        wait_until(lambda count=number + 1: has_come(count))
    assert got == [b"0", b"1", b"2"]
