"""Shovels of ``bench shovel`` from and to Kafka, beside confluent-kafka alone.

The client alone reads all of each message, and tells Kafka the offset after each thousandth; or it
publishes as a shovel does, idempotent, with 4,000 unconfirmed, or in transactions of so many.
Nothing else is done to the messages.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore.bench.goals import Goal
from pyqstore.bench.loads import QUEUE, expect
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Sample

from .rivals.kafka_node import KafkaNode
from .rivals.server import LOOPBACK

KINDS = ("queue", "stream")
INTO = {kind: f"from Kafka into a {kind}" for kind in KINDS}
OUT = {kind: f"from a {kind} to Kafka" for kind in KINDS}
ALONE, SHOVEL = "confluent-kafka alone", "pyqstore shovel"
RATE = "messages_per_s"
WAYS = (*INTO.values(), *OUT.values())
GOALS = tuple(Goal(way, SHOVEL, RATE, 0.8, ALONE) for way in WAYS)
PLOTS = [Plot(f"Messages {way}", "case", RATE, group=way, unit="messages/s") for way in WAYS]
NOTE = (
    "confluent-kafka in the same process as the store; bodies of 100 B with a message_id, a topic"
    " of one partition. From a stream both write transactions."
)
_MESSAGES = 200_000
_BODY = b"x" * 100
_ID = "m" * 20
_HEADERS = [("message_id", _ID.encode())]
_WINDOW = 4000
_TOLD = 1000
_IDLE_S = 1.0
_ANSWER_S = 60.0


def missing() -> str | None:
    """How to get what is not there."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "Python has no confluent_kafka: pip install 'pyqstore[kafka]'"
    return KafkaNode.missing()


class KafkaWork:
    """With a node that runs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._made = 0
        self._kafka = importlib.import_module("confluent_kafka")
        self._admin = importlib.import_module("confluent_kafka.admin")

    def cases(self, options: Options) -> list[Case]:
        """The client, and the shovel, each way."""
        count = max(options.count(_MESSAGES), _WINDOW) // _WINDOW * _WINDOW
        ways: dict[tuple[str, str], Callable[[Path, int], Sample]] = {}
        for kind in KINDS:
            ways[INTO[kind], ALONE] = self._receive
            ways[INTO[kind], SHOVEL] = partial(self._shovel_into, kind)
            ways[OUT[kind], ALONE] = partial(self._publish, kind)
            ways[OUT[kind], SHOVEL] = partial(self._shovel_out, kind)
        return [
            Case(name, partial(_run, run, count), {"messages": count}, group=group)
            for (group, name), run in ways.items()
        ]

    @property
    def _options(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"{LOOPBACK}:{self._port}", "log_level": 0}

    def _new_topic(self, count: int) -> str:
        """With so many messages."""
        self._made += 1
        topic = f"bench-{self._made}"
        admin = self._admin.AdminClient(self._options)
        admin.create_topics([self._admin.NewTopic(topic, 1, 1)])[topic].result()
        if count:
            self._sent(self._producer({}), topic, count)
        return topic

    def _producer(self, options: dict[str, Any]) -> Any:
        return self._kafka.Producer({**self._options, "enable.idempotence": True, **options})

    def _sent(self, producer: Any, topic: str, count: int) -> None:
        """All are confirmed when this returns."""
        done = 0

        def confirmed(error: Any, _message: Any) -> None:
            nonlocal done
            if error is not None:
                raise RuntimeError(f"Kafka refused a message: {error}")
            done += 1

        for number in range(count):
            producer.produce(topic, _BODY, headers=_HEADERS, on_delivery=confirmed)
            while number - done >= _WINDOW:
                producer.poll(_ANSWER_S)
        producer.flush(_ANSWER_S)
        expect(done, count)

    def _receive(self, _directory: Path, count: int) -> Sample:
        topic = self._new_topic(count)
        began = time.perf_counter()
        consumer = self._kafka.Consumer(
            {**self._options, "group.id": topic, "enable.auto.commit": False}
        )
        consumer.assign([self._kafka.TopicPartition(topic, 0, 0)])
        done = 0
        while done < count:
            message = None
            for message in consumer.consume(_TOLD, _ANSWER_S):
                message.key(), message.value(), message.headers(), message.timestamp()
                done += 1
            if message is not None:
                consumer.commit(message, asynchronous=True)
        seconds = time.perf_counter() - began
        consumer.close()
        return _sample(seconds, count)

    def _publish(self, kind: str, _directory: Path, count: int) -> Sample:
        topic = self._new_topic(0)
        began = time.perf_counter()
        if kind == "queue":
            self._sent(self._producer({}), topic, count)
        else:
            producer = self._producer({"transactional.id": topic})
            producer.init_transactions(_ANSWER_S)
            for _ in range(count // _WINDOW):
                producer.begin_transaction()
                self._sent(producer, topic, _WINDOW)
                producer.commit_transaction(_ANSWER_S)
        return _sample(time.perf_counter() - began, count)

    def _shovel_into(self, kind: str, directory: Path, count: int) -> Sample:
        topic = self._new_topic(count)
        with pyqstore.open(directory / "store") as store:
            target = store.queue(QUEUE) if kind == "queue" else store.stream(QUEUE)
            return self._shovelled(self._at(topic), target, count)

    def _shovel_out(self, kind: str, directory: Path, count: int) -> Sample:
        topic = self._new_topic(0)
        properties = pyqstore.Properties(delivery_mode=2, message_id=_ID)
        with pyqstore.open(directory / "store") as store:
            source = store.queue(QUEUE) if kind == "queue" else store.stream(QUEUE)
            with store.channel() as channel, channel.transaction():
                for _ in range(count):
                    channel.basic_publish("", QUEUE, _BODY, properties)
            return self._shovelled(source, self._at(topic), count)

    def _at(self, topic: str) -> str:
        return f"kafka://{LOOPBACK}:{self._port}/{topic}"

    def _shovelled(self, source: Any, target: Any, count: int) -> Sample:
        report = pyqstore.shovel(source, target, idle=_IDLE_S)
        expect(report.moved, count)
        return _sample(report.seconds - _IDLE_S, count)


def _run(run: Callable[[Path, int], Sample], count: int, directory: Path) -> Sample:
    return run(directory, count)


def _sample(seconds: float, count: int) -> Sample:
    return Sample(seconds, count, count * len(_BODY))
