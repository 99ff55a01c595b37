"""Handing messages to tasks, callbacks and iterations that wait."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..channel import Arguments
from ..errors import ChannelClosed, StoreClosed
from ..waiting import check_main
from .awaiting import wait_until
from .consumers import Consumer, Consumers
from .events import Events
from .lane import Lane
from .message import Message

if TYPE_CHECKING:
    from .channel.receiving import Receiving

__all__ = ["MessageCallback", "Messages", "Receiver"]

MessageCallback = Callable[[Message], Awaitable[object] | object]


class Receiver:
    """``report`` is called with an exception of a callback."""

    __slots__ = ("_consumers", "_events", "_lane", "_loop", "_report")

    def __init__(
        self,
        lane: Lane,
        events: Events,
        consumers: Consumers,
        report: Callable[[BaseException], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._lane = lane
        self._events = events
        self._consumers = consumers
        self._report = report

    async def next_message(self, consumer: Consumer, seconds: float) -> Message | None:
        """The next message.  Nothing is awaited between taking a message and returning it, so none
        is lost."""
        if consumer.waiter is not None:
            raise RuntimeError("another task waits for the messages of this consumer")
        end: float | None = None  # for what is there already nobody looks at the clock
        while True:
            if consumer.error is not None:
                error = consumer.error
                if self._lane.end is None:
                    consumer.error = None
                raise error
            if consumer.buffered:
                return self._consumers.hand_out(consumer)
            if consumer.cancelled:
                self._consumers.forget(consumer)
                return None
            try:
                if self._lane.free and self._events.take_one():
                    continue
            except Exception as error:
                if self._lane.end is not None:
                    raise self._lane.end from error
                raise
            if end is None:
                end = self._loop.time() + seconds
            if self._loop.time() >= end:
                return None
            if end == math.inf:
                check_main()
            await self._wait_for_delivery(consumer, end)

    async def _wait_for_delivery(self, consumer: Consumer, end: float) -> None:
        consumer.waiter = self._loop.create_future()
        try:
            self._events.look()
            if not consumer.waiter.done():
                await wait_until(consumer.waiter, end)
        finally:
            consumer.waiter = None

    async def serve(self, consumer: Consumer, callback: MessageCallback) -> None:
        """Run the callback until the consumer is cancelled or the channel is closed."""
        while True:
            try:
                message = await self.next_message(consumer, math.inf)
            except (ChannelClosed, StoreClosed):
                return
            except Exception as error:
                self._report(error)
                await asyncio.sleep(0)  # the next try may raise as well
                continue
            if message is None:
                return
            try:
                answer = callback(message)
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:
                self._report(error)


class Messages(AsyncIterator[Message]):
    """Iterates over the messages of a queue, as they come: from ``Channel.consume``."""

    def __init__(
        self,
        channel: Receiving,
        queue: str,
        auto_ack: bool,
        seconds: float,
        consumer_tag: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        self._channel = channel
        self._name = consumer_tag
        self._arguments = arguments
        self._queue = queue
        self._auto_ack = auto_ack
        self._seconds = seconds
        self._consumer: Consumer | None = None
        self._in_hand: int | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        channel = self._channel
        if self._is_over:
            raise StopAsyncIteration
        await channel._turn()
        if self._consumer is None:
            self._consumer = await channel._consume(
                self._queue,
                None,
                auto_ack=self._auto_ack,
                consumer_tag=self._name,
                arguments=self._arguments,
            )
        self._in_hand = None
        message = await channel._receiver.next_message(self._consumer, self._seconds)
        if message is None:
            await self.aclose()
            raise StopAsyncIteration
        if not self._auto_ack:
            self._in_hand = message.delivery_tag
        return message

    async def aclose(self) -> None:
        """Cancel the consumer; its messages that were not handed out are requeued."""
        self._is_over = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None and not self._channel.closed:
            self._channel._check_loop()
            self._channel._consumers.drop(consumer.tag)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and self._in_hand is not None:
            self._channel._consumers.settle_soon(self._in_hand, self._in_hand, requeue=True)
        await self.aclose()

    def __del__(self) -> None:
        consumer: Consumer | None = getattr(self, "_consumer", None)
        if consumer is not None:  # it is not there, where the constructor raised
            with suppress(RuntimeError):  # the loop was closed
                channel = self._channel
                channel._loop.call_soon_threadsafe(channel._consumers.drop, consumer.tag)
