"""Where the rows of a transaction go that have no column of their own for it."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from ..properties import Properties
from .wire import unpack_properties

__all__ = ["Route"]


@dataclass(frozen=True)
class Route:
    """``properties``: as ``wire.pack_properties`` makes them."""

    exchange: str = ""
    routing_key: str = ""
    properties: str | None = None

    @classmethod
    def told(
        cls, exchange: str | None, routing_key: str | None, properties: str | None
    ) -> Route | None:
        """None: nothing is told.  TypeError: a name is not text."""
        if exchange is None and routing_key is None and properties is None:
            return None
        return cls.of(exchange, routing_key, properties)

    @classmethod
    def of(cls, exchange: str | None, routing_key: str | None, properties: str | None) -> Route:
        """With those that are not told as publishing has them.  TypeError: a name is not text."""
        given = {"exchange": exchange, "routing_key": routing_key, "properties": properties}
        for name, value in given.items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be str, not {type(value).__name__}")
        return cls(exchange or "", routing_key or "", properties)

    @property
    def number(self) -> int:
        """Which two that differ hardly share, the same in each process."""
        told = [self.exchange, self.routing_key, self.properties]
        return zlib.crc32(json.dumps(told).encode())

    def decoded(self) -> Properties | None:
        """The properties.  ValueError: they are none."""
        return unpack_properties(self.properties)
