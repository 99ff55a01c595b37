"""The channels of a store, which closing the store ends."""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from ..connection import Connection
from ..errors import ChannelClosed, StoreClosed
from .loop_channel import LoopChannel

__all__ = ["Registry"]


class _Channel(Protocol):
    """A registered channel: an asynchronous channel, which imports this module."""

    @property
    def _loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def _twin(self) -> LoopChannel: ...
    def _ended(self, reason: ChannelClosed, /) -> None: ...


class Registry:
    """The channels of a store.  Each is used by one event loop, and may end only there."""

    __slots__ = ("__weakref__", "_channels", "_connections", "_is_closed", "_mutex")

    def __init__(self) -> None:
        self._channels: weakref.WeakSet[_Channel] = weakref.WeakSet()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._is_closed = False
        self._mutex = threading.Lock()

    @property
    def closed(self) -> bool:
        """Whether the store is closed, or being closed."""
        return self._is_closed

    def add_connection(self, connection: Connection) -> None:
        """Add a connection that was opened."""
        with self._mutex:
            self._connections.add(connection)

    def check(self) -> None:
        """Raise StoreClosed once the store is being closed."""
        if self._is_closed:
            raise StoreClosed("the store is closed")

    def add(self, channel: _Channel) -> None:
        """Add a channel that was opened.  StoreClosed if its store is being closed by now: then the
        channel has ended."""
        with self._mutex:
            if not self._is_closed:
                self._channels.add(channel)
                return
        channel._ended(_reason())
        raise StoreClosed("the store is closed")

    def close(self) -> list[LoopChannel | Connection]:
        """End every channel: those of the running loop before this returns, and each other one in
        its own loop, when that loop runs.  Returns the synchronous channels under them, and the
        connections."""
        with self._mutex:
            self._is_closed = True
            channels = list(self._channels)
            connections = list(self._connections)
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:  # a thread closes the store
            here = None
        for channel in channels:
            if channel._loop is here:
                channel._ended(_reason())
            elif channel._loop.is_closed():
                channel._twin._forget_event_fd()
            else:
                with suppress(RuntimeError):  # it was closed just now
                    channel._loop.call_soon_threadsafe(channel._ended, _reason())
        return [*(channel._twin for channel in channels), *connections]


def _reason() -> ChannelClosed:
    return ChannelClosed("the channel is closed: its store was closed")
