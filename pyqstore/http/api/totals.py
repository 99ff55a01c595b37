"""Sums over stores: for a virtual host, and for all."""

from __future__ import annotations

from typing import Any

from ..sampler import Sample, View
from .figures import message_stats, with_rate

__all__ = ["of_messages", "of_queues"]

# Counters of the whole store, in place of sums over existing objects.
_TOTALS = {
    "publish": "messages_published",
    "confirm": "messages_confirmed",
    "return_unroutable": "messages_returned",
    "disk_reads": "messages_paged_in",
    "disk_writes": "messages_paged_out",
}


def of_messages(views: list[View]) -> dict[str, Any]:
    """Deliveries are sums over queues, publishes are those of stores."""
    counts: dict[str, int] = {}
    rates: dict[str, float] = {}
    for view in views:
        now, before = _counted(view.now), _counted(view.before)
        for name, count in now.items():
            counts[name] = counts.get(name, 0) + count
            rates[name] = rates.get(name, 0.0) + view.growth(count, before.get(name, 0))
    return message_stats(counts, rates, of_publisher=True)


def _counted(sample: Sample) -> dict[str, int]:
    return {
        **sample.of_queues,
        "drop_unroutable": sample.of_exchanges.get("drop_unroutable", 0),
        **{name: sample.stats[total] for name, total in _TOTALS.items()},
    }


def of_queues(views: list[View]) -> dict[str, Any]:
    """The numbers of messages, and their growth per second."""
    ready = sum(view.now.ready for view in views)
    unacked = sum(view.now.unacked for view in views)
    ready_rate = sum(view.rate(view.now.ready, view.before.ready) for view in views)
    unacked_rate = sum(view.rate(view.now.unacked, view.before.unacked) for view in views)
    return {
        **with_rate("messages", ready + unacked, ready_rate + unacked_rate),
        **with_rate("messages_ready", ready, ready_rate),
        **with_rate("messages_unacknowledged", unacked, unacked_rate),
    }
