"""Virtual hosts: several stores in one listener, each with its own queues, limits and end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore import aio

from ..support import wait_until
from .test_listen import connected, parameters

MIB = 1 << 20
DOWN = "CONNECTION_FORCED - vhost 'b' is down"


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "b") as store:
        yield store


@pytest.fixture
def listener(store: pyqstore.Store, neighbour: pyqstore.Store) -> pyqstore.Listener:
    return store.listen("127.0.0.1:0", vhosts={"b": neighbour})


def vhost(listener: pyqstore.Listener, name: str) -> Any:
    return connected(listener, virtual_host=name)


def is_refused(listener: pyqstore.Listener, name: str) -> None:
    words = rf"\(530\) 'NOT_ALLOWED - vhost {name} not found'"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=words):
        pika.BlockingConnection(parameters(listener, virtual_host=name))


def test_each_vhost_has_queues_of_its_own(
    listener: pyqstore.Listener, store: pyqstore.Store, neighbour: pyqstore.Store
) -> None:
    with vhost(listener, "/") as first, vhost(listener, "b") as second:
        for connection, body in ((first, b"of /"), (second, b"of b")):
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", body)
        first.channel().queue_declare("first", durable=True)
        assert first.channel().basic_get("q", auto_ack=True)[2] == b"of /"
        assert second.channel().basic_get("q", auto_ack=True)[2] == b"of b"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as missing:
            second.channel().queue_declare("first", passive=True)
        assert missing.value.reply_text == "NOT_FOUND - no queue 'first' in vhost 'b'"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as missing:
            first.channel().queue_declare("nope", passive=True)
        assert missing.value.reply_text == "NOT_FOUND - no queue 'nope' in vhost '/'"
    assert (store.queues(), neighbour.queues()) == (["first", "q"], ["q"])


def test_an_unknown_vhost_is_refused_by_name(listener: pyqstore.Listener) -> None:
    for name in ("nope", "B", "b/", ""):
        is_refused(listener, name)


def test_the_owner_of_a_vhost_hears_of_its_clients_messages(
    listener: pyqstore.Listener, neighbour: pyqstore.Store
) -> None:
    """And its clients of the owner's: both ways the channels of the second store ring."""
    own = neighbour.channel()
    own.queue_declare("q", durable=True)
    heard = threading.Event()
    with vhost(listener, "b") as client:
        client.channel().basic_consume("q", lambda *_: heard.set(), auto_ack=True)
        own.basic_publish("", "q", b"x")
        client.process_data_events(time_limit=30)
        assert heard.is_set()


def test_a_vhost_whose_store_is_closed_ends_its_own_connections_alone(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    neighbour = pyqstore.open(tmp_path / "b")
    listener = store.listen("127.0.0.1:0", vhosts={"b": neighbour})
    with ExitStack() as stack:
        staying = stack.enter_context(vhost(listener, "/"))
        staying.channel().queue_declare("q", durable=True)
        leaving = [stack.enter_context(vhost(listener, "b")) for _ in range(5)]
        for each in leaving:
            channel = each.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        channel.basic_get("q")  # is not acknowledged
        closer = threading.Thread(target=neighbour.close)
        closer.start()
        for each in leaving:
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
                each.process_data_events(time_limit=30)
            assert (ended.value.reply_code, ended.value.reply_text) == (320, DOWN)
        closer.join()
        assert not listener.closed
        is_refused(listener, "b")
        staying.channel().basic_publish("", "q", b"goes on")
        assert staying.channel().basic_get("q", auto_ack=True)[2] == b"goes on"
        wait_until(lambda: listener.stats()["connections"] == 1)
    with pyqstore.open(tmp_path / "b") as again:
        assert again.queue_status("q")["messages_ready"] == 5


def test_a_client_that_does_not_hear_of_the_end_of_its_vhost_holds_nobody_up(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    neighbour = pyqstore.open(tmp_path / "b")
    listener = store.listen("127.0.0.1:0", vhosts={"b": neighbour})
    connection = pika.BlockingConnection(parameters(listener, virtual_host="b"))
    neighbour.close()  # in this thread, which alone could read what pika is told
    assert listener.stats()["connections"] == 0
    with pytest.raises(pika.exceptions.AMQPError):
        connection.process_data_events(time_limit=30)


def test_a_vhost_that_ends_under_load_leaves_each_confirmed_message(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    neighbour = pyqstore.open(tmp_path / "b")
    listener = store.listen("127.0.0.1:0", vhosts={"b": neighbour})
    confirmed: list[bytes] = []

    def publish(number: int) -> None:
        connection = pika.BlockingConnection(parameters(listener, virtual_host="b"))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()

        def publish_on() -> None:
            for count in range(1_000_000):
                body = b"%d.%d " % (number, count) + b"x" * (count * 997 % 20_000)
                channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
                confirmed.append(body)

        with pytest.raises((pika.exceptions.AMQPError, OSError)):
            publish_on()

    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(publish, number) for number in range(4)]
        wait_until(lambda: len(confirmed) > 50, 60)
        neighbour.close()
        for each in ends:
            each.result()
    with pyqstore.open(tmp_path / "b") as again:
        found = [body for batch in again.browse("q") for body in batch["body"].to_pylist()]
    assert len(found) == len(set(found))
    assert set(confirmed) <= set(found)


def test_a_listener_that_is_closed_ends_all_vhosts_and_leaves_their_stores(
    listener: pyqstore.Listener, neighbour: pyqstore.Store
) -> None:
    connection = pika.BlockingConnection(parameters(listener, virtual_host="b"))
    connection.channel().queue_declare("q", durable=True)
    closer = threading.Thread(target=listener.close)
    closer.start()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
        connection.process_data_events(time_limit=30)
    assert ended.value.reply_code == 320
    closer.join()
    neighbour.channel().basic_publish("", "q", b"x")
    assert neighbour.queue_status("q")["messages_ready"] == 1


def test_each_vhost_has_the_limits_of_its_store(store: pyqstore.Store, tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "b", body_bytes_max=1000) as small:
        listener = store.listen("127.0.0.1:0", vhosts={"b": small})
        with vhost(listener, "/") as first, vhost(listener, "b") as second:
            for connection in (first, second):
                connection.channel().queue_declare("q", durable=True)
            roomy, narrow = first.channel(), second.channel()
            for channel in (roomy, narrow):
                channel.confirm_delivery()
            roomy.basic_publish("", "q", b"x" * 1001)
            narrow.basic_publish("", "q", b"x" * 1000)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                narrow.basic_publish("", "q", b"x" * 1001)
            assert refused.value.reply_code == 406


def test_a_vhost_that_is_short_of_memory_holds_back_its_own_publishers_alone(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    with pyqstore.open(tmp_path / "b", memory_budget=16 * MIB) as small:
        listener = store.listen("127.0.0.1:0", vhosts={"b": small})
        with vhost(listener, "b") as connection, vhost(listener, "/") as beside:
            greedy = connection.channel()
            greedy.queue_declare("q", durable=True)
            greedy.tx_select()

            def fill() -> None:
                for _ in range(10_000):
                    greedy.basic_publish("", "q", b"x" * 3000)
                greedy.tx_commit()

            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                fill()
            assert refused.value.reply_code == 406
            channel = beside.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            for _ in range(10_000):
                channel.basic_publish("", "q", b"x" * 300)
            channel.tx_commit()
    assert store.queue_status("q")["messages_ready"] == 10_000


def test_a_name_may_have_255_bytes_and_stands_in_errors(
    store: pyqstore.Store, neighbour: pyqstore.Store
) -> None:
    name = "ä" * 127 + "b"
    listener = store.listen("127.0.0.1:0", vhosts={name: neighbour})
    with vhost(listener, name) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as missing:
            connection.channel().queue_declare("q", passive=True)
        assert missing.value.reply_text.startswith("NOT_FOUND - no queue 'q' in vhost 'ää")


async def test_stores_of_asyncio_are_vhosts_too(tmp_path: Path) -> None:
    def declare(listener: pyqstore.Listener) -> None:
        with vhost(listener, "b") as connection:
            connection.channel().queue_declare("q", durable=True)

    async with aio.open(tmp_path / "a") as store, aio.open(tmp_path / "b") as neighbour:
        listener = await store.listen("127.0.0.1:0", vhosts={"b": neighbour})
        await asyncio.to_thread(declare, listener)
        assert await neighbour.queues() == ["q"]


@pytest.mark.parametrize(
    ("vhosts", "error", "words"),
    [
        (lambda own, other: {"/": other}, ValueError, "'/' is the store that listens"),
        (lambda own, other: {"b": own}, ValueError, "'b' has the store of another vhost"),
        (lambda own, other: {"b": other, "c": other}, ValueError, "'c' has the store of another"),
        (lambda own, other: {"": other}, ValueError, "'' is no name"),
        (lambda own, other: {"x" * 256: other}, ValueError, "1 to 255 bytes"),
        (lambda own, other: {"a\0b": other}, ValueError, "no NUL"),
        (lambda own, other: {5: other}, TypeError, "maps names to open stores, not 5"),
        (lambda own, other: ["b"], TypeError, "and is no list"),
        (lambda own, other: {"b": "b"}, TypeError, "not 'b' to str"),
    ],
)
def test_vhosts_that_cannot_be_are_refused_by_name(
    store: pyqstore.Store,
    other: pyqstore.Store,
    vhosts: Callable[[pyqstore.Store, pyqstore.Store], Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        store.listen("127.0.0.1:0", vhosts=vhosts(store, other))


def test_a_store_that_cannot_be_served_leaves_no_listener(
    store: pyqstore.Store, other: pyqstore.Store, tmp_path: Path
) -> None:
    closed = pyqstore.open(tmp_path / "c")
    closed.close()
    with pytest.raises(pyqstore.StoreClosed):
        store.listen("127.0.0.1:0", vhosts={"b": other, "c": closed})
    with (
        pyqstore.open(tmp_path / "c", read_only=True) as readable,
        pytest.raises(ValueError, match="for reading only"),
    ):
        store.listen("127.0.0.1:0", vhosts={"c": readable})
    again = store.listen("127.0.0.1:0", vhosts={"b": other})
    with vhost(again, "b") as connection:
        connection.channel().queue_declare("q", durable=True)
    assert other.queues() == ["q"]
