"""What a store lists of itself: exchanges and bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .fields import decode_table

__all__ = ["Binding", "ExchangeInfo", "bindings_of", "exchanges_of", "text_of"]


class ExchangeInfo(NamedTuple):
    """An exchange, as it was declared."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]


class Binding(NamedTuple):
    """A binding.  ``destination`` is a queue, or an exchange if ``to_exchange``."""

    source: str
    destination: str
    routing_key: str
    arguments: dict[str, Any]
    to_exchange: bool


def exchanges_of(
    rows: Iterable[tuple[bytes, bytes, bytes, bytes, bytes, bytes]],
) -> dict[str, ExchangeInfo]:
    """The exchanges by name, sorted."""
    infos = [
        ExchangeInfo(
            text_of(name),
            text_of(kind),
            bool(durable),
            bool(auto_delete),
            bool(internal),
            decode_table(arguments),
        )
        for name, kind, durable, auto_delete, internal, arguments in rows
    ]
    return {info.name: info for info in sorted(infos, key=lambda info: info.name)}


def bindings_of(rows: Iterable[tuple[bytes, bytes, bytes, bytes, bytes]]) -> list[Binding]:
    """The bindings, sorted by source, destination and routing key."""
    bindings = [
        Binding(
            text_of(source),
            text_of(destination),
            text_of(routing_key),
            decode_table(arguments),
            bool(to_exchange),
        )
        for source, destination, routing_key, arguments, to_exchange in rows
    ]
    return sorted(bindings, key=lambda binding: binding[:3])


def text_of(name: bytes) -> str:
    """A name as str; one that is no UTF-8 keeps its bytes."""
    return name.decode("utf-8", "surrogateescape")
