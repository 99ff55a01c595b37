"""The store's rates, its journal and its disk, and its memory."""

from __future__ import annotations

import heapq
import os
import sys
from collections import Counter
from typing import Any

from .... import store as _store
from ...clients import QueueRow, queues_of
from .look import Look

__all__ = ["overview"]

_SHORTEST_US = 16
_SHOWN = 8


def overview(look: Look) -> dict[str, Any]:
    """Points since the last request, and current figures."""
    stats = look.view.stats
    rows = list(queues_of(look.store))
    return {
        "points": look.history.since(look.last),
        "begins": look.last == 0,
        "last": look.history.last,
        "store": {
            **{name: stats[name] for name in _TOLD},
            "path": look.store.path,
            "sync": str(stats.sync),
            "queues": len(rows),
            "commit": dict(stats.commit_latency_us),
            "confirm": dict(stats.confirm_latency_us),
            "not_durable": stats.appended_lsn - stats.durable_lsn,
            "since_checkpoint": stats.appended_lsn - stats.checkpoint_lsn,
            "checkpoint_bytes": look.store.options["checkpoint_bytes"],
            "commit_histogram": _latencies(look.store),
            **_space(look.store),
        },
        "memory": {
            "bytes": stats.ram_bytes,
            "budget": look.store.options["memory_budget"],
            "queues": _largest(rows),
            "beside_queues": max(0, stats.ram_bytes - sum(row.ram_bytes for row in rows)),
        },
    }


_TOLD = (
    "bytes_checkpointed",
    "checkpoints",
    "commits",
    "commit_running_ms",
    "failed",
    "filesystem",
    "filesystem_kind",
    "message_bytes_live",
    "message_bytes_total",
    "messages_dead_lettered",
    "messages_expired",
    "messages_paged_in",
    "messages_paged_out",
    "recovered_messages",
    "recovery_ms",
)


def _latencies(store: _store.Store) -> list[tuple[int, int]]:
    """Commits by duration: an upper limit in microseconds, and the count.  Each bucket is twice as
    long as the previous one; from the first that is not empty to the last."""
    counts: Counter[int] = Counter()
    for most_bytes, count_bytes in store._latencies(False):
        most, count = (int.from_bytes(each, sys.byteorder) for each in (most_bytes, count_bytes))
        counts[max(most, _SHORTEST_US).bit_length()] += count
    if not counts:
        return []
    return [(1 << bits, counts[bits]) for bits in range(min(counts), max(counts) + 1)]


def _space(store: _store.Store) -> dict[str, int]:
    """The space of the file system; 0 without one."""
    if store.directory == ":memory:":
        return {"disk_total": 0, "disk_free": 0}
    found = os.statvfs(store.directory)
    return {
        "disk_total": found.f_blocks * found.f_frsize,
        "disk_free": found.f_bavail * found.f_frsize,
    }


def _largest(rows: list[QueueRow]) -> list[dict[str, Any]]:
    """The queues with the most bytes in memory."""
    found = heapq.nsmallest(_SHOWN, rows, key=lambda row: (-row.ram_bytes, row.name))
    return [
        {"name": row.name, "ram_bytes": row.ram_bytes, "ready": row.ready}
        for row in found
        if row.ram_bytes > 0
    ]
