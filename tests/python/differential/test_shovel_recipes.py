"""The recipe of docs/SHOVEL.md that moves a store to RabbitMQ, with its commands as they stand
there: producers and consumers are at work all the time, and no message is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pika
import pika.exceptions
import pytest

import pyqstore

from ..recipes import commands
from ..support import wait_until
from .broker import Broker, is_installed

PERSISTENT = pika.BasicProperties(delivery_mode=2)
STEP = 2000


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)


class Producer(threading.Thread):
    """Publishes numbers to one of two servers, confirmed each, until it is stopped."""

    def __init__(self, first: int, port: int) -> None:
        super().__init__()
        self.first = first
        self.port = port
        self.count = 0
        self.stops = threading.Event()

    def run(self) -> None:
        while not self.stops.is_set():
            port = self.port
            with pika.BlockingConnection(parameters(port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while port == self.port and not self.stops.is_set():
                    body = b"%d" % (self.first + self.count)
                    channel.basic_publish("jobs", "eu.rome", body, PERSISTENT, mandatory=True)
                    self.count += 1


class Consumer(threading.Thread):
    """Takes from one server until it is stopped; a part of what it took it has not acknowledged."""

    def __init__(self, port: int, found: set[int]) -> None:
        super().__init__()
        self.port = port
        self.found = found
        self.stops = threading.Event()

    def run(self) -> None:
        with pika.BlockingConnection(parameters(self.port)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=100)
            for method, _, body in channel.consume("jobs", inactivity_timeout=0.1):
                if method is not None:
                    self.found.add(int(body))
                    channel.basic_ack(method.delivery_tag)
                if self.stops.is_set():
                    return  # what came and was not looked at goes back


def run(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", *words], check=True, timeout=600)


def test_a_store_moves_to_rabbitmq_for_good(tmp_path: Path) -> None:
    if not is_installed():
        pytest.fail("the package rabbitmq-server is not installed")
    broker = Broker(tmp_path / "rabbitmq")
    directory, file = tmp_path / "jobs.qs", tmp_path / "jobs.json"
    threads: list[Producer | Consumer] = []
    found: set[int] = set()
    try:
        broker.start()
        with pyqstore.open(directory) as store:
            port = int(store.listen("127.0.0.1:0").address.rpartition(":")[2])
            with store.channel() as channel:
                channel.exchange_declare("jobs", "topic", durable=True)
            jobs = store.queue("jobs")
            with store.channel() as channel:
                channel.queue_bind("jobs", "jobs", "eu.#")
            producers = [Producer(first, port) for first in (0, 1_000_000)]
            old = Consumer(port, found)
            threads += [*producers, old]
            for thread in threads:
                thread.start()
            export, import_, shovel = commands(
                "docs/SHOVEL.md",
                "A store that moves to RabbitMQ for good",
                {
                    "jobs.qs": str(directory),
                    "jobs.json": str(file),
                    "USER:PASSWORD@HOST": f"guest:guest@127.0.0.1:{broker.port}",
                    "--idle 60": "--idle 3",
                },
            )
            at_least(producers, 500)
            run(export)
            assert import_[0] == "rabbitmqctl"
            broker.control(*import_[1:])
            end(old)
            at_least(producers, 1000)
            moving = threading.Thread(target=run, args=(shovel,))
            moving.start()
            threads.append(Consumer(broker.port, found))
            threads[-1].start()
            for number, producer in enumerate(producers, 2):
                at_least(producers, 500 * number)
                producer.port = broker.port
            at_least(producers, 2500)
            moving.join(600)
            assert not moving.is_alive()
            status = store.queue_status("jobs")
            assert (status.messages_ready, status.messages_unacked) == (0, 0)
            assert len(jobs) == 0
        for producer in producers:
            end(producer)
        expected = {each.first + number for each in producers for number in range(each.count)}
        wait_until(lambda: found == expected, 60)
    finally:
        for thread in threads:
            end(thread)
        broker.stop()


def at_least(producers: list[Producer], count: int) -> None:
    holds: Callable[[], bool] = lambda: all(each.count >= count for each in producers)  # noqa: E731
    wait_until(holds, 120)


def end(thread: Producer | Consumer) -> None:
    thread.stops.set()
    thread.join(60)
    assert not thread.is_alive()
