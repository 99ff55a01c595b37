"""Bindings, and how the page identifies one."""

from __future__ import annotations

import base64
from typing import Any

from ....fields import encode_table
from ....listings import Binding
from .arguments import text_of

__all__ = ["bound"]


def bound(binding: Binding) -> dict[str, Any]:
    """A binding.  ``arguments_raw`` is its table unchanged, because unbinding needs exactly the
    same."""
    return {
        "source": binding.source,
        "destination": binding.destination,
        "to_exchange": binding.to_exchange,
        "routing_key": binding.routing_key,
        "arguments": text_of(binding.arguments) if binding.arguments else "",
        "arguments_raw": base64.b64encode(encode_table(binding.arguments)).decode(),
    }
