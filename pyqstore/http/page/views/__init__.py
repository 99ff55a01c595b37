"""The data of each view: one function each, from a store and its figures to plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .connections import connections
from .exchanges import exchanges
from .look import Look
from .overview import overview
from .queues import queue, queues
from .streams import streams

__all__ = ["VIEWS", "Look"]

VIEWS: dict[str, Callable[[Look], dict[str, Any]]] = {
    "overview": overview,
    "queues": queues,
    "queue": queue,
    "streams": streams,
    "exchanges": exchanges,
    "connections": connections,
}
"""The page's views by name."""
