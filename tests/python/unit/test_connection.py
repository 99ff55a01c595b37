"""Connections: who sees exclusive queues, and what an error, a close or another thread ends."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import pyqstore

from ..support import get, publish_numbers

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in this store. It could"
    " be originally declared on another connection or the exclusive property value does not match"
    " that of the original declaration."
)


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[pyqstore.Connection]:
    with store.connection("tests") as connection:
        yield connection


def test_channels_of_a_connection_share_its_exclusive_queues(
    connection: pyqstore.Connection,
) -> None:
    one, other = connection.channel(), connection.channel()
    one.queue_declare("q", exclusive=True)
    one.basic_publish("", "q", b"1")
    assert other.queue_declare("q", exclusive=True).message_count == 1
    message = get(other, "q")
    assert message.body == b"1"


@pytest.mark.parametrize(
    "verb",
    [
        lambda channel: channel.queue_declare("q"),
        lambda channel: channel.queue_declare("q", exclusive=True),
        lambda channel: channel.queue_declare("q", passive=True),
        lambda channel: channel.basic_get("q"),
        lambda channel: channel.get_batch("q"),
        lambda channel: channel.basic_consume("q"),
        lambda channel: channel.queue_bind("q", "amq.fanout"),
        lambda channel: channel.queue_purge("q"),
        lambda channel: channel.queue_delete("q"),
    ],
)
def test_exclusive_queue_is_locked_for_others(
    store: pyqstore.Store,
    connection: pyqstore.Connection,
    verb: Callable[[pyqstore.Channel], object],
) -> None:
    connection.channel().queue_declare("q", exclusive=True)
    with store.connection() as other, other.channel() as theirs, store.channel() as alone:
        for channel in (theirs, alone):
            with pytest.raises(pyqstore.ResourceLocked) as caught:
                verb(channel)
            assert str(caught.value) == LOCKED
            assert channel.closed
        assert not other.closed
    assert store.queues() == ["q"]


def test_anybody_publishes_to_an_exclusive_queue(
    store: pyqstore.Store, connection: pyqstore.Connection, channel: pyqstore.Channel
) -> None:
    connection.channel().queue_declare("q", exclusive=True)
    channel.basic_publish("", "q", b"1")
    assert store.queue_status("q")["messages_ready"] == 1


def test_exclusive_queue_outlives_its_channel_but_not_its_connection(
    store: pyqstore.Store, connection: pyqstore.Connection
) -> None:
    channel = connection.channel()
    channel.queue_declare("q", exclusive=True)
    channel.close()
    assert connection.channel().queue_declare("q", exclusive=True).queue == "q"
    connection.close()
    assert store.queues() == []


def test_exclusive_flag_must_be_as_declared(connection: pyqstore.Connection) -> None:
    connection.channel().queue_declare("q")
    with pytest.raises(pyqstore.ResourceLocked) as caught:
        connection.channel().queue_declare("q", exclusive=True)
    assert str(caught.value) == LOCKED
    assert not connection.closed


def test_close_closes_channels_and_requeues(
    store: pyqstore.Store, connection: pyqstore.Connection, channel: pyqstore.Channel, queue: str
) -> None:
    one, other = connection.channel(), connection.channel()
    publish_numbers(channel, queue, 3)
    for consumer in (one, other):
        assert consumer.basic_get(queue) is not None
    other.basic_consume(queue)
    connection.close()
    assert connection.closed
    assert one.closed
    assert other.closed
    with pytest.raises(pyqstore.ChannelClosed):
        one.basic_get(queue)
    with pytest.raises(pyqstore.ChannelClosed):
        connection.channel()
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (3, 0)
    assert status["consumers"] == 0
    again = [channel.basic_get(queue) for _ in range(3)]
    assert [(m.body, m.redelivered) for m in again if m is not None] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
    ]
    connection.close()
    one.close()


def test_soft_error_closes_its_channel_only(connection: pyqstore.Connection) -> None:
    one, other = connection.channel(), connection.channel()
    one.queue_declare("q", exclusive=True)
    with pytest.raises(pyqstore.NotFound):
        one.queue_declare("nothing", passive=True)
    assert one.closed
    assert not other.closed
    assert not connection.closed
    assert other.queue_declare("q", exclusive=True).queue == "q"


def _reuse_tag(channel: pyqstore.Channel) -> None:
    channel.queue_declare("r")
    channel.basic_consume("r", consumer_tag="tag")
    channel.basic_consume("r", consumer_tag="tag")


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        (_reuse_tag, 530),
        (lambda channel: channel.basic_recover(requeue=False), 540),
        (lambda channel: channel.exchange_declare("e", "nonsense"), 503),
    ],
)
def test_hard_error_closes_the_connection(
    store: pyqstore.Store,
    connection: pyqstore.Connection,
    channel: pyqstore.Channel,
    verb: Callable[[pyqstore.Channel], object],
    code: int,
) -> None:
    one, other = connection.channel(), connection.channel()
    other.queue_declare("q", exclusive=True)
    with pytest.raises(pyqstore.ChannelError) as caught:
        verb(one)
    assert caught.value.reply_code == code
    assert connection.closed
    assert one.closed
    assert other.closed
    assert "q" not in store.queues()
    with pytest.raises(pyqstore.ChannelClosed):
        other.basic_get("q")
    with pytest.raises(pyqstore.ChannelClosed):
        connection.channel()
    assert not channel.closed


def test_hard_error_of_a_channel_alone_closes_it_alone(store: pyqstore.Store) -> None:
    with store.channel() as one, store.channel() as other:
        with pytest.raises(pyqstore.NotAllowed):
            _reuse_tag(one)
        assert one.closed
        assert not other.closed


def test_close_ends_a_wait_in_another_thread(connection: pyqstore.Connection, queue: str) -> None:
    channel = connection.channel()
    raised: list[Exception] = []

    def wait() -> None:
        try:
            list(channel.consume(queue))
        except pyqstore.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    connection.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [pyqstore.ChannelClosed]


def test_channels_are_opened_and_closed_from_many_threads(store: pyqstore.Store) -> None:
    with store.connection() as connection:

        def work() -> None:
            for _ in range(50):
                try:
                    with connection.channel() as channel:
                        channel.queue_declare("shared", exclusive=True)
                except pyqstore.ChannelClosed:
                    return

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        connection.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert store.queues() == []


def test_connection_ends_with_its_store(store: pyqstore.Store) -> None:
    connection = store.connection()
    channel = connection.channel()
    channel.queue_declare("q", exclusive=True)
    store.close()
    assert connection.closed
    assert channel.closed
    with pytest.raises(pyqstore.StoreClosed):
        connection.channel()
    with pytest.raises(pyqstore.StoreClosed):
        store.connection()
    connection.close()
    channel.close()


def test_connection_tells_its_name_and_warns_when_it_is_left_open(store: pyqstore.Store) -> None:
    connection = store.connection("imports")
    assert connection.name == "imports"
    assert repr(connection) == "<Connection 'imports'>"
    with pytest.raises(TypeError, match="name"):
        store.connection(1)  # type: ignore[arg-type]
    with pytest.warns(ResourceWarning, match="unclosed connection"):
        del connection
