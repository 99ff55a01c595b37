"""Shovels beside the client that they use, alone: RabbitMQ or Kafka into a store, and back.

pika alone receives, and acknowledges each thousandth message, or publishes with 4,000
unconfirmed; nothing else is done to the messages.  ``shovel_kafka`` has Kafka.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore.bench import goals
from pyqstore.bench.goals import Goal
from pyqstore.bench.loads import QUEUE, expect
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Progress, Result, Sample

from . import shovel_kafka
from .rivals.kafka_node import KafkaNode
from .rivals.rabbitmq import RabbitMq
from .rivals.server import LOOPBACK

TITLE = "Shovels between RabbitMQ, Kafka and a store"
INTO, OUT = "from RabbitMQ into a store", "from a store to RabbitMQ"
ALONE, SHOVEL = "pika alone", "pyqstore shovel"
RATE = "messages_per_s"
GOALS = (
    *(Goal(way, SHOVEL, RATE, 0.8, ALONE) for way in (INTO, OUT)),
    *shovel_kafka.GOALS,
)
PLOTS = [
    *(Plot(f"Messages {way}", "case", RATE, group=way, unit="messages/s") for way in (INTO, OUT)),
    *shovel_kafka.PLOTS,
]
_MESSAGES = 60_000
_BODY = b"x" * 100
_ID = "m" * 20
_WINDOW = 4000
_PREFETCH = 5000
_ACKED = 1000
_IDLE_S = 1.0


def missing() -> str | None:
    """How to get what is not there."""
    if importlib.util.find_spec("pika") is None:
        return "Python has no pika: pip install 'pyqstore[amqp]'"
    return RabbitMq("RabbitMQ", {}).server_missing() or shovel_kafka.missing()


@dataclass(frozen=True)
class Work:
    """Servers that run: stands in for a workload's module."""

    port: int
    kafka: shovel_kafka.KafkaWork

    def cases(self, options: Options) -> list[Case]:
        """The client, and the shovel, each way."""
        count = max(options.count(_MESSAGES), 2 * _ACKED) // _ACKED * _ACKED
        ways: dict[tuple[str, str], Callable[[Path, int], Sample]] = {
            (INTO, ALONE): self._receive,
            (INTO, SHOVEL): self._shovel_into,
            (OUT, ALONE): self._publish,
            (OUT, SHOVEL): self._shovel_out,
        }
        return [
            Case(name, partial(_run, run, count), {"messages": count}, group=group)
            for (group, name), run in ways.items()
        ] + self.kafka.cases(options)

    def notes(self, results: Sequence[Result]) -> list[str]:
        """What the numbers are, and each goal beside what came."""
        return [
            "pika's SelectConnection in the same process as the store; bodies of 100 B with a"
            " message_id, persistent, queues durable.",
            shovel_kafka.NOTE,
            *goals.told(GOALS, results),
        ]

    def _receive(self, _directory: Path, count: int) -> Sample:
        self._new_queue(count)
        return _sample(_Alone(self.port, count).receive(), count)

    def _publish(self, _directory: Path, count: int) -> Sample:
        self._new_queue(0)
        return _sample(_Alone(self.port, count).publish(), count)

    def _shovel_into(self, directory: Path, count: int) -> Sample:
        self._new_queue(count)
        with pyqstore.open(directory / "store") as store:
            return self._shovelled(self._place, store.queue(QUEUE), count)

    def _shovel_out(self, directory: Path, count: int) -> Sample:
        self._new_queue(0)
        properties = pyqstore.Properties(delivery_mode=2, message_id=_ID)
        with pyqstore.open(directory / "store") as store:
            queue = store.queue(QUEUE)
            with store.channel() as channel, channel.transaction():
                for _ in range(count):
                    channel.basic_publish("", QUEUE, _BODY, properties)
            return self._shovelled(queue, self._place, count)

    @property
    def _place(self) -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}?queue={QUEUE}"

    def _shovelled(self, source: Any, target: Any, count: int) -> Sample:
        report = pyqstore.shovel(source, target, idle=_IDLE_S)
        expect(report.moved, count)
        return _sample(report.seconds - _IDLE_S, count)

    def _new_queue(self, count: int) -> None:
        """With so many messages."""
        pika = _pika()
        with pika.BlockingConnection(_parameters(self.port)) as connection:
            channel = connection.channel()
            channel.queue_delete(QUEUE)
            channel.queue_declare(QUEUE, durable=True)
            channel.tx_select()
            properties = pika.BasicProperties(delivery_mode=2, message_id=_ID)
            for _ in range(count):
                channel.basic_publish("", QUEUE, _BODY, properties)
            channel.tx_commit()


class _Alone:
    """pika's quickest: its asynchronous connection, with nothing done to the messages."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._channel: Any = None
        self._began = 0.0
        self._sent = self._done = 0

    def receive(self) -> float:
        """Seconds, from the consumer's begin to the last acknowledgement."""
        return self._run(self._consume)

    def publish(self) -> float:
        """Seconds, from the first message to the last confirm."""
        return self._run(self._confirm)

    def _run(self, begin: Callable[[], None]) -> float:
        def opened(channel: Any) -> None:
            self._channel = channel
            channel.connection.add_on_close_callback(lambda closed, _: closed.ioloop.stop())
            self._began = time.perf_counter()
            begin()

        connection = _pika().SelectConnection(
            _parameters(self._port),
            on_open_callback=lambda made: made.channel(on_open_callback=opened),
        )
        connection.ioloop.start()
        seconds = time.perf_counter() - self._began
        connection.close()
        connection.ioloop.start()
        expect(self._done, self._count)
        return seconds

    def _consume(self) -> None:
        self._channel.basic_qos(prefetch_count=_PREFETCH)
        self._channel.basic_consume(QUEUE, self._came)

    def _came(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._done += 1
        if self._done % _ACKED == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self._done == self._count:
            channel.connection.ioloop.stop()

    def _confirm(self) -> None:
        self._channel.confirm_delivery(self._confirmed, callback=lambda _: self._fill())

    def _fill(self) -> None:
        pika = _pika()
        while self._sent < self._count and self._sent - self._done < _WINDOW:
            properties = pika.BasicProperties(delivery_mode=2, message_id=_ID)
            self._channel.basic_publish("", QUEUE, _BODY, properties, mandatory=True)
            self._sent += 1

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            raise RuntimeError("RabbitMQ refused a message")
        self._done = method.delivery_tag if method.multiple else self._done + 1
        if self._done >= self._count:
            self._channel.connection.ioloop.stop()
        elif self._sent - self._done < _WINDOW * 3 // 4:
            self._fill()


@contextmanager
def begun(_options: Options, directory: Path, progress: Progress) -> Iterator[Work]:
    """Start RabbitMQ and Kafka; end them with the block."""
    if (why := missing()) is not None:
        raise RuntimeError(why)
    own = directory.resolve()
    for name in ("rabbitmq", "kafka"):
        (own / name).mkdir()
    rabbitmq, kafka = RabbitMq("RabbitMQ", {}), KafkaNode(own / "kafka")
    try:
        progress("starting RabbitMQ", 0, 2)
        rabbitmq.start_server(own / "rabbitmq")
        progress("starting Kafka", 1, 2)
        kafka.start()
        yield Work(rabbitmq.port, shovel_kafka.KafkaWork(kafka.port))
    finally:
        kafka.stop()
        rabbitmq.stop()


def _pika() -> Any:
    return importlib.import_module("pika")


def _parameters(port: int) -> Any:
    return _pika().ConnectionParameters(LOOPBACK, port, heartbeat=0)


def _run(run: Callable[[Path, int], Sample], count: int, directory: Path) -> Sample:
    return run(directory, count)


def _sample(seconds: float, count: int) -> Sample:
    return Sample(seconds, count, count * len(_BODY))
