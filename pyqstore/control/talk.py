"""The two directions of a call, for an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .wire import Report, Wire

__all__ = ["Asked", "LocalTalk", "RemoteTalk", "Talk", "Told"]

Told = Callable[[Report, bytes], object]
"""Called in the tool with each report of an operation."""
Asked = Callable[[Report], tuple[Report, bytes]]
"""Called in the tool with each question of an operation; returns the answer."""


class Talk(Protocol):
    """The connection of an operation to the calling tool."""

    def tell(self, report: Report, payload: bytes | memoryview = b"", /) -> None:
        """Sends a report, in order."""

    def ask(self, report: Report, /) -> tuple[Report, bytes]:
        """Sends a question, and waits for the answer."""

    def check(self) -> None:
        """Raises Gone if the tool has ended."""


class LocalTalk:
    """For an operation in the tool's own process."""

    def __init__(self, told: Told, asked: Asked) -> None:
        self._told = told
        self._asked = asked

    def tell(self, report: Report, payload: bytes | memoryview = b"") -> None:
        """See Talk."""
        self._told(report, bytes(payload))

    def ask(self, report: Report) -> tuple[Report, bytes]:
        """See Talk."""
        return self._asked(report)

    def check(self) -> None:
        """See Talk; the tool exists."""


class RemoteTalk:
    """For an operation in the owner, with the tool at the other end of ``wire``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def tell(self, report: Report, payload: bytes | memoryview = b"") -> None:
        """See Talk."""
        self._wire.send({"tell": report}, payload)

    def ask(self, report: Report) -> tuple[Report, bytes]:
        """See Talk."""
        self._wire.send({"ask": report})
        return self._wire.receive()

    def check(self) -> None:
        """See Talk."""
        self._wire.check()
