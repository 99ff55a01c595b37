"""The channel under an asynchronous one."""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Protocol

from .. import _core
from ..channel import Arguments
from ..channel import Channel as SynchronousChannel
from ..channel.arguments import encoded, flag
from ..channel.handle import Consumer
from ..errors import ChannelClosed

__all__ = ["Face", "LoopChannel"]


class Face(Protocol):
    """The asynchronous channel, for its messages."""

    async def basic_ack(self, delivery_tag: int, /) -> None: ...
    async def basic_nack(
        self, delivery_tag: int, /, *, requeue: bool, delay: float | timedelta | None
    ) -> None: ...


class LoopChannel(SynchronousChannel):
    """Encodes arguments and calls the engine, in the thread that has the channel's turn."""

    _face: weakref.ref[Face] | None = None

    def __init__(self, store: _core.Store, connection: _core.Connection | None = None) -> None:
        """See the synchronous channel."""
        super().__init__(store, connection)

    def __del__(self) -> None:
        self.close()  # whether that was forgotten is the asynchronous channel's to say

    def _tell_rest(self) -> list[Exception]:
        """Report to no listener, in any thread: see ``tell_rest``."""
        return []

    def tell_rest(self) -> list[Exception]:
        """Like that of a synchronous channel, in the loop."""
        return super()._tell_rest()

    def consume_for_loop(
        self,
        queue: str,
        consumer_tag: str,
        *,
        auto_ack: bool,
        exclusive: bool,
        arguments: Arguments | None,
    ) -> str:
        """Register a consumer.  With ``auto_ack`` the asynchronous channel itself acknowledges the
        messages, because streams refuse that option."""
        flags = _core.AUTO_ACK if flag("auto_ack", auto_ack) else 0
        flags |= _core.EXCLUSIVE if flag("exclusive", exclusive) else 0
        tag = self._consume(queue, consumer_tag, flags, encoded(arguments))
        self._gone.pop(tag, None)
        self._consumers[tag] = Consumer(None, False)
        return tag

    def face(self) -> Face:
        """The asynchronous channel.  ChannelClosed if it does not exist any more."""
        face = self._face() if self._face is not None else None
        if face is None:
            raise ChannelClosed("the channel is closed")
        return face
