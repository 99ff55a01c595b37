"""A pool of threads settles what another thread receives."""

import copy
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, publish_numbers

THREADS = 8


def publish(channel: pyqstore.Channel, count: int) -> None:
    channel.confirm_select()
    publish_numbers(channel, "q", count, properties=PERSISTENT)
    assert channel.wait_for_confirms(60)


def test_eight_threads_settle_while_one_waits(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    count = 3000
    publish(channel, count)
    settler = channel.threadsafe()
    assert channel.threadsafe() is settler
    public = {name for name in dir(settler) if not name.startswith("_")}
    assert public == {"basic_ack", "basic_nack", "basic_reject"}
    handled: dict[int, int] = {}
    threads: set[int] = set()
    barrier = threading.Barrier(THREADS)
    answers: list[Future[None]] = []

    def handle(message: pyqstore.Message) -> None:
        if message.delivery_tag <= THREADS:
            barrier.wait(60)  # eight at once
        threads.add(threading.get_ident())
        number = int(message.body)
        if number % 3 == 0 and not message.redelivered:
            answers.append(settler.basic_nack(message.delivery_tag))
        elif number % 3 == 1 and not message.redelivered:
            answers.append(settler.basic_reject(message.delivery_tag, requeue=True))
        else:
            handled[number] = handled.get(number, 0) + 1
            answers.append(settler.basic_ack(message.delivery_tag))
            if len(handled) == count:
                channel.stop_consuming()

    with ThreadPoolExecutor(THREADS) as pool:
        channel.basic_qos(4 * THREADS)
        channel.basic_consume("q", lambda message: pool.submit(handle, message))
        channel.start_consuming()
    channel.process_events()
    assert len(threads) == THREADS
    assert handled == dict.fromkeys(range(count), 1)
    assert [answer.result(60) for answer in answers] == [None] * len(answers)
    status = store.queue_status("q")
    assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


def test_an_ack_wakes_the_thread_that_waits(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, 300)
    settler = channel.threadsafe()
    seen: list[int] = []

    def handle(message: pyqstore.Message) -> None:
        time.sleep(0.001)  # the consumer waits by now
        settler.basic_ack(message.delivery_tag)

    with ThreadPoolExecutor(1) as pool:

        def callback(message: pyqstore.Message) -> None:
            seen.append(int(message.body))
            pool.submit(handle, message)

        channel.basic_qos(1)  # each ack lets the next message come
        channel.basic_consume("q", callback)
        begun = time.monotonic()
        while len(seen) < 300:
            assert channel.process_events(60) > 0
            assert time.monotonic() < begun + 60
    assert seen == list(range(300))
    channel.close()
    assert store.queue_status("q")["messages_ready"] == 0


def test_an_unknown_tag_is_told_to_both_threads(channel: pyqstore.Channel, queue: str) -> None:
    publish(channel, 1)
    settler = channel.threadsafe()
    channel.basic_consume("q", lambda message: None)
    answers: list[Future[None]] = []

    def ask() -> None:
        answers.extend(settler.basic_ack(tag) for tag in (1, 77, 1))

    thread = threading.Timer(0.05, ask)
    channel.process_events()
    thread.start()
    with pytest.raises(pyqstore.PreconditionFailed):
        channel.process_events(60)
    thread.join()
    assert answers[0].result(60) is None
    assert isinstance(answers[1].exception(60), pyqstore.PreconditionFailed)
    channel.close()
    assert isinstance(answers[2].exception(60), pyqstore.ChannelClosed)
    assert isinstance(settler.basic_ack(1).exception(60), pyqstore.ChannelClosed)


def test_what_was_asked_for_is_settled_before_the_channel_closes(
    store: pyqstore.Store, queue: str
) -> None:
    with store.channel() as channel:
        publish(channel, 2)
        settler = channel.threadsafe()
        tags = [message.delivery_tag for _ in range(2) if (message := channel.basic_get("q"))]
        answer = settler.basic_ack(tags[0])
        withdrawn = settler.basic_ack(tags[1])
        assert withdrawn.cancel()
    assert answer.result(60) is None
    assert store.queue_status("q")["messages_ready"] == 1


def test_confirms_and_returns_come_to_a_threadsafe_channel(
    channel: pyqstore.Channel, queue: str
) -> None:
    channel.threadsafe()
    heard: list[object] = []
    channel.add_confirm_listener(lambda *ack: heard.append(ack), None)
    channel.add_return_listener(lambda message: heard.append(message.body))
    channel.confirm_select()
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    while len(heard) < 2:
        channel.process_events(10)
    assert heard == [b"back", (1, False)]


def test_iterating_with_a_pool_behind(channel: pyqstore.Channel, queue: str) -> None:
    publish(channel, 500)
    settler = channel.threadsafe()
    with ThreadPoolExecutor(THREADS) as pool:
        seen = []
        for message in channel.consume("q", inactivity_timeout=1):
            seen.append(int(message.body))
            pool.submit(settler.basic_ack, message.delivery_tag)
    channel.process_events()
    assert seen == list(range(500))
    assert channel.basic_get("q") is None


def test_waiting_while_the_store_is_closed_said_bad_file_descriptor(path: Path) -> None:
    store = pyqstore.open(path)
    channel = store.channel()
    settler = channel.threadsafe()
    closing = threading.Timer(0.1, store.close)
    closing.start()
    with pytest.raises((pyqstore.ChannelClosed, pyqstore.StoreClosed)):
        channel.process_events(timeout=None)
    closing.join()
    with pytest.raises((pyqstore.ChannelClosed, pyqstore.StoreClosed)):
        channel.process_events(timeout=0.01)
    channel.close()
    with pytest.raises(pyqstore.ChannelClosed):
        settler.basic_ack(1).result(timeout=5)


def test_who_asked_a_channel_that_an_error_closed_is_told(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish(channel, 2)
    channel = store.channel()
    settler = channel.threadsafe()
    tags = [channel.basic_get("q").delivery_tag for _ in range(2)]
    asked = [settler.basic_ack(tag) for tag in (99, *tags)]
    with pytest.raises(pyqstore.PreconditionFailed):
        channel.process_events()
    asked.append(settler.basic_ack(tags[0]))  # the pool's threads ask before anybody closes it
    for answer in asked:
        with pytest.raises((pyqstore.PreconditionFailed, pyqstore.ChannelClosed)):
            answer.result(10)
    channel.close()


def test_who_asked_a_channel_whose_store_was_closed_is_told(tmp_path: Path) -> None:
    store = pyqstore.open(tmp_path / "other")
    channel = store.channel()
    settler = channel.threadsafe()
    asked = [settler.basic_ack(1)]
    store.close()
    asked.append(settler.basic_ack(1))
    for answer in asked:
        with pytest.raises(pyqstore.ChannelClosed):
            answer.result(10)


def test_settler_cannot_be_copied_so_no_descriptor_is_closed_twice(
    channel: pyqstore.Channel,
) -> None:
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(channel.threadsafe())
