"""Asynchronous connections: groups of channels."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .. import _core
from ..connection import Connection as SynchronousConnection
from ..errors import StoreClosed
from .channel import Channel
from .registry import Registry
from .threads import Threads
from .twin import Closing

__all__ = ["Connection"]


class Connection(Closing):
    """A group of channels, from ``Store.connection()``: see :class:`pyqstore.Connection`.  Any loop
    may use it."""

    def __init__(
        self, store: _core.Store, threads: Threads, channels: Registry, name: str = ""
    ) -> None:
        """See ``Store.connection``."""
        channels.check()
        self._store = store
        self._threads = threads
        self._channels = channels
        self._connection = SynchronousConnection(store, name)
        channels.add_connection(self._connection)

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__} {self.name!r}{' (closed)' if self.closed else ''}>"

    @property
    def name(self) -> str:
        """The name that the connection was opened with, for people."""
        return self._connection.name

    @property
    def closed(self) -> bool:
        """Like :attr:`pyqstore.Connection.closed`."""
        return self._connection.closed

    async def channel(self) -> Channel:
        """Open a channel, for the running loop.  Raises ChannelClosed when the connection is
        closed, StoreClosed, ForkedStore."""
        return Channel(self._store, self._threads, self._channels, self._connection)

    async def close(self) -> None:
        """Close the channels, which requeues their unacknowledged messages, and delete the
        exclusive queues.  Closing twice is fine.

        Tasks that wait on one of the channels get ChannelClosed.  A close that is cancelled goes
        on.
        """
        if self._store._forked:
            self._connection.close()  # only memory is left to free
            return
        with suppress(StoreClosed):  # which closes its connections
            await asyncio.shield(asyncio.wrap_future(self._threads.begin(self._connection.close)))
