"""Clients that ask for quorum queues: an error, or a classic queue where the listener says so."""

from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

import pyqstore

from ..serving import served
from .test_listen import connected

QUORUM: dict[str, Any] = {
    "x-queue-type": "quorum",
    "x-quorum-initial-group-size": 3,
    "x-queue-leader-locator": "client-local",
    "x-delivery-limit": 5,
    "x-max-length": 2,
}
CLASSIC = {"x-delivery-limit": 5, "x-max-length": 2}


def test_a_quorum_queue_is_a_durable_classic_one_where_the_listener_takes_it_so(path: Path) -> None:
    with pyqstore.open(path) as store:
        listener = store.listen("127.0.0.1:0", quorum_as_classic=True)
        with connected(listener) as connection:
            channel = connection.channel()
            for arguments in (QUORUM, CLASSIC, QUORUM):
                channel.queue_declare("q", durable=True, arguments=arguments)
            channel.queue_declare("not said to be durable", arguments=QUORUM)
            for number in range(3):
                channel.basic_publish("", "q", b"%d" % number)  # a quorum queue keeps all
            assert channel.queue_declare("q", passive=True).method.message_count == 2
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="x-queue-type"):
                channel.queue_declare("r", durable=True, arguments={"x-queue-type": "nope"})
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="x-quorum-"):
                connection.channel().queue_declare(
                    "r", arguments={"x-quorum-initial-group-size": 3}
                )
    with pyqstore.open(path, create=False) as store:
        assert store.queues() == ["not said to be durable", "q"]
        assert store.queue_status("q")["messages_ready"] == 2


def test_a_quorum_queue_is_refused_unless_the_listener_was_told(store: pyqstore.Store) -> None:
    with (
        connected(store.listen("127.0.0.1:0")) as connection,
        pytest.raises(
            pika.exceptions.ChannelClosedByBroker, match="there are no quorum queues here"
        ),
    ):
        connection.channel().queue_declare("q", durable=True, arguments=QUORUM)
    assert store.queues() == []


def test_who_asks_for_a_quorum_queue_hears_what_a_server_can_do(store: pyqstore.Store) -> None:
    told = "no 'quorum' queues here, say 'classic' or 'stream'; a server with quorum_as_classic"
    with (
        connected(store.listen("127.0.0.1:0")) as connection,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match=told),
    ):
        connection.channel().queue_declare("hello", arguments={"x-queue-type": "quorum"})


def test_serve_takes_quorum_queues_as_classic_ones_when_it_is_told(path: Path) -> None:
    with served(path, "--listen", "127.0.0.1:0", "--quorum-as-classic") as server:
        port = int(server.addresses()["amqp"].rpartition(":")[2])
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        )
        connection.channel().queue_declare("q", durable=True, arguments=QUORUM)
        connection.close()
        assert server.end()[0] == 0
    with pyqstore.open(path, create=False) as store:
        assert store.queues() == ["q"]
