"""Tables of arguments as texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["text_of", "texts_of"]

_TEXT_MAX = 300


def text_of(value: Any) -> str:
    """A value as short JSON, as far as JSON can represent it."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"


def texts_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The texts by name."""
    return {name: text_of(value) for name, value in arguments.items()}
