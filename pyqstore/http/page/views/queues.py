"""Queues: a page of all, and one."""

from __future__ import annotations

import math
import time
from typing import Any

from .... import store as _store
from ....errors import Error
from ....figures import QueueStatus
from ....listings import Binding
from ....peeking import peeks
from ...clients import QueueRow, queues_of
from .arguments import texts_of
from .bound import bound
from .look import Look
from .one import arguments_of, status_of

__all__ = ["queue", "queues"]

_ROWS = 25
_STATES = ("alpha", "beta", "gamma", "delta")
_PARTS = ("q1", "q2", "delta_len", "q3", "q4")
_FLAGS = ("durable", "exclusive", "auto_delete", "lazy", "stream")
_BYTES = ("ram_bytes", "disk_bytes")


def queues(look: Look) -> dict[str, Any]:
    """A page of the queues, filtered by name."""
    rows = list(queues_of(look.store))
    wanted = look.asked("filter").casefold()
    matching = [row for row in rows if wanted in row.name.casefold()] if wanted else rows
    matching.sort(key=lambda row: row.name)
    _sort(look, matching)
    page = look.page(len(matching), _ROWS)
    shown = (row_of(look, row.name) for row in page.of_rows(matching))
    return {
        "rows": [row for row in shown if row is not None],
        "total": len(rows),
        "matched": len(matching),
        "page": page.number,
        "pages": page.pages,
    }


def _sort(look: Look, rows: list[QueueRow]) -> None:
    """Equal rows stay in the order of their names."""
    is_down = look.asked("descending") == "yes"
    match look.asked("sort", "name"):
        case "name":
            if is_down:
                rows.reverse()
        case "ready":
            rows.sort(key=lambda row: row.ready, reverse=is_down)
        case "unacked":
            rows.sort(key=lambda row: row.unacked, reverse=is_down)
        case "consumers":
            rows.sort(key=lambda row: row.consumers, reverse=is_down)
        case "memory":
            rows.sort(key=lambda row: row.ram_bytes, reverse=is_down)
        case "publish":
            rows.sort(key=lambda row: _rate(look, row.name, "publish"), reverse=is_down)
        case "deliver":
            rows.sort(key=lambda row: _rate(look, row.name, "deliver_get"), reverse=is_down)
        case other:
            raise ValueError(f"queues are not sorted by {other!r}")


def _rate(look: Look, name: str, counter: str) -> float:
    now = look.view.now.stats.queues.get(name, {}).get(counter, 0)
    before = look.view.before.stats.queues.get(name, {}).get(counter, 0)
    return look.view.rate(now, before)


def queue(look: Look) -> dict[str, Any]:
    """One queue, its bindings and its arguments; ``gone``: there is none."""
    name = look.asked("name")
    row = row_of(look, name)
    if row is None:
        return {"gone": True}
    rows = (each for each in queues_of(look.store) if each.name == name)
    arguments = next((arguments_of(each) for each in rows), {})
    return {
        "row": row,
        "arguments": texts_of(arguments),
        "bindings": [bound(each) for each in _bindings(look.store, name)],
    }


def _bindings(store: _store.Store, name: str) -> list[Binding]:
    """Its bindings, without that of the default exchange, which every queue has."""
    return [
        each
        for each in store.bindings()
        if each.destination == name and not each.to_exchange and each.source
    ]


def row_of(look: Look, name: str) -> dict[str, Any] | None:
    """None: there is no such queue."""
    status = status_of(look.store, name)
    if status is None:
        return None
    counts = look.view.now.stats.queues.get(name, {})
    return {
        "name": name,
        "ready": status.messages_ready,
        "unacked": status.messages_unacked,
        "delayed": status.messages_delayed,
        "consumers": status.consumers,
        "slow_consumers": status.slow_consumers,
        **{key: status[key] for key in (*_STATES, *_PARTS, *_FLAGS, *_BYTES)},
        "target_ram_count": (
            int(status.target_ram_count) if math.isfinite(status.target_ram_count) else None
        ),
        "publish_rate": _rate(look, name, "publish"),
        "deliver_rate": _rate(look, name, "deliver_get"),
        "ack_rate": _rate(look, name, "ack"),
        "expired": counts.get("expired", 0),
        "dead_lettered": counts.get("dead_lettered", 0),
        "refused": counts.get("refused", 0),
        "redelivered": counts.get("redeliver", 0),
        "head_age_s": _head_age_s(look.store, name, status),
    }


def _head_age_s(store: _store.Store, name: str, status: QueueStatus) -> float | None:
    """The age of the first message, by its timestamp; None: it has none, or the body would have to
    be read from the disk."""
    if status.stream or status.alpha == 0 or status.messages_ready == 0:
        return None
    try:
        first = next(peeks(store, name, lambda _: None), None)
    except Error:
        return None
    made = None if first is None else first[0].properties.timestamp
    return None if made is None else max(time.time() - made, 0.0)
