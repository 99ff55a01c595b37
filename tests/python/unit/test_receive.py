"""Receiving: get, acknowledge, refuse, requeue, closing."""

from collections.abc import Callable

import pytest

import pyqstore

from ..support import get, publish_numbers, rest


def test_message_tells_where_it_comes_from(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "e")
    channel.basic_publish("e", "key", b"body")
    message = get(channel, "q")
    assert message.body == b"body"
    assert (message.exchange, message.routing_key, message.queue) == ("e", "key", "q")
    assert (message.delivery_tag, message.redelivered, message.delivery_count) == (1, False, 0)
    assert message.consumer_tag == ""
    assert "queue 'q'" in repr(message)
    with pytest.raises(AttributeError):
        message.body = b"other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        pyqstore.Message()


def test_messages_come_in_order_with_tags_from_one(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 5)
    messages = [get(channel, queue) for _ in range(5)]
    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.delivery_tag for message in messages] == [1, 2, 3, 4, 5]
    assert channel.basic_get(queue) is None


def test_auto_ack_leaves_nothing_behind(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 1)
    assert get(channel, queue, auto_ack=True).delivery_tag == 1
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


@pytest.mark.parametrize("how", ["message", "channel", "multiple", "all"])
def test_ack_takes_messages_off(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, how: str
) -> None:
    publish_numbers(channel, queue, 3)
    messages = [get(channel, queue) for _ in range(3)]
    assert store.queue_status(queue)["messages_unacked"] == 3
    if how == "message":
        messages[1].ack()
    elif how == "channel":
        channel.basic_ack(2)
    elif how == "multiple":
        channel.basic_ack(2, multiple=True)
    else:
        channel.basic_ack(multiple=True)
    left = {"message": 2, "channel": 2, "multiple": 1, "all": 0}[how]
    assert store.queue_status(queue)["messages_unacked"] == left


@pytest.mark.parametrize(
    "act",
    [
        lambda channel: channel.basic_ack(7),
        lambda channel: channel.basic_ack(0),
        lambda channel: channel.basic_ack(7, multiple=True),
        lambda channel: channel.basic_nack(7),
        lambda channel: channel.basic_reject(7),
        lambda channel: (channel.basic_ack(1), channel.basic_ack(1)),
        lambda channel: channel.basic_ack(2**64 - 1),
    ],
)
def test_unknown_tag_is_refused(
    channel: pyqstore.Channel, act: Callable[[pyqstore.Channel], object]
) -> None:
    channel.queue_declare("q")
    publish_numbers(channel, "q", 1)
    get(channel, "q")
    with pytest.raises(pyqstore.PreconditionFailed, match=r"unknown delivery tag \d") as caught:
        act(channel)
    assert caught.value.reply_code == 406
    assert channel.closed


def test_all_may_be_acknowledged_when_there_is_nothing(channel: pyqstore.Channel) -> None:
    channel.basic_ack(0, multiple=True)
    channel.basic_nack(0, multiple=True)


@pytest.mark.parametrize(
    ("tag", "kind"), [(-1, ValueError), (2**64, ValueError), ("1", TypeError), (1.0, TypeError)]
)
def test_wrong_tag_is_refused(channel: pyqstore.Channel, tag: int, kind: type[Exception]) -> None:
    for verb in (channel.basic_ack, channel.basic_nack, channel.basic_reject):
        with pytest.raises(kind, match="delivery_tag"):
            verb(tag)
    assert not channel.closed


def test_requeued_messages_return_to_their_places(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 6)
    messages = [get(channel, queue) for _ in range(4)]
    messages[2].nack()
    messages[0].reject(requeue=True)
    channel.basic_ack(messages[1].delivery_tag)
    assert rest(channel, queue) == [(b"0", True), (b"2", True), (b"4", False), (b"5", False)]
    messages[3].nack(requeue=True)
    again = get(channel, queue)
    assert (again.body, again.redelivered, again.delivery_count) == (b"3", True, 1)


def test_multiple_nack_requeues_all_up_to_the_tag(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 4)
    for _ in range(4):
        get(channel, queue)
    channel.basic_nack(3, multiple=True)
    assert rest(channel, queue) == [(b"0", True), (b"1", True), (b"2", True)]
    channel.basic_nack(0, multiple=True)
    assert rest(channel, queue) == [(b"3", True)]


@pytest.mark.parametrize("how", ["nack", "reject", "channel"])
def test_refused_messages_are_dropped(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, how: str
) -> None:
    publish_numbers(channel, queue, 1)
    message = get(channel, queue)
    if how == "nack":
        message.nack(requeue=False)
    elif how == "reject":
        message.reject(requeue=False)
    else:
        channel.basic_nack(1, requeue=False)
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


@pytest.mark.faces("sync", "aio")
def test_rejected_messages_were_dropped_unless_the_channel_rejected_them(
    channel: pyqstore.Channel, queue: str
) -> None:
    """``Message.reject`` and ``Channel.basic_reject`` had different defaults."""
    publish_numbers(channel, queue, 1)
    for _ in range(2):
        get(channel, queue).reject()
        channel.basic_reject(get(channel, queue).delivery_tag)
    assert rest(channel, queue) == [(b"0", True)]


def test_next_delivery_took_messages_away_from_a_callback(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 2)
    heard: list[bytes] = []
    tag = channel.basic_consume(queue, lambda message: heard.append(message.body))
    with pytest.raises(RuntimeError, match="the messages of this consumer go to its callback"):
        channel.next_delivery(tag, 0)
    assert channel.process_events() == 2
    assert heard == [b"0", b"1"]


def test_recover_requeues_everything(
    store: pyqstore.Store, queue: str, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, queue, 3)
    for _ in range(2):
        get(channel, queue)
    channel.basic_recover()
    assert rest(channel, queue) == [(b"0", True), (b"1", True), (b"2", False)]
    with store.channel() as other, pytest.raises(pyqstore.NotImplementedByBroker):
        other.basic_recover(requeue=False)


def test_closing_a_channel_requeues(
    store: pyqstore.Store, queue: str, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, queue, 3)
    with store.channel() as other:
        get(other, queue)
        get(other, queue).ack()
    assert rest(channel, queue) == [(b"0", True), (b"2", False)]


def test_refused_channel_requeues_at_once(
    store: pyqstore.Store, queue: str, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, queue, 1)
    with store.channel() as other:
        get(other, queue)
        with pytest.raises(pyqstore.PreconditionFailed):
            other.basic_ack(9)
        assert rest(channel, queue) == [(b"0", True)]


def test_message_of_a_closed_channel_cannot_be_acknowledged(
    store: pyqstore.Store, queue: str, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, queue, 1)
    with store.channel() as other:
        message = get(other, queue)
    with pytest.raises(pyqstore.ChannelClosed):
        message.ack()
    assert message.body == b"0"


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_wrong_timeout_is_refused_though_a_message_is_there(
    channel: pyqstore.Channel, queue: str, timeout: float
) -> None:
    publish_numbers(channel, queue, 1)
    with pytest.raises(ValueError, match="timeout must be"):
        next(channel.consume(queue, inactivity_timeout=timeout))
    tag = channel.basic_consume(queue)
    with pytest.raises(ValueError, match="timeout must be"):
        channel.next_delivery(tag, timeout)
    message = channel.next_delivery(tag, 10)
    assert message is not None
    assert message.body == b"0"


def test_events_taken_before_a_failing_one_are_told(store: pyqstore.Store, queue: str) -> None:
    """The list of _take_events, which event loops use, ends with the exception."""

    class Failing(pyqstore.Message):
        def __new__(cls) -> "Failing":
            raise MemoryError

    with store.channel() as channel:
        channel.confirm_select()
        publish_numbers(channel, queue, 1)
        channel.basic_consume(queue)
        store.sync()
        channel._set_message_type(Failing)
        kinds = pyqstore._core.EVENT_ACK | pyqstore._core.EVENT_DELIVERY
        events, would_block = channel._take_events(kinds, 10)
        assert events[0] == (pyqstore._core.EVENT_ACK, 1, (False, 1))
        assert events[1][0] == pyqstore._core.EVENT_ERROR
        assert isinstance(events[1][1], MemoryError)
        assert len(events) == 2
        assert not would_block
