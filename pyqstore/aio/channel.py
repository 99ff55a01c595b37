"""Asynchronous channels: the verbs of AMQP 0-9-1, awaited."""

from __future__ import annotations

import asyncio
import math
import os
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import _core
from .._core import Confirm, NextTurn
from ..channel import Arguments, ConfirmCallback, ReturnCallback
from ..deliveries import Deliveries
from ..errors import (
    ChannelClosed,
    Error,
    ForkedStore,
    MessageReturned,
    PreconditionFailed,
    StoreClosed,
)
from ..message import Receipt as SynchronousReceipt
from ..properties import Properties
from ..waiting import check_timeout
from .batches import no_messages, tags_of
from .consumers import Consumer, Consumers
from .declarations import Declarations
from .engine import Engine
from .events import Events
from .lane import Lane
from .message import Message, Receipt
from .receiving import MessageCallback, Messages, Receiver
from .registry import Registry
from .threads import Threads

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from typing_extensions import Buffer

__all__ = ["Channel", "Messages"]

_CALLS_PER_TURN = 64
_CLOSED = "the channel is closed"


class Channel(Declarations):
    """A conversation with a store, from ``Store.channel()`` or ``Connection.channel()``.  It
    belongs to the event loop it was made in.

    Verbs, errors and arguments are those of :class:`pyqstore.Channel`; what differs stands here.
    RuntimeError in another loop; ChannelClosed for whoever waits when the channel is closed.  Tasks
    may share a channel: their calls are made one after another, in the order in which they began.

    What need not wait runs in the loop: publishing a message that goes to the journal,
    ``basic_get`` and deliveries of messages in memory, acknowledgements.  Such a call waits for the
    store's lock at most, which is never held during input or output.  Where it would have to wait
    for the disk or for room it runs in a thread of the store, as declarations, batches,
    ``tx_commit`` and ``close`` always do.

    Cancelling ``basic_publish`` leaves the message published or not; cancelling what receives loses
    no message: what was taken and not handed out goes back to its place, redelivered.  Therefore
    ``auto_ack`` acknowledges here when a message is handed out, not when it is taken.
    """

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
        self._watched_fd: int | None = None
        self._engine = Engine(store, connection)
        self._engine._face = weakref.ref(self)
        self._engine._set_message_type(Message)
        self._lane = Lane(self._engine, threads, self._look, self._failed)
        self._deliveries = Deliveries()
        self._consumers = Consumers(self._engine, self._lane, self._deliveries)
        self._events = Events(self._engine, self._lane, self._consumers, self._failed, self._report)
        self._receiver = Receiver(self._lane, self._events, self._consumers, self._report)
        self._watched_fd = self._engine._event_fd()
        self._loop.add_reader(self._watched_fd, _signalled, weakref.ref(self), self._watched_fd)
        channels.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        event_fd: int | None = getattr(self, "_watched_fd", None)
        if event_fd is None:
            return
        if self._store._forked:
            return  # the loop watches what the parent's loop watches
        if not self._store.closed and not self._engine.closed:
            self._warn_unclosed()
        with suppress(RuntimeError):  # the loop was closed, and watches nothing any more
            self._loop.call_soon_threadsafe(_forget_watched_fd, self._loop, event_fd, self._engine)

    def _warn_unclosed(self) -> None:
        warnings.warn(f"unclosed channel {self!r}", ResourceWarning, stacklevel=3, source=self)

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__}{' (closed)' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the channel is closed: by ``close()``, by an AMQP error, or with its connection
        or its store."""
        return self._lane.end is not None or self._engine.closed

    async def close(self) -> None:
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Who waits for something on this channel gets ChannelClosed.  A close that is cancelled goes
        on.  In a child of fork() only memory is freed.
        """
        if self._store._forked:
            self._engine.close()
            return
        self._check_loop()
        if self._closing is None:
            self._ended(ChannelClosed(_CLOSED))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with suppress(StoreClosed):  # which closes its channels
            await self._lane.finish(self._engine.close)

    def _ended(self, error: BaseException) -> None:
        """Once: whoever waits learns it."""
        if self._lane.end is not None:
            return
        self._stop_listening()
        self._lane.close(error)
        self._consumers.end(error)
        self._events.end(error)

    def _stop_listening(self) -> None:
        """The descriptor is closed only when nobody watches it: its number may be another's
        then."""
        if self._watched_fd is not None:
            self._loop.remove_reader(self._watched_fd)
            self._watched_fd = None
            self._engine._forget_event_fd()

    def _failed(self, error: BaseException) -> None:
        """A call raised: an AMQP error closes the channel."""
        if isinstance(error, Error) and self._engine.closed:
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
        """What never has to wait lets other tasks run now and then all the same."""
        self._calls += 1
        if self._calls % _CALLS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _threaded(self, call: Callable[[], Any]) -> Any:
        self._check()
        return await self._lane.run(call)

    async def _inline(self, call: Callable[[], Any]) -> Any:
        self._check()
        return await self._lane.run(call, inline=True)

    # Publishing.

    async def confirm_select(self) -> None:
        """As :meth:`pyqstore.Channel.confirm_select`; ``basic_publish`` waits from now on."""
        self._check()
        # In the lane: what comes behind is confirmed, whoever is cancelled meanwhile.
        await self._lane.run(
            self._engine.confirm_select,
            then=lambda _: self._events.select_confirms(),
            inline=True,
        )

    @property
    def next_publish_number(self) -> int:
        """The number the next publish gets; 0 outside confirm mode.

        RuntimeError while a call of this channel is in a thread.
        """
        return self._engine.next_publish_number

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: Buffer | str,
        properties: Properties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
        *,
        delay: float | timedelta | None = None,
    ) -> Confirm:
        """As :meth:`pyqstore.Channel.basic_publish`; in confirm mode ``await`` returns when the
        message is confirmed.

        Many can be under way at once, and those that are confirmed together cost one callback of
        the loop; ``asyncio.gather`` needs no task for them.  PublishRefused: the store refused it
        (nack).  A message that no queue took goes to the return listeners first, with
        ``mandatory``, and is confirmed then; in confirm mode and without a listener this raises
        MessageReturned.  When this is cancelled the message may have been published, and may be
        durable.
        """
        arguments = exchange, routing_key, body, properties, mandatory, immediate, delay
        return Confirm(self._next_turn, self._publish, arguments)

    def _publish(self, confirm: Confirm, arguments: tuple[Any, ...]) -> None:
        """Whatever goes wrong comes out of the confirm."""
        lane, events = self._lane, self._events
        try:
            if get_ident() != self._thread or not self._loop.is_running():
                self._check_loop()
            if lane.end is not None:
                self._check()
            if events.confirms is None or not lane.free:
                self._publish_in_turn(confirm, arguments)
                return
            try:
                events.confirms.publish(confirm, arguments)
            except BlockingIOError:
                self._publish_in_turn(confirm, arguments)
                return
            if not events.looks_soon:
                events.look_soon()
            if arguments[4]:
                self._check_returned(confirm)
        except Exception as error:
            self._failed(error)
            confirm.set_exception(error)

    def _publish_in_turn(self, confirm: Confirm, arguments: tuple[Any, ...]) -> None:
        mandatory = arguments[4]
        self._lane.publish(
            partial(self._engine.basic_publish, *arguments[:-1], delay=arguments[-1]),
            partial(self._published, confirm, mandatory),
            confirm,
        )

    def _published(self, confirm: Confirm, mandatory: bool, number: int) -> None:
        """In the loop, before anything else happens on the channel."""
        confirms = self._events.confirms
        if confirms is not None or mandatory:
            self._events.look_soon()
        if confirms is None:
            self._unconfirmed(confirm)
            return
        confirms.add(number, confirm)
        if mandatory:
            self._check_returned(confirm)
        if self._lane.end is not None:
            confirms.reject(self._lane.end)

    def _check_returned(self, confirm: Confirm) -> None:
        """What was just published may have come back, with no listener to hear of it."""
        returned, confirms = self._engine._take_ignored_returns(), self._events.confirms
        if returned is not None and confirms is not None:
            confirms.fail(confirm, MessageReturned(*returned))

    def _unconfirmed(self, confirm: Confirm) -> None:
        """Outside confirm mode it is done: at once, or, so that publishing for ever does not keep
        other tasks from running, in the loop's next turn."""
        self._calls += 1
        if self._calls % _CALLS_PER_TURN == 0:
            self._loop.call_soon(_confirm_0, confirm)
        else:
            _confirm_0(confirm)

    async def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> Receipt:
        """As :meth:`pyqstore.Channel.publish_batch`, in a thread: returns when the batch is
        accepted, ``await receipt.wait()`` when it is durable."""
        self._check()
        receipt: Receipt = await self._lane.run(
            partial(
                self._engine.publish_batch,
                data,
                exchange,
                routing_key,
                body=body,
                mandatory=mandatory,
                properties=properties,
            ),
            then=self._published_batch,
        )
        return receipt

    def _published_batch(self, receipt: SynchronousReceipt) -> Receipt:
        if self._events.confirms is not None:
            self._events.confirms.add_batch(receipt.last_publish_number, receipt.count)
            returned = self._engine._take_ignored_returns()
            if returned is not None:
                self._events.confirms.note_returned(*returned)
        self._events.look_soon()
        return Receipt.of(receipt, self._threads)

    async def wait_for_confirms(self, timeout: float | None = None) -> bool:
        """Return when every publish so far was confirmed or refused, listeners having run.

        False if any was refused (nacked) since the last call.  Raises MessageReturned as
        :meth:`pyqstore.Channel.wait_for_confirms` does, for batches, and for messages whose
        ``basic_publish`` was cancelled: any other tells itself.  Raises TimeoutError,
        PreconditionFailed outside confirm mode, ChannelClosed.
        """
        end = self._loop.time() + check_timeout(timeout)
        self._check()
        await self._lane.run(_nothing, inline=True, until=end)  # what was begun before is published
        if self._lane.end is not None:
            raise self._lane.end
        if self._events.confirms is None:
            raise PreconditionFailed(
                406, "PRECONDITION_FAILED - the channel is not in confirm mode"
            )
        self._events.look_soon()
        async with asyncio.timeout_at(None if end == math.inf else end):
            return await self._events.confirms.wait()

    def add_confirm_listener(
        self, on_ack: ConfirmCallback | None, on_nack: ConfirmCallback | None
    ) -> None:
        """As :meth:`pyqstore.Channel.add_confirm_listener`; called in the loop.

        What a listener raises goes to the loop's exception handler.
        """
        self._events.confirm_listeners.append((on_ack, on_nack))

    def add_return_listener(self, callback: ReturnCallback) -> None:
        """As :meth:`pyqstore.Channel.add_return_listener`; called in the loop."""
        self._events.return_listeners.append(callback)
        self._lane.post(partial(self._engine._ignore_returns, False))

    def add_cancel_listener(self, callback: Callable[[str], object]) -> None:
        """As :meth:`pyqstore.Channel.add_cancel_listener`; called in the loop."""
        self._events.cancel_listeners.append(callback)

    # Receiving.

    async def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """The first ready message of ``queue``, or None.  NotFound: no such queue."""
        await self._turn()
        message: Message | None = await self._lane.run(
            partial(self._engine.basic_get, queue),
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
                self._engine._withhold(tag, tag)
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
        timeout: float | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """As :meth:`pyqstore.Channel.get_batch`, in a thread; nobody waits there for messages.

        With a ``timeout`` of 0 it looks once, when its turn comes.  With another the time that
        calls before it take counts; what was begun in time is finished.
        """
        end = self._loop.time() + check_timeout(timeout)
        self._check()
        get = partial(self._engine.get_batch, queue, max_messages, max_bytes=max_bytes)
        until = math.inf if timeout == 0 else end

        async def is_message_there() -> bool:
            declare = partial(self._engine._queue_declare, queue, _core.PASSIVE, b"")
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

    async def basic_qos(
        self, prefetch_count: int = 0, global_: bool = False, *, prefetch_size: int = 0
    ) -> None:
        """As :meth:`pyqstore.Channel.basic_qos`."""
        await self._inline(
            partial(self._engine.basic_qos, prefetch_count, global_, prefetch_size=prefetch_size)
        )

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
        """As :meth:`pyqstore.Channel.basic_consume`; the loop runs the callbacks by itself.

        ``callback(message)`` may be a coroutine function.  A consumer's callbacks run one after
        another, those of different consumers beside each other.  What one raises goes to the loop's
        exception handler, and the consumer goes on; its message stays unacknowledged.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
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
                self._engine.basic_consume,
                queue,
                consumer_tag=consumer_tag,
                exclusive=exclusive,
                arguments=arguments,
            ),
            then=register,
            undo=lambda consumer: self._consumers.drop(consumer.tag),
            inline=True,
        )
        return consumer

    async def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer.  What it was handed and has not acknowledged stays unacknowledged; what
        came and was not handed out is requeued.

        A callback that is running ends first; it may call this itself.
        """
        self._check()
        consumer = self._consumers.drop(consumer_tag)
        await self._inline(_nothing)
        task = consumer.task if consumer is not None else None
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task])

    async def process_events(self, timeout: float | None = 0.0) -> int:
        """Return how many events came while this waited, ``timeout`` seconds for the first one.

        The loop hands them to listeners and callbacks by itself: nobody has to call this.
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
        """Return when no consumer with a callback is left: they run without this, too.

        RuntimeError in a callback, which it would wait for.
        """
        self._check()
        while tasks := [c.task for c in self._consumers if c.task is not None]:
            if asyncio.current_task() in tasks:
                raise RuntimeError("this channel is consuming already")
            await asyncio.wait(tasks)
            if self._lane.end is not None:
                return

    async def stop_consuming(self) -> None:
        """Cancel the consumers that have a callback."""
        for consumer in self._consumers:
            if consumer.task is not None:
                await self.basic_cancel(consumer.tag)

    async def next_delivery(
        self,
        consumer_tag: str,
        timeout: float | None = None,
    ) -> Message | None:
        """The next message for a consumer without a callback.

        None when nothing came within ``timeout`` seconds, or the consumer was cancelled, by
        ``basic_cancel`` or because its queue was deleted: then after the last message that came
        before.  One task at a time for each consumer, and none for one with a callback
        (RuntimeError).
        """
        seconds = check_timeout(timeout)
        await self._turn()
        consumer = self._consumers.get(consumer_tag)
        if consumer is None:
            if self._lane.end is not None:
                raise self._lane.end
            return None
        if consumer.task is not None:
            raise RuntimeError("the messages of this consumer go to its callback")
        return await self._receiver.next_message(consumer, seconds)

    def consume(
        self, queue: str, *, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> Messages:
        """Iterate the messages of ``queue`` as they come: ``async for message in ...``.

        The iteration ends when no message came for ``inactivity_timeout`` seconds (None: never), or
        when the queue was deleted.  The consumer is registered by the first step, and cancelled
        when the iteration ends or the iterator is closed or forgotten, which leaving an ``async
        for`` loop does unless a variable keeps it; ``async with`` closes it at once.  A step that
        is cancelled can be made again.

        Messages that were handed out and not acknowledged stay so until the channel closes; but
        when an exception leaves the ``async with`` block, the one in hand is requeued.
        """
        return Messages(self, queue, auto_ack, check_timeout(inactivity_timeout))

    # Settling.

    async def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """As :meth:`pyqstore.Channel.basic_ack`: with ``multiple`` what was handed out before this
        was called."""
        if multiple:
            await self._settle_all(self._engine.basic_ack, delivery_tag, False, False, 0)
            return
        if self._lane.free:
            self._check()
            try:
                self._engine.basic_ack(delivery_tag)
                return
            except BlockingIOError:
                pass
            except Error as error:
                self._failed(error)
                raise
        await self._inline(partial(self._engine.basic_ack, delivery_tag))

    async def basic_nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,
        requeue: bool = True,
        *,
        delay: float | timedelta | None = None,
    ) -> None:
        """As :meth:`pyqstore.Channel.basic_nack`: with ``multiple`` what was handed out before this
        was called."""
        nack = partial(self._engine.basic_nack, requeue=requeue, delay=delay)
        if multiple:
            delay_us = _core.delay_us(requeue, delay)
            await self._settle_all(nack, delivery_tag, requeue, not requeue, delay_us)
        else:
            await self._inline(partial(nack, delivery_tag))

    async def _settle_all(
        self, verb: Callable[..., None], tag: int, requeue: bool, reject: bool, delay_us: int
    ) -> None:
        """Up to ``tag``; 0: all.  Not what is on its way to somebody,
        who could not settle it any more: if it never arrives, it would be lost."""
        self._check()
        if tag < 0 or self._deliveries.handed_out(tag) == [(1, tag)]:
            await self._inline(partial(verb, tag, multiple=True))
            return
        held, last = self._deliveries.held, self._deliveries.last
        settle = partial(self._engine._settle_around, held, tag, requeue, reject, delay_us, last)
        # Inline only what may be begun anew: a tag is known once.
        await self._lane.run(settle, inline=tag == 0)

    async def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        """As :meth:`pyqstore.Channel.basic_reject`."""
        await self._inline(partial(self._engine.basic_reject, delivery_tag, requeue))

    async def basic_recover(self, requeue: bool = True) -> None:
        """As :meth:`pyqstore.Channel.basic_recover`: what was handed out before this was called."""
        if not requeue:
            await self._threaded(partial(self._engine.basic_recover, requeue))
            return
        self._check()
        for consumer in self._consumers:
            self._consumers.put_back(consumer)
        between = self._deliveries.handed_out(self._deliveries.last)
        await self._threaded(partial(self._engine._recover_handed_out, between))

    # Transactions.

    async def tx_select(self) -> None:
        """As :meth:`pyqstore.Channel.tx_select`."""
        await self._inline(self._engine.tx_select)

    async def tx_commit(self, *, key: str | None = None) -> bool:
        """As :meth:`pyqstore.Channel.tx_commit`.  When this is cancelled the transaction may have
        been committed: a ``key`` tells."""
        committed: bool = await self._threaded(partial(self._engine.tx_commit, key=key))
        return committed

    async def tx_rollback(self) -> None:
        """As :meth:`pyqstore.Channel.tx_rollback`."""
        await self._threaded(self._engine.tx_rollback)


def _signalled(channel: weakref.ref[Channel], event_fd: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(event_fd)
    listener = channel()
    if listener is not None:
        listener._events.signalled()


def _forget_watched_fd(loop: asyncio.AbstractEventLoop, event_fd: int, engine: Engine) -> None:
    """In the loop; the engine, which the descriptor belongs to, is here until it is done."""
    loop.remove_reader(event_fd)
    engine._forget_event_fd()
    engine.close()


def _confirm_0(confirm: Confirm) -> None:
    if not confirm.done():
        confirm.set_result(0)


def _nothing() -> None:
    return None
