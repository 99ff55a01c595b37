"""Shovels and Kafka, as far as that takes no server: addresses, what a message is there, and what
is told.  ``differential/test_shovel_kafka`` has Kafka."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyqstore
from benchmarks.laboratory.rivals.server import free_port
from pyqstore import Properties, ShovelError, shovel
from pyqstore.shovelling.addresses import KafkaPlace, place_of
from pyqstore.shovelling.ends import Item, Offsets
from pyqstore.shovelling.kafka_messages import ENVELOPE, Record, item_of, record_of
from pyqstore.shovelling.notes import Notes

from ..shovelling import at, put, working
from ..support import wait_until

# Addresses.


def test_an_address_names_hosts_a_topic_and_options() -> None:
    place = place_of(
        "kafka://one:1,Two,[::1]:3/a.topic?security.protocol=sasl_ssl&sasl.password=a%26b@c",
        is_target=False,
    )
    assert isinstance(place, KafkaPlace)
    assert (place.servers, place.topic) == ("one:1,two:9092,[::1]:3", "a.topic")
    assert dict(place.options) == {"security.protocol": "sasl_ssl", "sasl.password": "a&b@c"}
    assert place.shown == "kafka://one:1,two:9092,[::1]:3/a.topic"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("kafka:host/t", "two slashes"),
        ("kafka://host", "there is no topic"),
        ("kafka:///t", "there is no host"),
        ("kafka://host:0/t", "the port is no number"),
        ("kafka://host:x/t", "the port is no number"),
        ("kafka://host/a/b", "no topic's name"),
        ("kafka://host/..", "no topic's name"),
        ("kafka://host/" + "t" * 250, "no topic's name"),
        ("kafka://host/t#x", "encode # as %23"),
        ("kafka://[host/t", "no URL"),
        ("kafka://host/t?acks=0", "acks= is set by the shovel itself"),
        ("kafka://host/t?transactional.id=x", "set by the shovel itself"),
        ("kafka://host/t?isolation.level=read_uncommitted", "set by the shovel itself"),
        ("kafka://host/t?ssl.engine.location=x", "would load code or run it"),
        ("kafka://host/t?sasl.kerberos.kinit.cmd=x", "would load code or run it"),
        ("kafka://host/t?client.id=%ff", "an option is not UTF-8"),
        ("kafka://host/t?plugin.library.paths=x", "plugin.library.paths= is unknown"),
        ("kafka://host/t?client.id=x&client.id=y", "client.id= is there twice"),
    ],
)
def test_what_is_wrong_with_an_address_is_told(address: str, told: str) -> None:
    for is_target in (False, True):
        with pytest.raises(ValueError, match=told):
            place_of(address, is_target=is_target)


@pytest.mark.parametrize(
    "address",
    [
        "kafka://me:secret@host/t",
        "kafka://me:se/secret@host/t",
        "kafka://me:se?secret@host/t",
        "kafka://me:se#secret@host/t",
        "kafka:/me:secret@host/t",
        "kafka://host/t?sasl.password=secret&x=1",
        "kafka://host/t?sasl.password=a@secret&x=1",
        "kafka://host/t?sasl.password=a&secret=",
        "kafka://host/t?sasl.password=a&Secret=",
        "kafka://host/t?sasl.password=a#secret",
        "kafka://host/t&sasl.password=secret",
        "kafka://host/t/sasl.password=secret",
    ],
)
def test_an_error_shows_no_part_of_a_password(address: str) -> None:
    for is_target in (False, True):
        with pytest.raises(ValueError, match=r"^(source|target) 'kafka:") as caught:
            place_of(address, is_target=is_target)
        if "&secret=" not in address:  # which is an option's name as well
            assert "secret" not in str(caught.value).lower()


# What a message is.

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_VALUES = st.none() | _TEXT.map(str.encode) | st.binary(max_size=20)
_NAMES = _TEXT | st.sampled_from(["a", "x-kafka-key", "x-kafka-null", "n" * 300, "CC"])
_RECORDS = st.builds(
    Record,
    st.none() | _TEXT.map(str.encode) | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.integers(0, 2**45),
    st.lists(st.tuples(_NAMES, _VALUES), max_size=5),
)


@given(_RECORDS)
def test_a_record_comes_back_equal_to_kafka(record: Record) -> None:
    item = item_of(*record)
    again = record_of(item)
    assert again[:3] == record[:3]
    headers = [each for each in again.headers if each[0] != ENVELOPE]
    assert sorted(headers, key=str) == sorted(record.headers, key=str)
    assert item_of(*again) == item
    assert Properties.decode(item.properties).delivery_mode == 2


def test_a_record_that_comes_back_as_it_was_needs_no_envelope() -> None:
    record = Record(b"k", b"v", 1_700_000_000_123, [("a", b"1"), ("b", None), ("b", b"\xff")])
    assert record_of(item_of(*record)) == record


FULL = Properties(
    content_type="text/plain",
    headers={
        "text": "ä", "raw": b"\xff", "n": 7, "list": [1, None], "x-kafka-key": 5, "none": None,
    },
    delivery_mode=1,
    priority=3,
    correlation_id="c",
    expiration="360000",
    message_id="m",
    timestamp=1_700_000_000,
    user_id="guest",
)  # fmt: skip


@pytest.mark.parametrize("properties", [FULL, Properties(), Properties(delivery_mode=2)])
@pytest.mark.parametrize(("exchange", "key"), [("", ""), ("x", "eu.rome"), ("x", "")])
def test_a_message_of_a_store_comes_back_equal_from_kafka(
    properties: Properties, exchange: str, key: str
) -> None:
    item = Item(b"body", properties.encoded, exchange, key, False, 0)
    record = record_of(item)
    assert item_of(record.key, record.value, record.timestamp or 5, record.headers) == item


def test_programs_of_kafka_can_read_a_message_of_a_store() -> None:
    record = record_of(Item(b"body", FULL.encoded, "x", "eu.rome", False, 0))
    assert (record.key, record.value, record.timestamp) == (b"eu.rome", b"body", 1_700_000_000_000)
    assert record.headers[:-1] == [
        ("amqp.content_type", b"text/plain"), ("amqp.priority", b"3"),
        ("amqp.correlation_id", b"c"), ("amqp.expiration", b"360000"),
        ("amqp.message_id", b"m"), ("amqp.user_id", b"guest"),
        ("text", "ä".encode()), ("raw", b"\xff"), ("n", b"7"),
        ("list", b"1"), ("list", None), ("none", None),
    ]  # fmt: skip


def test_a_message_of_the_default_exchange_has_no_key_in_kafka() -> None:
    assert record_of(Item(b"", b"", "", "queue", False, 0)).key is None


def test_what_was_added_on_the_way_through_kafka_is_kept() -> None:
    item = Item(b"body", FULL.encoded, "x", "eu.rome", False, 0)
    record = record_of(item)
    again = item_of(b"new", None, 5, [("trace", b"t"), *record.headers, ("n", b"8")])
    headers = {**FULL.headers, "trace": "t", "n": "8", "x-kafka-key": "new", "x-kafka-null": True}
    assert Properties.decode(again.properties) == FULL.replace(headers=headers)
    assert again._replace(properties=item.properties) == item._replace(body=b"")


def test_headers_that_stores_and_brokers_heed_are_put_aside() -> None:
    """A text in CC would be refused, and a list would lead the message elsewhere."""
    headers: list[tuple[str, bytes | None]] = [
        ("CC", b"a"), ("BCC", b"b"), ("BCC", b"c"), ("x-stream-offset", b"7"), ("n", b"8"),
    ]  # fmt: skip
    for value in (b"v", None):
        item = item_of(None, value, 5, headers)
        kept = Properties.decode(item.properties).headers
        others = [[name, said and said.decode()] for name, said in headers[:-1]]
        assert kept["x-kafka-headers"] == others
        assert kept.keys().isdisjoint(("CC", "BCC", "x-stream-offset"))
        assert sorted(record_of(item).headers[:5]) == sorted(headers)


def test_what_was_put_aside_is_kept_beside_what_was_added() -> None:
    record = record_of(item_of(None, b"v", 5, [("CC", b"a")])._replace(exchange="x"))
    again = item_of(record.key, b"v", 5, [*record.headers, ("BCC", b"b")])
    assert Properties.decode(again.properties).headers["x-kafka-headers"] == [
        ["CC", "a"], ["BCC", "b"],
    ]  # fmt: skip


def test_properties_that_are_not_utf8_are_told_as_they_are() -> None:
    properties = Properties(message_id=b"\xff".decode("utf-8", "surrogateescape"))
    record = record_of(Item(b"", properties.encoded, "", "", False, 0))
    assert ("amqp.message_id", b"\xff") in record.headers


@pytest.mark.parametrize(
    "envelope",
    [b"", b"\1", b"\2\0\0", b"\1\5", b"\1\0\3a", b"\1\0\1a", b"\1\0\0\xff", b"\1\0\0\x20\0"],
)
def test_a_header_that_only_looks_like_an_envelope_is_a_header(envelope: bytes) -> None:
    item = item_of(None, b"v", 5, [(ENVELOPE, envelope)])
    kept = Properties.decode(item.properties).headers[ENVELOPE]
    assert kept in (envelope, envelope.decode("utf-8", "replace"))


# Notes.


def test_notes_keep_the_offsets_of_a_topic(store: pyqstore.Store) -> None:
    position = Offsets("id", {0: 5, 12: 2**40}, "t")
    notes = Notes(store, "s")
    with store.channel() as channel, channel.transaction():
        notes.publish_position(channel, position)
    again = Notes(store, "s")
    again.read()
    assert again.position == position


def test_a_name_that_was_for_a_topic_is_told(store: pyqstore.Store) -> None:
    """No offset of the one is taken for an offset of the other."""
    store.queue("b")
    store.stream("events").publish(b"one")
    notes = Notes(store, "s")
    with store.channel() as channel, channel.transaction():
        notes.publish_position(channel, Offsets("", {0: 0}, "t"))
    with pytest.raises(ShovelError, match=r"has read a topic.*another name"):
        shovel(at(store, "events"), at(store, "b"), name="s", idle=0)


# What is told.


def test_without_confluent_kafka_it_is_told_what_to_install(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue("b")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ShovelError, match=r"pip install 'pyqstore\[kafka\]'"):
        shovel("kafka://127.0.0.1/t", at(store, "b"))


def test_a_wrong_option_is_told(store: pyqstore.Store) -> None:
    store.queue("b")
    address = "kafka://127.0.0.1/t?security.protocol=none&sasl.password=secret"
    with pytest.raises(ShovelError, match=r"security\.protocol") as caught:
        shovel(address, at(store, "b"))
    assert "secret" not in str(caught.value)


def test_one_end_is_a_store(tmp_path: Path) -> None:
    with pytest.raises(ShovelError, match="source or target must be"):
        shovel("kafka://127.0.0.1/t", "amqp://127.0.0.1?queue=q")


def test_a_cluster_that_does_not_answer_is_tried_until_the_end(
    store: pyqstore.Store, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    put(store, "b", [])
    told: list[Any] = []
    begun = time.monotonic()
    source = f"kafka://127.0.0.1:{free_port()}/t"
    with working(source, at(store, "b"), progress=told.append) as future:
        wait_until(lambda: bool(told) and told[-1].connected > 1, 60)
    report = future.result(60)
    assert f"{source}: no broker answers" in str(report.error)
    assert time.monotonic() - begun < 60
    assert capfd.readouterr() == ("", "")
