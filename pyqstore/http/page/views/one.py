"""Data of one queue that the store's list of queues does not have."""

from __future__ import annotations

from typing import Any

from .... import store as _store
from ....errors import NotFound
from ....fields import decode_table
from ....figures import QueueStatus
from ...clients import QueueRow

__all__ = ["arguments_of", "is_stream", "status_of"]


def arguments_of(row: QueueRow) -> dict[str, Any]:
    """The arguments of its declaration."""
    return decode_table(row.arguments)


def is_stream(row: QueueRow) -> bool:
    """Whether it was declared as a stream; most argument tables need not be decoded for that."""
    return b"stream" in row.arguments and arguments_of(row).get("x-queue-type") == "stream"


def status_of(store: _store.Store, name: str) -> QueueStatus | None:
    """None: it was deleted meanwhile."""
    try:
        return store.queue_status(name)
    except NotFound:
        return None
