"""Counters of channels, exchanges and queues, as dicts by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from .listings import text_of

__all__ = ["Counters", "Counts", "counters_of"]

Counts: TypeAlias = dict[str, int]

_DELIVER_GET = ("deliver", "deliver_no_ack", "get", "get_no_ack")


class Counters(NamedTuple):
    """By number, by name, by name, by the names of exchange and queue; and of all channels."""

    channels: dict[int, Counts]
    exchanges: dict[str, Counts]
    queues: dict[str, Counts]
    routes: dict[str, dict[str, Counts]]
    all_channels: Counts


def counters_of(
    names: Sequence[Sequence[str]], rows: Iterable[tuple[bytes, bytes, bytes, bytes, bytes]]
) -> Counters:
    """What ``_core.Store._counts`` has listed."""
    counters = Counters({}, {}, {}, {}, {})
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
            case _:
                counters.routes.setdefault(text_of(exchange), {})[text_of(queue)] = counts
    return counters


def _number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)
