"""Shovels and RabbitMQ: killed on either side, again and again.  Into a store each message comes
once, into RabbitMQ at least once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import pyqstore
from pyqstore import shovel
from pyqstore.shovelling.amqp_source import AmqpSource
from pyqstore.shovelling.ends import Batch, Later
from pyqstore.shovelling.notes import Notes

from ..proxy import Proxy
from ..support import wait_until
from .broker import Broker
from .kills import MESSAGES, PATIENT, ROUND, held, kill_again_and_again, put


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


def count_of(broker: Broker, queue: str) -> int:
    """Messages that are ready."""
    with opened(broker) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def restarted(broker: Broker, victim: str) -> Callable[[], object] | None:
    return broker.restart if victim == "rabbitmq" else None


@PATIENT
@pytest.mark.parametrize("victim", ["shovel", "rabbitmq"])
def test_into_a_store_each_message_comes_once(
    broker: Broker, channel: BlockingChannel, tmp_path: Path, victim: str
) -> None:
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        store.queue("b")
    source, target = place(broker, "a"), f"{directory}#b"
    hits = kill_again_and_again(
        restarted(broker, victim),
        source,
        target,
        partial(publish, broker),
        partial(held, directory, "b"),
    )
    with pyqstore.open(directory) as store, store.channel() as end:
        found: Counter[int] = Counter()
        while (message := end.basic_get("b", auto_ack=True)) is not None:
            found[int(message.body)] += 1
    assert found == Counter(range(MESSAGES))
    assert hits > 0


@PATIENT
@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("victim", ["shovel", "rabbitmq"])
def test_out_of_a_store_each_message_comes(
    broker: Broker, channel: BlockingChannel, tmp_path: Path, victim: str, kind: str
) -> None:
    directory = tmp_path / "store"
    with pyqstore.open(directory) as store:
        (store.queue if kind == "queue" else store.stream)("a")
    source, target = f"{directory}#a", place(broker, "b")
    hits = kill_again_and_again(
        restarted(broker, victim),
        source,
        target,
        partial(put, directory),
        partial(count_of, broker, "b"),
    )
    found = taken(broker, "b")
    assert sorted(found) == list(range(MESSAGES))
    again = sum(found.values()) - MESSAGES
    print(f"came twice or more: {again} of {MESSAGES}")
    assert hits + again > 0


def test_equal_messages_are_moved_though_a_connection_broke(
    broker: Broker, channel: BlockingChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long after equal ones were acknowledged: what another consumer gives back is no repeat."""
    proxy = Proxy(broker.port)
    source = f"amqp://guest:guest@127.0.0.1:{proxy.port}?queue=a"
    open_ = AmqpSource.open
    may_open = threading.Event()
    may_open.set()

    def waits(self: AmqpSource, position: int | None) -> None:
        if not may_open.is_set():
            raise Later("planted")
        open_(self, position)

    monkeypatch.setattr(AmqpSource, "open", waits)
    stop = threading.Event()
    with pyqstore.open(tmp_path / "store") as store, ThreadPoolExecutor(1) as pool:
        target = store.queue("b")
        notes = Notes(store, "s")
        future = pool.submit(shovel, source, f"{tmp_path}/store#b", name="s", stop=stop)
        try:
            ticks(broker, 3000)
            wait_until(lambda: len(target) == 3000)
            wait_until(lambda: notes.read() is None and notes.doubtful().total() == 0)
            may_open.clear()
            assert proxy.cut() == 1
            ticks(broker, 2000)
            with opened(broker) as end:  # which gives all back
                end.basic_qos(prefetch_count=2000)
                had = [end.basic_get("a") for _ in range(2000)]
                assert all(method is not None for method, _, _ in had)
            may_open.set()
            wait_until(lambda: len(target) == 5000, 60)
        finally:
            stop.set()
        report = future.result(60)
    proxy.close()
    assert (report.moved, report.repeated) == (5000, 0)


def ticks(broker: Broker, count: int) -> None:
    """Equal messages; confirmed when this returns."""
    with opened(broker) as channel:
        channel.tx_select()
        for _ in range(count):
            channel.basic_publish("", "a", b"tick", pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()


HEADERS: dict[str, object] = {
    "text": "ä", "number": 7, "large": 1 << 40, "yes": True, "list": [1, "a"], "table": {"a": None},
}  # fmt: skip


@pytest.mark.parametrize("headers", [None, {}, HEADERS])
def test_messages_of_a_quorum_queue_that_come_again_are_known(
    broker: Broker,
    tmp_path: Path,
    headers: dict[str, object] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their headers change when they do."""
    with opened(broker) as channel:
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for number in range(100):
            properties = pika.BasicProperties(delivery_mode=2, headers=headers, type="t")
            channel.basic_publish("", "quorum", b"%d" % number, properties)
    settle = AmqpSource.settle

    def dies(_self: AmqpSource, _batch: Batch) -> None:
        raise pyqstore.StoreFailed("it dies between the commit and the acknowledgement")

    source = place(broker, "quorum")
    try:
        with pyqstore.open(tmp_path / "store") as store:
            target = store.queue("b")
            for _ in range(2):
                monkeypatch.setattr(AmqpSource, "settle", dies)
                with pytest.raises(pyqstore.StoreFailed):
                    shovel(source, target)
            monkeypatch.setattr(AmqpSource, "settle", settle)
            report = shovel(source, target, idle=3)
            assert report.moved + report.repeated == 100
            assert report.repeated > 0
            assert len(target) == 100
            with store.channel() as end:
                message = end.basic_get("b")
            assert message is not None
            assert message.properties.type == "t"
            assert message.properties.headers == (headers or {})
    finally:
        with opened(broker) as channel:
            channel.queue_delete("quorum")
