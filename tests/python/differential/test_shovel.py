"""Shovels and RabbitMQ: killed on either side, again and again.  Into a store each message comes
once, into RabbitMQ at least once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import pyqstore
from pyqstore import Properties
from pyqstore.control.messages import Seen, packed, packs_of
from pyqstore.control.reaching import reach

from .broker import Broker

KILLS = int(os.environ.get("QS_SHOVEL_KILLS", "20"))
ROUND = 5000
"""Messages that are there just before a kill: most of them are under way then."""
MESSAGES = ROUND * KILLS

_SHOVEL = """
import sys
import pyqstore

pyqstore.shovel(sys.argv[1], sys.argv[2], idle=float(sys.argv[3]) or None)
"""


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    """With two queues that are gone afterwards."""
    with opened(broker) as channel:
        for name in ("a", "b"):
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True)
    broker.sync()
    yield channel
    with opened(broker) as channel:
        for name in ("a", "b"):
            channel.queue_delete(name)


@contextmanager
def opened(broker: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(broker.parameters())
    try:
        yield connection.channel()
    finally:
        connection.close()


def place(broker: Broker, queue: str) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}?queue={queue}"


def publish(broker: Broker, first: int) -> None:
    """Numbers, every second one with a message_id; confirmed when this returns."""
    with opened(broker) as channel:
        channel.tx_select()  # quicker than to wait for each message
        for number in range(first, first + ROUND):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number) if number % 2 else None
            )
            channel.basic_publish("", "a", b"%d" % number, properties)
        channel.tx_commit()


def put(directory: Path, first: int) -> None:
    """The same into the store, whichever process has it."""
    numbers = range(first, first + ROUND)
    packs = packs_of(Seen(b"%d" % number, Properties(delivery_mode=2)) for number in numbers)
    arguments = {"exchange": "", "key": "a"}
    reach(directory, "publish", arguments, asked=lambda _: packed(next(packs, [])))


def taken(broker: Broker, queue: str) -> Counter[int]:
    """All bodies of a queue."""
    found: Counter[int] = Counter()
    with opened(broker) as channel:
        channel.basic_qos(prefetch_count=1000)
        for method, _, body in channel.consume(queue, inactivity_timeout=3):
            if method is None:
                break
            found[int(body)] += 1
            channel.basic_ack(method.delivery_tag)
    return found


def started(source: str, target: str, idle: float = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _SHOVEL, source, target, str(idle)])


def kill_again_and_again(
    broker: Broker, victim: str, source: str, target: str, feed: Callable[[int], object]
) -> None:
    """KILLS times, just after messages came; then all are moved."""
    seed = int(os.environ.get("QS_KILL_SEED", time.time_ns() % 10**9))
    print(f"QS_KILL_SEED={seed}")
    chosen = random.Random(seed)
    shovel = started(source, target)
    for number in range(KILLS):
        feed(number * ROUND)
        time.sleep(chosen.uniform(0, 0.3))
        if victim == "rabbitmq":
            broker.restart()
        assert shovel.poll() is None
        if victim == "shovel":
            shovel.kill()
            shovel.wait()
            shovel = started(source, target)
    shovel.kill()
    shovel.wait()
    assert started(source, target, idle=10).wait(600) == 0


@pytest.mark.parametrize("victim", ["shovel", "rabbitmq"])
def test_into_a_store_each_message_comes_once(
    broker: Broker, channel: BlockingChannel, tmp_path: Path, victim: str
) -> None:
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        store.queue("b")
    source, target = place(broker, "a"), f"{directory}#b"
    kill_again_and_again(broker, victim, source, target, partial(publish, broker))
    with pyqstore.open(directory) as store, store.channel() as end:
        found: Counter[int] = Counter()
        while (message := end.basic_get("b", auto_ack=True)) is not None:
            found[int(message.body)] += 1
    assert found == Counter(range(MESSAGES))


@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("victim", ["shovel", "rabbitmq"])
def test_out_of_a_store_each_message_comes(
    broker: Broker, channel: BlockingChannel, tmp_path: Path, victim: str, kind: str
) -> None:
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        (store.queue if kind == "queue" else store.stream)("a")
    source, target = f"{directory}#a", place(broker, "b")
    kill_again_and_again(broker, victim, source, target, partial(put, directory))
    found = taken(broker, "b")
    assert sorted(found) == list(range(MESSAGES))
    print(f"came twice or more: {sum(found.values()) - MESSAGES} of {MESSAGES}")
