"""Counters of channels, exchanges and queues, as dicts by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .listings import text_of

__all__ = ["Counters", "Counts", "counters_of"]

Counts: TypeAlias = dict[str, int]

_DELIVER_GET = ("deliver", "deliver_no_ack", "get", "get_no_ack")


class Counters(NamedTuple):
    """By number, by name, by name, by the names of exchange and queue; of all channels, and by the
    number of connections."""

    channels: dict[int, Counts]
    exchanges: dict[str, Counts]
    queues: dict[str, Counts]
    routes: dict[str, dict[str, Counts]]
    all_channels: Counts
    connections: dict[int, Counts]

    def flat(self) -> dict[str, dict[Any, Counts]]:
        """As ``Store.counters()`` has them."""
        return {
            "exchanges": {name: _exchange(counts) for name, counts in self.exchanges.items()},
            "queues": self.queues,
            "queue_exchange": {
                (queue, exchange): counts
                for exchange, queues in self.routes.items()
                for queue, counts in queues.items()
            },
            "channels": self.channels,
            "connections": self.connections,
        }


def _exchange(counts: Counts) -> Counts:
    unroutable = counts["return_unroutable"] + counts["drop_unroutable"]
    return {"publish": counts["publish_in"], "unroutable": unroutable, **counts}


def counters_of(
    names: Sequence[Sequence[str]], rows: Iterable[tuple[bytes, bytes, bytes, bytes, bytes]]
) -> Counters:
    """What ``_core.Store._counts`` has listed."""
    counters = Counters({}, {}, {}, {}, {}, {})
    for of, channel, exchange, queue, values in rows:
        kind = _number(of)
        counts = dict(zip(names[kind], memoryview(values).cast("Q"), strict=True))
        if "deliver" in counts:
            counts["deliver_get"] = sum(counts[name] for name in _DELIVER_GET)
        match kind:
            case 0:
                counters.channels[_number(channel)] = counts
            case 1:
                counters.exchanges[text_of(exchange)] = counts
            case 2:
                counters.queues[text_of(queue)] = counts
            case 4:
                counters.all_channels.update(counts)
            case 5:
                counters.connections[_number(channel)] = counts
            case _:
                counters.routes.setdefault(text_of(exchange), {})[text_of(queue)] = counts
    return counters


def _number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)
