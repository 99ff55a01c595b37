"""Receiving: in callbacks, message by message, iterated, in record batches: awaited."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING

from ... import _core
from ...callbacks import check_callable
from ...channel import Arguments
from ...channel import Channel as SynchronousChannel
from ...waiting import Seconds, check_main, check_timeout
from ..batches import no_messages, tags_of
from ..consumers import Consumer
from ..message import Message
from ..receiving import MessageCallback, Messages
from ..twin import awaited
from .handle import Handle, nothing

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Receiving"]


class Receiving(Handle):
    """The methods that wait for messages, and consumers."""

    async def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """The first ready message of ``queue``, or None.  NotFound: no such queue."""
        await self._turn()
        message: Message | None = await self._lane.run(
            partial(self._twin.basic_get, queue),
            then=self._came,
            undo=self._give_back,
            inline=True,
        )
        if message is not None:
            self._deliveries.went(message.delivery_tag)
            if auto_ack:
                self._acknowledge_soon(message.delivery_tag, message.delivery_tag)
        return message

    def _came(self, message: Message | None) -> Message | None:
        if message is not None:
            tag = message.delivery_tag
            try:
                self._deliveries.came(tag, tag)
            except MemoryError:
                self._twin._withhold(tag, tag)
                raise
        return message

    def _give_back(self, message: Message | None) -> None:
        if message is not None:
            self._put_back(message.delivery_tag, message.delivery_tag)

    def _put_back(self, first_tag: int, last_tag: int) -> None:
        self._deliveries.went(first_tag)
        self._consumers.settle_soon(first_tag, last_tag, requeue=True)

    async def get_batch(
        self,
        queue: str,
        max_messages: int = 65536,
        *,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: Seconds | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """Like :meth:`pyqstore.Channel.get_batch`, in a thread, which does not wait for messages.

        With a ``timeout`` of 0 it looks once, when its turn comes.  Any other timeout includes the
        time of earlier calls; a call that began in time is finished.
        """
        seconds = check_timeout(timeout)
        end = self._loop.time() + seconds
        self._check()
        get = partial(self._twin.get_batch, queue, max_messages, max_bytes=max_bytes)
        until = math.inf if seconds == 0 else end

        async def is_message_there() -> bool:
            declare = partial(self._twin._queue_declare, queue, _core.PASSIVE, b"")
            declared = await self._lane.run(declare, inline=True, until=until)
            return bool(declared[1] > 0)

        try:
            while True:
                batch = await self._lane.run(
                    get, then=self._batch_came, undo=self._give_batch_back, until=until
                )
                if len(batch) > 0:
                    self._deliveries.went(tags_of(batch)[0])
                    if auto_ack:
                        self._acknowledge_soon(*tags_of(batch))
                    return batch
                while self._loop.time() < end:
                    if await self._events.change(is_message_there, end):
                        break
                    if self._lane.end is not None:
                        raise self._lane.end
                else:
                    return batch
        except TimeoutError:
            return no_messages()

    def _batch_came(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        if len(batch) > 0:
            self._deliveries.came(*tags_of(batch))
        return batch

    def _give_batch_back(self, batch: pyarrow.RecordBatch) -> None:
        if len(batch) > 0:
            self._put_back(*tags_of(batch))

    def _acknowledge_soon(self, first_tag: int, last_tag: int) -> None:
        self._consumers.settle_soon(first_tag, last_tag, requeue=False)

    @awaited(SynchronousChannel.basic_qos, by=Handle._inline)
    def basic_qos(self) -> None: ...

    async def basic_consume(
        self,
        queue: str,
        callback: MessageCallback | None = None,
        *,
        auto_ack: bool = False,
        consumer_tag: str = "",
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> str:
        """Like :meth:`pyqstore.Channel.basic_consume`; the loop runs the callbacks itself.

        ``callback(message)`` may be a coroutine function.  Callbacks of one consumer run one after
        another, and those of different consumers concurrently.  An exception of a callback goes to
        the loop's exception handler, and the consumer goes on; the message stays unacknowledged.
        """
        check_callable(callback=callback)
        consumer = await self._consume(
            queue,
            callback,
            auto_ack=auto_ack,
            consumer_tag=consumer_tag,
            exclusive=exclusive,
            arguments=arguments,
        )
        return consumer.tag

    async def _consume(
        self,
        queue: str,
        callback: MessageCallback | None,
        *,
        auto_ack: bool,
        consumer_tag: str = "",
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> Consumer:
        self._check()

        def register(tag: str) -> Consumer:
            consumer = Consumer(tag, auto_ack)
            self._consumers.add(consumer)
            self._events.look_soon()  # its queue may be deleted
            if callback is not None:
                serving = self._receiver.serve(consumer, callback)
                consumer.task = self._loop.create_task(serving)
            return consumer

        consumer: Consumer = await self._lane.run(
            partial(
                self._twin.consume_for_loop,
                queue,
                consumer_tag,
                auto_ack=auto_ack,
                exclusive=exclusive,
                arguments=arguments,
            ),
            then=register,
            undo=lambda consumer: self._consumers.drop(consumer.tag),
            inline=True,
        )
        return consumer

    async def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer.  Messages that were handed out and not acknowledged stay unacknowledged;
        messages that were not handed out are requeued.

        A running callback ends first; it may call this itself.
        """
        self._check()
        consumer = self._consumers.drop(consumer_tag)
        await self._inline(nothing)
        task = consumer.task if consumer is not None else None
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task])

    async def process_events(self, timeout: Seconds | None = 0.0) -> int:
        """Return the number of events that came during this call, which waits ``timeout`` seconds
        for the first one.

        The loop hands events to listeners and callbacks without this call.
        """
        events, end = self._events, self._loop.time() + check_timeout(timeout)
        before = events.count

        async def came() -> bool:
            return events.count > before

        self._check()
        while not await events.change(came, end):
            self._check()
            if self._loop.time() >= end:
                break
        await asyncio.sleep(0)  # tasks that have callbacks run in it
        return events.count - before

    async def start_consuming(self) -> None:
        """Return when no consumer with a callback is left.  Callbacks run without this call, too.

        RuntimeError in a callback, because this would wait for the callback.
        """
        self._check()
        while tasks := [c.task for c in self._consumers if c.task is not None]:
            if asyncio.current_task() in tasks:
                raise RuntimeError("this channel is consuming already")
            await asyncio.wait(tasks)
            if self._lane.end is not None:
                return
            check_main()  # which ended them

    async def stop_consuming(self) -> None:
        """Cancel the consumers that have a callback."""
        self._twin._check_process()
        for consumer in self._consumers:
            if consumer.task is not None:
                await self.basic_cancel(consumer.tag)

    async def next_delivery(
        self,
        consumer_tag: str,
        timeout: Seconds | None = None,
    ) -> Message | None:
        """The next message for a consumer without a callback.

        None if nothing came within ``timeout`` seconds, or ``basic_cancel`` cancelled the consumer.
        NotFound if its queue was deleted, like :meth:`pyqstore.Channel.next_delivery`.  Only one
        task at a time may call this for a consumer, and none for a consumer with a callback
        (RuntimeError).
        """
        seconds = check_timeout(timeout)
        await self._turn()
        consumer = self._consumers.get(consumer_tag)
        if consumer is None:
            if self._lane.end is not None:
                raise self._lane.end
            self._twin._check_there(consumer_tag)
            return None
        if consumer.task is not None:
            raise RuntimeError("the messages of this consumer go to its callback")
        message = await self._receiver.next_message(consumer, seconds)
        if message is None:
            self._twin._check_there(consumer_tag)
        return message

    def consume(
        self,
        queue: str,
        *,
        auto_ack: bool = False,
        inactivity_timeout: Seconds | None = None,
        consumer_tag: str = "",
        arguments: Arguments | None = None,
    ) -> Messages:
        """Iterate over the messages of ``queue`` as they come: ``async for message in ...``.
        ``consumer_tag`` and ``arguments`` are those of :meth:`basic_consume`.

        The iteration ends when no message came for ``inactivity_timeout`` seconds (None: never), or
        when the queue was deleted.  The first step registers the consumer.  The consumer is
        cancelled when the iteration ends, or when the iterator is closed or garbage-collected.
        Leaving an ``async for`` loop does that unless a variable keeps the iterator; ``async with``
        closes it at once.  A step that is cancelled can be repeated.

        Messages that were handed out and not acknowledged stay unacknowledged until the channel
        closes; but if an exception leaves the ``async with`` block, the current message is
        requeued.
        """
        seconds = check_timeout(inactivity_timeout)
        return Messages(self, queue, auto_ack, seconds, consumer_tag, arguments)
