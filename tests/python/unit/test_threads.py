"""Threads and signals: the GIL is free while C waits, one thread a channel, Ctrl-C gets through."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable

import pytest

import pyqstore

from ..support import wait_until


def counts_while(wait: Callable[[], object]) -> int:
    """How far another thread counts while wait() runs in this one."""
    count = 0
    stop = False

    def work() -> None:
        nonlocal count
        while not stop:
            count += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        before = count
        wait()
        return count - before
    finally:
        stop = True
        thread.join()


def test_other_threads_run_while_waiting(channel: pyqstore.Channel, queue: str) -> None:
    channel.basic_consume(queue, print)
    wait_until(lambda: counts_while(lambda: channel.process_events(timeout=0.2)) > 10_000)
    wait_until(lambda: counts_while(lambda: channel.get_batch(queue, timeout=0.2)) > 10_000)


def test_second_thread_on_a_channel_is_told_so(channel: pyqstore.Channel, queue: str) -> None:
    channel.basic_consume(queue, print)
    stop = threading.Event()

    def wait() -> None:
        while not stop.is_set():
            with contextlib.suppress(RuntimeError):  # it may be the second one as well
                channel.process_events(timeout=0.05)

    def is_told() -> bool:
        try:
            channel.basic_publish("", "nowhere", b"x")
        except RuntimeError as error:
            return "another thread" in str(error)
        return False

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        wait_until(is_told)
    finally:
        stop.set()
        thread.join()
    channel.basic_publish("", "nowhere", b"x")


def test_channel_survives_two_threads(channel: pyqstore.Channel, queue: str) -> None:
    done: list[int] = []

    def work() -> None:
        count = 0
        for _ in range(2000):
            try:
                channel.basic_publish("", queue, b"x")
                message = channel.basic_get(queue, auto_ack=True)
                count += message is not None
            except RuntimeError:
                pass
        done.append(count)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4
    assert not channel.closed
    channel.queue_purge(queue)


@pytest.mark.parametrize("what", ["events", "batch", "consume", "delivery"])
def test_keyboard_interrupt_ends_a_wait(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, what: str
) -> None:
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])

    def wait() -> None:
        timer.start()  # here, where the interrupt may come
        if what == "events":
            channel.basic_consume(queue, print)
            channel.process_events(timeout=None)
        elif what == "batch":
            channel.get_batch(queue, timeout=None)
        elif what == "consume":
            list(channel.consume(queue))
        else:
            channel.next_delivery(channel.basic_consume(queue))

    with pytest.raises(KeyboardInterrupt):
        wait()
    timer.join()
    channel.basic_publish("", queue, b"x")
    assert store.queue_status(queue)["messages_ready"] == 1


def test_producer_and_consumer_in_two_threads(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
    taken: list[bytes] = []

    def consume() -> None:
        with store.channel() as channel:
            for message in channel.consume("q"):
                taken.append(message.body)
                message.ack()
                if message.body == b"last":
                    return

    thread = threading.Thread(target=consume)
    thread.start()
    with store.channel() as channel:
        channel.confirm_select()
        for number in range(2000):
            channel.basic_publish(
                "", "q", str(number).encode(), pyqstore.Properties(delivery_mode=2)
            )
        channel.basic_publish("", "q", b"last")
        assert channel.wait_for_confirms(30)
    thread.join(30)
    assert taken == [str(number).encode() for number in range(2000)] + [b"last"]
    assert store.queue_status("q")["messages_unacked"] == 0
