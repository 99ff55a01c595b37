"""JSON as the codec of a queue: ``store.queue("jobs", codec=pyqstore.json)``.

Any module or object with ``dumps`` and ``loads`` can stand in its place.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["content_type", "dumps", "loads"]

content_type = "application/json"


def dumps(value: Any) -> bytes:
    """The value as JSON, in UTF-8.

    TypeError for what JSON has no form for, ValueError for NaN and infinities.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def loads(body: bytes | bytearray | str) -> Any:
    """The value of a body.  ValueError: it is no JSON."""
    return json.loads(body)
