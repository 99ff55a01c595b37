"""The declarations of a store, in the form of RabbitMQ's definitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from .. import store as _store
from ..channel.arguments import START
from ..fields import decode_table
from ..listings import Binding, queues_of
from ..times import time_text

__all__ = ["binding_entry", "declared", "plain"]


def declared(store: _store.Store) -> dict[str, list[dict[str, Any]]]:
    """Queues, exchanges and bindings, without predeclared ones and those of a connection.  Entries
    have no virtual host."""
    queues = list(_queues(store))
    names = {each["name"] for each in queues}
    return {
        "queues": queues,
        "exchanges": list(_exchanges(store)),
        "bindings": [
            binding_entry(each)
            for each in store.bindings()
            if each.to_exchange or each.destination in names
        ],
    }


def _queues(store: _store.Store) -> Iterator[dict[str, Any]]:
    for row in sorted(queues_of(store), key=lambda row: row.name):
        if not row.exclusive:
            yield {
                "name": row.name,
                "durable": row.durable,
                "auto_delete": row.auto_delete,
                "arguments": _arguments(row.arguments),
            }


def _arguments(encoded: bytes) -> dict[str, Any]:
    """The start of a work queue is text: a number would be an offset."""
    arguments = decode_table(encoded)
    start = arguments.get(START)
    if isinstance(start, datetime):
        arguments[START] = time_text(start)
    told: dict[str, Any] = plain(arguments)
    return told


def _exchanges(store: _store.Store) -> Iterator[dict[str, Any]]:
    for info in store.exchanges().values():
        if info.name and not info.name.startswith("amq."):
            yield {**info._asdict(), "arguments": plain(info.arguments)}


def binding_entry(binding: Binding) -> dict[str, Any]:
    """A binding."""
    return {
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": "exchange" if binding.to_exchange else "queue",
        "routing_key": binding.routing_key,
        "arguments": plain(binding.arguments),
    }


def plain(value: Any) -> Any:
    """A value of a field table as JSON: bytes as text, times in seconds."""
    match value:
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return plain(float(value))
        case float() if not math.isfinite(value):
            return None
    return value
