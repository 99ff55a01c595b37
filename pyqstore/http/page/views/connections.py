"""Connections and channels."""

from __future__ import annotations

from typing import Any

from ...clients import ChannelRow, ConnectionRow, channels_of, connections_of
from .arguments import text_of
from .look import Look

__all__ = ["connections"]

_ROWS = 25
_CHANNELS = 200


def connections(look: Look) -> dict[str, Any]:
    """A page of the connections, and their channels.  A user who is no monitor sees only its
    own."""
    sees_all = look.login.has("monitoring")
    rows = [
        row
        for row in connections_of(look.store)
        if sees_all or (row.client and row.user == look.login.name)
    ]
    page = look.page(len(rows), _ROWS)
    shown = {row.number: _name(row) for row in page.of_rows(rows)}
    channels = [row for row in channels_of(look.store) if row.connection in shown]
    return {
        "connections": [_connection(row) for row in page.of_rows(rows)],
        "channels": [_channel(look, row, shown[row.connection]) for row in channels[:_CHANNELS]],
        "total": len(rows),
        "page": page.number,
        "pages": page.pages,
    }


def _name(row: ConnectionRow) -> str:
    return row.peer if row.client else f"this process, {row.number}"


def _connection(row: ConnectionRow) -> dict[str, Any]:
    words = [row.properties.get(name) for name in ("connection_name", "product", "version")]
    return {
        "key": row.number,
        "name": _name(row),
        "user": row.user,
        "client": " ".join(text_of(word) for word in words if word),
        "opened_s": row.opened_us / 1e6,
        "channels": row.channels,
    }


def _channel(look: Look, row: ChannelRow, connection: str) -> dict[str, Any]:
    rates = look.view.channel(row.number)
    mode = "confirm" if row.confirms else "transactional" if row.transactional else ""
    return {
        "key": row.number,
        "number": row.client_number or row.number,
        "connection": connection,
        "mode": mode,
        "prefetch": row.prefetch,
        "prefetch_channel": row.prefetch_channel,
        "unacked": row.unacked,
        "unconfirmed": row.unconfirmed,
        "consumers": row.consumers,
        "publish_rate": rates.get("publish", 0.0),
        "deliver_rate": rates.get("deliver_get", 0.0),
        "ack_rate": rates.get("ack", 0.0),
    }
