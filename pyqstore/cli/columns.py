"""Messages as rows of files: the columns of Parquet, and the fields of JSON lines.

Both have a column for each property.  What a row's columns cannot give back exactly, such as
headers that are no text, it has once more as AMQP encodes it: ``properties_amqp``, in JSON
``properties_amqp_base64``.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..columns import BROWSED, COLUMNS, STREAM, TEXT, schema_of
from ..control.messages import Seen
from ..control.plain import plain
from ..listings import printable
from ..properties import Properties
from . import lines

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "AMQP",
    "AMQP_BASE64",
    "PROPERTIES",
    "headers_of",
    "json_row",
    "parquet_properties",
    "parquet_row",
    "parquet_schema",
    "plain_properties",
]

AMQP = "properties_amqp"
AMQP_BASE64 = "properties_amqp_base64"
_TEXTS = tuple(
    column.name
    for column in COLUMNS
    if column.published == TEXT and column.name not in ("exchange", "routing_key")
)
PROPERTIES = (*_TEXTS, "headers", "priority", "delivery_mode", "expiration", "timestamp")
"""Properties that have a column.  ``cluster_id``, which AMQP gave up, has none."""
_SECONDS_END = 253_402_300_800  # the year 10000, where Python's times end
_EXPIRATION_END = 2**63
_KEPT = 256  # sets of properties: those of neighbours are the same more often than not


def parquet_schema(is_stream: bool) -> pyarrow.Schema:
    """That of ``Store.browse`` or ``Stream.read``, and AMQP behind it."""
    import pyarrow as pa

    fields = [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema_of(STREAM if is_stream else BROWSED)
    ]
    return pa.schema([*fields, (AMQP, pa.binary())])


def parquet_row(message: Seen, is_stream: bool) -> dict[str, Any]:
    """A row of that schema."""
    fields = _parquet_fields(message.properties.encoded)
    row = {
        **fields,
        "exchange": printable(message.exchange),
        "routing_key": printable(message.routing_key),
        "body": message.body,
    }
    if is_stream:
        times = {"timestamp": message.time_us, "message_timestamp": fields.get("timestamp")}
        return {**row, **times, "offset": message.position}
    return {
        **row,
        "sequence": message.position,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "unacked": message.state == "unacked",
        "delayed": message.state == "delayed",
    }


def json_row(message: Seen, is_stream: bool) -> dict[str, Any]:
    """A line, as ``dump`` prints it, with AMQP_BASE64 where it is needed."""
    row = lines.row_of(message, is_stream=is_stream)
    encoded = _json_extra(message.properties.encoded)
    return row if encoded is None else {**row, AMQP_BASE64: encoded}


def parquet_properties(properties: Properties) -> dict[str, Any]:
    """What the columns have of properties, those that are set.  Times are seconds, and headers that
    are no text are JSON."""
    found = {name: value for name, value in properties.asdict().items() if name in PROPERTIES}
    for name in _TEXTS:
        if name in found:
            found[name] = printable(found[name])
    if "headers" in found:
        found["headers"] = {printable(k): _header_text(v) for k, v in found["headers"].items()}
    expiration = found.pop("expiration", "")
    if expiration.isascii() and expiration.isdigit() and int(expiration) < _EXPIRATION_END:
        found["expiration_ms"] = int(expiration)
    if found.get("timestamp", 0) >= _SECONDS_END:
        del found["timestamp"]
    return found


def plain_properties(properties: Properties) -> dict[str, Any]:
    """The same in words of JSON, as ``dump`` has them."""
    given = properties.asdict()
    found: dict[str, Any] = plain({name: value for name, value in given.items() if value != {}})
    return found


def headers_of(value: Any) -> dict[str, Any]:
    """Headers as a map of Arrow comes, or a list of key and value, or a dict.  ValueError: they are
    none of these."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        if all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return dict(value)
        if all(isinstance(each, dict) and set(each) == {"key", "value"} for each in value):
            return {each["key"]: each["value"] for each in value}
    raise ValueError(f"headers must be a map, not {value!r:.80}")


@functools.lru_cache(_KEPT)
def _parquet_fields(encoded: bytes) -> dict[str, Any]:
    properties = Properties.decode(encoded)
    fields = parquet_properties(properties)
    given = {**fields, "expiration": fields.get("expiration_ms")}
    given.pop("expiration_ms", None)
    if "headers" in fields:
        fields["headers"] = list(fields["headers"].items())  # as Arrow takes a map
    return fields if _is_regained(encoded, given) else {**fields, AMQP: encoded}


@functools.lru_cache(_KEPT)
def _json_extra(encoded: bytes) -> str | None:
    given = plain_properties(Properties.decode(encoded))
    return None if _is_regained(encoded, given) else base64.b64encode(encoded).decode()


def _is_regained(encoded: bytes, given: dict[str, Any]) -> bool:
    """Whether a row that has these properties is imported as what it was exported from.  One that
    says no delivery mode is persistent then."""
    try:
        made = Properties(**{"delivery_mode": 2, **given})
    except (TypeError, ValueError):  # as another client sent it
        return False
    return made.encoded == encoded


_TEXT_OF: Callable[[Any], str] = functools.partial(json.dumps, ensure_ascii=False)


def _header_text(value: Any) -> str:
    return printable(value if isinstance(value, str) else _TEXT_OF(plain(value)))
