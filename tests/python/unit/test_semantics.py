"""What RabbitMQ's channels and classic queues do where several features meet."""

from __future__ import annotations

from typing import Any

import pytest

import pyqstore

from ..support import PERSISTENT, bodies, declare, get, wait_until

PATIENCE_SECONDS = 10


# Confirms.


def test_deleting_the_queue_confirms(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    for _ in range(100):
        channel.basic_publish("", queue, b"1", PERSISTENT)
    channel.queue_delete(queue)
    assert channel.wait_for_confirms(PATIENCE_SECONDS)


def test_message_is_nacked_when_one_of_its_queues_refuses(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=0, overflow="reject-publish")
    declare(channel, "open")
    channel.queue_bind("full", "amq.fanout")
    channel.queue_bind("open", "amq.fanout")
    channel.confirm_select()
    channel.basic_publish("amq.fanout", "", b"1", PERSISTENT)
    assert not channel.wait_for_confirms(PATIENCE_SECONDS)
    assert bodies(channel, "open") == [b"1"]


def test_refused_message_is_gone_silently_without_confirms(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=1, overflow="reject-publish")
    returned: list[object] = []
    channel.add_return_listener(returned.append)
    channel.basic_publish("", "full", b"1", mandatory=True)
    channel.basic_publish("", "full", b"2", mandatory=True)
    assert channel.process_events() == 0
    assert (bodies(channel, "full"), returned) == ([b"1"], [])


def test_unroutable_message_is_confirmed(channel: pyqstore.Channel) -> None:
    channel.confirm_select()
    channel.basic_publish("", "nowhere", b"1", PERSISTENT)
    assert channel.wait_for_confirms(PATIENCE_SECONDS)


# Acknowledging.


def test_multiple_needs_its_own_tag(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as channel:
        channel.basic_publish("", queue, b"1")
        channel.basic_publish("", queue, b"2")
        get(channel, queue)
        get(channel, queue).ack()
        with pytest.raises(pyqstore.PreconditionFailed, match="unknown delivery tag 2"):
            channel.basic_ack(2, multiple=True)
    assert store.queue_status(queue)["messages_ready"] == 1


def test_queue_that_goes_with_its_consumer_takes_unacknowledged_messages_along(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with store.channel() as reader:
        reader.queue_declare("q", auto_delete=True, arguments=arguments)
        reader.basic_publish("", "q", b"1")
        reader.basic_consume("q", consumer_tag="c")
        assert reader.next_delivery("c", timeout=PATIENCE_SECONDS) is not None
    assert "q" not in store.queues()
    assert store.queue_status("dead")["messages_ready"] == 0


# Limits.


def test_only_bodies_count_in_a_limit_of_bytes(channel: pyqstore.Channel) -> None:
    declare(channel, "q", max_length_bytes=2)
    headers = pyqstore.Properties(headers={"note": "x" * 100})
    channel.basic_publish("", "q", b"1", headers)
    channel.basic_publish("", "q", b"2", headers)
    assert bodies(channel, "q") == [b"1", b"2"]


def test_requeued_messages_make_the_oldest_go(channel: pyqstore.Channel) -> None:
    declare(channel, "q", max_length=2)
    for body in (b"1", b"2"):
        channel.basic_publish("", "q", body)
    old = [get(channel, "q"), get(channel, "q")]
    for body in (b"3", b"4"):
        channel.basic_publish("", "q", body)
    for message in old:
        message.nack(requeue=True)
    assert bodies(channel, "q") == [b"3", b"4"]


# Dead letters.


@pytest.mark.parametrize(
    ("key", "copies", "reached"), [("dead", None, "dead"), (None, ["copy"], "copy")]
)
def test_key_of_its_own_takes_the_copies_away(
    channel: pyqstore.Channel, key: str | None, copies: list[str] | None, reached: str
) -> None:
    for queue in ("dead", "copy"):
        declare(channel, queue)
    arguments = {"dead_letter_exchange": ""} | ({"dead_letter_routing_key": key} if key else {})
    declare(channel, "q", **arguments)
    headers: dict[str, Any] = {"CC": ["copy"], "BCC": ["hidden"]}
    channel.basic_publish("", "q", b"1", pyqstore.Properties(headers=headers))
    assert get(channel, "copy").routing_key == "q"
    get(channel, "q").reject(requeue=False)
    dead_letter = get(channel, reached)
    assert dead_letter.properties.headers is not None
    assert dead_letter.properties.headers.get("CC") == copies
    assert "BCC" not in dead_letter.properties.headers
    deaths = dead_letter.properties.headers["x-death"]
    assert isinstance(deaths, list)
    assert isinstance(deaths[0], dict)
    assert deaths[0]["routing-keys"] == ["q", "copy"]


def test_expiration_is_told_and_taken_away(channel: pyqstore.Channel) -> None:
    declare(channel, "dead")
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    channel.basic_publish("", "q", b"1", pyqstore.Properties(expiration="3600000"))
    get(channel, "q").reject(requeue=False)
    properties = get(channel, "dead").properties
    assert properties.expiration is None
    assert properties.headers is not None
    deaths = properties.headers["x-death"]
    assert isinstance(deaths, list)
    assert isinstance(deaths[0], dict)
    assert (deaths[0]["reason"], deaths[0]["original-expiration"]) == ("rejected", "3600000")


def test_queue_that_expires_leaves_no_dead_letters(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declare(channel, "dead")
    declare(channel, "q", expires=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    channel.basic_publish("", "q", b"1")
    wait_until(lambda: "q" not in store.queues())
    assert store.queue_status("dead")["messages_ready"] == 0
