"""Dead letters: why, where to, what they tell, and that they are in one place whatever happens."""

import time
from pathlib import Path
from typing import Any

import pytest

import pyqstore

from ..support import bodies, declare, publish, run_python, wait_until


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
    dead_letter = get(channel, dead)
    assert (dead_letter.body, dead_letter.exchange, dead_letter.routing_key) == (b"1", "dlx", "q")
    assert dead_letter.properties.message_id == "m"
    assert dead_letter.properties.expiration is None
    headers = dead_letter.properties.headers
    assert headers is not None
    assert headers["a"] == 1
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-exchange"] == ""
    (death,) = deaths(dead_letter)
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
    dead_letter = get(channel, "other")
    assert (dead_letter.exchange, dead_letter.routing_key) == ("", "other")
    assert deaths(dead_letter)[0]["routing-keys"] == ["q"]


def test_expired_messages_go_by_themselves(channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", message_ttl=10)
    publish(channel, "q", b"1", b"2" + bytes(10_000))
    assert get(channel, dead).body == b"1"
    dead_letter = get(channel, dead)
    assert dead_letter.body == b"2" + bytes(10_000)
    assert deaths(dead_letter)[0]["reason"] == "expired"


def test_the_oldest_of_too_many_go(channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", max_length=1)
    publish(channel, "q", b"1", b"2", b"3")
    assert deaths(get(channel, dead))[0]["reason"] == "maxlen"
    assert bodies(channel, "q") == [b"3"]
    assert bodies(channel, dead) == [b"2"]


def test_refused_messages_go(channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", max_length=1, overflow="reject-publish-dlx")
    channel.confirm_select()
    publish(channel, "q", b"1", b"2")
    assert channel.wait_for_confirms() is False
    dead_letter = get(channel, dead)
    assert dead_letter.body == b"2"
    assert deaths(dead_letter)[0]["reason"] == "maxlen"
    assert bodies(channel, "q") == [b"1"]


def test_delivered_too_often(store: pyqstore.Store, channel: pyqstore.Channel, dead: str) -> None:
    declare(channel, "q", dead_letter_exchange="dlx", delivery_limit=2)
    publish(channel, "q", b"1")
    for count in range(3):
        message = get(channel, "q")
        assert message.delivery_count == count
        message.nack(requeue=True)
    dead_letter = get(channel, dead)
    assert dead_letter.body == b"1"
    assert deaths(dead_letter)[0]["reason"] == "delivery_limit"
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
    dead_letter = get(channel, "work")
    assert [(d["queue"], d["reason"], d["count"]) for d in deaths(dead_letter)] == [
        ("wait", "expired", 3),
        ("work", "rejected", 3),
    ]
    headers = dead_letter.properties.headers
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
    store: pyqstore.Store, channel: pyqstore.Channel, dead: str
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
def test_many_letters_from_the_disk_in_order(path: Path, budget: str) -> None:
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
        # A few hundred leave with the call and the timer removes more; the end waits for all.
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "dead") == expected
        assert bodies(channel, "q") == []


def fill_and_get(channel: pyqstore.Channel, count: int) -> list[pyqstore.Message]:
    publish(channel, "q", *(b"%d" % i for i in range(count)))
    return [get(channel, "q") for _ in range(count)]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_letter_for_a_queue_that_is_full_goes_where_that_queue_refuses_to(
    store: pyqstore.Store, channel: pyqstore.Channel, dead: str, overflow: str
) -> None:
    """It was dropped, whatever the full queue does with what it refuses."""
    declare(channel, "full", max_length=1, overflow=overflow, dead_letter_exchange="dlx")
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="full")
    for message in fill_and_get(channel, 3):
        message.reject(requeue=False)
    store.sync()
    assert get(channel, "full").body == b"0"
    if overflow == "reject-publish":
        assert held(store, dead) == 0
        return
    for body in (b"1", b"2"):
        message = get(channel, dead)
        assert message.body == body
        reasons = [(death["queue"], death["reason"]) for death in deaths(message)]
        assert reasons == [("full", "maxlen"), ("q", "rejected")]


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_length_bytes": 1}])
def test_a_transaction_of_rejects_commits_although_their_queue_fills_up(
    store: pyqstore.Store, channel: pyqstore.Channel, limit: dict[str, object]
) -> None:
    """406, each time it was tried: dead letters counted as publishes that a full queue refuses."""
    declare(channel, "full", overflow="reject-publish", **limit)
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="full")
    channel.tx_select()
    publish(channel, "q", b"0", b"1", b"2")
    channel.tx_commit()
    for _ in range(3):
        get(channel, "q").reject(requeue=False)
    channel.tx_commit()
    assert held(store, "q") == 0
    assert get(channel, "full").body == b"0"
    assert channel.basic_get("full") is None


def test_letters_keep_a_limit_of_bytes(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    """One of any size came into a queue that was not full yet."""
    declare(channel, "full", overflow="reject-publish", max_length_bytes=10)
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="full")
    publish(channel, "q", b"too long for it", b"fits")
    for _ in range(2):
        get(channel, "q").reject(requeue=False)
    assert get(channel, "full").body == b"fits"
    assert held(store, "q") == 0


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_queue_refused_does_not_come_back_into_it(path: Path, killed: bool) -> None:
    """Refused messages that had nowhere to go were ready when the store was opened again, more
    than the limit allows, and counted as delivered although nobody had them."""
    code = """
import os, sys, pyqstore
store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.queue_declare("q", durable=True, arguments={
    "x-max-length": 2, "x-overflow": "reject-publish-dlx",
    "x-dead-letter-exchange": "later", "x-dead-letter-strategy": "at-least-once"})
for i in range(5):
    channel.basic_publish("", "q", b"%d" % i, pyqstore.Properties(delivery_mode=2))
store.sync()
if sys.argv[2] == "True":
    os.kill(os.getpid(), 9)
store.close()
"""
    run_python(code, path, killed)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.queue_status("q")["messages_ready"] == 2
        assert held(store, "q") == 5
        channel.queue_declare("dead", durable=True)
        channel.exchange_declare("later", "fanout", durable=True)
        channel.queue_bind("dead", "later")
        dead_letters = [get(channel, "dead") for _ in range(3)]
        assert [message.body for message in dead_letters] == [b"2", b"3", b"4"]
        kept = [get(channel, "q") for _ in range(2)]
        assert [message.body for message in kept] == [b"0", b"1"]
        assert killed or not any(message.redelivered for message in kept)


def test_a_held_message_was_not_delivered(path: Path) -> None:
    """Closing the store counted one delivery more for each message that found no way out."""
    for _ in range(3):
        with pyqstore.open(path) as store, store.channel() as channel:
            declare(
                channel,
                "q",
                message_ttl=1,
                dead_letter_exchange="later",
                dead_letter_strategy="at-least-once",
                overflow="reject-publish",
            )
            if held(store, "q") == 0:
                publish(channel, "q", b"m")
            store.sync()
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("dead", durable=True)
        channel.exchange_declare("later", "fanout", durable=True)
        channel.queue_bind("dead", "later")
        assert deaths(get(channel, "dead"))[0]["count"] == 1


@pytest.mark.parametrize(
    ("told", "count"), [(-1, 0), (7, 8), ("x", 1), (True, 1), (None, 1), ([1], 1), ("absent", 1)]
)
def test_a_count_that_a_client_made_up_is_read_as_a_number_or_not_at_all(
    channel: pyqstore.Channel, dead: str, told: Any, count: int
) -> None:
    """Its bytes were taken for a number, whatever they were."""
    declare(channel, "q", dead_letter_exchange="dlx")
    death = {"queue": "q", "reason": "rejected", "count": told}
    if told == "absent":
        del death["count"]
    publish(channel, "q", b"", headers={"x-death": [death]})
    get(channel, "q").reject(requeue=False)
    assert deaths(get(channel, dead))[0]["count"] == count


def test_an_x_death_that_a_client_wrote_is_no_cycle(channel: pyqstore.Channel, dead: str) -> None:
    """A queue is named behind something that no broker writes there: the message was dropped."""
    declare(channel, "q", message_ttl=1, dead_letter_exchange="dlx")
    publish(channel, "q", b"m", headers={"x-death": [5, {"queue": dead, "reason": "expired"}]})
    assert get(channel, dead).body == b"m"


@pytest.mark.parametrize("way", ["commit", "close"])
def test_requeues_that_leave_worn_out_messages_between_others(
    store: pyqstore.Store, way: str
) -> None:
    """The process aborted: one range of tags became many records, and one was counted."""
    for number in range(40):
        queue = f"q{number}"
        with store.channel() as first:
            declare(first, queue, delivery_limit=2)
            publish(first, queue, *(b"%d" % i for i in range(64)))
            with store.channel() as second:
                taken = [get(first, queue) for _ in range(64)]
                for message in taken[1::2]:
                    message.nack(requeue=True)
                for message in [get(second, queue) for _ in range(32)]:
                    message.nack(requeue=True)
                for message in taken[::2]:
                    message.nack(requeue=True)
            with store.channel() as third:
                if way == "commit":
                    third.tx_select()
                last = [get(third, queue) for _ in range(64)][-1]
                if way == "commit":
                    third.basic_nack(last.delivery_tag, multiple=True, requeue=True)
                    third.tx_commit()
            assert store.queue_status(queue)["messages_ready"] == 32


def test_a_delivery_limit_is_as_far_as_deliveries_are_counted(channel: pyqstore.Channel) -> None:
    """More were taken, and never reached."""
    declare(channel, "q", delivery_limit=254)
    publish(channel, "q", b"m")
    deliveries = 0
    while (message := channel.basic_get("q")) is not None:
        deliveries += 1
        message.nack(requeue=True)
    assert deliveries == 255
    with pytest.raises(pyqstore.PreconditionFailed, match="255 is more than 254"):
        declare(channel, "more", delivery_limit=255)
