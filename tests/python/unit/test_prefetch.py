"""Prefetch: how many messages a consumer and a channel have out at most."""

from collections import Counter
from collections.abc import Callable

import pytest

import pyqstore

from ..support import publish_numbers
from ..taking import consume, take


def test_both_limits_hold(channel: pyqstore.Channel) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish_numbers(channel, name, 5)
    channel.basic_qos(2)
    channel.basic_qos(3, global_=True)
    consume(channel, "a", "a")
    consume(channel, "b", "b")
    assert sorted(take(channel)) == [("a", b"0"), ("a", b"1"), ("b", b"0")]
    channel.basic_qos(0, global_=True)
    assert take(channel) == [("b", b"1")]
    channel.basic_ack(multiple=True)
    assert len(take(channel)) == 4


def test_limits_change_in_mid_flight_and_take_nothing_back(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 10)
    channel.basic_qos(4, global_=True)
    consume(channel, queue, "c")
    assert len(take(channel)) == 4
    channel.basic_qos(2, global_=True)
    channel.basic_ack(1)
    channel.basic_ack(2)
    assert take(channel) == []
    channel.basic_ack(3)
    assert take(channel) == [("c", b"4")]
    channel.basic_qos(5, global_=True)
    assert len(take(channel)) == 3
    channel.basic_qos(1)  # for consumers to come; the channel's limit is gone
    assert len(take(channel)) == 2


def test_prefetch_of_one_leaves_the_rest_to_whoever_acknowledges(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 6)
    channel.basic_qos(1)
    consume(channel, queue, "busy")
    consume(channel, queue, "quick")
    assert take(channel) == [("busy", b"0"), ("quick", b"1")]
    for tag, number in ((2, b"2"), (3, b"3"), (4, b"4")):
        channel.basic_ack(tag)
        assert take(channel) == [("quick", number)]
    channel.basic_ack(1)
    assert take(channel) == [("busy", b"5")]


def test_prefetch_is_that_of_the_time_of_registering(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 10)
    channel.basic_qos(1)
    consume(channel, queue, "one")
    channel.basic_qos(2)
    consume(channel, queue, "two")
    assert Counter(tag for tag, _ in take(channel)) == {"one": 1, "two": 2}
    channel.basic_nack(multiple=True)
    assert Counter(tag for tag, _ in take(channel)) == {"one": 1, "two": 2}


def test_gets_are_not_limited_and_do_not_count(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 6)
    channel.basic_qos(2, global_=True)
    for _ in range(3):
        assert channel.basic_get(queue) is not None
    consume(channel, queue, "c")
    assert len(take(channel)) == 2
    assert channel.basic_get(queue) is not None


def test_auto_ack_consumer_has_no_limit_but_the_channels(channel: pyqstore.Channel) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish_numbers(channel, name, 3)
    channel.basic_qos(1)
    consume(channel, "a", "auto", auto_ack=True)
    assert len(take(channel)) == 3
    channel.basic_qos(1, global_=True)
    consume(channel, "b", "b")
    assert take(channel) == [("b", b"0")]
    publish_numbers(channel, "a", 2)
    assert take(channel) == []
    channel.basic_ack(multiple=True)
    assert ("auto", b"0") in take(channel)


def test_messages_of_a_cancelled_consumer_count_in_the_channels_limit(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 4)
    channel.basic_qos(2, global_=True)
    consume(channel, queue, "a")
    assert len(take(channel)) == 2
    channel.basic_cancel("a")
    consume(channel, queue, "b")
    assert take(channel) == []
    channel.basic_ack(2)
    assert take(channel) == [("b", b"2")]


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (
            lambda channel: channel.basic_qos(1, prefetch_size=7),
            "NOT_IMPLEMENTED - prefetch_size!=0 (7)",
        ),
        (lambda channel: channel.basic_recover(requeue=False), "NOT_IMPLEMENTED - requeue=false"),
    ],
)
def test_what_no_broker_offers_is_refused(
    channel: pyqstore.Channel, verb: Callable[[pyqstore.Channel], object], text: str
) -> None:
    with pytest.raises(pyqstore.NotImplementedByBroker) as caught:
        verb(channel)
    assert str(caught.value) == text
    assert channel.closed
