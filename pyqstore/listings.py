"""What a store lists of itself: queues, exchanges, bindings; what a channel's confirms wait for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import _core
from .fields import decode_table

__all__ = [
    "Binding",
    "ExchangeInfo",
    "Publishes",
    "QueueRow",
    "Unconfirmed",
    "bindings_of",
    "exchanges_of",
    "printable",
    "queues_of",
    "text_of",
    "unconfirmed_of",
]


class Publishes(NamedTuple):
    """Publishes that follow each other and went the same way; of a batch all of its numbers, and
    the queues of all rows that this exchange took."""

    numbers: range
    exchange: str
    queues: list[str]


class Unconfirmed(NamedTuple):
    """What the confirms of a channel wait for: publish numbers, the names of queues, sorted, and
    which numbers wait for which queues."""

    numbers: list[range]
    queues: list[str]
    publishes: list[Publishes]


def unconfirmed_of(rows: Iterable[tuple[bytes, bytes, bytes, bytes, bytes]]) -> Unconfirmed:
    """Ranges of numbers, neighbours joined, and each queue once."""
    numbers: list[range] = []
    ways: dict[tuple[range, str], list[str]] = {}
    for first_bytes, last_bytes, has_queue, exchange, queue in rows:
        first, last = (int.from_bytes(each, sys.byteorder) for each in (first_bytes, last_bytes))
        if has_queue:
            ways.setdefault((range(first, last + 1), text_of(exchange)), []).append(text_of(queue))
        elif numbers and numbers[-1].stop == first:
            numbers[-1] = range(numbers[-1].start, last + 1)
        else:
            numbers.append(range(first, last + 1))
    publishes = [Publishes(*way, sorted(set(queues))) for way, queues in ways.items()]
    return Unconfirmed(numbers, sorted({each for way in ways.values() for each in way}), publishes)


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


class QueueRow(NamedTuple):
    """A queue.  ``owner``: the connection's number of an exclusive one, else 0."""

    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: bytes
    ready: int
    unacked: int
    delayed: int
    consumers: int
    ram_bytes: int
    owner: int


def queues_of(store: _core.Store) -> Iterator[QueueRow]:
    """All of them, as they were at one moment."""
    for name, durable, exclusive, auto_delete, arguments, ready, packed in store._queues():
        flags = (bool(durable), bool(exclusive), bool(auto_delete))
        numbers = (*memoryview(ready).cast("Q"), *memoryview(packed).cast("Q"))
        yield QueueRow._make((text_of(name), *flags, arguments, *numbers))


def text_of(name: bytes) -> str:
    """A name as str; one that is no UTF-8 keeps its bytes."""
    return name.decode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    """A name for texts that are UTF-8: bytes of it that are not are replaced."""
    if name.isascii():
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
