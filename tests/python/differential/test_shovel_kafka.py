"""Shovels from Kafka into stores: what a message keeps, where a shovel goes on, what it tells."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

import pyqstore
import pyqstore.flight
from benchmarks.laboratory.rivals.server import free_port
from pyqstore import OffsetOutOfRange, Properties, ShovelError, shovel
from pyqstore.shovelling import kafka_source

from ..shovelling import IDLE, bodies, refusing, working
from ..support import wait_until
from .kafka import Kafka

MS = 1_700_000_000_123
NUMBERS = [b"%d" % number for number in range(9000)]


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_a_message_of_kafka_has_is_kept(kafka: Kafka, tmp_path: Path, is_stream: bool) -> None:
    topic = kafka.new_topic()
    kafka.publish(
        topic, [b"v", None, b""], key=b"k", timestamp=MS,
        headers=[
            ("a", b"1"), ("a", None), ("raw", b"\xff"), ("x-kafka-key", b"f"), ("n" * 300, b"q"),
        ],
    )  # fmt: skip
    kafka.publish(topic, [b"v"], key=b"", timestamp=MS)
    kafka.publish(topic, [b"v"], timestamp=MS)
    with pyqstore.open(tmp_path) as store:
        target = store.stream("b") if is_stream else store.queue("b")
        report = shovel(kafka.at(topic), target, idle=IDLE)
        assert (report.moved, report.lag, report.error) == (5, 0, None)
        with store.channel() as channel:
            arguments = {"x-stream-offset": "first"} if is_stream else None
            channel.basic_qos(10)
            tag = channel.basic_consume("b", arguments=arguments)
            found = [channel.next_delivery(tag, 10) for _ in range(5)]
    kept: dict[str, object] = {
        "x-kafka-key": "k", "x-kafka-timestamp": MS, "a": ["1", None], "raw": b"\xff",
        "x-kafka-headers": [["x-kafka-key", "f"], ["n" * 300, "q"]],
    }  # fmt: skip
    headers = [
        kept,
        {**kept, "x-kafka-null": True},
        kept,
        {"x-kafka-key": "", "x-kafka-timestamp": MS},
        {"x-kafka-timestamp": MS},
    ]
    for message, expected, body in zip(found, headers, [b"v", b"", b"", b"v", b"v"], strict=True):
        assert message is not None
        had = message.properties.headers
        had.pop("x-stream-offset", None)
        assert (message.body, had) == (body, expected)
        assert message.properties.timestamp == MS // 1000
        assert message.properties.delivery_mode == 2
        assert message.routing_key == "b"


def test_a_shovel_goes_on_where_it_was_in_each_partition(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic(3)
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        for number in range(2):
            for partition in range(3):
                kafka.publish(topic, NUMBERS, partition=partition)
            report = shovel(kafka.at(topic), target, idle=IDLE)
            assert (report.moved, report.lag) == (27_000, 0), number
        assert sorted(bodies(store, "b")) == sorted(NUMBERS * 6)


def test_the_order_of_a_partition_is_kept(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    kafka.publish(topic, NUMBERS)
    with pyqstore.open(tmp_path) as store:
        shovel(kafka.at(topic), store.queue("b"), idle=IDLE)
        assert bodies(store, "b") == NUMBERS


def test_kafka_is_told_the_offsets(kafka: Kafka, tmp_path: Path) -> None:
    """For its own tools: they are not what a shovel goes on at."""
    topic = kafka.new_topic()
    kafka.publish(topic, NUMBERS)
    with pyqstore.open(tmp_path) as store:
        shovel(kafka.at(topic), store.queue("b"), idle=IDLE, name="s")
    wait_until(lambda: kafka.told("pyqstore.shovel.s", topic) == len(NUMBERS))


def test_the_first_time_a_shovel_begins_where_it_is_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic(2)
    for number in range(10):
        kafka.publish(topic, [b"%d" % number], timestamp=MS + 1000 * number, partition=0)
    at = datetime.fromtimestamp((MS + 7000) / 1000, UTC)
    starts = {
        "first": list(range(10)), "last": [9], "next": [], at: [7, 8, 9],
    }  # fmt: skip
    with pyqstore.open(tmp_path) as store:
        for number, (start, expected) in enumerate(starts.items()):
            target = store.queue(f"b{number}")
            shovel(kafka.at(topic), target, idle=IDLE, start=start)
            assert bodies(store, f"b{number}") == [b"%d" % each for each in expected]
        one = kafka.new_topic()
        kafka.publish(one, NUMBERS[:10])
        shovel(kafka.at(one), store.queue("b"), idle=IDLE, start=8)
        assert bodies(store, "b") == [b"8", b"9"]


def test_partitions_that_come_later_are_read_from_their_begin(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "_LOOK_S", 0.2)
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        with working(kafka.at(topic), f"{tmp_path}#b", start="next"):
            kafka.publish(topic, [b"0"])
            wait_until(lambda: len(target) == 1)
            kafka.add_partitions(topic, 3)
            kafka.publish(topic, [b"2"], partition=2)
            wait_until(lambda: len(target) == 2, 60)
        kafka.publish(topic, [b"1"], partition=1)
        assert shovel(kafka.at(topic), target, idle=IDLE, start="next").moved == 1
        assert bodies(store, "b") == [b"0", b"2", b"1"]


def test_messages_of_transactions_that_were_aborted_are_not_moved(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    producer = Producer({**kafka.options, "transactional.id": "of-a-test"})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    with pyqstore.open(tmp_path) as store:
        report = shovel(kafka.at(topic), store.queue("b"), idle=IDLE)
        assert (report.moved, report.lag) == (2, 0)
        assert bodies(store, "b") == [b"0", b"2"]


def test_marks_of_transactions_that_retention_dropped_are_no_loss(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    producer = Producer({**kafka.options, "transactional.id": "of-another-test"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"0")
    producer.commit_transaction(60)
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        assert shovel(kafka.at(topic), target, idle=IDLE).moved == 1
        kafka.drop(topic, 2)  # the message and the mark
        assert shovel(kafka.at(topic), target, idle=IDLE).moved == 0
        kafka.publish(topic, [b"1"])
        assert shovel(kafka.at(topic), target, idle=IDLE).moved == 1


def test_messages_that_retention_dropped_are_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    kafka.publish(topic, NUMBERS[:10])
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        shovel(kafka.at(topic), target, idle=IDLE)
        kafka.publish(topic, NUMBERS[:10])
        kafka.drop(topic, 10)
        kafka.publish(topic, [b"more"])
        assert shovel(kafka.at(topic), target, idle=IDLE).moved == 11
        kafka.publish(topic, NUMBERS[:10])
        kafka.drop(topic, 25)
        with pytest.raises(OffsetOutOfRange, match=f"{topic} partition 0.*there are 25 to 30"):
            shovel(kafka.at(topic), target, idle=IDLE)
        assert shovel(kafka.at(topic), target, idle=IDLE, name="other").moved == 6


@pytest.mark.parametrize("is_at_work", [False, True])
def test_a_topic_that_was_deleted_and_made_again_is_told(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_work: bool
) -> None:
    monkeypatch.setattr(kafka_source, "_LOOK_S", 0.2)
    topic = kafka.new_topic()
    kafka.publish(topic, [b"one"])
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        if not is_at_work:
            assert shovel(kafka.at(topic), target, idle=IDLE).moved == 1
            kafka.delete_topic(topic)
            with pytest.raises(pyqstore.NotFound, match=topic):
                shovel(kafka.at(topic), target, idle=IDLE)
            kafka.make_topic(topic)
            kafka.publish(topic, [b"one", b"two"])
            with pytest.raises(ShovelError, match="deleted and made again"):
                shovel(kafka.at(topic), target, idle=IDLE)
        else:
            with working(kafka.at(topic), f"{tmp_path}#b") as future:
                wait_until(lambda: len(target) == 1)
                kafka.delete_topic(topic)
                kafka.make_topic(topic)
                # Either is told, as the shovel looks before it is there again or after.
                with pytest.raises((ShovelError, pyqstore.NotFound)):
                    future.result(60)
        assert len(target) == 1


def test_a_message_that_a_store_refuses_is_a_dead_letter(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic()
    kafka.publish(topic, [b"good"])
    kafka.publish(topic, [b"b" * 1000], key=b"k")
    kafka.publish(topic, [b"good"])
    with pyqstore.open(tmp_path / "small", body_bytes_max=999) as store:
        with pytest.raises(ShovelError, match="5 times"):
            shovel(kafka.at(topic), store.queue("b"), idle=IDLE)
        assert bodies(store, "b") == []
    refusing(monkeypatch, b"b" * 1000)
    with pyqstore.open(tmp_path / "store") as store:
        report = shovel(kafka.at(topic), store.queue("b"), idle=IDLE, dead="dead", tries=2)
        assert (report.moved, report.dead) == (2, 1)
        assert bodies(store, "b") == [b"good", b"good"]
        with store.channel() as channel:
            message = channel.basic_get("dead")
        assert message is not None
        assert message.body == b"b" * 1000
        assert message.properties.headers["x-kafka-key"] == "k"
        assert "it is refused" in message.properties.headers["x-shovel-error"]


def test_large_messages_are_moved(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic(max_message_bytes="10000000")
    large = [bytes([number]) * 3_000_000 for number in range(10)]
    kafka.publish(topic, large)
    with pyqstore.open(tmp_path) as store:
        shovel(kafka.at(topic), store.queue("b"), idle=IDLE)
        assert bodies(store, "b") == large


def test_a_full_queue_holds_the_topic_back(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    kafka.publish(topic, NUMBERS)
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b", max_length=1000, overflow="reject-publish")
        with working(kafka.at(topic), f"{tmp_path}#b") as future:
            wait_until(lambda: len(target) > 0)
            found = []
            while len(found) < len(NUMBERS):
                if (receipt := target.get(timeout=60)) is not None:
                    found.append(receipt.body)
                    receipt.ack()
        assert future.result(60).moved == len(NUMBERS)
        assert found == NUMBERS


def test_a_cluster_that_does_not_answer_is_tried_again(tmp_path: Path) -> None:
    port = free_port()
    with pyqstore.open(tmp_path) as store:
        store.queue("b")
        told: list[str | None] = []
        begun = time.monotonic()
        with working(
            f"kafka://127.0.0.1:{port}/t", f"{tmp_path}#b", progress=lambda r: told.append(r.error)
        ) as future:
            wait_until(lambda: bool(told) and told[-1] is not None, 60)
        report = future.result(60)
    assert "no broker answers" in str(report.error)
    assert time.monotonic() - begun < 60


def test_a_message_of_a_store_comes_back_equal_by_its_envelope(
    kafka: Kafka, tmp_path: Path
) -> None:
    """What another program added on the way is in the headers."""
    from pyqstore.shovelling.ends import Item
    from pyqstore.shovelling.kafka_messages import record_of

    properties = Properties(delivery_mode=2, message_id="m", headers={"n": 7})
    record = record_of(Item(b"body", properties.encoded, "x", "eu.rome", False, 0))
    topic = kafka.new_topic()
    kafka.publish(topic, [record.value], key=record.key, headers=record.headers)
    kafka.publish(topic, [b"new"], key=b"k", headers=[*record.headers, ("trace", b"t")])
    with pyqstore.open(tmp_path) as store:
        shovel(kafka.at(topic), store.queue("b"), idle=IDLE)
        with store.channel() as channel:
            one, two = channel.basic_get("b"), channel.basic_get("b")
    assert one is not None
    assert two is not None
    assert (one.body, one.properties, one.routing_key) == (b"body", properties, "eu.rome")
    changed = {"n": 7, "trace": "t", "x-kafka-key": "k"}
    assert (two.body, two.properties) == (b"new", properties.replace(headers=changed))


def test_a_name_that_was_for_a_stream_is_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    with pyqstore.open(tmp_path) as store:
        target = store.queue("b")
        store.stream("events").publish(b"one")
        assert shovel(store.stream("events"), target, idle=IDLE, name="s").moved == 1
        with pytest.raises(ShovelError, match=r"has read a stream.*another name"):
            shovel(kafka.at(topic), target, idle=IDLE, name="s")


def test_messages_go_into_a_store_at_a_server_and_come_back(kafka: Kafka, tmp_path: Path) -> None:
    one, two = kafka.new_topic(2), kafka.new_topic()
    kafka.publish(one, NUMBERS)
    with pyqstore.open(tmp_path) as store, pyqstore.flight.serve(store) as server:
        store.queue("b")
        url = f"grpc://{server.address}#b"
        assert shovel(kafka.at(one), url, idle=IDLE).moved == len(NUMBERS)
        assert shovel(kafka.at(one), url, idle=IDLE).moved == 0
        assert shovel(url, kafka.at(two), idle=IDLE).moved == len(NUMBERS)
    assert sorted(bytes(each.value() or b"") for each in kafka.messages(two)) == sorted(NUMBERS)
