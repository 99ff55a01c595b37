"""Translates errors of a store to pika's."""

from __future__ import annotations

from .... import _core, forking
from ....errors import ChannelClosed, ChannelError, Error, ForkedStore, StoreFull
from .. import exceptions

__all__ = ["CONNECTION_CODE", "Forked", "check_process", "translated"]

CONNECTION_CODE = 500
"""The codes from here on close the connection, not only the channel."""


class Forked(exceptions.StreamLostError, ForkedStore):
    """The connection belongs to the parent process.  A program that reconnects after a lost
    connection opens its own."""


def check_process(store: _core.Store) -> None:
    """Raises Forked in a child of the process that connected."""
    try:
        forking.check_process(store)
    except ForkedStore as error:
        raise Forked(str(error)) from None


def translated(error: Error) -> exceptions.AMQPError:
    """The exception that pika would raise."""
    if isinstance(error, ChannelError):
        if error.reply_code >= CONNECTION_CODE:
            return exceptions.ConnectionClosedByBroker(error.reply_code, error.reply_text)
        return exceptions.ChannelClosedByBroker(error.reply_code, error.reply_text)
    if isinstance(error, ChannelClosed):
        return exceptions.ChannelWrongStateError("Channel is closed.")
    if isinstance(error, StoreFull):
        return exceptions.ConnectionBlockedTimeout(str(error))
    if isinstance(error, ForkedStore):
        return Forked(str(error))
    return exceptions.StreamLostError(str(error))
