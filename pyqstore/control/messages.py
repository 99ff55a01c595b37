"""Messages sent between an owner and a tool, many in a frame, without loss of any property."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..message import Message
from ..properties import Properties
from .wire import Report

__all__ = ["PACK_BYTES", "PACK_MESSAGES", "Seen", "packed", "packs_of", "seen", "unpacked"]

PACK_MESSAGES = 500
PACK_BYTES = 1 << 20


@dataclass(frozen=True)
class Seen:
    """A message outside of its queue."""

    body: bytes
    properties: Properties
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False
    delivery_count: int = 0
    position: int = 0
    """The position in the queue or stream."""
    state: str = "ready"
    """One of "ready", "unacked", "delayed"."""
    time_us: int | None = None
    """The publication time, in microseconds since 1970, of a message of a stream, if it was
    requested."""

    @property
    def bytes(self) -> int:
        """Its approximate size."""
        return len(self.body) + len(self.properties.encoded)


def seen(message: Message, state: str = "ready", time_us: int | None = None) -> Seen:
    """Converts a message that was delivered or browsed."""
    return Seen(
        message.body,
        message.properties,
        message.exchange,
        message.routing_key,
        message.redelivered,
        message.delivery_count,
        message.delivery_tag,
        state,
        time_us,
    )


def packed(messages: Iterable[Seen]) -> tuple[Report, bytes]:
    """Encodes messages as a frame."""
    rows = []
    parts = []
    for each in messages:
        encoded = each.properties.encoded
        rows.append(
            [
                len(encoded),
                len(each.body),
                each.exchange,
                each.routing_key,
                each.redelivered,
                each.delivery_count,
                each.position,
                each.state,
                each.time_us,
            ]
        )
        parts += [encoded, each.body]
    return {"messages": rows}, b"".join(parts)


def packs_of(messages: Iterable[Seen]) -> Iterator[list[Seen]]:
    """Divides messages into packs, one for each frame."""
    pack: list[Seen] = []
    count = 0
    for message in messages:
        pack.append(message)
        count += message.bytes
        if len(pack) >= PACK_MESSAGES or count >= PACK_BYTES:
            yield pack
            pack, count = [], 0
    if pack:
        yield pack


def unpacked(report: Report, payload: bytes) -> list[Seen]:
    """Decodes the messages of a frame.  ValueError: it is invalid."""
    found = []
    begin = 0
    for encoded_bytes, body_bytes, *rest in report["messages"]:
        middle = begin + encoded_bytes
        end = middle + body_bytes
        if not begin <= middle <= end <= len(payload):
            raise ValueError("a frame of messages is not whole")
        found.append(Seen(payload[middle:end], Properties.decode(payload[begin:middle]), *rest))
        begin = end
    return found
