"""The users of a store, as the engine lists them: connections, channels, consumers, queues."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..fields import decode_table
from ..listings import QueueRow, queues_of, text_of

__all__ = [
    "ChannelRow",
    "ConnectionRow",
    "ConsumerRow",
    "QueueRow",
    "address_parts",
    "channels_of",
    "connections_of",
    "consumers_of",
    "queues_of",
]


class ConnectionRow(NamedTuple):
    """A connection.  ``client`` 0: it belongs to this process; otherwise the other fields are
    set."""

    number: int
    opened_us: int
    channels: int
    client: int
    frame_max: int
    channel_max: int
    heartbeat_s: int
    peer: str
    user: str
    mechanism: str
    properties: dict[str, Any]


class ChannelRow(NamedTuple):
    """A channel.  ``client_number``: the client's number of it; 0: there is none."""

    number: int
    connection: int
    client_number: int
    prefetch: int
    prefetch_channel: int
    consumers: int
    unacked: int
    unconfirmed: int
    messages_uncommitted: int
    acks_uncommitted: int
    confirms: bool
    transactional: bool


class ConsumerRow(NamedTuple):
    """A consumer.  ``channel``: the number of its channel in the store."""

    channel: int
    priority: int
    prefetch: int
    unacked: int
    no_ack: bool
    exclusive: bool
    is_active: bool
    is_slow: bool
    queue: str
    tag: str


def address_parts(address: str) -> tuple[str, int]:
    """Host and port; the whole address and 0 if it has no port."""
    host, _, port = address.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdigit() else (address, 0)


def connections_of(store: _core.Store) -> list[ConnectionRow]:
    """The open connections, by number."""
    found = []
    for packed, peer, user, mechanism, properties in store._connections():
        texts = (text_of(peer), text_of(user), text_of(mechanism))
        fields = (*memoryview(packed).cast("Q"), *texts, decode_table(properties))
        found.append(ConnectionRow._make(fields))
    return sorted(found, key=lambda row: row.number)


def channels_of(store: _core.Store) -> list[ChannelRow]:
    """The open channels, by number."""
    found = []
    for (packed,) in store._channels():
        *numbers, confirms, transactional = memoryview(packed).cast("Q")
        found.append(ChannelRow._make((*numbers, bool(confirms), bool(transactional))))
    return sorted(found, key=lambda row: row.number)


def consumers_of(store: _core.Store) -> list[ConsumerRow]:
    """All consumers, by channel."""
    found = []
    for packed, queue, tag in store._consumers():
        *numbers, no_ack, exclusive, active, slow = memoryview(packed).cast("q")
        flags = (bool(no_ack), bool(exclusive), bool(active), bool(slow))
        found.append(ConsumerRow._make((*numbers, *flags, text_of(queue), text_of(tag))))
    return sorted(found, key=lambda row: row.channel)
