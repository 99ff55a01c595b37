"""Exchanges for messages with routing keys of their own, which lead to one queue or stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from .channel import Channel
from .errors import MessageReturned, NotFound

__all__ = ["keyed_exchange"]

_NAME_BYTES_MAX = 255


def keyed_exchange(
    opened: Callable[[], Channel], kind: Literal["queue", "stream"], name: str
) -> str:
    """The exchange of a queue or a stream, made if it is new.  It goes with what it leads to.

    ``opened`` returns an open channel, another one when an error closed the last.

    ValueError: the name leaves no room for that of the exchange.  MessageReturned: the queue or
    stream was deleted.
    """
    prefix = f"pyqstore.{kind}."
    exchange = f"{prefix}{name}"
    if len(exchange.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
        most = _NAME_BYTES_MAX - len(prefix)
        raise ValueError(f"key: only a {kind} whose name has at most {most} bytes takes one")
    channel = opened()
    channel.exchange_declare(exchange, "fanout", durable=True, auto_delete=True)
    try:
        channel.queue_bind(name, exchange)  # written when it is new
    except NotFound as error:
        # What was never bound deletes itself never.  The error closed the channel.
        opened().exchange_delete(exchange, if_unused=True)
        raise MessageReturned(None) from error
    return exchange
