"""What a channel knows of its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .turns import Turns

__all__ = ["Link"]


class Link(ABC):
    """A connection, for its channels."""

    _turns: Turns
    _callbacks_running: int
    """How many calls of callbacks this is in."""

    @abstractmethod
    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run callbacks and timers for what is there, or wait for the first."""

    @abstractmethod
    def _end(self) -> None:
        """Let go of everything: an error ended the connection."""

    @abstractmethod
    def _forget(self, channel: Any) -> None:
        """It is closed."""
