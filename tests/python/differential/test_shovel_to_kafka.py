"""Shovels from stores to Kafka: what a message keeps, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import pyqstore
from pyqstore import NotFound, Properties, ShovelError, shovel
from pyqstore.shovelling.kafka_stream_target import KafkaStreamTarget

from ..shovelling import IDLE, bodies, put, working
from ..support import wait_until
from .kafka import Kafka

NUMBERS = [b"%d" % number for number in range(9000)]
FULL = Properties(
    content_type="text/plain",
    headers={"text": "ä", "raw": b"\xff", "n": 7, "list": [1, None]},
    delivery_mode=2,
    priority=3,
    message_id="m",
    timestamp=1_700_000_000,
)
KINDS = pytest.mark.parametrize("is_stream", [False, True])


def declare(store: pyqstore.Store, name: str, is_stream: bool) -> None:
    (store.stream if is_stream else store.queue)(name)


def publish(store: pyqstore.Store, *messages: tuple[bytes, Properties]) -> None:
    """To what is named ``a``."""
    with store.channel() as channel, channel.transaction():
        for body, properties in messages:
            channel.basic_publish("", "a", body, properties)


@KINDS
def test_messages_go_to_a_topic_in_order(kafka: Kafka, tmp_path: Path, is_stream: bool) -> None:
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", is_stream)
        for number in range(2):
            publish(store, *((body, Properties(delivery_mode=2)) for body in NUMBERS))
            report = shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE)
            assert (report.moved, report.lag, report.error) == (9000, 0, None), number
        assert store.queue_status("a").messages_ready == (18_000 if is_stream else 0)
    assert [message.value() for message in kafka.messages(topic)] == NUMBERS * 2


@KINDS
@pytest.mark.parametrize("properties", [FULL, Properties(), Properties(delivery_mode=2)])
def test_messages_come_back_from_a_topic_equal(
    kafka: Kafka, tmp_path: Path, is_stream: bool, properties: Properties
) -> None:
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", is_stream)
        with store.channel() as channel:
            channel.exchange_declare("x", "topic")
            channel.queue_bind("a", "x", "#")
            channel.basic_publish("x", "eu.rome", b"body", properties)
            channel.basic_publish("", "a", b"", properties)
        assert shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE).moved == 2
        one, two = kafka.messages(topic)
        assert (one.key(), one.value(), two.key(), two.value()) == (b"eu.rome", b"body", None, b"")
        if properties.timestamp is not None:
            assert one.timestamp()[1] == properties.timestamp * 1000
        assert shovel(kafka.at(topic), store.queue("b"), idle=IDLE).moved == 2
        with store.channel() as channel:
            back = [channel.basic_get("b"), channel.basic_get("b")]
    for message, key, body in zip(back, ("eu.rome", "b"), (b"body", b""), strict=True):
        assert message is not None
        assert (message.body, message.routing_key) == (body, key)
        assert message.properties == properties.replace(delivery_mode=2)


@KINDS
def test_messages_that_kafka_refuses_are_dead_letters(
    kafka: Kafka, tmp_path: Path, is_stream: bool
) -> None:
    """One is too large, one has a time that is to come; the others are there once each."""
    topic, other = (kafka.new_topic(max_message_bytes="2000") for _ in range(2))
    good = Properties(delivery_mode=2)
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", is_stream)
        publish(store, (b"x" * 2000, good))
        with pytest.raises(ShovelError, match=r"2 times.*no queue for dead letters"):
            shovel(f"{tmp_path}#a", kafka.at(other), idle=IDLE, tries=2)
        publish(
            store,
            *((body, good) for body in NUMBERS),
            (b"late", good.replace(timestamp=int(time.time()) + 10_000_000)),
            *((body, good) for body in NUMBERS),
        )
        report = shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, tries=2, dead="dead")
        assert report.dead == 2
        assert bodies(store, "dead") == [b"x" * 2000, b"late"]
    found = [message.value() for message in kafka.messages(topic)]
    assert sorted(map(bytes, found)) == sorted(NUMBERS * 2)
    assert not is_stream or found == NUMBERS * 2


@KINDS
def test_a_topic_that_is_not_there_is_told(kafka: Kafka, tmp_path: Path, is_stream: bool) -> None:
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", is_stream)
        publish(store, (b"body", Properties()))
        with pytest.raises(NotFound, match=r"kafka://.*/none"):
            shovel(f"{tmp_path}#a", kafka.at("none"), idle=IDLE)
        assert store.queue_status("a").messages_ready == 1


def test_large_messages_go_to_a_topic(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic(max_message_bytes="10000000")
    large = [bytes([number]) * 3_000_000 for number in range(10)]
    with pyqstore.open(tmp_path) as store:
        put(store, "a", large)
        shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE)
    assert [message.value() for message in kafka.messages(topic)] == large


def test_two_shovels_of_a_name_do_not_both_work(kafka: Kafka, tmp_path: Path) -> None:
    """The one that finds that another one goes on ends; nothing comes twice."""
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", True)
        count = 0
        with (
            working(f"{tmp_path}#a", kafka.at(topic), name="s") as one,
            working(f"{tmp_path}#a", kafka.at(topic), name="s") as two,
        ):
            while not (one.done() or two.done()):
                publish(store, (b"%d" % count, Properties()))
                count += 1
                wait_until(lambda: one.done() or two.done() or kafka.count(topic) >= 2 * count)  # noqa: B023
            assert one.done() != two.done()
            with pytest.raises(ShovelError, match="another shovel named 's'"):
                (one if one.done() else two).result()
            publish(store, (b"%d" % count, Properties()))
            wait_until(lambda: len(kafka.messages(topic)) == count + 1)
    assert [int(message.value() or b"") for message in kafka.messages(topic)] == list(
        range(count + 1)
    )


def test_a_name_that_moved_another_stream_is_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", True)
        declare(store, "b", True)
        publish(store, (b"body", Properties()))
        shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="s")
        with pytest.raises(ShovelError, match=r"is of another stream.*another name"):
            shovel(f"{tmp_path}#b", kafka.at(topic), idle=IDLE, name="s")


def test_a_stream_that_was_deleted_and_declared_again_is_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", True)
        publish(store, (b"body", Properties()), (b"body", Properties()))
        shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="s")
        with store.channel() as channel:
            channel.queue_delete("a")
        declare(store, "a", True)
        publish(store, *[(b"new", Properties())] * 3)
        with pytest.raises(ShovelError, match=r"is of another stream.*one that was deleted"):
            shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="s")
        assert shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="t").moved == 3
    assert [message.value() for message in kafka.messages(topic)] == [b"body"] * 2 + [b"new"] * 3


def test_a_stream_goes_on_though_kafka_forgot_where(kafka: Kafka, tmp_path: Path) -> None:
    """As it does of groups that nothing uses for a week: the store knows, too."""
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        declare(store, "a", True)
        for _ in range(2):
            publish(store, (b"body", Properties()))
            report = shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="forgotten")
            assert report.moved == 1
            group = f"pyqstore.shovel-to.forgotten/{topic}"
            kafka.admin.delete_consumer_groups([group])[group].result()


def test_a_dead_letter_is_there_before_the_position_is_behind_it(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic(max_message_bytes="2000")
    commit = KafkaStreamTarget._commit_to

    def dies(self: KafkaStreamTarget, position: int) -> None:
        commit(self, position)
        raise pyqstore.StoreFailed("it dies between the commit and all that comes behind it")

    with pyqstore.open(tmp_path) as store:
        declare(store, "a", True)
        publish(store, (b"x" * 2000, Properties()), (b"good", Properties()))
        monkeypatch.setattr(KafkaStreamTarget, "_commit_to", dies)
        with pytest.raises(pyqstore.StoreFailed):
            shovel(f"{tmp_path}#a", kafka.at(topic), tries=1, dead="dead", name="s")
        monkeypatch.setattr(KafkaStreamTarget, "_commit_to", commit)
        assert shovel(f"{tmp_path}#a", kafka.at(topic), idle=IDLE, name="s").moved == 0
        assert bodies(store, "dead") == [b"x" * 2000]
    assert [message.value() for message in kafka.messages(topic)] == [b"good"]
