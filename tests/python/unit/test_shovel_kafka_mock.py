"""Shovels and the cluster that librdkafka plays: connections that break, brokers that say nothing.

It does not describe topics, so these tests ask it otherwise.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import pyqstore
from pyqstore import ShovelError, shovel
from pyqstore.shovelling import kafka_link
from pyqstore.shovelling.ends import Batch, Item, Later, Offsets
from pyqstore.shovelling.kafka_address import kafka_place
from pyqstore.shovelling.kafka_link import Link, Topic
from pyqstore.shovelling.kafka_source import KafkaSource
from pyqstore.shovelling.kafka_stream_target import KafkaStreamTarget
from pyqstore.shovelling.loop import Loop

from ..shovelling import at, bodies, drained, taken_now, working
from ..support import wait_until

kafka = pytest.importorskip("confluent_kafka")

_CLUSTER = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1, "log_level": 0})
brokers = producer.list_topics(timeout=10).brokers.values()
print(",".join(f"{each.host}:{each.port}" for each in brokers), flush=True)
sys.stdin.read()
"""


class Cluster:
    """A process of its own, which can be stopped."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def publish(self, topic: str, bodies: list[bytes], **more: Any) -> None:
        producer = kafka.Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for body in bodies:
            producer.produce(topic, body, partition=0, **more)
        assert producer.flush(20) == 0

    def at(self, topic: str) -> str:
        return f"kafka://{self.servers}/{topic}"

    def source(self, topic: str, start: Any = "first") -> KafkaSource:
        return KafkaSource(kafka_place(self.at(topic)), shovel="s", start=start)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    def described(self: Link) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(self._admin.list_topics(self.topic, timeout=20))
        return found

    def topic_of(self: Link, future: Future[Any]) -> Topic:
        return Topic("", tuple(sorted(future.result().topics[self.topic].partitions)))

    monkeypatch.setattr(Link, "described", described)
    monkeypatch.setattr(Link, "topic_of", topic_of)
    monkeypatch.setattr(Link, "message_bytes_max", lambda _: None)
    cluster = Cluster()
    yield cluster
    cluster.end()


def taken(source: KafkaSource, count: int) -> list[bytes]:
    found: list[bytes] = []

    def read() -> bool:
        batch = source.read(1000, 1 << 20, 0.1)
        if batch is not None:
            found.extend(item.body for item in batch.items)
            source.settle(batch)
        return len(found) >= count

    wait_until(read, 30)
    return found


# Where a shovel begins.


def test_what_comes_while_a_connection_is_lost_before_the_first_batch_is_moved(
    cluster: Cluster,
) -> None:
    cluster.publish("t", [b"before"])
    source = cluster.source("t", "next")
    source.open(None)
    cluster.publish("t", [b"while away"])
    source.open(None)
    assert taken(source, 1) == [b"while away"]
    source.close()


def test_where_a_shovel_begins_is_noted_before_anything_is_read(
    cluster: Cluster, store: pyqstore.Store
) -> None:
    """One that is killed before its first batch begins there once more."""
    cluster.publish("t", [b"before"])
    store.queue("b")
    assert shovel(cluster.at("t"), at(store, "b"), start="next", name="s", idle=0.5).moved == 0
    cluster.publish("t", [b"between"])
    report = shovel(cluster.at("t"), at(store, "b"), start="next", name="s", idle=2)
    assert (report.moved, report.lag) == (1, 0)
    assert bodies(store, "b") == [b"between"]


def test_what_was_taken_when_a_connection_is_lost_is_a_batch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.publish("t", [b"0", b"1", b"2"])
    source = cluster.source("t")
    source.open(None)
    assert source.read(1000, 1 << 20, 0) is not None  # where it begins
    fetch = KafkaSource._fetch

    def breaks(self: KafkaSource, most: int, timeout: float) -> None:
        if timeout == 0:
            raise Later("it is lost")
        fetch(self, most, timeout)

    monkeypatch.setattr(KafkaSource, "_fetch", breaks)
    assert taken(source, 1)[0] == b"0"
    with pytest.raises(Later, match="it is lost"):
        source.read(1000, 1 << 20, 0.1)
    source.close()


def test_a_place_in_another_topic_is_told(cluster: Cluster) -> None:
    cluster.publish("t", [b"0"])
    source = cluster.source("t")
    with pytest.raises(ShovelError, match=r"has read the topic other, not.*another name"):
        source.open(Offsets("", {0: 0}, "other"))
    source.close()


def test_the_end_of_a_partition_is_noted_where_marks_are_before_it(cluster: Cluster) -> None:
    """Retention may drop them, and nothing is lost then."""
    cluster.publish("t", [b"0"])
    source = cluster.source("t")
    source.open(None)
    assert taken(source, 1) == [b"0"]
    # It writes no marks, so what is told of one is played, too.
    source._take_error(End(0, 5))
    assert source.read(1000, 1 << 20, 0) is None
    batch = source.read(1000, 1 << 20, 0.1)
    assert batch is not None
    assert (batch.items, batch.position) == ([], Offsets("", dict(source._next), "t"))
    assert source._next[0] == 5
    assert source.read(1000, 1 << 20, 0.1) is None
    source.close()


class End:
    """What librdkafka tells at the end of a partition."""

    def __init__(self, partition: int, offset: int) -> None:
        self.partition = lambda: partition
        self.offset = lambda: offset
        self.error = lambda: kafka.KafkaError(kafka.KafkaError._PARTITION_EOF)


# A queue that takes fewer messages than a batch has.


def test_parts_of_a_batch_have_their_own_offsets(cluster: Cluster, store: pyqstore.Store) -> None:
    target = store.queue("b", max_length=700, overflow="reject-publish")
    numbers = [b"%d" % number for number in range(3000)]
    cluster.publish("t", numbers[:100])
    found: list[bytes] = []
    for last in (500, 3000):
        stop = threading.Event()
        with working(cluster.at("t"), at(store, "b"), stop=stop) as future:
            found += drained(target, 100 if not found else 0)
            cluster.publish("t", numbers[100:] if last == 500 else [])
            found += drained(target, last - len(found))
            stop.set()
            future.result(30)
        found += taken_now(target)
    assert found == numbers


# What cannot be read.


class Message:
    """What confluent-kafka has of a record without headers."""

    key = value = staticmethod(lambda: b"")
    timestamp = staticmethod(lambda: (0, -1))
    partition = staticmethod(lambda: 3)
    error = headers = staticmethod(lambda: None)

    def __init__(self, offset: int) -> None:
        self.offset = lambda: offset


class Wrong(Message):
    """One with a header whose name is not UTF-8: confluent-kafka tells of it once, and crashes the
    process when it is asked again."""

    is_told = False

    def headers(self) -> object:
        assert not self.is_told
        self.is_told = True
        try:
            return b"\xff".decode()
        except UnicodeDecodeError as error:
            raise SystemError("returned a result with an exception set") from error


@pytest.mark.parametrize("before", [0, 1, 2])
def test_headers_whose_names_are_not_utf8_are_told(cluster: Cluster, before: int) -> None:
    """Behind what came before, which is moved."""
    source = cluster.source("t")
    source._ready.extend([*map(Message, range(before)), Wrong(before), Message(before + 1)])
    if before > 0:
        assert len(source._take(1000, 1 << 20, 0)) == before
    for _ in range(2):
        with pytest.raises(
            ShovelError, match=rf"partition 3, offset {before}: headers cannot be read: .*utf-8"
        ):
            source._take(1000, 1 << 20, 0)


# Brokers that say nothing.


def test_a_source_closes_soon_though_the_brokers_say_nothing(cluster: Cluster) -> None:
    cluster.publish("t", [b"0"] * 10)
    source = cluster.source("t")
    source.open(None)
    taken(source, 10)
    source._tell()
    told = source._telling
    assert told is not None
    told.result(20)
    cluster.pause()
    source._told = Offsets("", {0: 5}, "t")
    begun = time.monotonic()
    source.close()
    gc.collect()
    assert time.monotonic() - begun < 5


def test_a_shovel_stops_soon_though_the_brokers_say_nothing(
    cluster: Cluster, store: pyqstore.Store
) -> None:
    cluster.publish("t", [b"0"] * 10)
    target = store.queue("b")
    stop = threading.Event()
    ended: list[Any] = []

    def run() -> None:
        ended.append(shovel(cluster.at("t"), at(store, "b"), stop=stop))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: len(target) == 10, 30)
    cluster.pause()
    stop.set()
    thread.join(10)
    assert len(ended) == 1
    assert ended[0].moved == 10


# Streams to topics.


def stream_target(cluster: Cluster, topic: str) -> KafkaStreamTarget:
    return KafkaStreamTarget(kafka_place(cluster.at(topic)), shovel="s", source="x")


def test_two_shovels_of_one_name_to_two_topics_work_beside_each_other(cluster: Cluster) -> None:
    targets = [stream_target(cluster, "one"), stream_target(cluster, "two")]
    for topic in ("one", "two"):
        cluster.publish(topic, [b"0"])
    for target in targets:
        assert target.open() is None
    for position in (1, 2):
        for target in targets:
            batch = Batch([Item(b"x", b"\0\0", "", "", False, 0)], 1, position)
            target.begin(batch)
            wait_until(lambda: target.ended(0.2) is batch, 30)  # noqa: B023
    for target in targets:
        target.close()


def test_one_that_is_fenced_again_at_once_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.publish("t", [b"0"])
    target = stream_target(cluster, "t")
    fenced = kafka.KafkaError(kafka.KafkaError._FENCED)
    target.open()
    assert isinstance(target._link.trouble_of(fenced), Later)
    target.open()
    target._link.trouble_of(fenced)
    with pytest.raises(ShovelError, match="another shovel named 's' works"):
        target.open()
    monkeypatch.setattr("pyqstore.shovelling.kafka_stream_target._FENCED_S", 0.0)
    target._link.trouble_of(fenced)
    target.open()
    target.close()


def test_one_that_comes_back_after_another_has_committed_ends_and_fences_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That cluster keeps no offsets of transactions: a consumer commits them for both."""
    cluster.publish("t", [b"0"])
    target = stream_target(cluster, "t")
    target.open()

    def commit(offset: int, mark: str) -> None:
        place = kafka.TopicPartition("t", 0, offset, mark)
        target._consumer.commit(offsets=[place], asynchronous=False)

    commit(1, target._mark)
    assert target.open() is not None
    commit(2, "x of another")
    made = []
    monkeypatch.setattr(KafkaStreamTarget, "_new_producer", lambda _: made.append(1))
    with pytest.raises(ShovelError, match="another shovel named 's' works"):
        target.open()
    assert not made  # which would fence the other
    target.close()


def test_a_transaction_in_which_a_broker_was_lost_is_begun_again(cluster: Cluster) -> None:
    """The producer would wait for that broker after it came back."""
    cluster.publish("t", [b"0"])
    batch = Batch([Item(b"x", b"\0\0", "", "", False, 0)], 1, 1)
    target = stream_target(cluster, "t")
    target.open()
    target.begin(batch)
    target._link.lost(kafka.KafkaError(kafka.KafkaError._TRANSPORT))
    with pytest.raises(Later, match="a broker was lost in a transaction"):
        target.ended(1.0)
    assert target.open() is None  # nothing was committed
    target.begin(batch)
    wait_until(lambda: target.ended(0.2) is batch, 30)
    target.close()


def test_servers_of_the_address_that_are_down_are_no_loss(cluster: Cluster) -> None:
    cluster.publish("t", [b"0"])
    down = ",".join(f"127.0.0.1:{port}" for port in range(1, 5))
    batch = Batch([Item(b"x", b"\0\0", "", "", False, 0)], 1, 1)
    place = kafka_place(f"kafka://{down},{cluster.servers}/t")
    target = KafkaStreamTarget(place, shovel="s", source="x")
    target.open()
    target.begin(batch)
    wait_until(lambda: target.ended(0.2) is batch, 30)
    target.close()


def test_a_stop_waits_for_a_transaction_that_is_under_way(
    cluster: Cluster, store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.publish("t", [b"0"])
    stream = store.stream("a")
    is_committing, is_stopping, stop = threading.Event(), threading.Event(), threading.Event()
    commit, last_moment = KafkaStreamTarget._commit, Loop._last_moment

    def committing(self: KafkaStreamTarget) -> None:
        is_committing.set()
        commit(self)

    def stopping(self: Loop) -> float:
        is_stopping.set()
        return last_moment(self)

    monkeypatch.setattr(KafkaStreamTarget, "_commit", committing)
    monkeypatch.setattr(Loop, "_last_moment", stopping)
    ended: list[Any] = []
    moved: list[int] = []

    def run() -> None:
        source, target = at(store, "a"), cluster.at("t")
        ended.append(
            shovel(source, target, stop=stop, progress=lambda told: moved.append(told.moved))
        )

    stream.publish(b"one")
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: bool(moved) and moved[-1] == 1, 30)
    is_committing.clear()
    cluster.pause()
    stream.publish(b"two")
    assert is_committing.wait(30)
    stop.set()
    assert is_stopping.wait(30)
    cluster.go_on()
    thread.join(30)
    assert ended[0].moved == 2


def test_options_of_the_user_count(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.publish("t", [b"0"])
    given: list[dict[str, Any]] = []
    client = kafka_link.Link.client

    def noted(self: Link, kind: str, options: dict[str, Any]) -> Any:
        given.append(dict(options))
        return client(self, kind, options)

    monkeypatch.setattr(Link, "client", noted)
    place = kafka_place(cluster.at("t") + "?queued.max.messages.kbytes=1000")
    source = KafkaSource(place, shovel="s", start="first")
    source.open(None)
    source.close()
    assert given[-1]["queued.max.messages.kbytes"] == "1000"
