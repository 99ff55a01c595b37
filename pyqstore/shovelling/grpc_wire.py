"""What a shovel and a server say to each other: JSON, and messages as Arrow batches.

The shovel asks, and the server answers in the same order.  When it has told of a failure it ends
the call, so that nothing that was asked behind it is done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..flight.wire import error_of, pack_error
from . import ends
from .ends import Batch, Full, Item, Later, Position, Refused

__all__ = [
    "SCHEMA", "failure_of", "is_failure", "items_of", "pack_failure", "pack_items", "pack_position",
    "unpack_position",
]  # fmt: skip

SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "properties": pa.binary(),
        "exchange": pa.binary(),
        "routing_key": pa.binary(),
        "redelivered": pa.bool_(),
        "place": pa.binary(),
    }
)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def pack_items(items: Sequence[Item]) -> pa.RecordBatch:
    """A row for each."""
    columns = (
        [item.body for item in items],
        [item.properties for item in items],
        [_bytes(item.exchange) for item in items],
        [_bytes(item.routing_key) for item in items],
        [item.redelivered for item in items],
        [item.place for item in items],
    )
    arrays = [pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def items_of(batch: pa.RecordBatch | None, tag: int) -> list[Item]:
    """The same at the other end, all with one tag."""
    if batch is None:
        return []
    columns = [column.to_pylist() for column in batch.columns]
    return [
        Item(body, properties, _text(exchange), _text(key), redelivered, tag, place)
        for body, properties, exchange, key, redelivered, place in zip(*columns, strict=True)
    ]


def pack_position(position: Position | None) -> Any:
    """For JSON."""
    return None if position is None else ends.pack_position(position)


def unpack_position(told: Any) -> Position | None:
    """The same at the other end."""
    return None if told is None else ends.unpack_position(told)


def pack_failure(error: Exception) -> dict[str, Any]:
    """An exception of an end."""
    if isinstance(error, Refused):
        return {"refused": {str(index): reason for index, reason in error.reasons.items()}}
    if isinstance(error, Full):
        return {"full": str(error)}
    if isinstance(error, Later):
        return {"later": str(error)}
    return {"error": pack_error(error).decode()}


def is_failure(told: dict[str, Any]) -> bool:
    """Whether an answer tells of an exception."""
    return any(name in told for name in ("refused", "full", "later", "error"))


def failure_of(told: dict[str, Any], batch: Batch | None) -> Exception | None:
    """The exception that an answer tells of; ``batch``: what was asked about."""
    if "refused" in told:
        assert batch is not None
        return Refused(batch, {int(index): reason for index, reason in told["refused"].items()})
    if "full" in told:
        return Full(told["full"])
    if "later" in told:
        return Later(told["later"])
    if "error" in told:
        return error_of(told["error"].encode()) or Later(json.dumps(told["error"]))
    return None
