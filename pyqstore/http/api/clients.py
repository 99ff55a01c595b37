"""/api/connections, /api/channels, /api/consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from ... import store as _store
from ...serve.declared import plain
from ..clients import (
    ChannelRow,
    ConnectionRow,
    ConsumerRow,
    QueueRow,
    address_parts,
    channels_of,
    connections_of,
    consumers_of,
)
from ..context import Context
from ..errors import BadRequest, Missing
from ..node import NODE
from .calls import Call, done, resource
from .figures import message_stats
from .lists import listed

__all__ = ["consumers_by_queue", "owners", "routes"]

Item = dict[str, Any]


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("connections", context, GET=_connections),
        resource("connections/{name}", context, GET=_connection, DELETE=_close),
        resource("connections/{name}/channels", context, GET=_channels_of_one),
        resource("vhosts/{vhost}/connections", context, GET=_connections),
        resource("channels", context, GET=_channels),
        resource("channels/{name}", context, GET=_channel),
        resource("vhosts/{vhost}/channels", context, GET=_channels),
        resource("consumers", context, GET=_consumers),
        resource("consumers/{vhost}", context, GET=_consumers),
    ]


# ---- connections ----


def _name(context: Context, row: ConnectionRow) -> str:
    return context.connection_name(row.number, row.client, row.peer)


def _seen_connections(call: Call) -> list[tuple[str, ConnectionRow]]:
    """The connections of all virtual hosts that the user may see; of its own only, unless the user
    is a monitor."""
    everybody = call.login.has("monitoring")
    return [
        (vhost, row)
        for vhost, store in call.seen().items()
        for row in connections_of(store)
        if everybody or row.user == call.login.name
    ]


def _connection_item(context: Context, vhost: str, row: ConnectionRow) -> Item:
    peer_host, peer_port = address_parts(row.peer)
    places = context.amqp_addresses()
    host, port = address_parts(places[0]) if places and row.client else ("", 0)
    return {
        "name": _name(context, row),
        "vhost": vhost,
        "user": row.user,
        "user_who_performed_action": row.user,
        "node": NODE,
        "state": "running",
        "type": "network" if row.client else "direct",
        "protocol": "AMQP 0-9-1" if row.client else "Direct 0-9-1",
        "auth_mechanism": row.mechanism,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "host": host,
        "port": port,
        "channels": row.channels,
        "channel_max": row.channel_max,
        "frame_max": row.frame_max,
        "timeout": row.heartbeat_s,
        "connected_at": row.opened_us // 1000,
        "client_properties": plain(row.properties),
    }


def _connections(call: Call) -> Any:
    rows = _seen_connections(call)
    return listed(call, (_connection_item(call.context, *each) for each in rows))


def _found(call: Call) -> tuple[str, ConnectionRow]:
    """BadRequest: several connections have the name, such as those of this process in several
    virtual hosts."""
    name = call.name("name")
    found = [each for each in _seen_connections(call) if _name(call.context, each[1]) == name]
    if not found:
        raise Missing
    if len(found) > 1:
        raise BadRequest(f"{len(found)} connections are called {name!r}")
    return found[0]


def _connection(call: Call) -> Any:
    return _connection_item(call.context, *_found(call))


def _close(call: Call) -> Any:
    """Closes a client's connection with connection.close.  Connections of this process are closed
    only by the program.  Users who may only look at others' connections may not close them."""
    _, row = _found(call)
    if not row.client:
        raise Missing
    if row.user != call.login.name:
        call.login.require("administrator")
    call.context.end_connection(row.client)
    return done()


# ---- channels ----


def _channel_name(context: Context, connection: ConnectionRow, row: ChannelRow) -> str:
    return f"{_name(context, connection)} ({row.client_number or row.number})"


def _seen_channels(call: Call) -> list[tuple[str, ConnectionRow, ChannelRow]]:
    connections = {(vhost, row.number): row for vhost, row in _seen_connections(call)}
    return [
        (vhost, connections[vhost, row.connection], row)
        for vhost, store in call.seen().items()
        for row in channels_of(store)
        if (vhost, row.connection) in connections
    ]


def _channel_item(call: Call, vhost: str, connection: ConnectionRow, row: ChannelRow) -> Item:
    view = call.context.sampler.look(vhost)
    peer_host, peer_port = address_parts(connection.peer)
    counts, rates = view.stats.channels.get(row.number, {}), view.channel(row.number)
    stats = message_stats(counts, rates, of_publisher=True)
    item = {
        "name": _channel_name(call.context, connection, row),
        "number": row.client_number or row.number,
        "vhost": vhost,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "node": NODE,
        "state": "running",
        "connection_details": {
            "name": _name(call.context, connection),
            "peer_host": peer_host,
            "peer_port": peer_port,
        },
        "confirm": row.confirms,
        "transactional": row.transactional,
        "consumer_count": row.consumers,
        "prefetch_count": row.prefetch,
        "global_prefetch_count": row.prefetch_channel,
        "messages_unacknowledged": row.unacked,
        "messages_unconfirmed": row.unconfirmed,
        "messages_uncommitted": row.messages_uncommitted,
        "acks_uncommitted": row.acks_uncommitted,
    }
    return item | ({"message_stats": stats} if stats else {})


def _channels(call: Call) -> Any:
    return listed(call, [_channel_item(call, *each) for each in _seen_channels(call)])


def _channels_of_one(call: Call) -> Any:
    vhost, row = _found(call)
    rows = [
        each for each in _seen_channels(call) if (each[0], each[1].number) == (vhost, row.number)
    ]
    return listed(call, [_channel_item(call, *each) for each in rows])


def _channel(call: Call) -> Any:
    for vhost, connection, row in _seen_channels(call):
        if _channel_name(call.context, connection, row) == call.name("name"):
            details = [
                _consumer_item(call.context, vhost, connection, row, consumer)
                for consumer in consumers_of(call.context.stores()[vhost])
                if consumer.channel == row.number
            ]
            return _channel_item(call, vhost, connection, row) | {"consumer_details": details}
    raise Missing


# ---- consumers ----


def _consumer_item(
    context: Context, vhost: str, connection: ConnectionRow, channel: ChannelRow, row: ConsumerRow
) -> Item:
    peer_host, peer_port = address_parts(connection.peer)
    return {
        "consumer_tag": row.tag,
        "queue": {"name": row.queue, "vhost": vhost},
        "ack_required": not row.no_ack,
        "exclusive": row.exclusive,
        "active": row.is_active,
        "activity_status": "up" if row.is_active else "waiting",
        "prefetch_count": row.prefetch,
        "arguments": {"x-priority": row.priority} if row.priority else {},
        "channel_details": {
            "name": _channel_name(context, connection, channel),
            "number": channel.client_number or channel.number,
            "connection_name": _name(context, connection),
            "node": NODE,
            "peer_host": peer_host,
            "peer_port": peer_port,
            "user": connection.user,
        },
    }


def _consumer_items(context: Context, vhost: str, store: _store.Store) -> list[Item]:
    connections = {row.number: row for row in connections_of(store)}
    channels = {row.number: row for row in channels_of(store)}
    found = []
    for row in consumers_of(store):
        channel = channels.get(row.channel)
        connection = None if channel is None else connections.get(channel.connection)
        if channel is not None and connection is not None:  # otherwise it was closed meanwhile
            found.append(_consumer_item(context, vhost, connection, channel, row))
    return found


def _consumers(call: Call) -> Any:
    seen = call.seen().items()
    items = [each for vhost, store in seen for each in _consumer_items(call.context, vhost, store)]
    return listed(call, items)


def consumers_by_queue(context: Context, vhost: str, store: _store.Store) -> dict[str, list[Item]]:
    """The consumers of a store, by queue."""
    found: dict[str, list[Item]] = {}
    for item in _consumer_items(context, vhost, store):
        found.setdefault(item["queue"]["name"], []).append(item)
    return found


def owners(store: _store.Store, queue: QueueRow) -> Item:
    """The owner of an exclusive queue; {} for others."""
    for row in connections_of(store) if queue.owner else ():
        if row.number == queue.owner:
            host, port = address_parts(row.peer)
            return {"owner_pid_details": {"name": row.peer, "peer_host": host, "peer_port": port}}
    return {}
