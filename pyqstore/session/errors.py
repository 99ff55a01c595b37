"""Errors of sessions, besides those of channels."""

from __future__ import annotations

from ..errors import Error

__all__ = ["IllegalState", "TransactionRolledBack"]


class IllegalState(Error):
    """The call does not fit the state of its session, consumer or connection: it is closed, has
    another mode, or has a listener."""


class TransactionRolledBack(Error):
    """The commit failed.  Nothing that was sent is published, and all that was received in the
    transaction is delivered again.  ``__cause__`` says why."""
