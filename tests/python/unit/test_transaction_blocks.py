"""Transactions as with blocks: committed at the end, rolled back by what the body raises."""

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, bodies, get

pytestmark = pytest.mark.faces("sync", "aio")


def test_a_block_is_done_whole_or_not_at_all(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"in", PERSISTENT)
    message = get(channel, queue)
    tx = channel.transaction()

    def fail() -> None:
        with tx:
            tx.publish("", queue, b"never", PERSISTENT)
            tx.ack(message)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not tx.committed
    status = store.queue_status(queue)
    assert (status.messages_ready, status.messages_unacked) == (0, 1)
    with channel.transaction() as tx:
        tx.publish("", queue, b"1", PERSISTENT)
        receipt = tx.publish_batch(pa.table({"body": [b"2", b"3"]}), "", queue)
        tx.ack(message.delivery_tag)
        assert store.queue_status(queue).messages_ready == 0
    assert tx.committed
    assert receipt.wait()
    assert store.queue_status(queue).messages_unacked == 0
    assert bodies(channel, queue) == [b"1", b"2", b"3"]


def test_behind_a_block_the_channel_is_what_it_was(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    with channel.transaction():
        pass
    channel.basic_publish("", queue, b"plain", PERSISTENT)
    assert bodies(channel, queue) == [b"plain"]
    channel.confirm_select()
    assert channel.basic_publish("", queue, b"1", PERSISTENT) == 1
    with channel.transaction() as tx:
        tx.publish("", queue, b"2", PERSISTENT)
        tx.publish("", "nowhere", b"unroutable", PERSISTENT)
        assert tx.publish_batch(pa.table({"body": [b"3"]}), "", queue).first_publish_number == 0
        assert channel.basic_publish("", queue, b"4", PERSISTENT) == 0
    assert channel.basic_publish("", queue, b"5", PERSISTENT) == 2
    assert channel.wait_for_confirms(timeout=10)
    assert bodies(channel, queue) == [b"1", b"2", b"3", b"4", b"5"]
    channel.close()
    with store.channel() as other:
        other.tx_select()  # a channel that is transactional stays so
        with other.transaction():
            other.basic_publish("", queue, b"6", PERSISTENT)
        other.basic_publish("", queue, b"7", PERSISTENT)
        other.tx_rollback()
    assert store.queue_status(queue).messages_ready == 1


def test_a_key_commits_once_and_blocks_do_not_nest(channel: pyqstore.Channel, queue: str) -> None:
    for committed in (True, False):
        with channel.transaction(key="b-17") as tx:
            tx.publish("", queue, b"once", PERSISTENT)
        assert tx.committed is committed
    assert bodies(channel, queue) == [b"once"]
    with pytest.raises(RuntimeError, match="with block"):
        tx.publish("", queue, b"late")
    with pytest.raises(RuntimeError, match="open already"), tx, tx:
        pass
    channel.basic_publish("", queue, b"plain", PERSISTENT)
    assert bodies(channel, queue) == [b"plain"]


def test_an_error_of_the_channel_comes_out_and_nothing_is_published(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    tx = channel.transaction()

    def fail() -> None:
        with tx:
            tx.publish("", queue, b"1", PERSISTENT)
            tx.publish("no such exchange", queue, b"2", PERSISTENT)

    with pytest.raises(pyqstore.NotFound):
        fail()
    assert channel.closed
    assert not tx.committed
    assert store.queue_status(queue).messages_ready == 0


def test_a_refused_commit_leaves_the_channel_without_a_transaction(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("full", durable=True, arguments=full)
    channel.queue_declare("other", durable=True)
    channel.basic_publish("", "full", b"0", PERSISTENT)
    tx = channel.transaction()

    def fail() -> None:
        with tx:
            tx.publish("", "other", b"1", PERSISTENT)
            tx.publish("", "full", b"2", PERSISTENT)

    with pytest.raises(pyqstore.PreconditionFailed):
        fail()
    assert not tx.committed
    with store.channel() as reader:
        assert bodies(reader, "other") == []
        assert bodies(reader, "full") == [b"0"]
