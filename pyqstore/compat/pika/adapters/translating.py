"""A store's errors as pika's."""

from __future__ import annotations

from .... import _core, forking
from ....errors import ChannelClosed, ChannelError, Error, ForkedStore, StoreFull
from .. import exceptions

__all__ = ["CONNECTION_CODE", "Forked", "check_process", "translated"]

CONNECTION_CODE = 500
"""Codes from here on end the connection."""


class Forked(exceptions.StreamLostError, ForkedStore):
    """The connection is the parent's.  A program that connects again when it lost one does so."""


def check_process(store: _core.Store) -> None:
    """Forked: this is a child of the process that connected."""
    try:
        forking.check_process(store)
    except ForkedStore as error:
        raise Forked(str(error)) from None


def translated(error: Error) -> exceptions.AMQPError:
    """What pika raises for it."""
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
