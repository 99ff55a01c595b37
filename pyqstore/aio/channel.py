"""Asynchronous channels: the verbs of AMQP 0-9-1, awaited."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import _core
from ..channel import Arguments, ConfirmCallback, ReturnCallback
from ..errors import ChannelClosed, Error, ForkedStore, PreconditionFailed
from ..message import DeclareOk
from ..message import Receipt as SynchronousReceipt
from ..properties import Properties
from ..waiting import check_timeout
from .confirms import Confirms
from .engine import Engine
from .lane import Lane
from .message import Message, Receipt

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from typing_extensions import Buffer

__all__ = ["Channel", "Messages"]

MessageCallback = Callable[[Message], Awaitable[object] | object]

_QUIET = _core.EVENT_RETURN | _core.EVENT_ACK | _core.EVENT_NACK | _core.EVENT_CANCEL
_ALL = _QUIET | _core.EVENT_DELIVERY
_EVENTS_PER_TURN = 256
_DELIVERIES_PER_THREAD_CALL = 16
_CALLS_PER_TURN = 64
_CLOSED = "the channel is closed"


class _Consumer:
    """held: what came and was not handed out yet.  cancelled: nothing comes any more."""

    __slots__ = ("auto_ack", "cancelled", "error", "held", "tag", "task", "waiter")

    def __init__(self, auto_ack: bool) -> None:
        self.auto_ack = auto_ack
        self.cancelled = False
        self.error: BaseException | None = None
        self.held: deque[Message] = deque()
        self.tag = ""
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Channel:
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
        self, store: _core.Store, executor: ThreadPoolExecutor, connection: _core.Connection | None
    ) -> None:
        """See ``Store.channel``."""
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._executor = executor
        self._end: BaseException | None = None
        self._closing: asyncio.Task[None] | None = None
        self._confirms: Confirms | None = None
        self._consumers: dict[str, _Consumer] = {}
        self._changes: list[asyncio.Future[None]] = []
        self._confirm_listeners: list[tuple[ConfirmCallback | None, ConfirmCallback | None]] = []
        self._return_listeners: list[ReturnCallback] = []
        self._cancel_listeners: list[Callable[[str], object]] = []
        self._looks_soon = False
        self._is_armed = False
        self._calls = 0
        self._bell: int | None = None
        self._engine = Engine(store, connection)
        self._engine._face = weakref.ref(self)
        self._engine._set_message_type(Message)
        self._lane = Lane(self._engine, executor, self._look, self._failed)
        self._bell = self._engine._event_fd()
        self._loop.add_reader(self._bell, _ring, weakref.ref(self), self._bell)

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
        bell: int | None = getattr(self, "_bell", None)
        if bell is None:
            return
        if not self._store.closed and not self._store._forked and not self._engine.closed:
            warnings.warn(f"unclosed channel {self!r}", ResourceWarning, stacklevel=2, source=self)
        with suppress(RuntimeError):  # the loop was closed, and watches nothing any more
            self._loop.call_soon_threadsafe(_forget_bell, self._loop, bell, self._engine)

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__}{' (closed)' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the channel is closed: by ``close()``, by an AMQP error, or with its connection
        or its store."""
        return self._end is not None or self._engine.closed

    async def close(self) -> None:
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Who waits for something on this channel gets ChannelClosed.  A close that is cancelled goes
        on.
        """
        self._check_loop()
        if self._closing is None:
            self._ended(ChannelClosed(_CLOSED))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._store.closed:
            self._engine.close()  # only memory is left to free
        else:
            with suppress(ChannelClosed):  # the store is being closed, and its channels with it
                await self._lane.run(self._engine.close)

    def _ended(self, error: BaseException) -> None:
        """Once: whoever waits learns it."""
        if self._end is not None:
            return
        self._end = error
        if self._bell is not None:
            self._loop.remove_reader(self._bell)
            self._bell = None
        self._lane.reject(error)
        if self._confirms is not None:
            self._confirms.reject(error)
        for consumer in self._consumers.values():
            consumer.cancelled = True
            consumer.error = error
            consumer.held.clear()  # closing puts them back
            consumer.wake()
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    def _failed(self, error: BaseException) -> None:
        """A call raised: an AMQP error closes the channel."""
        if isinstance(error, Error) and self._engine.closed:
            self._ended(ChannelClosed(f"{_CLOSED}: {error}"))

    def _check_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # a child of fork() is in none
            if self._store._forked:
                raise ForkedStore(
                    "the store was opened before fork(); open it in this process"
                ) from None
            raise
        if running is not self._loop:
            raise RuntimeError("this channel belongs to another event loop; open one in each")

    def _check(self) -> None:
        self._check_loop()
        if self._closing is not None:
            raise ChannelClosed(_CLOSED)

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

    # Declarations.

    async def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """As :meth:`pyqstore.Channel.exchange_declare`."""
        await self._threaded(
            partial(
                self._engine.exchange_declare,
                exchange,
                exchange_type,
                passive=passive,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
        )

    async def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:
        """As :meth:`pyqstore.Channel.exchange_delete`."""
        await self._threaded(partial(self._engine.exchange_delete, exchange, if_unused))

    async def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """As :meth:`pyqstore.Channel.exchange_bind`."""
        await self._threaded(
            partial(self._engine.exchange_bind, destination, source, routing_key, arguments)
        )

    async def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """As :meth:`pyqstore.Channel.exchange_unbind`."""
        await self._threaded(
            partial(self._engine.exchange_unbind, destination, source, routing_key, arguments)
        )

    async def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> DeclareOk:
        """As :meth:`pyqstore.Channel.queue_declare`."""
        answer: DeclareOk = await self._threaded(
            partial(
                self._engine.queue_declare,
                queue,
                passive=passive,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
            )
        )
        return answer

    async def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """As :meth:`pyqstore.Channel.queue_bind`."""
        await self._threaded(
            partial(self._engine.queue_bind, queue, exchange, routing_key, arguments)
        )

    async def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """As :meth:`pyqstore.Channel.queue_unbind`."""
        await self._threaded(
            partial(self._engine.queue_unbind, queue, exchange, routing_key, arguments)
        )

    async def queue_purge(self, queue: str) -> int:
        """As :meth:`pyqstore.Channel.queue_purge`."""
        count: int = await self._threaded(partial(self._engine.queue_purge, queue))
        return count

    async def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """As :meth:`pyqstore.Channel.queue_delete`."""
        count: int = await self._threaded(
            partial(self._engine.queue_delete, queue, if_unused, if_empty)
        )
        return count

    # Publishing.

    async def confirm_select(self) -> None:
        """As :meth:`pyqstore.Channel.confirm_select`; ``basic_publish`` waits from now on."""
        await self._inline(self._engine.confirm_select)
        if self._confirms is None:
            self._confirms = Confirms()

    @property
    def next_publish_number(self) -> int:
        """The number the next publish gets; 0 outside confirm mode.

        RuntimeError while a call of this channel is in a thread.
        """
        return self._engine.next_publish_number

    async def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: Buffer | str,
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> int:
        """As :meth:`pyqstore.Channel.basic_publish`; in confirm mode it returns when the message is
        confirmed.

        Many can be under way at once, with ``asyncio.gather`` for example, and are confirmed
        together.  PublishRefused: the store refused it (nack).  A message that no queue took goes
        to the return listeners first, with ``mandatory``, and is confirmed then.  When this is
        cancelled the message may have been published, and may be durable.
        """
        self._check()
        publish = partial(
            self._engine.basic_publish, exchange, routing_key, body, properties, mandatory
        )
        if self._lane.free:
            try:
                answer = self._published(mandatory, publish())
            except BlockingIOError:
                answer = await self._publish_in_thread(publish, mandatory)
            except Error as error:
                self._failed(error)
                raise
        else:
            answer = await self._publish_in_thread(publish, mandatory)
        if answer is None:
            await self._breathe()  # only now: publishes keep the order in which they began
            return 0
        number: int = await answer
        return number

    async def _publish_in_thread(
        self, publish: Callable[[], int], mandatory: bool
    ) -> asyncio.Future[int] | None:
        answer: asyncio.Future[int] | None = await self._lane.run(
            publish, then=partial(self._published, mandatory), undo=_abandon, inline=True
        )
        return answer

    def _published(self, mandatory: bool, number: int) -> asyncio.Future[int] | None:
        if self._confirms is not None or mandatory:
            self._look_soon()
        if self._confirms is None:
            return None
        future = self._confirms.add(number)
        if self._end is not None:
            self._confirms.reject(self._end)
        return future

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
        if self._confirms is not None:
            self._confirms.add_batch(receipt.last_publish_number, receipt.count)
        self._look_soon()
        return Receipt.of(receipt, self._executor)

    async def wait_for_confirms(self, timeout: float | None = None) -> bool:
        """Return when every publish so far was confirmed or refused, listeners having run.

        False if any was refused (nacked) since the last call.  Raises TimeoutError,
        PreconditionFailed outside confirm mode, ChannelClosed.
        """
        check_timeout(timeout)
        self._check()
        if self._confirms is None:
            raise PreconditionFailed(
                406, "PRECONDITION_FAILED - the channel is not in confirm mode"
            )
        await self._inline(_nothing)  # what was begun before is published
        if self._end is not None:
            raise self._end
        self._look_soon()
        async with asyncio.timeout(timeout):
            return await self._confirms.wait()

    def add_confirm_listener(
        self, on_ack: ConfirmCallback | None, on_nack: ConfirmCallback | None
    ) -> None:
        """As :meth:`pyqstore.Channel.add_confirm_listener`; called in the loop.

        What a listener raises goes to the loop's exception handler.
        """
        self._confirm_listeners.append((on_ack, on_nack))

    def add_return_listener(self, callback: ReturnCallback) -> None:
        """As :meth:`pyqstore.Channel.add_return_listener`; called in the loop."""
        self._return_listeners.append(callback)

    def add_cancel_listener(self, callback: Callable[[str], object]) -> None:
        """As :meth:`pyqstore.Channel.add_cancel_listener`; called in the loop."""
        self._cancel_listeners.append(callback)

    # Events.

    def _look_soon(self) -> None:
        if not self._looks_soon:
            self._looks_soon = True
            self._loop.call_soon(self._look)

    def _on_bell(self) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)
        self._look()

    def _wants_deliveries(self) -> bool:
        return any(
            consumer.waiter is not None and not consumer.waiter.done() and not consumer.held
            for consumer in self._consumers.values()
        )

    def _look(self) -> None:
        """Take what is there, for those who wait; the bell rings for what is not there yet."""
        self._looks_soon = False
        taken = 0
        while self._end is None and self._lane.free:
            wanted = self._wants_deliveries()
            kinds = (_ALL if wanted else _QUIET) | _core.EVENT_ARM
            kinds |= _core.EVENT_CHANGE if self._changes else 0
            count, would_wait = self._take(kinds, 1 if wanted else _EVENTS_PER_TURN)
            if would_wait:
                self._fetch()
                return
            if count == 0:
                self._is_armed = True
                return
            taken += count
            if taken >= _EVENTS_PER_TURN:
                self._look_soon()
                return

    def _take(self, kinds: int, most: int) -> tuple[int, bool]:
        """How many events there were; whether the next one would have to be waited for."""
        try:
            events, would_wait = self._engine._take_events(kinds, most)
        except Exception as error:
            self._failed(error)
            if self._end is None:
                self._blame(error)
                return 1, False
            return 0, False
        for event in events:
            self._dispatch(event)
        return len(events), would_wait

    def _fetch(self) -> None:
        """The next message has to be read from a file: in a thread, and some more with it."""

        def take() -> None:
            events, _ = self._engine._take_events(_ALL, _DELIVERIES_PER_THREAD_CALL)
            fetched.extend(events)

        def dispatch(_: None) -> None:
            for event in fetched:
                self._dispatch(event)

        fetched: list[tuple[int, Any, Any]] = []
        fetching = self._loop.create_task(self._lane.run(take, then=dispatch))
        fetching.add_done_callback(self._fetched)

    def _fetched(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None and self._end is None:
                self._blame(error)

    def _blame(self, error: BaseException) -> None:
        """What went wrong with a message that has no number: whoever waits for one hears of it."""
        for consumer in self._consumers.values():
            if consumer.waiter is not None and not consumer.waiter.done():
                consumer.error = error
                consumer.wake()
                return
        self._report(error)

    def _report(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": f"in a callback of {self!r}", "exception": error}
        )

    def _dispatch(self, event: tuple[int, Any, Any]) -> None:
        kind, what, detail = event
        if kind == _core.EVENT_DELIVERY:
            consumer = self._consumers.get(what.consumer_tag)
            if consumer is None or consumer.cancelled:
                self._settle_soon(what.delivery_tag, what.delivery_tag, requeue=True)
            else:
                consumer.held.append(what)
                consumer.wake()
        elif kind in (_core.EVENT_ACK, _core.EVENT_NACK):
            multiple, count = detail
            self._decided(what, multiple, count, kind == _core.EVENT_ACK)
        elif kind == _core.EVENT_RETURN:
            for on_return in self._return_listeners:
                self._call(on_return, what)
        elif kind == _core.EVENT_CANCEL:
            consumer = self._consumers.get(what)
            self._engine._forget(what)
            if consumer is not None:
                consumer.cancelled = True
                consumer.wake()
            for on_cancel in self._cancel_listeners:
                self._call(on_cancel, what)
        else:
            self._failed(what)
            self._blame(what)

    def _decided(self, number: int, multiple: bool, count: int, confirmed: bool) -> None:
        for on_ack, on_nack in self._confirm_listeners:
            listener = on_ack if confirmed else on_nack
            if listener is not None:
                self._call(listener, number, multiple)
        if self._confirms is not None:
            self._confirms.decide(number, multiple, count, confirmed)

    def _call(self, listener: Callable[..., object], *arguments: object) -> None:
        try:
            listener(*arguments)
        except Exception as error:
            self._report(error)

    # Receiving.

    def _settle_soon(self, first_tag: int, last_tag: int, requeue: bool) -> None:
        if self._end is None:
            self._lane.post(partial(self._engine._settle_range, first_tag, last_tag, requeue))

    async def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """The first ready message of ``queue``, or None.  NotFound: no such queue."""
        await self._turn()
        message: Message | None = await self._lane.run(
            partial(self._engine.basic_get, queue), undo=self._give_back, inline=True
        )
        if message is not None and auto_ack:
            self._settle_soon(message.delivery_tag, message.delivery_tag, requeue=False)
        return message

    def _give_back(self, message: Message | None) -> None:
        if message is not None:
            self._settle_soon(message.delivery_tag, message.delivery_tag, requeue=True)

    async def get_batch(
        self,
        queue: str,
        max_messages: int = 65536,
        *,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: float | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """As :meth:`pyqstore.Channel.get_batch`, in a thread; nobody waits there for messages."""
        check_timeout(timeout)
        self._check()
        get = partial(self._engine.get_batch, queue, max_messages, max_bytes=max_bytes)
        end = math.inf if timeout is None else self._loop.time() + timeout
        while True:
            batch = await self._lane.run(get, undo=self._give_batch_back)
            if len(batch) > 0:
                if auto_ack:
                    self._settle_soon(*_tags_of(batch), requeue=False)
                return batch
            if not await self._message_comes(queue, end):
                return batch

    def _give_batch_back(self, batch: pyarrow.RecordBatch) -> None:
        if len(batch) > 0:
            self._settle_soon(*_tags_of(batch), requeue=True)

    async def _message_comes(self, queue: str, end: float) -> bool:
        """Whether a message is ready in the queue before the time is over."""
        while self._loop.time() < end:
            change: asyncio.Future[None] = self._loop.create_future()
            self._changes.append(change)
            try:
                # Armed first: what comes after this look rings.
                self._look()
                declared = await self._inline(
                    partial(self._engine._queue_declare, queue, _core.PASSIVE, b"")
                )
                if declared[1] > 0:
                    return True
                self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if end == math.inf else end):
                        await change
            finally:
                self._changes.remove(change)
            if self._end is not None:
                raise self._end
        return False

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
        self._check()
        consumer = _Consumer(auto_ack)

        def register(tag: str) -> str:
            consumer.tag = tag
            self._consumers[tag] = consumer
            self._look_soon()  # its queue may be deleted
            if callback is not None:
                consumer.task = self._loop.create_task(self._serve(consumer, callback))
            return tag

        tag: str = await self._lane.run(
            partial(
                self._engine.basic_consume,
                queue,
                consumer_tag=consumer_tag,
                exclusive=exclusive,
                arguments=arguments,
            ),
            then=register,
            undo=self._drop_consumer,
            inline=True,
        )
        return tag

    async def _serve(self, consumer: _Consumer, callback: MessageCallback) -> None:
        while True:
            try:
                message = await self._next_message(consumer, math.inf)
            except ChannelClosed:
                return
            except Exception as error:
                self._report(error)
                continue
            if message is None:
                self._consumers.pop(consumer.tag, None)
                return
            try:
                answer = callback(message)
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:
                self._report(error)

    async def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer.  What it was handed and has not acknowledged stays unacknowledged; what
        came and was not handed out is requeued.

        A callback that is running ends first; it may call this itself.
        """
        self._check()
        consumer = self._drop_consumer(consumer_tag)
        await self._inline(_nothing)
        task = consumer.task if consumer is not None else None
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task])

    def _drop_consumer(self, consumer_tag: str) -> _Consumer | None:
        consumer = self._consumers.pop(consumer_tag, None)
        if self._end is None:
            self._lane.post(partial(self._engine.basic_cancel, consumer_tag))
        if consumer is not None:
            consumer.cancelled = True
            while consumer.held:
                message = consumer.held.pop()
                self._settle_soon(message.delivery_tag, message.delivery_tag, requeue=True)
            consumer.wake()
        return consumer

    async def start_consuming(self) -> None:
        """Return when no consumer with a callback is left: they run without this, too."""
        self._check()
        while tasks := [c.task for c in self._consumers.values() if c.task is not None]:
            await asyncio.wait(tasks)
            if self._end is not None:
                return

    async def stop_consuming(self) -> None:
        """Cancel the consumers that have a callback."""
        for consumer in list(self._consumers.values()):
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
        before.  One task at a time for each consumer (RuntimeError).
        """
        check_timeout(timeout)
        await self._turn()
        consumer = self._consumers.get(consumer_tag)
        if consumer is None:
            if self._end is not None:
                raise self._end
            return None
        end = math.inf if timeout is None else self._loop.time() + timeout
        return await self._next_message(consumer, end)

    async def _next_message(self, consumer: _Consumer, end: float) -> Message | None:
        """Nothing is awaited between taking a message and returning it, so none is lost."""
        if consumer.waiter is not None:
            raise RuntimeError("another task waits for the messages of this consumer")
        while True:
            if consumer.error is not None:
                error = consumer.error
                if self._end is None:
                    consumer.error = None
                raise error
            if consumer.held:
                message = consumer.held.popleft()
                if consumer.auto_ack:
                    self._settle_soon(message.delivery_tag, message.delivery_tag, requeue=False)
                return message
            if consumer.cancelled:
                self._consumers.pop(consumer.tag, None)
                return None
            if self._lane.free:
                if self._is_armed:  # asking disarms, and others may wait as well
                    self._is_armed = False
                    self._look_soon()
                count, would_wait = self._take(_ALL, 1)
                if count > 0 and not would_wait:
                    continue
            if self._loop.time() >= end:
                return None
            await self._wait_for_delivery(consumer, end)

    async def _wait_for_delivery(self, consumer: _Consumer, end: float) -> None:
        consumer.waiter = self._loop.create_future()
        try:
            self._look()
            if not consumer.waiter.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if end == math.inf else end):
                        await consumer.waiter
        finally:
            consumer.waiter = None

    def consume(
        self, queue: str, *, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> Messages:
        """Iterate the messages of ``queue`` as they come: ``async for message in ...``.

        The iteration ends when no message came for ``inactivity_timeout`` seconds (None: never), or
        when the queue was deleted.  The consumer is registered by the first step, and cancelled
        when the iteration ends or the iterator is closed or forgotten; ``async with`` closes it at
        once. A step that is cancelled can be made again.
        """
        check_timeout(inactivity_timeout)
        return Messages(self, queue, auto_ack, inactivity_timeout)

    # Settling.

    async def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """As :meth:`pyqstore.Channel.basic_ack`."""
        if self._lane.free:
            self._check()
            try:
                self._engine.basic_ack(delivery_tag, multiple)
                return
            except BlockingIOError:
                pass
            except Error as error:
                self._failed(error)
                raise
        await self._inline(partial(self._engine.basic_ack, delivery_tag, multiple))

    async def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True
    ) -> None:
        """As :meth:`pyqstore.Channel.basic_nack`."""
        await self._inline(partial(self._engine.basic_nack, delivery_tag, multiple, requeue))

    async def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        """As :meth:`pyqstore.Channel.basic_reject`."""
        await self._inline(partial(self._engine.basic_reject, delivery_tag, requeue))

    async def basic_recover(self, requeue: bool = True) -> None:
        """As :meth:`pyqstore.Channel.basic_recover`."""
        await self._threaded(partial(self._engine.basic_recover, requeue))

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


class Messages(AsyncIterator[Message]):
    """The messages of a queue, as they come: from ``Channel.consume``."""

    def __init__(
        self, channel: Channel, queue: str, auto_ack: bool, inactivity_timeout: float | None
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._auto_ack = auto_ack
        self._timeout = math.inf if inactivity_timeout is None else inactivity_timeout
        self._consumer: _Consumer | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        channel = self._channel
        if self._is_over:
            raise StopAsyncIteration
        await channel._turn()
        if self._consumer is None:
            tag = await channel.basic_consume(self._queue, auto_ack=self._auto_ack)
            self._consumer = channel._consumers[tag]
        end = math.inf if self._timeout == math.inf else channel._loop.time() + self._timeout
        message = await channel._next_message(self._consumer, end)
        if message is None:
            await self.aclose()
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        """Cancel the consumer; what came for it and was not handed out is requeued."""
        self._is_over = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None and not self._channel.closed:
            self._channel._check_loop()
            self._channel._drop_consumer(consumer.tag)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._consumer is not None:
            with suppress(RuntimeError):  # the loop was closed
                channel = self._channel
                channel._loop.call_soon_threadsafe(channel._drop_consumer, self._consumer.tag)


def _ring(channel: weakref.ref[Channel], bell: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(bell)
    listener = channel()
    if listener is not None:
        listener._on_bell()


def _forget_bell(loop: asyncio.AbstractEventLoop, bell: int, engine: Engine) -> None:
    """In the loop; the engine, which the descriptor belongs to, is here until it is done."""
    loop.remove_reader(bell)
    engine.close()


def _abandon(future: asyncio.Future[int] | None) -> None:
    if future is not None:
        future.cancel()


def _nothing() -> None:
    return None


def _tags_of(batch: pyarrow.RecordBatch) -> tuple[int, int]:
    tags = batch.column("delivery_tag")
    return tags[0].as_py(), tags[-1].as_py()
