"""What no name may be is refused everywhere, in the same way."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import get

BATCH = pa.table({"body": [b"x"]})

Call = Callable[[pyqstore.Channel, str], Any]
CALLS: dict[str, Call] = {
    "queue_declare": lambda c, name: c.queue_declare(name),
    "queue_declare passive": lambda c, name: c.queue_declare(name, passive=True),
    "queue_bind": lambda c, name: c.queue_bind(name, "amq.direct", "k"),
    "queue_bind to": lambda c, name: c.queue_bind("q", name, "k"),
    "queue_unbind": lambda c, name: c.queue_unbind(name, "amq.direct", "k"),
    "queue_delete": lambda c, name: c.queue_delete(name),
    "queue_purge": lambda c, name: c.queue_purge(name),
    "exchange_declare": lambda c, name: c.exchange_declare(name),
    "alternate-exchange": lambda c, name: c.exchange_declare(
        "e", arguments={"alternate-exchange": name}
    ),
    "x-dead-letter-exchange": lambda c, name: c.queue_declare(
        "d", arguments={"x-dead-letter-exchange": name}
    ),
    "exchange column": lambda c, name: c.publish_batch(
        pa.table({"body": [b"x", b"y"], "exchange": ["", name]}), "", "q"
    ),
    "exchange_declare type": lambda c, name: c.exchange_declare("e", name),
    "exchange_bind": lambda c, name: c.exchange_bind(name, "amq.direct", "k"),
    "exchange_bind to": lambda c, name: c.exchange_bind("amq.direct", name, "k"),
    "exchange_delete": lambda c, name: c.exchange_delete(name),
    "basic_publish": lambda c, name: c.basic_publish(name, "k", b""),
    "publish_batch": lambda c, name: c.publish_batch(BATCH, name, "k"),
    "basic_get": lambda c, name: c.basic_get(name),
    "get_batch": lambda c, name: c.get_batch(name),
    "basic_consume": lambda c, name: c.basic_consume(name),
    "basic_consume tag": lambda c, name: c.basic_consume("q", consumer_tag=name),
    "basic_cancel": lambda c, name: c.basic_cancel(name),
}


@pytest.mark.parametrize("name", ["a\0b", "\0", "x" * 256, "ä" * 128])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_names_with_nul_or_of_256_bytes_are_refused_alike(
    channel: pyqstore.Channel, queue: str, call: Call, name: str
) -> None:
    with pytest.raises(ValueError, match=r"NUL|256 bytes(: 255 at most|, at most 255)"):
        call(channel, name)
    assert not channel.closed
    assert channel.queue_declare(queue, passive=True).queue == "q"


def test_the_store_refuses_them_too(store: pyqstore.Store, queue: str) -> None:
    for name in ("a\0b", "x" * 256):
        with pytest.raises(ValueError, match=r"NUL|255 at most"):
            store.queue_status(name)
        with pytest.raises(ValueError, match=r"NUL|255 at most"):
            store.set_queue_mode(name, "lazy")
    assert store.queues() == [queue]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_batch_with_such_a_name_is_refused_whole_and_says_which_row(
    channel: pyqstore.Channel, queue: str, kind: pa.DataType
) -> None:
    names = pa.chunked_array([pa.array(["", ""], kind), pa.array(["", "a\0b"], kind)])
    table = pa.table({"body": pa.array([b"x"] * 4), "exchange": names})
    with pytest.raises(ValueError, match=r"row 3: exchange with a NUL at byte 1"):
        channel.publish_batch(table, "", queue)
    assert channel.queue_declare(queue, passive=True).message_count == 0


def test_routing_keys_may_hold_any_byte_wherever_they_are_given(
    channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.direct", "a\0b")
    channel.queue_declare(
        "dying",
        arguments={"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "a\0b"},
    )
    channel.basic_publish("", "dying", b"dead")
    get(channel, "dying").reject(requeue=False)
    assert get(channel, queue).routing_key == "a\0b"
    rows = pa.table({"body": [b"1", b"2"], "routing_key": ["a\0b", "a"]})
    channel.publish_batch(rows, "amq.direct")
    assert get(channel, queue).body == b"1"
    assert channel.basic_get(queue) is None


def test_a_routing_key_may_hold_any_byte(channel: pyqstore.Channel, queue: str) -> None:
    channel.queue_bind(queue, "amq.direct", "a\0b")
    channel.basic_publish("amq.direct", "a\0b", b"x")
    channel.basic_publish("amq.direct", "a", b"y")
    assert get(channel, queue).routing_key == "a\0b"
    assert channel.basic_get(queue) is None
