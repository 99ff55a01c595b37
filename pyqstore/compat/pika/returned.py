"""Returned messages."""

from __future__ import annotations

from .spec import Basic, BasicProperties

__all__ = ["ReturnedMessage"]


class ReturnedMessage:
    """A message that reached no queue, in UnroutableError and NackError."""

    __slots__ = ("body", "method", "properties")

    method: Basic.Return
    properties: BasicProperties
    body: bytes

    def __init__(self, method: Basic.Return, properties: BasicProperties, body: bytes) -> None:
        self.method = method
        self.properties = properties
        self.body = body
