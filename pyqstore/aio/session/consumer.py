"""Consumers of the sessions of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ... import session as synchronous
from ...session.buffer import PushBuffer
from ...session.destinations import Destination
from ...waiting import Seconds, check_timeout
from ..threads import Threads
from ..twin import Closing
from .message import Message
from .turns import Turns

__all__ = ["Consumer", "Listener"]

Listener = Callable[[Message], object]


class Consumer(Closing):
    """Receives from a destination: see :class:`pyqstore.session.Consumer`."""

    def __init__(self, turns: Turns, threads: Threads, consumer: synchronous.Consumer) -> None:
        """See ``Session.consumer``."""
        self._turns = turns
        self._threads = threads
        self._consumer = consumer
        self.destination: Destination = consumer.destination
        """The destination that it receives from."""
        self.buffer: PushBuffer = consumer.buffer
        """Messages that were pushed and not handed out yet."""

    def __repr__(self) -> str:
        return f"<aio.{self._consumer!r}"[:-1] + ">"

    @property
    def closed(self) -> bool:
        """Whether the consumer or its session was closed."""
        return self._consumer.closed

    @property
    def prefetch(self) -> int:
        """The number of messages that are buffered ahead."""
        return self._consumer.prefetch

    @property
    def listener(self) -> Listener | None:
        """Like :attr:`pyqstore.session.Consumer.listener`: a function or a coroutine function,
        called in the loop."""
        return self._consumer.listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        self._consumer.listener = cast("synchronous.Listener | None", listener)

    async def receive(self, timeout: Seconds | None = None) -> Message | None:
        """Like :meth:`pyqstore.session.Consumer.receive`.

        If this is cancelled no message is lost: the next call returns its message.
        """
        turns, consumer = self._turns, self._consumer
        loop = asyncio.get_running_loop()
        end = loop.time() + check_timeout(timeout)
        await turns.call(consumer._begin_receive)
        try:
            while not self.closed and not turns.is_ending:
                is_last, wakes = loop.time() >= end, turns.wakes
                message = await turns.receive(consumer, not is_last)
                if message is not None or is_last:
                    return cast("Message | None", message)
                wait = min(end - loop.time(), consumer._wait_s)
                await turns.wait(max(0.0, wait), wakes)
            return None
        finally:
            if consumer._is_pulling:
                await turns.call(consumer._end_receive)

    async def close(self) -> None:
        """Like :meth:`pyqstore.session.Consumer.close`.  If this is cancelled while a listener
        runs, the consumer stays open."""
        if self.closed:
            return
        await self._turns.await_listener(self._consumer)
        await asyncio.shield(self._end())

    async def _end(self) -> None:
        try:
            await self._threads.run(self._consumer.close)
        finally:
            self._turns.wake()
