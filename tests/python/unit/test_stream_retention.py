"""Retention as people read it: what a stream keeps is about its limit, though nobody said how long
a segment is; and what ``lag`` counts, ``poll`` gives without waiting."""

import itertools

import pyarrow as pa
import pytest

import pyqstore

from ..support import wait_until

pytestmark = pytest.mark.faces("sync", "aio")


MIB = 1 << 20


def rows(count: int, size: int) -> "pa.Table":
    return pa.table({"body": [bytes(size)] * count})


@pytest.mark.parametrize("batch_bytes", [MIB // 4, 6 * MIB])
def test_a_stream_kept_seven_times_its_limit(store: pyqstore.Store, batch_bytes: int) -> None:
    stream = store.stream("s", max_length_bytes=8 * MIB)
    for number in range(36 * MIB // batch_bytes):
        stream.publish_batch(rows(batch_bytes // 4096, 4096))
        if number % 6 == 0:
            store.checkpoint()

    def is_kept() -> bool:
        store.checkpoint()  # after which what is behind the limit goes
        return 8 * MIB <= stream.status().disk_bytes <= 11 * MIB

    wait_until(is_kept)


def test_a_stream_kept_many_times_its_number_of_messages(store: pyqstore.Store) -> None:
    stream = store.stream("s", max_messages=800)
    for number in range(60):
        stream.publish_batch(rows(100, 16 * 1024))
        if number % 6 == 0:
            store.checkpoint()

    def is_kept() -> bool:
        store.checkpoint()
        return 800 <= stream.next - stream.first <= 1100

    wait_until(is_kept)


@pytest.mark.clock
def test_a_segment_ends_with_its_share_of_the_age(store: pyqstore.Store) -> None:
    stream = store.stream("s", max_age="1s")

    def has_ended() -> bool:
        stream.publish(bytes(MIB // 8))  # so much that a checkpoint does not carry it
        store.checkpoint()
        return stream.status().segments > 1 or stream.first > 0

    wait_until(has_ended)


def test_a_segment_that_was_told_its_length_follows_nothing(store: pyqstore.Store) -> None:
    stream = store.stream("s", max_length_bytes=8 * MIB, segment_bytes=64 * MIB)
    for _ in range(3):
        stream.publish_batch(rows(1024, 4096))
        store.checkpoint()
    assert stream.status().segments == 1


@pytest.mark.parametrize("streams", [["s"], ["s", "other"]])
def test_lag_counted_what_poll_did_not_give(store: pyqstore.Store, streams: list[str]) -> None:
    for name in streams:
        store.stream(name)
    channel = store.channel()
    with store.stream_consumer(streams, "g") as consumer:
        for _ in range(200):
            channel.basic_publish("", "s", b"on its way to the disk")
            lag = consumer.lag()
            assert len(consumer.poll()) >= sum(lag.values())
        store.sync()
        assert sum(consumer.lag().values()) == sum(len(batch) for batch in rest_of(consumer))


def rest_of(consumer: pyqstore.StreamConsumer) -> "list[pa.RecordBatch]":
    polls = (consumer.poll() for _ in itertools.count())
    return list(itertools.takewhile(len, polls))
