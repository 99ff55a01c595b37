"""The part of a connection that its channels use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .turns import Turns

__all__ = ["Link"]


class Link(ABC):
    """A connection, as its channels see it."""

    _turns: Turns
    _callbacks_running: int
    """The depth of nested dispatches of callbacks."""

    @abstractmethod
    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run the callbacks and timers that are due, or wait for the first one."""

    @abstractmethod
    def _end(self) -> None:
        """Releases everything after an error that ended the connection."""

    @abstractmethod
    def _forget(self, channel: Any) -> None:
        """Removes a closed channel."""
