"""Moving messages and requeueing dead letters: none is lost and none is there twice, whatever comes
between.  By the functions that the page's actions call."""

import random
import threading

import pytest

import pyqstore
from pyqstore.moving import move, requeue_dead_letters

from ..support import PERSISTENT, bodies, get, publish, publish_numbers


def declared(channel: pyqstore.Channel, *names: str) -> None:
    for name in names:
        channel.queue_declare(name, durable=True)


def test_move_keeps_order_bodies_and_properties(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "a", "b")
    properties = pyqstore.Properties(
        delivery_mode=2, headers={"n": [1, {"x": None}]}, priority=4, message_id="m", timestamp=1
    )
    channel.basic_publish("", "a", b"first", properties)
    publish(channel, "a", *[b"%d" % number for number in range(1200)])
    done = move(store, "a", "b")
    assert (done.moved, done.stayed) == (1201, 0)
    first = get(channel, "b", auto_ack=True)
    assert first.body == b"first"
    assert first.properties == properties
    assert bodies(channel, "b") == [b"%d" % number for number in range(1200)]
    assert store.queue_status("a").messages_ready == 0
    assert store.queue_status("a").messages_unacked == 0


def test_move_is_there_after_a_reopen(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    declared(channel, "a", "b")
    publish(channel, "a", b"kept" * 5000, b"small")
    move(store, "a", "b")
    path = store.path
    channel.close()
    store.close()
    with pyqstore.open(path) as again, again.channel() as other:
        assert bodies(other, "b") == [b"kept" * 5000, b"small"]
        assert bodies(other, "a") == []


def test_move_takes_no_more_than_its_limit_and_what_was_ready(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "a", "b")
    publish(channel, "a", b"1", b"2", b"3")
    taken = get(channel, "a")
    assert move(store, "a", "b", 1).moved == 1
    assert bodies(channel, "b") == [b"2"]
    taken.nack()
    assert bodies(channel, "a") == [b"1", b"3"]


def test_move_to_a_queue_that_is_full_and_refuses_leaves_all_in_their_places(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "a")
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("b", durable=True, arguments=full)
    publish(channel, "a", b"1", b"2", b"3")
    with pytest.raises(pyqstore.PreconditionFailed):
        move(store, "a", "b")
    assert bodies(channel, "a") == [b"1", b"2", b"3"]
    assert bodies(channel, "b") == []


def test_move_refuses_streams_itself_and_queues_that_are_not_there(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "a")
    publish(channel, "a", b"kept")
    store.stream("s").publish(b"kept")
    with pytest.raises(ValueError, match="there already"):
        move(store, "a", "a")
    with pytest.raises(pyqstore.NotFound):
        move(store, "a", "nowhere")
    with pytest.raises(pyqstore.NotFound):
        move(store, "nowhere", "a")
    with pytest.raises(pyqstore.PreconditionFailed, match="stream"):
        move(store, "s", "a")
    assert bodies(channel, "a") == [b"kept"]
    assert len(store.stream("s")) == 1


def test_requeue_puts_dead_letters_back_and_leaves_others(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name in ("a", "b", "gone"):
        channel.queue_declare(name, durable=True, arguments=dead)
        publish(channel, name, name.encode())
        message = get(channel, name)
        message.reject(requeue=False)
    odd = [None, [], [1], [{"queue": 1}], "x", [{"queue": "dead"}]]
    for number, value in enumerate(odd):
        headers = pyqstore.Properties(headers={"x-death": value})
        channel.basic_publish("", "dead", b"odd %d" % number, headers)
    channel.queue_delete("gone")
    done = requeue_dead_letters(store, "dead")
    assert (done.moved, done.stayed) == (2, 1 + len(odd))
    assert bodies(channel, "a") == [b"a"]
    assert bodies(channel, "b") == [b"b"]
    stayed = bodies(channel, "dead")
    assert stayed == [b"gone", *(b"odd %d" % number for number in range(len(odd)))]


def test_move_loses_and_doubles_nothing_while_others_consume(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declared(channel, "a", "b")
    count = 3000
    publish_numbers(channel, "a", count, properties=PERSISTENT)
    ended = threading.Event()
    seen: list[bytes] = []

    def consume() -> None:
        choose = random.Random(1)
        with store.channel() as own:
            while not ended.is_set():
                message = own.basic_get(choose.choice("ab"))
                if message is None or choose.random() < 0.5:
                    if message is not None:
                        message.nack()
                    continue
                seen.append(message.body)
                message.ack()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        for _ in range(20):
            move(store, "a", "b", 200)
            move(store, "b", "a", 100)
    finally:
        ended.set()
        thread.join()
    found = seen + bodies(channel, "a") + bodies(channel, "b")
    assert sorted(found, key=int) == [b"%d" % number for number in range(count)]
