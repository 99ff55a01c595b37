"""The destination of rows of a transaction that have no columns for it."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from ..properties import Properties
from .wire import unpack_properties

__all__ = ["Route"]


@dataclass(frozen=True)
class Route:
    """``properties``: in the form of ``wire.pack_properties``."""

    exchange: str = ""
    routing_key: str = ""
    properties: str | None = None

    @classmethod
    def told(
        cls, exchange: str | None, routing_key: str | None, properties: str | None
    ) -> Route | None:
        """From the given arguments.  None: none is given.  TypeError: a name is not text."""
        if exchange is None and routing_key is None and properties is None:
            return None
        return cls.of(exchange, routing_key, properties)

    @classmethod
    def of(cls, exchange: str | None, routing_key: str | None, properties: str | None) -> Route:
        """From arguments; missing ones have the defaults of publishing.  TypeError: a name is not
        text."""
        given = {"exchange": exchange, "routing_key": routing_key, "properties": properties}
        for name, value in given.items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be str, not {type(value).__name__}")
        return cls(exchange or "", routing_key or "", properties)

    @property
    def number(self) -> int:
        """A number that two different routes hardly share, the same in each process."""
        told = [self.exchange, self.routing_key, self.properties]
        return zlib.crc32(json.dumps(told).encode())

    def decoded(self) -> Properties | None:
        """The properties.  ValueError: they are not valid."""
        return unpack_properties(self.properties)
