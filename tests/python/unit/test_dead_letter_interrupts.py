"""A message on its way to the dead letters when a signal handler raises at any step: it gets there
once."""

import itertools
from functools import partial

import pytest

import pyqstore
from pyqstore import session

from ..interrupts import interrupted
from .faces import MODES

EXPIRED = pyqstore.Properties(delivery_mode=2, expiration="1000000", headers={"JMSExpiration": 1})
AT_ONCE = session.RedeliveryPolicy(initial_redelivery_delay=0.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_dead_letter_is_there_once_though_a_signal_handler_raises(
    store: pyqstore.Store, mode: str
) -> None:
    store.queue("q")
    dead = store.queue("ActiveMQ.DLQ")
    with (
        store.channel() as channel,
        session.connect(store, redelivery=AT_ONCE) as connection,
        connection.session(mode) as its,
        its.consumer(its.queue("q")) as consumer,
    ):
        for step in itertools.count(1):
            channel.basic_publish("", "q", str(step), EXPIRED)
            _, is_interrupted = interrupted(step, partial(consumer.receive, 0))
            assert consumer.receive(0) is None
            assert is_empty(store.queue_status("q"))
            assert [message.body.decode() for message in take_all(dead)] == [str(step)]
            if not is_interrupted:
                break


def test_a_rollback_that_a_signal_handler_interrupts_makes_one_dead_letter(
    store: pyqstore.Store,
) -> None:
    queue, dead = store.queue("q"), store.queue("ActiveMQ.DLQ")
    policy = session.RedeliveryPolicy(maximum_redeliveries=0, initial_redelivery_delay=0.0)
    with (
        session.connect(store, redelivery=policy) as connection,
        connection.session("transacted") as its,
        its.consumer(its.queue("q")) as consumer,
    ):
        for step in itertools.count(1):
            queue.put(str(step))
            assert consumer.receive(10) is not None
            _, is_interrupted = interrupted(step, its.rollback)
            while not is_empty(store.queue_status("q")):
                consumer.receive(0)
                its.rollback()
            assert [message.body.decode() for message in take_all(dead)] == [str(step)]
            if not is_interrupted:
                break


def is_empty(status: pyqstore.QueueStatus) -> bool:
    return (status.messages_ready, status.messages_unacked) == (0, 0)


def take_all(queue: pyqstore.Queue) -> list[pyqstore.Message]:
    """What is there, acknowledged."""
    found = []
    while True:
        try:
            found.append(queue.get(0))
        except pyqstore.Empty:
            return found
        found[-1].ack()
