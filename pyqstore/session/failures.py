"""Errors that end the calls of listeners, and the exception listener."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..errors import Error

__all__ = ["ExceptionListener", "Failures"]

ExceptionListener = Callable[[Error], object]

_log = logging.getLogger(__name__)


class Failures:
    """For all sessions of a connection."""

    def __init__(self) -> None:
        self.listener: ExceptionListener | None = None
        """See ``Connection.exception_listener``."""

    def tell(self, error: Error) -> object:
        """Calls the exception listener and returns its result; without one the error is logged."""
        if self.listener is None:
            cause = error if error.__traceback__ is not None else error.__cause__
            _log.error("listeners are not called any more: %s", error, exc_info=cause)
            return None
        try:
            return self.listener(error)
        except Exception as raised:
            self.failed(error, raised)
            return None

    def failed(self, error: Error, raised: Exception) -> None:
        """Called when the exception listener raised."""
        _log.error("the exception listener raised at: %s", error, exc_info=raised)
