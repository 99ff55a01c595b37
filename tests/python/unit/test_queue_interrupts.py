"""Queue.get when a signal handler raises at any step: the message goes back, no consumer stays."""

import itertools
import threading
from functools import partial
from typing import Any

import pytest

import pyqstore

from ..interrupts import interrupted


def put_when_it_waits(queue: pyqstore.Queue, body: bytes) -> None:
    """Put it when the next ``get`` begins to wait: in a thread, in which no signal comes."""
    wait = queue._wait

    def late(channel: Any, seconds: float) -> pyqstore.Message | None:
        thread = threading.Thread(target=queue.put, args=(body,))
        thread.start()
        thread.join()
        queue.__dict__.pop("_wait", None)
        return wait(channel, seconds)

    queue._wait = late  # type: ignore[method-assign]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_signal_handler_that_raises_in_get_keeps_no_message_and_no_consumer(
    store: pyqstore.Store, is_there: bool
) -> None:
    """With a message that is there, and with one that comes when somebody waits for it."""
    queue = store.queue("q")
    held = store.queue("held")
    held.put(b"own")
    own = held.get()
    for step in itertools.count(1):
        if is_there:
            queue.put(b"%d" % step)
        else:
            put_when_it_waits(queue, b"%d" % step)
        message, is_interrupted = interrupted(step, lambda: queue.get(30))
        status = store.queue_status("q")
        assert status.consumers == 0
        if message is None:
            assert status.messages_unacked == 0
            queue.__dict__.pop("_wait", None)
            if status.messages_ready == 0:  # it had not come
                continue
            message = queue.get(0)
        assert message.body == b"%d" % step
        message.ack()
        if not is_interrupted:
            break
    assert step > 5
    own.ack()
    assert store.queue_status("held").messages_unacked == 0


def test_an_interrupted_wait_for_an_empty_queue_leaves_no_consumer(store: pyqstore.Store) -> None:
    queue = store.queue("q")
    for step in itertools.count(1):
        try:
            _, is_interrupted = interrupted(step, lambda: queue.get(0.001))
        except pyqstore.Empty:
            is_interrupted = False
        assert store.queue_status("q").consumers == 0
        queue.put(b"one")
        queue.get(0).ack()
        if not is_interrupted:
            break


def test_an_iteration_that_was_interrupted_at_its_first_step_leaves_no_consumer(
    store: pyqstore.Store,
) -> None:
    store.queue("q")
    with store.channel() as channel:
        for step in itertools.count(1):
            messages = channel.consume("q", inactivity_timeout=0)
            _, is_interrupted = interrupted(step, partial(next, messages, None))
            messages.close()
            assert store.queue_status("q").consumers == 0
            if not is_interrupted:
                break


def test_a_refusal_that_is_interrupted_while_it_is_noted_is_told_and_the_channel_goes_on(
    channel: pyqstore.Channel,
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("q", durable=True, arguments=full)
    channel.confirm_select()
    channel.basic_publish("", "q", b"one")
    assert channel.wait_for_confirms()
    for step in itertools.count(1):
        channel.basic_publish("", "q", b"too many")
        told, is_interrupted = interrupted(step, channel.wait_for_confirms)
        if told is None:
            told = channel.wait_for_confirms()
        assert told is False
        assert isinstance(channel.refusal, pyqstore.PublishRefused)
        assert channel.wait_for_confirms()
        if not is_interrupted:
            break


def test_a_put_that_is_interrupted_while_it_is_refused_leaves_the_queue_as_it_was(
    store: pyqstore.Store,
) -> None:
    queue = store.queue("q", max_length=1, overflow="reject-publish")
    queue.put(b"one")
    for step in itertools.count(1):
        try:
            _, is_interrupted = interrupted(step, lambda: queue.put(b"too many"))
        except pyqstore.PublishRefused:
            is_interrupted = False
        with pytest.raises(pyqstore.PublishRefused):
            queue.put(b"too many")
        if not is_interrupted:
            break
