"""Streams, and the groups that read them."""

from __future__ import annotations

import sys
from typing import Any

from .... import _core
from .... import store as _store
from ....errors import Error
from ....figures import QueueStatus
from ....listings import text_of
from ...clients import queues_of
from .look import Look
from .one import is_stream, status_of

__all__ = ["streams"]

_ROWS = 25
_GROUPS = 20


def streams(look: Look) -> dict[str, Any]:
    """A page of the streams."""
    names = sorted(each.name for each in queues_of(look.store) if is_stream(each))
    page = look.page(len(names), _ROWS)
    shown = (_row(look, name) for name in page.of_rows(names))
    return {
        "rows": [row for row in shown if row is not None],
        "total": len(names),
        "page": page.number,
        "pages": page.pages,
    }


def _row(look: Look, name: str) -> dict[str, Any] | None:
    status = status_of(look.store, name)
    if status is None:
        return None
    try:
        last_us = _core.stream_status(look.store, name)["last_time_us"]
        groups = _groups(look.store, name, status)
    except Error:  # it was deleted meanwhile
        return None
    return {
        "name": name,
        "first": status.first,
        "next": status.next,
        "segments": status.segments,
        "disk_bytes": status.disk_bytes,
        "last_s": last_us / 1e6,
        "publish_rate": look.view.queue(name).get("publish", 0.0),
        "groups": groups,
    }


def _groups(store: _store.Store, name: str, status: QueueStatus) -> list[dict[str, Any]]:
    """The groups furthest behind first: their offsets, and the numbers of messages from there
    on."""
    found = [
        (text_of(group), int.from_bytes(offset, sys.byteorder))
        for group, offset in _core.stream_cursors(store, name)
    ]
    found.sort(key=lambda each: (each[1], each[0]))
    return [
        {
            "name": group,
            "offset": offset,
            "lag": max(status.next - max(offset, status.first), 0),
        }
        for group, offset in found[:_GROUPS]
    ]
