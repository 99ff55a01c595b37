"""An asynchronous channel's life: the synchronous channel under it, the loop that watches that, and
the turns of its calls."""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from ... import _core
from ..._core import NextTurn
from ...channel.handle import raise_first
from ...deliveries import Deliveries
from ...errors import ChannelClosed, Error, ForkedStore, StoreClosed
from ..consumers import Consumers
from ..events import Events
from ..lane import Lane
from ..loop_channel import Face, LoopChannel
from ..message import Message
from ..receiving import Receiver
from ..registry import Registry
from ..threads import Threads
from ..twin import Closing, Twin

__all__ = ["CALLS_PER_TURN", "Handle", "nothing"]

CALLS_PER_TURN = 64
_CLOSED = "the channel is closed"


class Handle(Face, Twin[LoopChannel], Closing):
    """The base of all methods of a channel."""

    _is_made: bool = False  # the constructor has returned

    def __init__(
        self,
        store: _core.Store,
        threads: Threads,
        channels: Registry,
        connection: _core.Connection | None,
    ) -> None:
        """See ``Store.channel``."""
        channels.check()
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._threads = threads
        self._closing: asyncio.Task[None] | None = None
        self._thread = get_ident()  # of the loop, when last seen
        self._next_turn = NextTurn(self._loop)
        self._calls = 0
        self._in_block = False  # of Channel.transaction()
        self._watched_fd: int | None = None
        self._twin = LoopChannel(store, connection)
        self._twin._face = weakref.ref(self)
        self._twin._set_message_type(Message)
        self._lane = Lane(self._twin, threads, self._look, self._failed)
        self._deliveries = Deliveries()
        self._consumers = Consumers(self._twin, self._lane, self._deliveries)
        self._events = Events(self._twin, self._lane, self._consumers, self._failed, self._report)
        self._receiver = Receiver(self._lane, self._events, self._consumers, self._report)
        self._watched_fd = self._twin._event_fd()
        self._loop.add_reader(self._watched_fd, _signalled, weakref.ref(self), self._watched_fd)
        channels.add(self)
        self._is_made = True

    def __del__(self) -> None:
        event_fd: int | None = getattr(self, "_watched_fd", None)
        if event_fd is None:
            return
        if self._store._forked:
            return  # the loop watches what the parent's loop watches
        if self._is_made and not self._store.closed and not self._twin.closed:
            self._warn_unclosed()
        with suppress(RuntimeError):  # the loop was closed, and watches nothing any more
            self._loop.call_soon_threadsafe(_forget_watched_fd, self._loop, event_fd, self._twin)

    def _warn_unclosed(self) -> None:
        warnings.warn(f"unclosed channel {self!r}", ResourceWarning, stacklevel=3, source=self)

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__}{' (closed)' if self.closed else ''}>"

    @property
    def number(self) -> int:
        """Like :attr:`pyqstore.Channel.number`."""
        return self._twin.number

    @property
    def closed(self) -> bool:
        """Whether the channel is closed: by ``close()``, by an AMQP error, or with its connection
        or its store."""
        return self._lane.end is not None or self._twin.closed

    async def close(self) -> None:
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Tasks that wait on this channel get ChannelClosed.  A close that is cancelled goes on.  In a
        child of fork() only memory is freed.
        """
        if self._store._forked:
            self._twin.close()
            return
        self._check_loop()
        if self._closing is None:
            self._ended(ChannelClosed(_CLOSED))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with suppress(StoreClosed):  # which closes its channels
            await self._lane.finish(self._twin.close)

    def _ended(self, error: BaseException) -> None:
        """Tell waiting tasks, once, that the channel has ended."""
        if self._lane.end is not None:
            return
        self._stop_listening()
        self._lane.close(error)
        self._consumers.end(error)
        self._events.end(error)

    def _stop_listening(self) -> None:
        """Close the descriptor only when the loop does not watch it any more: its number may be
        another descriptor's then."""
        if self._watched_fd is not None:
            self._loop.remove_reader(self._watched_fd)
            self._watched_fd = None
            self._twin._forget_event_fd()

    def _failed(self, error: BaseException) -> None:
        """A call raised this.  An AMQP error closes the channel."""
        if isinstance(error, Error) and self._twin.closed:
            self._ended(ChannelClosed(f"{_CLOSED}: {error}"))

    def _look(self) -> None:
        self._events.look()

    def _report(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": f"in a callback of {self!r}", "exception": error}
        )

    def _check_loop(self) -> None:
        if self._store._forked:
            raise ForkedStore("the store was opened before fork(); open it in this process")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this channel belongs to another event loop; open one in each")
        self._thread = get_ident()

    def _check(self) -> None:
        self._check_loop()
        if self._lane.end is not None:
            raise StoreClosed("the store is closed") if self._store.closed else self._lane.end

    async def _turn(self) -> None:
        self._check()
        await self._breathe()

    async def _breathe(self) -> None:
        """Let other tasks run now and then, even if no call ever waits."""
        self._calls += 1
        if self._calls % CALLS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _threaded(self, call: Callable[[], Any]) -> Any:
        self._check()
        return await self._lane.run(call)

    async def _inline(self, call: Callable[[], Any]) -> Any:
        self._check()
        return await self._lane.run(call, inline=True)


def _signalled(channel: weakref.ref[Handle], event_fd: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(event_fd)
    listener = channel()
    if listener is not None:
        listener._events.signalled()


def _forget_watched_fd(
    loop: asyncio.AbstractEventLoop, event_fd: int, channel: LoopChannel
) -> None:
    """Stop watching, in the loop.  The channel, which owns the descriptor, exists until this is
    done."""
    loop.remove_reader(event_fd)
    channel._forget_event_fd()
    channel.close()
    raise_first(channel.tell_rest())


def nothing() -> None:
    """A call that only takes its turn."""
