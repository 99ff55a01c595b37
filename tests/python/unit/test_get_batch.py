"""Getting deliveries as one record batch: columns, limits, waiting, acknowledging, memory."""

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import get

TYPES: dict[str, Any] = {
    "delivery_tag": pa.uint64(),
    "redelivered": pa.bool_(),
    "exchange": pa.dictionary(pa.int32(), pa.string()),
    "routing_key": pa.dictionary(pa.int32(), pa.string()),
    "body": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
    "message_id": pa.string(),
    "correlation_id": pa.string(),
    "type": pa.string(),
    "app_id": pa.string(),
    "content_type": pa.string(),
    "content_encoding": pa.string(),
    "reply_to": pa.string(),
    "user_id": pa.string(),
    "priority": pa.uint8(),
    "delivery_mode": pa.uint8(),
    "expiration_ms": pa.int64(),
    "timestamp": pa.timestamp("s", "UTC"),
    "delivery_count": pa.uint32(),
}


def publish(channel: pyqstore.Channel, queue: str, count: int) -> None:
    channel.publish_batch(
        pa.table({"body": [b"%d" % number for number in range(count)]}), routing_key=queue
    )


def test_columns_have_their_types_also_without_rows(channel: pyqstore.Channel, queue: str) -> None:
    batch = channel.get_batch(queue)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 0
    publish(channel, queue, 1)
    for one in (batch, channel.get_batch(queue)):
        one.validate(full=True)
        assert dict(zip(one.schema.names, one.schema.types, strict=True)) == TYPES


def test_rows_hold_what_was_published(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "e")
    channel.basic_publish(
        "e",
        "k1",
        b"one",
        pyqstore.Properties(
            headers={"a": "x", "n": 7},
            message_id="m",
            priority=3,
            delivery_mode=2,
            expiration=60_000,
            timestamp=1_704_067_200,
        ),
    )
    channel.basic_publish("", "q", b"")
    batch = channel.get_batch("q")
    batch.validate(full=True)
    first, second = batch.to_pylist()
    assert (first["delivery_tag"], second["delivery_tag"]) == (1, 2)
    assert (first["exchange"], first["routing_key"], first["body"]) == ("e", "k1", b"one")
    assert dict(first["headers"]) == {"a": "x", "n": "7"}
    assert (first["message_id"], first["priority"], first["delivery_mode"]) == ("m", 3, 2)
    assert first["expiration_ms"] == 60_000
    assert first["timestamp"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert (first["redelivered"], first["delivery_count"]) == (False, 0)
    assert (second["exchange"], second["routing_key"], second["body"]) == ("", "q", b"")
    assert second["message_id"] is None
    assert second["priority"] is None


@pytest.mark.faces("sync", "aio")
def test_rows_come_in_order_up_to_the_limit(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 250)
    seen = []
    for expected in (100, 100, 50, 0):
        batch = channel.get_batch(queue, 100)
        assert batch.num_rows == expected
        seen += batch.column("body").to_pylist()
        if expected:
            channel.basic_ack(batch.column("delivery_tag")[-1].as_py(), multiple=True)
    assert seen == [b"%d" % number for number in range(250)]
    assert store.queue_status(queue)["messages_unacked"] == 0


def test_max_bytes_bounds_bodies_but_one_always_fits(channel: pyqstore.Channel, queue: str) -> None:
    for _ in range(10):
        channel.basic_publish("", queue, b"x" * 100)
    assert channel.get_batch(queue, max_bytes=350).num_rows == 3
    assert channel.get_batch(queue, max_bytes=1).num_rows == 1


@pytest.mark.faces("sync", "aio")
def test_auto_ack_leaves_nothing_unacked(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 10)
    assert channel.get_batch(queue, auto_ack=True).num_rows == 10
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


def test_requeued_rows_come_back_redelivered_in_their_places(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 6)
    tags = channel.get_batch(queue, 4).column("delivery_tag").to_pylist()
    channel.basic_ack(tags[1])
    channel.basic_nack(tags[3], multiple=True)
    batch = channel.get_batch(queue)
    assert batch.column("body").to_pylist() == [b"0", b"2", b"3", b"4", b"5"]
    assert batch.column("redelivered").to_pylist() == [True, True, True, False, False]
    assert batch.column("delivery_count").to_pylist() == [1, 1, 1, 0, 0]


@pytest.mark.faces("sync", "aio")
def test_get_batch_waits_for_the_first_message(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as channel, store.channel() as other:
        begin = time.monotonic()
        assert channel.get_batch(queue, timeout=0.25).num_rows == 0
        assert time.monotonic() - begin >= 0.25
        timer = threading.Timer(0.1, other.basic_publish, ["", queue, b"x"])
        timer.start()
        assert channel.get_batch(queue, timeout=200).num_rows == 1
        timer.join()
    assert time.monotonic() - begin < 100


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"max_messages": 0}, ValueError),
        ({"max_messages": -1}, ValueError),
        ({"max_messages": 1.5}, TypeError),
        ({"max_bytes": 0}, ValueError),
        ({"max_bytes": "1"}, TypeError),
        ({"timeout": -1}, ValueError),
    ],
)
def test_wrong_limits_are_refused(
    channel: pyqstore.Channel, queue: str, arguments: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        channel.get_batch(queue, **arguments)


def test_batch_outlives_the_store(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q")
        publish(channel, "q", 1000)
        batch = channel.get_batch("q")
    batch.validate(full=True)
    assert batch.column("body")[999].as_py() == b"999"


def test_large_bodies_come_back_from_the_message_store(path: Path) -> None:
    rows = [bytes([number]) * (5000 + number) for number in range(50)]
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.publish_batch(pa.table({"body": rows}), routing_key="q")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert channel.get_batch("q").column("body").to_pylist() == rows


def test_single_and_batch_deliveries_share_their_tags(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 5)
    first = get(channel, queue)
    batch = channel.get_batch(queue, 3)
    last = get(channel, queue)
    assert [first.delivery_tag, *batch.column("delivery_tag").to_pylist(), last.delivery_tag] == [
        1, 2, 3, 4, 5
    ]  # fmt: skip
    channel.basic_ack(multiple=True)
