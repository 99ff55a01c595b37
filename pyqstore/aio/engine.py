"""The channel under an asynchronous one."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .. import _core
from ..channel import Channel as SynchronousChannel
from ..errors import ChannelClosed

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["Engine"]


class Engine(SynchronousChannel):
    """Encodes arguments and calls the engine, in whatever thread has the channel's turn."""

    _face: weakref.ref[Channel] | None = None

    def __init__(self, store: _core.Store, connection: _core.Connection | None = None) -> None:
        """See the synchronous channel."""
        super().__init__(store, connection)

    def __del__(self) -> None:
        self.close()  # whether that was forgotten is the asynchronous channel's to say

    def face(self) -> Channel:
        """The asynchronous channel.  ChannelClosed when it is gone."""
        face = self._face() if self._face is not None else None
        if face is None:
            raise ChannelClosed("the channel is closed")
        return face
