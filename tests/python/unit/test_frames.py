"""Data frames as they come: columns that became floating-point numbers by a missing value, headers
as dicts and lists, and what was read here before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import pyqstore

from ..support import get

PROPERTIES = pyqstore.Properties(
    delivery_mode=2, headers={"a": "b"}, priority=3, expiration=60_000, timestamp=5, type="t"
)


def published(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        for name in ("q", "log"):
            channel.basic_publish("", name, b"x", PROPERTIES)
    store.sync()


def read(store: pyqstore.Store) -> Any:
    return store.stream("log").read()


def read_some(store: pyqstore.Store) -> Any:
    columns = ["offset", "timestamp", "message_timestamp", "body", "headers", "priority", "type"]
    return store.stream("log").read(columns=[*columns, "expiration_ms", "delivery_mode"])


def poll(store: pyqstore.Store) -> Any:
    with store.stream_consumer("log", "g") as consumer:
        return consumer.poll(timeout=30)


def browse(store: pyqstore.Store) -> Any:
    return pa.Table.from_batches(store.browse("q"))


def get_batch(store: pyqstore.Store) -> Any:
    return store.channel().get_batch("q", timeout=30)


@pytest.mark.parametrize(
    "take", [read, read_some, poll, browse, get_batch], ids=lambda take: take.__name__
)
def test_what_was_read_can_be_published_again_as_it_is(
    store: pyqstore.Store, stage: Path, take: Callable[[pyqstore.Store], Any]
) -> None:
    """The property ``timestamp`` is the message's, not when a stream had it."""
    store.queue("q")
    store.stream("log")
    published(store)
    rows = take(store)
    rows = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    store.queue("put").put_many(rows)
    store.stream("again").publish_batch(rows)
    with pyqstore.StagedWriter(stage / "file.qsb") as writer:
        writer.write_batch(rows)
    with store.channel() as channel:
        channel.queue_declare("batch", durable=True)
        gone = [name for name in rows.schema.names if name in ("exchange", "routing_key")]
        channel.publish_batch(pa.table(rows).drop_columns(gone), "", "batch")
        for name in ("put", "batch"):
            message = get(channel, name, auto_ack=True)
            assert (message.body, message.properties) == (b"x", PROPERTIES), name
    (again,) = store.stream("again").read()
    assert again["message_timestamp"][0].as_py().timestamp() == 5
    (staged,) = pyqstore.read_staged(stage / "file.qsb")
    assert staged["timestamp"][0].as_py().timestamp() == 5


def test_a_batch_without_offsets_has_the_property_timestamp(store: pyqstore.Store) -> None:
    store.queue("q").put_many(pa.table({"body": [b""], "timestamp": [7]}))
    assert store.queue("q").peek()[0].properties.timestamp == 7
    both = pa.table({"body": [b""], "message_timestamp": [8], "timestamp": [7]})
    store.queue("r").put_many(both)
    assert store.queue("r").peek()[0].properties.timestamp == 8


@pytest.mark.parametrize("name", ["priority", "delivery_mode", "expiration_ms", "timestamp"])
@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()])
def test_whole_numbers_may_be_floats(
    channel: pyqstore.Channel, queue: str, name: str, type_: pa.DataType
) -> None:
    value = 60_000 if name == "expiration_ms" else 2
    values = pa.array([1, None, value], type_)
    rows = pa.record_batch({"body": [b"a", b"b", b"c"], name: values})
    channel.publish_batch(rows.slice(1), routing_key=queue)
    found = channel.get_batch(queue)[name]
    found = found.cast(pa.int64()) if name == "timestamp" else found
    assert found.to_pylist() == [2 if name == "delivery_mode" else None, value]
    for wrong, words in ((0.5, "0.5"), (float("nan"), "nan"), (float("inf"), "inf")):
        rows = pa.record_batch({"body": [b"a", b"b"], name: pa.array([None, wrong], type_)})
        with pytest.raises(ValueError, match=f"row 1: {name} is .*{words}, must be a whole"):
            channel.publish_batch(rows, routing_key=queue)
    rows = pa.record_batch({"body": [b"a"], name: pa.array([-1e30], type_)})
    with pytest.raises(ValueError, match="must be"):
        channel.publish_batch(rows, routing_key=queue)


def test_a_pandas_frame_with_a_missing_integer_is_taken(store: pyqstore.Store) -> None:
    frame = pd.DataFrame(
        {"body": [b"a", b"b"], "priority": [5, None], "expiration_ms": [None, 90_000]}
    )
    assert frame["priority"].dtype == float
    store.queue("q").put_many(frame)
    first, second = store.queue("q").peek(2)
    assert (first.properties.priority, second.properties.priority) == (5, None)
    assert (first.properties.expiration, second.properties.expiration) == (None, "90000")


def headers_in(store: pyqstore.Store, rows: Any) -> list[dict[str, Any]]:
    queue = store.queue("q")
    queue.purge()
    queue.put_many(rows)
    return [message.properties.headers for message in queue.peek(100)]


def test_headers_of_a_frame_may_be_dicts_or_lists_of_pairs(store: pyqstore.Store) -> None:
    dicts = [{"a": "1"}, None, {"b": "2", "a": "3"}, {}, {"b": None}]
    wanted = [{"a": "1"}, {}, {"b": "2", "a": "3"}, {}, {}]
    frame = pd.DataFrame({"body": [b"x"] * 5, "headers": dicts})
    assert headers_in(store, frame) == wanted
    table = pa.table({"body": [b"x"] * 5, "headers": dicts})
    assert pa.types.is_struct(table.schema.field("headers").type)
    assert headers_in(store, table) == wanted
    assert headers_in(store, table.slice(2, 2)) == wanted[2:4]
    empty = pa.table({"body": [b"x"] * 2, "headers": [{"n": None}, None]})
    assert headers_in(store, empty) == [{}, {}]
    pairs = [[{"key": "a", "value": "1"}], None, []]
    table = pa.table({"body": [b"x"] * 3, "headers": pairs})
    assert headers_in(store, table) == [{"a": "1"}, {}, {}]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([{"n": 1}], 'column "n" of the headers.*int64 cannot be used, expected a string'),
        ([[["a", "1"]]], r"map_\(string"),
        (["a"], r"map_\(string"),
        ([{"n" * 256: "1"}], "256 bytes"),
    ],
)
def test_headers_that_are_no_strings_are_refused_with_what_would_do(
    store: pyqstore.Store, headers: list[Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        headers_in(store, pa.table({"body": [b"x"], "headers": headers}))
