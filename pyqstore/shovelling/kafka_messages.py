"""A message of Kafka as one of AMQP, and back.

What one has and the other has not is in headers, so that a message that comes back is equal.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, NamedTuple

from .. import _core
from ..fields import FieldValue
from ..properties import NAMES, Properties
from .blobs import delivery_mode_kept
from .ends import Item

__all__ = [
    "ENVELOPE",
    "KEY",
    "NULL",
    "OTHERS",
    "RECORDS",
    "TIME",
    "Record",
    "any_record_of",
    "item_of",
    "record_of",
]

KEY = "x-kafka-key"
TIME = "x-kafka-timestamp"
"""Milliseconds since 1970; the property timestamp has seconds."""
NULL = "x-kafka-null"
"""There is no body at all, which Kafka tells from an empty one."""
OTHERS = "x-kafka-headers"
"""A list of headers whose names AMQP cannot say, or that are said above."""
ENVELOPE = "pyqstore.message"
"""A header of Kafka: exchange, routing key and properties of a message of a store."""
# A store, or a broker behind it, takes these for its own.
_OURS = (KEY, TIME, NULL, OTHERS, "CC", "BCC", "x-stream-offset")
_VERSION = b"\x01"
_NAME_BYTES_MAX = 255
# Kafka has nothing for these properties but headers.
_SHOWN = [
    "" if name in ("headers", "delivery_mode", "timestamp") else f"amqp.{name}" for name in NAMES
]
_BARE = _VERSION + b"\0\0"
_MS_MAX = 2**63 - 1
_TIME_MARK = bytes([len(TIME)]) + TIME.encode()
RECORDS = _core.Records(KEY, TIME, _OURS, ENVELOPE, _SHOWN)
"""Makes the same of most records and messages, several times as quickly."""

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """What Kafka has of a message."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    """Milliseconds; 0: Kafka says when it came."""
    headers: Headers


def item_of(
    key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None
) -> Item:
    """A record as a message; ``timestamp``: negative for none."""
    if headers:
        for at, (name, said) in enumerate(headers):
            if name == ENVELOPE and said is not None:
                item = _unpacked(said, value or b"")
                if item is not None:
                    return _changed(item, Record(key, value, timestamp, headers), at)
    return Item(value or b"", _blob(key, value, timestamp, headers), "", "", False, 0)


def _blob(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None) -> bytes:
    """Properties, encoded."""
    blob = RECORDS.properties(key, value, timestamp, headers)
    return any_blob(key, value, timestamp, headers or []) if blob is None else blob


def any_blob(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> bytes:
    table: dict[str, FieldValue] = {}
    if key is not None:
        table[KEY] = _field(key)
    if timestamp >= 0:
        table[TIME] = timestamp
    if value is None:
        table[NULL] = True
    table |= _table(headers)
    seconds = timestamp // 1000 if timestamp >= 0 else None
    return Properties(headers=table or None, delivery_mode=2, timestamp=seconds).encoded


def _table(headers: Headers) -> dict[str, FieldValue]:
    """Names that come again, as Kafka's may, have lists."""
    table: dict[str, FieldValue] = {}
    others: list[FieldValue] = []
    for name, said in headers:
        if name in _OURS or len(name.encode()) > _NAME_BYTES_MAX:
            others.append([name, _field(said)])
        elif name in table:
            before = table[name]
            table[name] = [*(before if isinstance(before, list) else [before]), _field(said)]
        else:
            table[name] = _field(said)
    if others:
        table[OTHERS] = others
    return table


def _is_text(said: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        return bool(said.decode())
    return False


def _field(said: bytes | None) -> FieldValue:
    """Text as such, other bytes as such."""
    if said is None:
        return None
    try:
        return said.decode()
    except UnicodeDecodeError:
        return said


def record_of(item: Item) -> Record:
    """A message of a store as a record.  ValueError, TypeError: its properties are wrong."""
    quick = RECORDS.record(item)
    return any_record_of(item) if quick is None else Record(*quick)


def any_record_of(item: Item) -> Record:
    """The same of each message, also of one that ``RECORDS`` leaves alone."""
    record = _record(item, Properties.decode(item.properties))
    if not item.exchange and _TIME_MARK in item.properties:  # it was a record before
        again = item_of(*record)
        if again.properties == delivery_mode_kept(item.properties):
            return record
    record.headers.append((ENVELOPE, _packed(item)))
    return record


def _record(item: Item, properties: Properties) -> Record:
    headers: Headers = [
        (name, str(value).encode("utf-8", "surrogateescape"))
        for name, value in zip(_SHOWN, properties.values, strict=True)
        if value is not None and name
    ]
    time = min((properties.timestamp or 0) * 1000, _MS_MAX)
    key = item.routing_key if item.exchange else None
    table = properties.headers
    if table:
        return _record_with(item, table, key, time, headers)
    encoded = None if key is None else key.encode("utf-8", "surrogateescape")
    return Record(encoded, item.body, time, headers)


def _record_with(
    item: Item, table: dict[str, Any], routing_key: str | None, at: int, headers: Headers
) -> Record:
    """With a message's headers, of which some may be Kafka's."""
    key, time, null = table.pop(KEY, None), table.pop(TIME, None), table.pop(NULL, None)
    others = table.pop(OTHERS, None)
    if not isinstance(key, str | bytes):
        key = routing_key
    if type(time) is not int or not 0 <= time <= _MS_MAX:
        time = at
    for name, value in table.items():
        values = value if isinstance(value, list) and len(value) > 1 else [value]
        headers += [(name, _told(each)) for each in values]
    if isinstance(others, list):
        pairs = [each for each in others if isinstance(each, list) and len(each) == 2]
        headers += [(str(name), _told(each)) for name, each in pairs]
    return Record(
        key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key,
        None if null is True and not item.body else item.body,
        time,
        [(name, value) for name, value in headers if name != ENVELOPE],
    )


def _told(value: Any) -> bytes | None:
    """For those that read Kafka: text where it is none."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _packed(item: Item) -> bytes:
    """The exchange, the routing key, the properties."""
    if not item.exchange:
        return _BARE + item.properties
    exchange, key = (
        text.encode("utf-8", "surrogateescape") for text in (item.exchange, item.routing_key)
    )
    lengths = bytes([len(exchange)]), bytes([len(key)])
    return b"".join((_VERSION, lengths[0], exchange, lengths[1], key, item.properties))


def _unpacked(packed: bytes, body: bytes) -> Item | None:
    """None: it is no such header."""
    try:
        if packed[:1] != _VERSION:
            return None
        at = 2 + packed[1]
        end = at + 1 + packed[at]
        exchange, key = (
            part.decode("utf-8", "surrogateescape") for part in (packed[2:at], packed[at + 1 : end])
        )
        if len(packed) < end or (key and not exchange):
            return None
        Properties.decode(packed[end:])._canonical()  # it goes into a store as it is
        return Item(body, packed[end:], exchange, key, False, 0)
    except (IndexError, ValueError, TypeError):
        return None


def _changed(item: Item, record: Record, at: int) -> Item:
    """With what was added to a record of ours, as tracing and programs on the way do: headers, and
    another key."""
    properties = Properties.decode(item.properties)
    ours = _record(item, properties)
    headers = record.headers[:at] + record.headers[at + 1 :]
    is_null = record.value is None
    if (ours.key, ours.value is None, ours.headers) == (record.key, is_null, headers):
        return item
    table: dict[str, Any] = properties.headers
    if record.key is not None:
        table[KEY] = _field(record.key)
    table.pop(NULL, None)
    if is_null:
        table[NULL] = True
    for each in ours.headers:
        if each in headers:
            headers.remove(each)
    added = _table(headers)
    before, others = table.get(OTHERS), added.get(OTHERS)
    if isinstance(before, list) and isinstance(others, list):
        added[OTHERS] = [*before, *others]
    return item._replace(properties=properties.replace(headers={**table, **added}).encoded)
