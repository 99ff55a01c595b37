"""Iterating the messages of a queue."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .errors import Error
from .fields import FieldValue
from .message import Message
from .waiting import Seconds

if TYPE_CHECKING:
    from .channel.receiving import Receiving

__all__ = ["Messages"]


_NUMBERS = itertools.count(1)


class Messages(Iterator[Message]):
    """The messages of a queue, as they come: from ``Channel.consume``.

    It has a consumer from the first step on, until the iteration ends, :meth:`close` is called, a
    ``with`` block of it ends, or it is forgotten: a ``for`` loop that is left by ``break`` forgets
    it, unless a variable keeps it.
    """

    __slots__ = (
        "_arguments",
        "_auto_ack",
        "_channel",
        "_in_hand",
        "_is_over",
        "_name",
        "_queue",
        "_tag",
        "_timeout",
    )

    def __init__(
        self,
        channel: Receiving,
        queue: str,
        auto_ack: bool,
        timeout: Seconds | None,
        consumer_tag: str = "",
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """See ``Channel.consume``."""
        self._tag: str | None = None
        self._name = consumer_tag
        self._arguments = arguments
        self._channel = channel
        self._queue = queue
        self._auto_ack = auto_ack
        self._timeout = timeout
        self._in_hand: int | None = None
        self._is_over = False

    def __next__(self) -> Message:
        if self._is_over:
            raise StopIteration
        message = None
        self._in_hand = None
        try:
            if self._tag is None:
                self._tag = self._consume()
            message = self._channel._next_delivery(self._tag, self._timeout)
        finally:
            if message is None:
                self.close()
        if message is None:
            raise StopIteration
        if not self._auto_ack:
            self._in_hand = message.delivery_tag
        return message

    def _consume(self) -> str:
        """With a tag that is known before there is a consumer: who is interrupted has it cancelled,
        unless the channel had one of that tag."""
        channel = self._channel
        tag = self._name or f"amq.ctag-of-iteration-{next(_NUMBERS)}"
        is_another = tag in channel._consumers
        try:
            return channel.basic_consume(
                self._queue, auto_ack=self._auto_ack, consumer_tag=tag, arguments=self._arguments
            )
        except BaseException:
            if not is_another and not channel.closed:
                channel.basic_cancel(tag)
            raise

    def close(self) -> None:
        """Cancel the consumer; what came for it and was not handed out is requeued.  Messages that
        were handed out and not acknowledged stay so until the channel closes."""
        self._is_over = True
        tag = self._tag
        if tag is not None and tag in self._channel._consumers and not self._channel.closed:
            self._channel.basic_cancel(tag)
        self._tag = None  # where this was interrupted, it is done again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and self._in_hand is not None and not self._channel.closed:
            self._channel._settle_range(self._in_hand, self._in_hand, True)
        self.close()

    def __del__(self) -> None:
        tag: str | None = getattr(self, "_tag", None)
        if tag is None:  # or the constructor raised
            return
        try:
            self.close()
        except RuntimeError:  # the channel is in a call of another thread
            self._channel._left.append(tag)
        except Error:  # it was closed meanwhile, or belongs to the process before a fork
            pass
