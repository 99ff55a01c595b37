"""Consuming: callbacks, iteration, events, prefetch, and how it ends."""

import threading
import time

import pytest

import pyqstore

from ..support import publish_numbers, rest


def test_callback_gets_messages_in_process_events(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    taken: list[pyqstore.Message] = []
    tag = channel.basic_consume(queue, taken.append)
    assert tag
    publish_numbers(channel, queue, 3)
    assert channel.process_events(timeout=5) == 3
    assert [message.body for message in taken] == [b"0", b"1", b"2"]
    assert {message.consumer_tag for message in taken} == {tag}
    assert store.queue_status(queue)["messages_unacked"] == 3
    channel.basic_cancel(tag)
    publish_numbers(channel, queue, 1)
    assert channel.process_events() == 0
    assert store.queue_status(queue)["consumers"] == 0


def test_process_events_waits_for_the_first_event(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as channel, store.channel() as other:
        channel.basic_consume(queue, lambda message: message.ack())
        begin = time.monotonic()
        assert channel.process_events(timeout=0.25) == 0
        assert time.monotonic() - begin >= 0.25
        timer = threading.Timer(0.1, lambda: other.basic_publish("", queue, b"x"))
        timer.start()
        assert channel.process_events(timeout=200) == 1
        assert time.monotonic() - begin < 100
        timer.join()


def test_start_consuming_ends_when_a_callback_says_so(
    channel: pyqstore.Channel, queue: str
) -> None:
    taken = []

    def on_message(message: pyqstore.Message) -> None:
        taken.append(message.body)
        message.ack()
        if len(taken) == 3:
            channel.stop_consuming()

    publish_numbers(channel, queue, 5)
    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert taken == [b"0", b"1", b"2"]
    assert rest(channel, queue) == [(b"3", False), (b"4", False)]


def test_stop_consuming_works_from_another_thread(channel: pyqstore.Channel, queue: str) -> None:
    thread = threading.Thread(target=channel.stop_consuming)
    channel.basic_consume(queue, lambda message: thread.start())
    publish_numbers(channel, queue, 1)
    channel.start_consuming()
    thread.join()


def test_start_consuming_ends_without_consumers(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.start_consuming()
    channel.queue_declare("q")
    cancelled: list[str] = []
    channel.add_cancel_listener(cancelled.append)

    def delete() -> None:
        with store.channel() as other:
            other.queue_delete("q")

    thread = threading.Thread(target=delete)
    tag = channel.basic_consume("q", lambda message: thread.start())
    publish_numbers(channel, "q", 1)
    channel.start_consuming()
    thread.join()
    assert cancelled == [tag]


def test_callback_that_raises_ends_consuming_for_the_time_being(
    channel: pyqstore.Channel, queue: str
) -> None:
    taken = []

    def on_message(message: pyqstore.Message) -> None:
        taken.append(message.body)
        message.ack()
        if len(taken) == 1:
            raise LookupError("no")
        if len(taken) == 3:
            channel.stop_consuming()

    publish_numbers(channel, queue, 3)
    channel.basic_consume(queue, on_message)
    with pytest.raises(LookupError):
        channel.start_consuming()
    channel.start_consuming()
    assert taken == [b"0", b"1", b"2"]


def test_callback_may_close_the_channel(
    store: pyqstore.Store, queue: str, channel: pyqstore.Channel
) -> None:
    publish_numbers(channel, queue, 2)
    other = store.channel()
    other.basic_consume(queue, lambda message: other.close())
    other.start_consuming()
    assert other.closed
    assert rest(channel, queue) == [(b"0", True), (b"1", False)]


def test_consume_iterates_until_nothing_came(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 3)
    taken = []
    for message in channel.consume(queue, inactivity_timeout=0.05):
        taken.append(message.body)
        message.ack()
    assert taken == [b"0", b"1", b"2"]
    assert store.queue_status(queue)["consumers"] == 0


def test_leaving_consume_cancels_and_keeps_the_rest(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 5)
    for message in channel.consume(queue):
        if message.body == b"1":
            break
    status = store.queue_status(queue)
    assert (status["messages_ready"], status["messages_unacked"]) == (3, 2)
    assert status["consumers"] == 0
    channel.basic_ack(2, multiple=True)


def test_consume_ends_when_the_queue_is_deleted(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    with store.channel() as other:
        publish_numbers(channel, "q", 1)
        messages = channel.consume("q")
        next(messages)
        thread = threading.Thread(target=other.queue_delete, args=["q"])
        thread.start()
        assert list(messages) == []
        thread.join()


def test_consume_of_nothing_is_not_found(store: pyqstore.Store) -> None:
    with store.channel() as channel, pytest.raises(pyqstore.NotFound):
        next(iter(channel.consume("no")))


def test_auto_ack_consumer_leaves_nothing_unacked(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 3)
    taken = list(channel.consume(queue, auto_ack=True, inactivity_timeout=0.05))
    assert len(taken) == 3
    assert store.queue_status(queue)["messages_unacked"] == 0


def test_two_iterators_on_one_channel_share(channel: pyqstore.Channel) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish_numbers(channel, name, 3)
    one, two = channel.consume("a"), channel.consume("b")
    seen = [next(one).body, next(two).body, next(two).body, next(one).body]
    assert seen == [b"0", b"0", b"1", b"1"]
    one.close()  # type: ignore[attr-defined]
    two.close()  # type: ignore[attr-defined]
    channel.basic_nack(0, multiple=True)
    for name in ("a", "b"):
        assert [body for body, _ in rest(channel, name)] == [b"0", b"1", b"2"]


def test_next_delivery_reads_a_consumer_without_callback(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 2)
    tag = channel.basic_consume(queue, consumer_tag="mine")
    assert tag == "mine"
    assert channel.process_events() == 0
    message = channel.next_delivery(tag, 1)
    assert message is not None
    assert message.body == b"0"
    assert channel.basic_cancel(tag) == []
    assert channel.next_delivery(tag, 0) is None


def test_taken_consumer_tag_is_refused(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    channel.basic_consume("q", print, consumer_tag="t")
    with pytest.raises(pyqstore.NotAllowed, match="t"):
        channel.basic_consume("q", print, consumer_tag="t")


def test_exclusive_consumer_is_alone(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    tag = channel.basic_consume(queue, print, exclusive=True)
    with store.channel() as other, pytest.raises(pyqstore.AccessRefused):
        other.basic_consume(queue, print)
    channel.basic_cancel(tag)
    with store.channel() as other:
        other.basic_consume(queue, print)
        with store.channel() as third, pytest.raises(pyqstore.AccessRefused):
            third.basic_consume(queue, print, exclusive=True)


def test_prefetch_bounds_what_a_consumer_holds(channel: pyqstore.Channel, queue: str) -> None:
    publish_numbers(channel, queue, 5)
    channel.basic_qos(2)
    taken: list[pyqstore.Message] = []
    channel.basic_consume(queue, taken.append)
    assert channel.process_events() == 2
    assert channel.process_events() == 0
    taken[0].ack()
    assert channel.process_events() == 1
    channel.basic_ack(0, multiple=True)
    assert channel.process_events() == 2


def test_global_prefetch_bounds_the_channel(channel: pyqstore.Channel) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish_numbers(channel, name, 3)
    channel.basic_qos(2, global_=True)
    taken: list[pyqstore.Message] = []
    channel.basic_consume("a", taken.append)
    channel.basic_consume("b", taken.append)
    assert channel.process_events() == 2
    channel.basic_ack(0, multiple=True)
    assert channel.process_events() == 2


@pytest.mark.parametrize(
    ("count", "kind"), [(-1, ValueError), (2**32, ValueError), ("1", TypeError)]
)
def test_wrong_prefetch_is_refused(
    channel: pyqstore.Channel, count: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="prefetch_count"):
        channel.basic_qos(count)


def test_consumers_take_turns(store: pyqstore.Store, queue: str, channel: pyqstore.Channel) -> None:
    one: list[bytes] = []
    two: list[bytes] = []
    channel.basic_consume(queue, lambda message: one.append(message.body))
    channel.basic_consume(queue, lambda message: two.append(message.body))
    publish_numbers(channel, queue, 10)
    channel.process_events()
    assert len(one) == len(two) == 5
    assert sorted(one + two) == sorted(str(number).encode() for number in range(10))


def test_wrong_callback_is_refused(channel: pyqstore.Channel, queue: str) -> None:
    with pytest.raises(TypeError, match="callable"):
        channel.basic_consume(queue, "print")  # type: ignore[arg-type]
