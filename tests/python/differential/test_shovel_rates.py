"""A shovel beside pika alone, both with RabbitMQ, in turns in one run.

Other work on the machine makes a round slow and none quick, so the quickest of each are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

import pyqstore
from pyqstore import Properties, shovel

from .broker import Broker

COUNT = 60_000
ROUNDS = 3
LEAST = 0.8
BODY = b"x" * 100
WINDOW = 4000
IDLE = 1.0


class Alone:
    """pika's quickest: its asynchronous connection, with nothing done to the messages."""

    def __init__(self, broker: Broker) -> None:
        self._parameters = broker.parameters()
        self._channel: Any = None
        self._began = time.monotonic()
        self._sent = self._done = 0

    def rate(self, begin: Callable[[Any], None]) -> float:
        """Messages a second; ``begin`` has an open channel."""

        def opened(channel: Any) -> None:
            self._channel = channel
            self._began = time.monotonic()
            begin(channel)

        connection = pika.SelectConnection(
            self._parameters, on_open_callback=lambda it: it.channel(on_open_callback=opened)
        )
        connection.ioloop.start()
        ended = time.monotonic()
        connection.close()
        connection.ioloop.start()
        return COUNT / (ended - self._began)

    def receives(self, channel: Any) -> None:
        channel.connection.add_on_close_callback(lambda it, _: it.ioloop.stop())
        channel.basic_qos(prefetch_count=5000)
        channel.basic_consume("a", self._came)

    def _came(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._done += 1
        if self._done % 1000 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self._done == COUNT:
            channel.connection.ioloop.stop()

    def publishes(self, channel: Any) -> None:
        channel.connection.add_on_close_callback(lambda it, _: it.ioloop.stop())
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._publish())

    def _publish(self) -> None:
        while self._sent < COUNT and self._sent - self._done < WINDOW:
            properties = pika.BasicProperties(delivery_mode=2, message_id="m" * 20)
            self._channel.basic_publish("", "b", BODY, properties, mandatory=True)
            self._sent += 1

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        assert method.NAME == "Basic.Ack"
        self._done = method.delivery_tag if method.multiple else self._done + 1
        if self._done >= COUNT:
            self._channel.connection.ioloop.stop()
        elif self._sent - self._done < WINDOW * 3 // 4:
            self._publish()


def new_queue(broker: Broker, name: str, *, filled: bool) -> None:
    connection = pika.BlockingConnection(broker.parameters())
    channel = connection.channel()
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True)
    channel.tx_select()
    properties = pika.BasicProperties(delivery_mode=2, message_id="m" * 20)
    for _ in range(COUNT if filled else 0):
        channel.basic_publish("", name, BODY, properties)
    channel.tx_commit()
    connection.close()


def place(broker: Broker, name: str) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}?queue={name}"


def shovelled(source: Any, target: Any) -> float:
    report = shovel(source, target, idle=IDLE)
    assert report.moved == COUNT
    return COUNT / (report.seconds - IDLE)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_shovel_is_nearly_as_quick_as_the_client_alone(
    broker: Broker, tmp_path: Path, way: str
) -> None:
    theirs, ours = [], []
    for number in range(ROUNDS):
        with pyqstore.open(tmp_path / str(number)) as store:
            queue = store.queue("q")
            if way == "in":
                new_queue(broker, "a", filled=True)
                alone = Alone(broker)
                rate = alone.rate(alone.receives)
                new_queue(broker, "a", filled=True)
                found = shovelled(place(broker, "a"), queue)
            else:
                new_queue(broker, "b", filled=False)
                alone = Alone(broker)
                rate = alone.rate(alone.publishes)
                new_queue(broker, "b", filled=False)
                properties = Properties(delivery_mode=2, message_id="m" * 20)
                with store.channel() as channel, channel.transaction():
                    for _ in range(COUNT):
                        channel.basic_publish("", "q", BODY, properties)
                found = shovelled(queue, place(broker, "b"))
        theirs.append(rate)
        ours.append(found)
        print(f"{way}: pika alone {rate:.0f}/s, shovel {found:.0f}/s")
    assert max(ours) >= LEAST * max(theirs)
