"""What comes back, when a channel, a store or a process ends: its place, flag and count."""

from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, get, publish_numbers, run_python


def publish(channel: pyqstore.Channel, queue: str, count: int) -> None:
    channel.confirm_select()
    publish_numbers(channel, queue, count, properties=PERSISTENT)
    assert channel.wait_for_confirms(timeout=30)


def ready(channel: pyqstore.Channel, queue: str) -> list[tuple[int, bool, int]]:
    """Number, redelivered and delivery_count of what is ready, taken."""
    found = []
    while (message := channel.basic_get(queue)) is not None:
        found.append((int(message.body), message.redelivered, message.delivery_count))
    return found


def test_closed_channels_messages_return_to_their_places(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 6)
    with store.channel() as first, store.channel() as second:
        for taker in (first, second, first, second):
            assert taker.basic_get(queue) is not None
        second.basic_ack(1)
    again = [(0, True, 1), (2, True, 1), (3, True, 1), (4, False, 0), (5, False, 0)]
    with store.channel() as third:
        assert ready(third, queue) == again
    assert ready(channel, queue) == [(number, True, count + 1) for number, _, count in again]


def test_refused_channels_messages_return_to_their_places(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 3)
    with store.channel() as refused:
        tag = refused.basic_consume(queue)
        assert refused.next_delivery(tag) is not None
        assert refused.next_delivery(tag) is not None
        with pytest.raises(pyqstore.PreconditionFailed) as caught:
            refused.basic_ack(9)
        assert str(caught.value) == "PRECONDITION_FAILED - unknown delivery tag 9"
        assert refused.closed
        assert ready(channel, queue) == [(0, True, 1), (1, True, 1), (2, False, 0)]
    assert store.queue_status(queue)["consumers"] == 0


def test_tags_are_the_channels_own(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 2)
    message = get(channel, queue)
    with store.connection() as connection, connection.channel() as other:
        with pytest.raises(pyqstore.PreconditionFailed) as caught:
            other.basic_ack(message.delivery_tag)
        assert str(caught.value) == "PRECONDITION_FAILED - unknown delivery tag 1"
        assert other.closed
        assert not connection.closed
    message.ack()
    assert ready(channel, queue) == [(1, False, 0)]


def test_recover_requeues_all_of_the_channel_and_nobody_elses(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, queue, 5)
    with store.channel() as other:
        tag = channel.basic_consume(queue)
        for taker in (channel, other, channel):
            if taker is channel:
                assert taker.next_delivery(tag) is not None
            else:
                assert taker.basic_get(queue) is not None
        channel.basic_cancel(tag)
        channel.basic_recover(requeue=True)
        assert ready(channel, queue) == [
            (0, True, 1), (2, True, 1), (3, False, 0), (4, False, 0),
        ]  # fmt: skip
        channel.basic_recover()
        channel.basic_recover()
    assert [number for number, _, _ in ready(channel, queue)] == [0, 1, 2, 3, 4]


def test_flags_and_counts_are_exact_after_an_orderly_close(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", 4)
        assert channel.basic_get("q") is not None
        assert channel.basic_get("q") is not None
        channel.basic_ack(1)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert ready(channel, "q") == [(1, True, 1), (2, False, 0), (3, False, 0)]


_DIES = """
import os, signal, sys, pyqstore
store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.confirm_select()
for number in range(6):
    channel.basic_publish("", "q", str(number).encode(), pyqstore.Properties(delivery_mode=2))
assert channel.wait_for_confirms(timeout=30)
if sys.argv[2] == "checkpoint":
    store.checkpoint()
tag = channel.basic_consume("q")
for _ in range(4):
    channel.next_delivery(tag)
channel.basic_ack(2)
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_process_leaves_its_messages_in_their_places(path: Path) -> None:
    for how in ("journal", "checkpoint"):
        place = path.with_name(how)
        run_python(_DIES, place, how)
        with pyqstore.open(place) as store, store.channel() as channel:
            status = store.queue_status("q")
            assert (status["messages_ready"], status["messages_unacked"]) == (5, 0)
            found = ready(channel, "q")
            assert [number for number, _, _ in found] == [0, 2, 3, 4, 5]
            # Deliveries are not journalled: each message counts as delivered once.
            assert all(redelivered and count == 1 for _, redelivered, count in found)
            channel.basic_recover()
            assert {count for _, _, count in ready(channel, "q")} == {2}
