"""Consumers that hold what they have while their queue grows."""

import logging
from pathlib import Path

import pytest

import pyqstore

from ..support import publish_numbers, wait_until
from ..taking import consume, take


def test_a_consumer_that_acknowledges_nothing_while_its_queue_grows_is_slow(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    def slow() -> tuple[int, int]:
        return store.queue_status(queue)["slow_consumers"], store.stats()["slow_consumers"]

    publish_numbers(channel, queue, 8)  # before: that they wait is no fault of its own
    with store.channel() as holding:
        holding.basic_qos(3)
        consume(holding, queue, "holding")
        assert len(take(holding)) == 3
        publish_numbers(channel, queue, 2)
        assert slow() == (0, 0)
        publish_numbers(channel, queue, 1)
        assert slow() == (1, 1)
        holding.basic_ack(1)
        assert slow() == (0, 0)
        assert len(take(holding)) == 1
        publish_numbers(channel, queue, 2)
        assert slow() == (0, 0)
        publish_numbers(channel, queue, 1)
        assert slow() == (1, 1)
        holding.basic_cancel("holding")
        assert slow() == (0, 0)


def test_a_consumer_that_does_not_ask_is_slow(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    with store.channel() as idle, store.channel() as busy:
        for each in (idle, busy):
            each.basic_qos(2)
            consume(each, queue, "c")
        publish_numbers(channel, queue, 4)
        assert len(take(busy)) == 2
        publish_numbers(channel, queue, 2)
        busy.basic_ack(multiple=True)
        assert len(take(busy)) == 2
        assert store.queue_status(queue)["slow_consumers"] == 0
        publish_numbers(channel, queue, 3)
        assert store.queue_status(queue)["slow_consumers"] == 2  # it acknowledged nothing since
        busy.basic_ack(multiple=True)
        assert store.queue_status(queue)["slow_consumers"] == 1


def test_consumers_without_a_prefetch_and_of_streams_are_never_slow(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    consume(channel, queue, "c")
    publish_numbers(channel, queue, 100)
    take(channel)
    publish_numbers(channel, queue, 100)
    stream = store.stream("s")
    with store.channel() as reader:
        reader.basic_qos(1)
        consume(reader, "s", "r")
        for number in range(9):
            stream.publish(str(number).encode())
        take(reader)
        stream.publish(b"more")
        assert store.stats()["slow_consumers"] == 0


def test_a_slow_consumer_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pyqstore")

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "slow" in record.getMessage()]

    with pyqstore.open(tmp_path / "s.qs") as store, store.channel() as channel:
        channel.queue_declare("q")
        channel.basic_qos(2)
        consume(channel, "q", "mine")
        publish_numbers(channel, "q", 2)
        take(channel)
        publish_numbers(channel, "q", 9)
        for _ in range(3):
            store.checkpoint()  # each wakes the thread that tells
        wait_until(lambda: told() != [])
        store.checkpoint()
    assert len(told()) == 1
    assert "consumer 'mine' of queue 'q' is slow" in told()[0]
