"""Transactions: nothing is seen before the commit, all of it after; rollback; keys are once."""

from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

Take = Callable[[pyqstore.Channel, str], list[bytes]]
PERSISTENT = pyqstore.Properties(delivery_mode=2)


def test_publishes_are_seen_after_the_commit(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, bodies: Take
) -> None:
    channel.queue_declare("other", durable=True)
    channel.tx_select()
    assert channel.basic_publish("", queue, b"1", PERSISTENT) == 0
    channel.basic_publish("", "other", b"2", PERSISTENT)
    with store.channel() as reader:
        assert bodies(reader, queue) == []
        assert channel.tx_commit() is True
        assert bodies(reader, queue) == [b"1"]
        assert bodies(reader, "other") == [b"2"]


def test_rollback_drops_publishes_and_takes_acks_back(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, bodies: Take
) -> None:
    channel.basic_publish("", queue, b"1", PERSISTENT)
    channel.tx_select()
    message = channel.basic_get(queue)
    assert message is not None
    message.ack()
    channel.basic_publish("", queue, b"2", PERSISTENT)
    channel.tx_rollback()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 1)
    message.ack()
    assert store.queue_status(queue)["messages_unacked"] == 1
    channel.tx_commit()
    assert store.queue_status(queue)["messages_unacked"] == 0


def test_delivery_is_settled_once_in_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", queue, body)
    channel.tx_select()
    tags = [message.delivery_tag for message in channel.consume(queue, inactivity_timeout=0)]
    channel.basic_ack(tags[1])
    channel.tx_rollback()
    channel.basic_ack(tags[1])
    channel.basic_ack(tags[2], multiple=True)
    with pytest.raises(pyqstore.PreconditionFailed, match=f"unknown delivery tag {tags[0]}"):
        channel.basic_nack(tags[0])
    assert store.queue_status(queue)["messages_ready"] == 3


def test_commit_is_durable_with_acks_and_publishes_of_all_queues(path: Path, bodies: Take) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("a", durable=True)
        channel.queue_declare("b", durable=True)
        channel.basic_publish("", "a", b"1", PERSISTENT)
        channel.tx_select()
        message = channel.basic_get("a")
        assert message is not None
        message.ack()
        channel.basic_publish("", "b", message.body, PERSISTENT)
        channel.tx_commit()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "a") == []
        assert bodies(channel, "b") == [b"1"]


def test_key_is_committed_once(channel: pyqstore.Channel, queue: str, bodies: Take) -> None:
    channel.tx_select()
    channel.basic_publish("", queue, b"1", PERSISTENT)
    assert channel.tx_commit(key="job-1") is True
    channel.basic_publish("", queue, b"again", PERSISTENT)
    assert channel.tx_commit(key="job-1") is False
    channel.basic_publish("", queue, b"2", PERSISTENT)
    assert channel.tx_commit(key="job-2") is True
    assert channel.tx_commit() is True
    channel.queue_declare(queue, passive=True)
    assert channel.queue_declare(queue, passive=True).message_count == 2


def test_wrong_key_is_refused(channel: pyqstore.Channel) -> None:
    channel.tx_select()
    with pytest.raises(ValueError, match="empty"):
        channel.tx_commit(key="")
    with pytest.raises(TypeError, match="key must be str"):
        channel.tx_commit(key=b"k")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        channel.tx_commit("k")  # type: ignore[call-arg]


@pytest.mark.parametrize("verb", ["tx_commit", "tx_rollback"])
def test_outside_a_transaction_there_is_nothing_to_end(store: pyqstore.Store, verb: str) -> None:
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed):
        getattr(channel, verb)()


def test_returns_come_at_the_commit(channel: pyqstore.Channel) -> None:
    returned: list[pyqstore.ReturnedMessage] = []
    channel.add_return_listener(returned.append)
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    assert channel.process_events() == 0
    channel.tx_commit()
    assert channel.process_events() == 1
    assert returned[0].body == b"x"


def test_batch_belongs_to_the_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    channel.tx_select()
    receipt = channel.publish_batch(pa.table({"body": [b"1", b"2"]}), routing_key=queue)
    assert receipt.count == 2
    assert store.queue_status(queue)["messages_ready"] == 0
    channel.tx_commit()
    assert store.queue_status(queue)["messages_ready"] == 2
