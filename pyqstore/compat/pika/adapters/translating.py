"""A store's errors as pika's."""

from __future__ import annotations

from ....errors import ChannelClosed, ChannelError, Error, StoreFull
from .. import exceptions

__all__ = ["CONNECTION_CODE", "translated"]

CONNECTION_CODE = 500
"""Codes from here on end the connection."""


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
    return exceptions.StreamLostError(str(error))
