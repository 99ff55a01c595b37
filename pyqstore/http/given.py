"""Values from clients: JSON, and the names of a message's properties."""

from __future__ import annotations

import json
import math
from typing import Any, Never

__all__ = ["PROPERTIES", "PROPERTY_NUMBERS", "loads"]

PROPERTY_NUMBERS = ("delivery_mode", "priority", "timestamp")
PROPERTIES = (
    *("content_type", "content_encoding", "headers", *PROPERTY_NUMBERS, "correlation_id"),
    *("reply_to", "expiration", "message_id", "type", "user_id", "app_id", "cluster_id"),
)


def loads(data: str | bytes) -> Any:
    """The value of a JSON text.  ValueError, RecursionError: it is invalid; unlike Python's own
    reader, this refuses numbers that are not finite."""
    return json.loads(data, parse_float=_finite, parse_constant=_refuse)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


def _refuse(text: str) -> Never:
    raise ValueError(f"{text:.40} is no number of JSON that can be kept")
