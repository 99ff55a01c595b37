"""Queues with ``x-persistent`` keep messages over a restart, whatever the delivery mode says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import Properties

from ..support import declare, get, rest, wait_until

LARGE = b"x" * 5000  # in the message store
TRANSIENT = Properties(delivery_mode=1)


def by_basic_publish(channel: pyqstore.Channel) -> None:
    for body in (b"0", b"1", LARGE):
        channel.basic_publish("x", "k", body)


def by_transaction(channel: pyqstore.Channel) -> None:
    with channel.transaction():
        for body in (b"0", b"1", LARGE):
            channel.basic_publish("x", "k", body, TRANSIENT)


def by_batch(channel: pyqstore.Channel) -> None:
    modes = pa.array([1, 2, 1], pa.uint8())
    channel.publish_batch(pa.table({"body": [b"0", b"1", LARGE], "delivery_mode": modes}), "x", "k")


def by_plain_batch(channel: pyqstore.Channel) -> None:
    channel.publish_batch(pa.table({"body": [b"0", b"1"]}), "x", "k", properties=TRANSIENT)
    channel.publish_batch(pa.table({"body": [LARGE]}), "x", "k", properties=TRANSIENT)


def by_dead_letter(channel: pyqstore.Channel) -> None:
    declare(channel, "first", dead_letter_exchange="x", dead_letter_routing_key="k")
    for body in (b"0", b"1", LARGE):
        channel.basic_publish("", "first", body, TRANSIENT)
        message = get(channel, "first")
        channel.basic_reject(message.delivery_tag, requeue=False)


def by_delay(channel: pyqstore.Channel) -> None:
    for body in (b"0", b"1", LARGE):
        channel.basic_publish("x", "k", body, TRANSIENT, delay=0.001)


WAYS = [by_basic_publish, by_transaction, by_batch, by_plain_batch, by_dead_letter, by_delay]


@pytest.fixture(params=[{}, {"max_priority": 3}], ids=["plain", "priorities"])
def opened(request: pytest.FixtureRequest, path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path) as store:
        with store.channel() as channel:
            channel.exchange_declare("x", "fanout", durable=True)
            declare(channel, "kept", persistent=True, **request.param)
            channel.queue_bind("kept", "x")
        yield store


@pytest.mark.parametrize("publish", WAYS, ids=lambda way: way.__name__)
def test_messages_outlive_a_restart_whatever_their_mode(
    opened: pyqstore.Store, path: Path, publish: Callable[[pyqstore.Channel], None]
) -> None:
    with opened.channel() as channel:
        publish(channel)
    opened.close()
    with pyqstore.open(path) as store, store.channel() as channel:
        wait_until(lambda: store.queue_status("kept").messages_delayed == 0)
        assert sorted(body for body, _ in rest(channel, "kept")) == [b"0", b"1", LARGE]


def test_other_queues_keep_by_the_mode(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        declare(channel, "kept", persistent=True)
        declare(channel, "said not to", persistent=False)
        declare(channel, "plain")
        for name in ("kept", "said not to", "plain"):
            channel.basic_publish("", name, b"gone")
            channel.basic_publish("", name, b"kept", Properties(delivery_mode=2))
    with pyqstore.open(path) as store, store.channel() as channel:
        found = {name: [body for body, _ in rest(channel, name)] for name in store.queues()}
    assert found == {"kept": [b"gone", b"kept"], "said not to": [b"kept"], "plain": [b"kept"]}


def test_a_confirm_means_that_the_message_is_durable(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    declare(channel, "kept", persistent=True)
    channel.confirm_select()
    before = store.stats().appended_lsn
    channel.basic_publish("", "kept", b"x")
    channel.wait_for_confirms()
    assert store.stats().durable_lsn > before


def test_it_does_not_count_when_a_queue_is_declared_again(channel: pyqstore.Channel) -> None:
    declare(channel, "kept", persistent=True)
    declare(channel, "kept")
    with pytest.raises(pyqstore.PreconditionFailed, match=r"x-persistent.*boolean"):
        declare(channel, "other", persistent=1)
