"""What makes most messages of a shovel, and most of Kafka's records, in C: the same as what makes
all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyqstore import Properties
from pyqstore.shovelling.blobs import (
    delivery_mode_kept,
    is_persistent,
    led_by_headers,
    without_offset,
)
from pyqstore.shovelling.ends import Batch, Item
from pyqstore.shovelling.kafka_messages import (
    ENVELOPE,
    KEY,
    OTHERS,
    RECORDS,
    TIME,
    any_blob,
    any_record_of,
)

SPECIAL = [KEY, TIME, OTHERS, ENVELOPE, "CC", "n" * 256]
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(SPECIAL))
BYTES = st.one_of(st.binary(max_size=20), st.text(max_size=8).map(str.encode))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = st.one_of(
    TEXTS, st.binary(max_size=20), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none(),
    st.lists(st.one_of(TEXTS, st.none()), max_size=3),
)  # fmt: skip


@st.composite
def properties(draw: st.DrawFn) -> Properties:
    """Any of them."""

    def some(strategy: st.SearchStrategy[Any]) -> Any:
        return draw(st.one_of(st.none(), strategy))

    table = st.dictionaries(NAMES.filter(lambda name: len(name.encode()) < 256), VALUES, max_size=4)
    return Properties(
        content_type=some(TEXTS),
        headers=some(table),
        delivery_mode=some(st.sampled_from([1, 2])),
        priority=some(st.integers(0, 255)),
        expiration=some(st.integers(0, 10**6)),
        message_id=some(TEXTS),
        timestamp=some(st.integers(0, 2**64 - 1)),
        cluster_id=some(TEXTS),
    )


@given(
    st.one_of(st.none(), BYTES),
    st.one_of(st.none(), BYTES),
    st.integers(-1, 2**62),
    st.one_of(st.none(), st.lists(st.tuples(NAMES, st.one_of(st.none(), BYTES)), max_size=4)),
)
@example(b"k", b"v", 5, [("n", b"text"), ("raw", b"\xff")])
def test_properties_of_a_record_are_the_same(
    key: bytes | None, value: bytes | None, at: int, headers: list[tuple[str, bytes | None]] | None
) -> None:
    quick = RECORDS.properties(key, value, at, headers)
    if quick is not None:
        every = any_blob(key, value, at, headers or [])
        assert Properties.decode(quick) == Properties.decode(every)


def test_most_records_are_translated_quickly() -> None:
    assert RECORDS.properties(b"k", b"v", 5, [("n", b"text"), ("raw", b"\xff")]) is not None
    assert RECORDS.properties(None, b"v", 0, None) is not None
    for properties in (b"", Properties(headers={"n": "text"}, message_id="m", priority=3).encoded):
        for exchange in ("", "x"):
            assert RECORDS.record(Item(b"", properties, exchange, "key", False, 0)) is not None


@given(properties(), st.sampled_from(["", "x"]), st.text(max_size=8))
@example(Properties(headers={"a": "b", "c": "d"}, message_id="m", timestamp=7), "x", "key")
def test_a_record_is_the_same(properties: Properties, exchange: str, key: str) -> None:
    item = Item(b"body", properties.encoded, exchange, key if exchange else "", False, 0)
    assert RECORDS.record(item) in (None, any_record_of(item))


@given(st.one_of(st.binary(max_size=40), properties().map(lambda each: each.encoded)), st.data())
def test_wrong_properties_are_left_to_what_tells(blob: bytes, data: st.DataObject) -> None:
    """Cut off, or with a byte that is another one."""
    blob = blob[: data.draw(st.integers(0, len(blob)))]
    if blob:
        at = data.draw(st.integers(0, len(blob) - 1))
        blob = blob[:at] + bytes([data.draw(st.integers(0, 255))]) + blob[at + 1 :]
    item = Item(b"body", blob, "x", "key", False, 0)
    record = RECORDS.record(item)
    assert record is None or record == any_record_of(item)
    for look in (delivery_mode_kept, is_persistent, led_by_headers, without_offset):
        try:
            look(blob)
        except ValueError as error:
            assert str(error)  # noqa: PT017


@given(properties())
def test_the_delivery_mode_is_kept(properties: Properties) -> None:
    blob = properties.encoded or b"\0\0"
    assert is_persistent(blob) == (properties.delivery_mode == 2)
    assert Properties.decode(delivery_mode_kept(blob)) == properties.replace(delivery_mode=2)


@given(properties(), st.integers(2**32, 2**63 - 1))
def test_the_offset_of_a_message_of_a_stream_is_taken_out(
    properties: Properties, offset: int
) -> None:
    headers = {**properties.headers, "x-stream-offset": offset}
    blob, found = without_offset(properties.replace(headers=headers).encoded)
    assert found == offset
    without = properties if properties.headers else properties.replace(headers=None)
    assert blob == without.encoded


def test_properties_without_an_offset_are_of_no_stream() -> None:
    for blob in (b"", b"\0\0", Properties(headers={"a": "b"}).encoded):
        with pytest.raises(ValueError, match=r"no x-stream-offset|end within"):
            without_offset(blob)


def test_the_bytes_of_a_batch_are_those_of_its_bodies() -> None:
    items = [Item(b"a" * size, b"\0\0", "x", "y", False, 0) for size in range(5)]
    assert Batch(items, 1).size == 10
    assert Batch([], 1).size == 0
