"""The two directions of a call, as an operation sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .wire import Report, Wire

__all__ = ["Asked", "LocalTalk", "RemoteTalk", "Talk", "Told"]

Told = Callable[[Report, bytes], object]
"""Called by a tool's end with what an operation tells."""
Asked = Callable[[Report], tuple[Report, bytes]]
"""Called by a tool's end with what an operation asks; returns the answer."""


class Talk(Protocol):
    """What an operation has of the tool that called it."""

    def tell(self, report: Report, payload: bytes | memoryview = b"", /) -> None:
        """Tell it something, in order."""

    def ask(self, report: Report, /) -> tuple[Report, bytes]:
        """Ask it for something, and wait for the answer."""

    def check(self) -> None:
        """Raise Gone if the tool has ended."""


class LocalTalk:
    """The operation runs in the tool's own process."""

    def __init__(self, told: Told, asked: Asked) -> None:
        self._told = told
        self._asked = asked

    def tell(self, report: Report, payload: bytes | memoryview = b"") -> None:
        """As of Talk."""
        self._told(report, bytes(payload))

    def ask(self, report: Report) -> tuple[Report, bytes]:
        """As of Talk."""
        return self._asked(report)

    def check(self) -> None:
        """As of Talk: it is there."""


class RemoteTalk:
    """The operation runs in the owner, and the tool is at the other end of ``wire``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def tell(self, report: Report, payload: bytes | memoryview = b"") -> None:
        """As of Talk."""
        self._wire.send({"tell": report}, payload)

    def ask(self, report: Report) -> tuple[Report, bytes]:
        """As of Talk."""
        self._wire.send({"ask": report})
        return self._wire.receive()

    def check(self) -> None:
        """As of Talk."""
        self._wire.check()
