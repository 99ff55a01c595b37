"""Counters and rates, with the names of RabbitMQ's ``message_stats``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["message_stats", "with_rate"]

_OWN = ("expired", "dead_lettered", "refused", "reject", "requeue")  # RabbitMQ does not have these


def message_stats(
    counts: Mapping[str, int], rates: Mapping[str, float], *, of_publisher: bool = False
) -> dict[str, Any]:
    """Each counter, and its rate as NAME_details; {} if nothing was counted.  Confirms are those of
    publishers and of their sums: RabbitMQ does not count any for queues or exchanges."""
    if not any(counts.values()):
        return {}
    found: dict[str, Any] = {}
    for name, count in counts.items():
        if (name not in _OWN or count) and (of_publisher or name != "confirm"):
            found |= with_rate(name, count, rates.get(name, 0.0))
    return found


def with_rate(name: str, value: float, rate: float) -> dict[str, Any]:
    """A number and its rate, in RabbitMQ's form."""
    return {name: value, f"{name}_details": {"rate": rate}}
