"""Dead letters: why, where to, what they tell, and that they are in one place whatever happens."""

import time
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..support import Take, declare, publish, wait_until


def get(channel: pyqstore.Channel, queue: str) -> pyqstore.Message:
    """The first message, once it is there."""
    found: list[pyqstore.Message | None] = []

    def is_there() -> bool:
        found.append(channel.basic_get(queue))
        return found[-1] is not None

    wait_until(is_there)
    assert found[-1] is not None
    return found[-1]


def held(store: pyqstore.Store, queue: str) -> int:
    status = store.queue_status(queue)
    return status["messages_ready"] + status["messages_unacked"]


def deaths(message: pyqstore.Message) -> list[dict[str, Any]]:
    headers = message.properties.headers
    assert headers is not None
    return headers["x-death"]  # type: ignore[return-value]


@pytest.fixture
def dead(channel: pyqstore.Channel) -> str:
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx")
    return "dead"


def test_rejected_messages_go_to_the_exchange(
    store: pyqstore.Store, channel: pyqstore.Channel, dead: str
) -> None:
    declare(channel, "q", dead_letter_exchange="dlx")
    publish(channel, "q", b"1", headers={"a": 1}, message_id="m", expiration="60000")
    get(channel, "q").reject(requeue=False)
    assert held(store, "q") == 0
    letter = get(channel, dead)
    assert (letter.body, letter.exchange, letter.routing_key) == (b"1", "dlx", "q")
    assert letter.properties.message_id == "m"
    assert letter.properties.expiration is None
    headers = letter.properties.headers
    assert headers is not None
    assert headers["a"] == 1
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-exchange"] == ""
    (death,) = deaths(letter)
    assert abs(death.pop("time").timestamp() - time.time()) < 60
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
        "original-expiration": "60000",
    }


def test_key_of_its_own(channel: pyqstore.Channel) -> None:
    channel.queue_declare("other", durable=True)
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="other")
    publish(channel, "q", b"1")
    get(channel, "q").nack(requeue=False)
    letter = get(channel, "other")
    assert (letter.exchange, letter.routing_key) == ("", "other")
    assert deaths(letter)[0]["routing-keys"] == ["q"]


def test_expired_messages_go_by_themselves(channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", message_ttl=10)
    publish(channel, "q", b"1", b"2" + bytes(10_000))
    assert get(channel, dead).body == b"1"
    letter = get(channel, dead)
    assert letter.body == b"2" + bytes(10_000)
    assert deaths(letter)[0]["reason"] == "expired"


def test_the_oldest_of_too_many_go(channel: pyqstore.Channel, dead: str, bodies: Take) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", max_length=1)
    publish(channel, "q", b"1", b"2", b"3")
    assert deaths(get(channel, dead))[0]["reason"] == "maxlen"
    assert bodies(channel, "q") == [b"3"]
    assert bodies(channel, dead) == [b"2"]


def test_refused_messages_go(channel: pyqstore.Channel, dead: str, bodies: Take) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", max_length=1, overflow="reject-publish-dlx")
    channel.confirm_select()
    publish(channel, "q", b"1", b"2")
    assert channel.wait_for_confirms() is False
    letter = get(channel, dead)
    assert letter.body == b"2"
    assert deaths(letter)[0]["reason"] == "maxlen"
    assert bodies(channel, "q") == [b"1"]


def test_delivered_too_often(store: pyqstore.Store, channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", delivery_limit=2)
    publish(channel, "q", b"1")
    for count in range(3):
        message = get(channel, "q")
        assert message.delivery_count == count
        message.nack(requeue=True)
    letter = get(channel, dead)
    assert letter.body == b"1"
    assert deaths(letter)[0]["reason"] == "delivery_limit"
    declare(channel, "dropping", delivery_limit=0)
    publish(channel, "dropping", b"1")
    get(channel, "dropping")
    channel.close()
    assert held(store, "dropping") == 0


def test_deaths_are_counted(channel: pyqstore.Channel) -> None:
    declare(channel, "work", dead_letter_exchange="", dead_letter_routing_key="wait")
    declare(channel, "wait", dead_letter_exchange="", dead_letter_routing_key="work", message_ttl=1)
    publish(channel, "work", b"1")
    for _ in range(3):
        get(channel, "work").reject(requeue=False)
    letter = get(channel, "work")
    assert [(d["queue"], d["reason"], d["count"]) for d in deaths(letter)] == [
        ("wait", "expired", 3),
        ("work", "rejected", 3),
    ]
    headers = letter.properties.headers
    assert headers is not None
    assert headers["x-first-death-queue"] == "work"


def test_no_message_goes_round_for_ever(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "a", dead_letter_exchange="", dead_letter_routing_key="b", message_ttl=1)
    declare(channel, "b", dead_letter_exchange="", dead_letter_routing_key="a", message_ttl=1)
    publish(channel, "a", b"1")
    wait_until(lambda: not any(held(store, queue) for queue in ("a", "b")))


def test_nowhere_to_go(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declare(channel, "q", dead_letter_exchange="missing")
    publish(channel, "q", b"1")
    get(channel, "q").reject(requeue=False)
    assert held(store, "q") == 0


def test_at_least_once_waits_for_a_place_to_go(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declare(
        channel,
        "q",
        dead_letter_exchange="later",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    publish(channel, "q", b"1")
    get(channel, "q").reject(requeue=False)
    assert held(store, "q") == 1
    channel.exchange_declare("later", "fanout", durable=True)
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "later")
    assert get(channel, "dead").body == b"1"
    assert held(store, "q") == 0


def test_a_transaction_moves_what_it_rejects(
    store: pyqstore.Store, channel: pyqstore.Channel, dead: str, bodies: Take
) -> None:
    declare(channel, "q", dead_letter_exchange="dlx")
    publish(channel, "q", b"1", b"2", b"3" + bytes(9_000))
    channel.tx_select()
    get(channel, "q").reject(requeue=False)
    get(channel, "q").ack()
    get(channel, "q").reject(requeue=False)
    assert held(store, dead) == 0
    channel.tx_rollback()
    assert store.queue_status("q")["messages_unacked"] == 3
    channel.basic_nack(1, requeue=False)
    channel.basic_ack(2)
    channel.basic_nack(3, requeue=False)
    channel.tx_commit()
    assert held(store, "q") == 0
    with store.channel() as reader:
        assert bodies(reader, dead) == [b"1", b"3" + bytes(9_000)]


def test_purged_and_deleted_messages_do_not_go(
    store: pyqstore.Store, channel: pyqstore.Channel, dead: str
) -> None:
    declare(channel, "q", dead_letter_exchange="dlx")
    publish(channel, "q", b"1")
    channel.queue_purge("q")
    publish(channel, "q", b"2")
    channel.queue_delete("q")
    assert held(store, dead) == 0


@pytest.mark.parametrize("budget", ["1MiB", "256MiB"])
def test_many_letters_from_the_disk_in_order(path: Path, bodies: Take, budget: str) -> None:
    count = 3000
    with pyqstore.open(
        path, memory_budget=budget, segment_entries=128, journal_file_bytes="1MiB"
    ) as store:
        channel = store.channel()
        channel.queue_declare("dead", durable=True)
        declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
        expected = [b"%04d" % i + bytes(1000) for i in range(count)]
        publish(channel, "q", *expected)
        for _ in range(count):
            assert channel.basic_get("q") is not None
        channel.basic_nack(0, multiple=True, requeue=False)
        assert held(store, "q") == 0
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "dead") == expected
        assert bodies(channel, "q") == []
