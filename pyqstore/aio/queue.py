"""Queues that lose nothing by default, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import queue as synchronous
from ..errors import ChannelClosed, Empty
from ..fields import FieldValue
from ..forking import check_process
from ..properties import Properties
from ..queue import Codec, check_codec, envelope
from ..waiting import Seconds, check_timeout, told
from .awaiting import Awaited
from .channel import Channel
from .message import Message
from .twin import Twin, awaited

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Queue"]


class Queue(Twin[synchronous.Queue]):
    """A durable queue, from ``Store.queue()``: see :class:`pyqstore.Queue`.  Any task of the event
    loop in which it was made may use it."""

    def __init__(self, store: Store, queue: synchronous.Queue) -> None:
        """See ``Store.queue``."""
        self._store = store
        self._threads = store._threads
        self._twin = queue
        self._publishing: Channel | None = None
        self._receiving: Channel | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__} {self.name!r} of {self._store!r}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._twin.name

    def __len__(self) -> int:
        """How many messages are ready.  NotFound: the queue was deleted."""
        return len(self._twin)

    def __bool__(self) -> bool:
        return True

    async def put(
        self,
        body: object,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        expires: Seconds | None = None,
        headers: Mapping[str, FieldValue] | None = None,
        key: str = "",
        codec: Codec | None = None,
    ) -> None:
        """Like :meth:`pyqstore.Queue.put`.  Many tasks that put at once share their syncs.

        If this is cancelled, the message may have been put.
        """
        check_process(self._store._store)
        encoded, properties = envelope(
            body,
            check_codec(codec) or self._twin._codec,
            priority=priority,
            expires=expires,
            headers=headers,
        )
        exchange = await self._threads.run(self._twin._exchange) if key else ""
        await self._publish(exchange, key or self.name, encoded, properties, delay)

    async def _publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: Properties,
        delay: Seconds | None = None,
    ) -> None:
        channel = self._publishing
        if channel is None or channel.closed:
            channel = await self._open_publishing()
        await channel.basic_publish(
            exchange,
            key,
            body,
            properties,
            mandatory=True,
            delay=delay,
        )

    @awaited(synchronous.Queue.put_many, by=Twin._apart)
    def put_many(self) -> None:
        """A thread of its own iterates over ``data``; if this is cancelled, the thread goes on."""

    def get(self, timeout: Seconds | None = None) -> Getting:
        """Return the first ready message; wait ``timeout`` seconds for one (None: without end).

        ``async with queue.get() as message:`` acknowledges the message at the end, and requeues it
        if the body raises.  After ``message = await queue.get()`` you acknowledge it yourself.

        Raises Empty if none came in time, NotFound if the queue was deleted.
        """
        return Getting(self._get(timeout))

    async def _get(self, timeout: Seconds | None = None) -> Message:
        loop = asyncio.get_running_loop()
        end = loop.time() + check_timeout(timeout)
        check_process(self._store._store)
        while True:
            channel = self._receiving
            if channel is None or channel.closed:
                channel = await self._open_receiving()
            try:
                message = await channel.basic_get(self.name)
                if message is not None:
                    return message
                left = end - loop.time()
                if left <= 0:
                    raise Empty(f"no message in queue {self.name!r} within {told(timeout)}")
                message = await self._wait(channel, left)
                if message is not None:
                    return message
            except ChannelClosed:  # by what another task was told: this one asks for itself
                continue

    async def _wait(self, channel: Channel, seconds: float) -> Message | None:
        """Wait as a consumer with a prefetch of one, so a message that comes is this call's.

        Nothing is awaited between taking the message and returning it.
        """
        messages = channel.consume(self.name, inactivity_timeout=seconds)
        try:
            return await anext(messages, None)
        finally:
            await messages.aclose()

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over the messages as they come, without end.  Each message is acknowledged when
        the loop's body ends.

        If an exception, ``break`` or ``return`` leaves the body, the current message is requeued,
        unless it was settled: ``await message.ack()`` before a ``break``.  After an ``anext`` that
        was cancelled the iteration continues.
        """
        return Incoming(self)

    def decode(self, message: Message) -> Any:
        """The value of a message, decoded by the queue's codec; without a codec, its body."""
        return self._twin.decode(message)

    @awaited(synchronous.Queue.peek)
    def peek(self) -> None:
        """They are of the class :class:`pyqstore.Message`."""

    @awaited(synchronous.Queue.purge)
    def purge(self) -> None: ...

    @awaited(synchronous.Queue.delete)
    def delete(self) -> None: ...

    async def work(
        self,
        function: Callable[[Message], object],
        tasks: int = 4,
        retries: int = 5,
        backoff: Seconds | Callable[[int], Seconds] = 1.0,
        dead: str | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Like :meth:`pyqstore.Queue.work`, with ``tasks`` tasks.  If ``function`` returns an
        awaitable, it is awaited.

        If this is cancelled, the running calls are cancelled, too, and their messages are requeued.
        """
        from .work import Work

        work = Work(self, function, retries=retries, backoff=backoff, dead=dead, stop=stop)
        await work.run(tasks)

    async def _open_publishing(self) -> Channel:
        async with self._opening:
            if self._publishing is None or self._publishing.closed:
                channel = OwnChannel(self._store._store, self._threads, self._store._channels, None)
                await channel.confirm_select()
                self._publishing = channel
            return self._publishing

    async def _open_receiving(self) -> Channel:
        async with self._opening:
            if self._receiving is None or self._receiving.closed:
                channel = OwnChannel(self._store._store, self._threads, self._store._channels, None)
                await channel.basic_qos(1)
                self._receiving = channel
            return self._receiving


class Getting(Awaited[Message]):
    """A message that is being fetched: a coroutine that returns it, and an asynchronous context
    manager that settles it.  From ``Queue.get``."""

    __slots__ = ("_message",)

    async def __aenter__(self) -> Message:
        self._message = await self
        return self._message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._message.__aexit__(kind, value, traceback)


class Incoming(AsyncIterator[Message]):
    """Iterates over the messages of a queue: from ``async for message in queue``."""

    __slots__ = ("_in_hand", "_is_asked", "_is_over", "_queue", "_settling")

    def __init__(self, queue: Queue) -> None:
        """See ``Queue.__aiter__``."""
        self._queue = queue
        self._in_hand: Message | None = None
        self._settling: asyncio.Task[None] | None = None  # of the one before
        self._is_asked = False
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._is_over:
            raise StopAsyncIteration
        if self._is_asked:
            raise RuntimeError("another task waits for the next of this iterator")
        self._is_asked = True
        try:
            await self._settle()
            self._in_hand = await self._queue._get()
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._is_over = True
            raise
        finally:
            self._is_asked = False
        return self._in_hand

    async def _settle(self) -> None:
        """Acknowledge the previous message once, even if tasks are cancelled meanwhile."""
        before, self._in_hand = self._in_hand, None
        if before is not None and not before.settled:
            self._settling = asyncio.ensure_future(before.ack())
        if self._settling is not None:
            await asyncio.wait([self._settling])
            settling, self._settling = self._settling, None
            settling.result()

    async def aclose(self) -> None:
        """Requeue the current message, unless it was settled."""
        self._is_over = True
        message, self._in_hand = self._in_hand, None
        if message is not None:
            await message.__aexit__(GeneratorExit, None, None)

    def __del__(self) -> None:
        message: Message | None = getattr(self, "_in_hand", None)
        if message is None or message.settled:
            return
        channel = self._queue._receiving
        if channel is not None and channel._twin is message._channel:  # or it was requeued
            tag = message.delivery_tag
            with suppress(RuntimeError):  # the loop was closed
                channel._loop.call_soon_threadsafe(channel._consumers.settle_soon, tag, tag, True)


class OwnChannel(Channel):
    """A channel that only its queue uses: it ends with the queue, without a warning."""

    def _warn_unclosed(self) -> None:
        pass
