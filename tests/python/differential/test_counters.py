"""Counters of a store and of RabbitMQ's management after the same script: what is called by the
same name counts the same.  Exchange and queue together are not compared: RabbitMQ 3.10 lists none
("incoming" is empty).  Their sums are, as what exchanges give and what queues get."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest

import pyqstore

from .broker import Broker, is_installed

PATIENCE_SECONDS = 20
Counts = dict[str, int]
Told = dict[str, dict[Any, Counts]]

QUEUES = ("q", "other", "dies", "full")
EXCHANGES = ("", "amq.fanout", "amq.direct", "amq.topic")
QUEUE_NAMES = (
    *("publish", "deliver", "deliver_no_ack", "get", "get_no_ack"),
    *("deliver_get", "get_empty", "redeliver", "ack"),
)
CHANNEL_NAMES = (*QUEUE_NAMES, "confirm", "return_unroutable", "drop_unroutable")
EXCHANGE_NAMES = ("publish_in", "publish_out")


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if not is_installed():
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing("the package rabbitmq-server is not installed")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it logs each try until the node is up
    started = Broker(tmp_path_factory.mktemp("rabbitmq"), managed=True)
    try:
        started.start()
        yield started
    finally:
        started.stop()


class OnStore:
    """A channel of a store, with what pika calls otherwise."""

    def __init__(self, store: pyqstore.Store) -> None:
        self.store = store
        self.channel = store.channel()
        self.channel.add_return_listener(lambda _message: None)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.channel, verb)

    def put(self, exchange: str, key: str, mandatory: bool = False) -> None:
        self.channel.basic_publish(exchange, key, b"x", mandatory=mandatory)

    def get(self, queue: str, auto_ack: bool = False) -> int | None:
        message = self.channel.basic_get(queue, auto_ack)
        return None if message is None else message.delivery_tag

    def consume(self, queue: str, count: int, auto_ack: bool) -> list[int]:
        tags: list[int] = []
        tag = self.channel.basic_consume(
            queue, lambda message: tags.append(message.delivery_tag), auto_ack=auto_ack
        )
        while len(tags) < count:
            self.channel.process_events(1)
        self.channel.basic_cancel(tag)
        return tags

    def ready(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).message_count

    def confirmed(self) -> None:
        self.channel.wait_for_confirms(10)

    def told(self) -> Told:
        stats = self.store.stats(detail=True)
        return {
            "channels": {"": stats.channels[self.channel.number]},
            "queues": stats.queues,
            "exchanges": stats.exchanges,
        }


class OnBroker:
    """A channel of pika, with what a store calls otherwise."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection = pika.BlockingConnection(broker.parameters())
        self.channel = self.connection.channel()
        self.before = self.exchanges()  # those that are always there go on counting

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.channel, verb)

    def confirm_select(self) -> None:
        self.channel.confirm_delivery()

    def put(self, exchange: str, key: str, mandatory: bool = False) -> None:
        # In confirm mode pika raises: what counts is what the broker tells.
        with suppress(pika.exceptions.UnroutableError, pika.exceptions.NackError):
            self.channel.basic_publish(exchange, key, b"x", mandatory=mandatory)

    def get(self, queue: str, auto_ack: bool = False) -> int | None:
        method, _, _ = self.channel.basic_get(queue, auto_ack)
        return None if method is None else int(method.delivery_tag)

    def consume(self, queue: str, count: int, auto_ack: bool) -> list[int]:
        tags: list[int] = []
        tag = self.channel.basic_consume(
            queue, lambda _c, method, _p, _b: tags.append(method.delivery_tag), auto_ack
        )
        while len(tags) < count:
            self.connection.process_data_events(1)
        self.channel.basic_cancel(tag)
        return tags

    def ready(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def confirmed(self) -> None:
        pass  # pika has waited for each

    def ask(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.broker.management_port}/api/{path}",
            headers={"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def told(self) -> Told:
        queues = {each["name"]: each for each in self.ask("queues/%2F")}
        channels = self.ask("channels")
        return {
            "channels": {"": channels[0].get("message_stats", {}) if channels else {}},
            "queues": {name: queues[name].get("message_stats", {}) for name in QUEUES},
            "exchanges": {
                name: {each: n - self.before[name].get(each, 0) for each, n in counts.items()}
                for name, counts in self.exchanges().items()
            },
        }

    def exchanges(self) -> dict[str, Counts]:
        told = {each["name"]: each for each in self.ask("exchanges/%2F")}
        stats = {name: told[name].get("message_stats", {}) for name in EXCHANGES}
        return {
            name: {each: counts.get(each, 0) for each in EXCHANGE_NAMES}
            for name, counts in stats.items()
        }


def comparable(told: Told) -> dict[tuple[str, Any, str], int]:
    """Counters that both have and that are not 0."""
    names = {"channels": CHANNEL_NAMES, "queues": QUEUE_NAMES, "exchanges": EXCHANGE_NAMES}
    return {
        (part, owner, name): counts[name]
        for part, owners in told.items()
        for owner, counts in owners.items()
        for name in names[part]
        if counts.get(name)
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def declare(side: Any) -> None:
    for queue, arguments in {
        "q": {},
        "other": {},
        "dies": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"},
        "full": {"x-max-length": 2, "x-overflow": "reject-publish"},
    }.items():
        side.queue_declare(queue, durable=True, arguments=arguments)
    for queue in ("q", "other"):
        side.queue_bind(queue, "amq.fanout")
    side.exchange_bind("amq.fanout", "amq.topic", "#")


def publish(side: Any) -> None:
    for _ in range(5):
        side.put("", "q")
    for _ in range(2):
        side.put("amq.fanout", "")
    side.put("amq.topic", "any")
    side.put("amq.direct", "nowhere")


def publish_with_confirms(side: Any) -> None:
    side.confirm_select()
    publish(side)
    side.put("amq.direct", "nowhere", mandatory=True)
    for _ in range(3):
        side.put("", "full")
    side.confirmed()


def take(side: Any) -> None:
    publish(side)
    side.get("q")
    last = side.get("q")
    side.get("q", auto_ack=True)
    side.get("full")
    side.basic_ack(last, multiple=True)
    side.basic_nack(side.get("q"), requeue=True)
    side.get("q")
    side.basic_reject(side.get("other"), requeue=False)


def consume(side: Any) -> None:
    publish(side)
    tags = side.consume("q", 8, auto_ack=False)
    side.basic_ack(tags[2], multiple=True)
    side.basic_nack(tags[-1], multiple=True, requeue=True)
    side.consume("q", 5, auto_ack=True)
    side.basic_recover(requeue=True)


def dead_letters(side: Any) -> None:
    for _ in range(2):
        side.put("", "dies")
    side.basic_reject(side.get("dies"), requeue=False)
    while side.ready("other") == 0:  # RabbitMQ brings it there in its own time
        time.sleep(0.01)
    side.get("other", auto_ack=True)


def commit(side: Any) -> None:
    side.tx_select()
    publish(side)
    side.tx_commit()
    publish(side)
    side.basic_ack(side.get("q"))
    side.tx_rollback()
    side.basic_ack(side.get("q"))
    side.tx_commit()


SCRIPTS: dict[str, Callable[[Any], None]] = {
    "publish": publish,
    "confirms": publish_with_confirms,
    "get": take,
    "consume": consume,
    "dead letters": dead_letters,
    "transactions": commit,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_counters_are_those_of_rabbitmq(managed: Broker, path: Path, name: str) -> None:
    with pyqstore.open(path) as store:
        side = OnStore(store)
        declare(side)
        SCRIPTS[name](side)
        expected = comparable(side.told())
        side.close()
    assert expected
    other = OnBroker(managed)
    try:
        declare(other)
        SCRIPTS[name](other)
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := comparable(other.told())) != expected and time.monotonic() < until:
            time.sleep(0.2)
        assert found == expected
    finally:
        for queue in QUEUES:
            other.queue_delete(queue)
        other.exchange_unbind("amq.fanout", "amq.topic", "#")
        other.connection.close()
