"""A channel's consumers: those with a callback, and the iterator of ``consume``."""

from __future__ import annotations

import math
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from .... import _core
from ....channel import Channel
from ....channel.events import ALL
from ....errors import NotFound
from ....message import Message
from ....waiting import Deadline
from .. import exceptions, spec
from ..frame import Method
from .declaring import Declaring
from .link import Link
from .translating import check_process

__all__ = ["REPLY_TO", "Consuming"]

REPLY_TO = "amq.rabbitmq.reply-to"
_PRECONDITION_FAILED = 406
_EVENTS_A_TURN = 256

_Told = tuple[spec.Basic.Deliver, spec.BasicProperties, bytes]
_Params = tuple[str, bool, bool]


class _Iterated:
    """The consumer of ``consume``.  It is paused while it has a message that was not asked for
    yet."""

    def __init__(self, params: _Params, tag: str) -> None:
        self.params = params
        self.tag = tag
        self.messages: deque[Message] = deque()
        self.is_over = False


class Consuming(Declaring):
    """Consumers, and the dispatch of their events."""

    def __init__(self, channel_impl: Channel, connection: Link) -> None:
        """See ``BlockingConnection.channel``."""
        super().__init__(channel_impl, connection)
        self._auto_ack: dict[str, bool] = {}  # by consumer tag
        self._iterated: _Iterated | None = None
        self._pending: deque[tuple[int, Any, Any]] = deque()
        self._cancel_callbacks: list[Callable[[Method[spec.Basic.Cancel]], object]] = []
        self._reply_queue: str | None = None
        self._reply_tag: str | None = None
        self._event_fd: int | None = None
        channel_impl.add_cancel_listener(self._cancelled)

    # ---- Events ----

    def _dispatch_events(self) -> int:
        """Runs callbacks for pending events; returns the number of events."""
        handled = 0
        while handled < _EVENTS_A_TURN and not self._impl.closed:
            if self._pending:
                event = self._pending.popleft()
            else:
                found = self._do(self._impl._next_event, ALL, 0)
                if found is None:
                    break
                event = found
            handled += 1
            self._impl._dispatch(event)
        return handled

    def _arm(self) -> bool:
        """Makes events end the connection's wait.  False: there are events already."""
        if self._impl.closed:
            self._end()
            return False
        if self._event_fd is None:  # a duplicate: the engine closes its own with the channel
            self._event_fd = os.dup(self._impl._event_fd())
            self._connection._turns.watch(self._event_fd)
        events, _ = self._do(self._impl._take_events, ALL | _core.EVENT_ARM, 1)
        self._pending.extend(events)
        return not events

    def _end(self) -> None:
        super()._end()
        self._auto_ack.clear()
        self._pending.clear()
        if self._iterated is not None:
            self._iterated.is_over = True
        event_fd, self._event_fd = self._event_fd, None
        if event_fd is not None:
            self._connection._turns.unwatch(event_fd)
            os.close(event_fd)

    def _check_open(self) -> None:
        if self._impl.closed:
            check_process(self._impl._store)
            raise exceptions.ChannelWrongStateError("Channel is closed.")

    def _told(self, message: Message) -> _Told:
        method = spec.Basic.Deliver(
            message.consumer_tag,
            message.delivery_tag,
            message.redelivered,
            message.exchange,
            message.routing_key,
        )
        return method, spec.BasicProperties.of(message.properties), message.body

    def _ready(self, queue: str) -> int:
        with suppress(NotFound):
            return cast(int, self._impl._store._queue_status(queue)["messages_ready"])
        return 0

    # ---- Consumers with a callback ----

    @property
    def consumer_tags(self) -> list[str]:
        """The tags of the channel's consumers."""
        return list(self._auto_ack)

    def basic_consume(
        self,
        queue: str,
        on_message_callback: Callable[
            [Any, spec.Basic.Deliver, spec.BasicProperties, bytes], object
        ],
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Call ``on_message_callback(channel, method, properties, body)`` for each message, while
        events are processed; returns the consumer tag.  ``amq.rabbitmq.reply-to`` is the channel's
        own reply queue."""
        if not callable(on_message_callback):
            raise TypeError(
                f"on_message_callback must be callable, but got {on_message_callback!r}"
            )

        def called(message: Message) -> None:
            on_message_callback(self, *self._told(message))

        return self._consume(queue, called, auto_ack, exclusive, consumer_tag, arguments)

    def _consume(
        self,
        queue: str,
        callback: Callable[[Message], object],
        auto_ack: bool,
        exclusive: bool,
        consumer_tag: str | None,
        arguments: Mapping[str, Any] | None,
    ) -> str:
        tag = consumer_tag or f"ctag{self._number}.{uuid.uuid4().hex}"
        if tag in self._auto_ack:
            raise exceptions.DuplicateConsumerTag(tag)
        is_reply = queue == REPLY_TO
        name = self._open_reply_queue(auto_ack) if is_reply else self._named(queue)
        self._do(
            self._impl.basic_consume,
            name,
            callback,
            auto_ack=auto_ack,
            consumer_tag=tag,
            exclusive=exclusive,
            arguments=arguments,
        )
        self._auto_ack[tag] = auto_ack
        if is_reply:
            self._reply_queue, self._reply_tag = name, tag
        return tag

    def _open_reply_queue(self, auto_ack: bool) -> str:
        """Declares the reply queue, which is deleted with its consumer; returns its name."""
        for is_wrong, what in (
            (not auto_ack, "reply consumer cannot acknowledge"),
            (self._reply_queue is not None, "reply consumer already set"),
        ):
            if is_wrong:
                self._refuse(_PRECONDITION_FAILED, f"PRECONDITION_FAILED - {what}")
        return self._do(self._impl.queue_declare, "", exclusive=True, auto_delete=True).queue

    def basic_cancel(self, consumer_tag: str) -> Sequence[_Told]:
        """Cancel a consumer.  Its messages that were not handed out are requeued, or returned if
        the consumer has ``auto_ack``."""
        if consumer_tag not in self._auto_ack:
            return []
        auto_ack = self._auto_ack.pop(consumer_tag)
        self._do(self._impl.basic_cancel, consumer_tag)
        if consumer_tag == self._reply_tag:
            self._reply_queue = self._reply_tag = None
        kept: deque[tuple[int, Any, Any]] = deque()
        mine: list[tuple[int, Any, Any]] = []
        for event in self._pending:
            is_mine = event[0] == _core.EVENT_DELIVERY and event[1].consumer_tag == consumer_tag
            (mine if is_mine else kept).append(event)
        self._pending = kept
        if auto_ack:
            return [self._told(message) for _, message, _ in mine]
        for _, message, _ in mine:
            self._do(self._impl.basic_reject, message.delivery_tag, True)
        return []

    def add_on_cancel_callback(
        self, callback: Callable[[Method[spec.Basic.Cancel]], object]
    ) -> None:
        """Call ``callback`` when a consumer is cancelled because its queue was deleted."""
        self._cancel_callbacks.append(callback)

    def _cancelled(self, consumer_tag: str) -> None:
        self._auto_ack.pop(consumer_tag, None)
        if self._iterated is not None and self._iterated.tag == consumer_tag:
            self._iterated.is_over = True
            return
        for callback in self._cancel_callbacks:
            callback(Method(self._number, spec.Basic.Cancel(consumer_tag)))

    def _cancel_all(self) -> None:
        if self._iterated is not None:
            self.cancel()
        for tag in list(self._auto_ack):
            self.basic_cancel(tag)

    def start_consuming(self) -> None:
        """Process events until no consumer is left."""
        if self._connection._callbacks_running:
            raise exceptions.ReentrancyError("start_consuming may not be called in a callback")
        self._check_open()
        while self._auto_ack:
            self._connection.process_data_events(time_limit=None)

    def stop_consuming(self, consumer_tag: str | None = None) -> None:
        """Cancel one consumer, or all of them."""
        if consumer_tag:
            self.basic_cancel(consumer_tag)
        else:
            self._cancel_all()

    # ---- The consumer that is iterated ----

    def consume(
        self,
        queue: str,
        auto_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        inactivity_timeout: float | None = None,
        consumer_tag: str | None = None,
    ) -> Iterator[_Told | tuple[None, None, None]]:
        """Iterate over messages as (method, properties, body); yields three times None after
        ``inactivity_timeout`` seconds without one.  The consumer lasts until ``cancel()``; before
        that, another call with the same queue continues it."""
        self._check_open()
        iterated = self._iterated or self._begin(
            (queue, auto_ack, exclusive), arguments, consumer_tag
        )
        if iterated.params != (queue, auto_ack, exclusive):
            raise ValueError(
                f"consume() goes on with {iterated.params!r} until cancel(), and cannot begin"
                f" with {(queue, auto_ack, exclusive)!r}"
            )
        while iterated is self._iterated:
            message = self._next(iterated, Deadline(inactivity_timeout))
            if message is not None:
                yield self._told(message)
            elif iterated.is_over:
                self._check_open()
                self._iterated = None
            elif iterated is self._iterated:
                yield None, None, None

    def _begin(
        self, params: _Params, arguments: Mapping[str, Any] | None, tag: str | None
    ) -> _Iterated:
        queue, auto_ack, exclusive = params
        iterated = _Iterated(params, "")

        def called(message: Message) -> None:
            iterated.messages.append(message)
            self._do(self._impl._pause, iterated.tag, True)

        iterated.tag = self._consume(queue, called, auto_ack, exclusive, tag, arguments)
        self._iterated = iterated
        return iterated

    def _next(self, iterated: _Iterated, deadline: Deadline) -> Message | None:
        """The next message; None after the deadline or when the consumer has ended.  Raises
        Forked."""
        check_process(self._impl._store)
        if not iterated.messages and not iterated.is_over:
            self._do(self._impl._pause, iterated.tag, False)
        while not iterated.messages and not iterated.is_over:
            left = deadline.left_s()
            self._connection.process_data_events(None if math.isinf(left) else left)
            if iterated is not self._iterated or deadline.over:
                break
        return iterated.messages.popleft() if iterated.messages else None

    def get_waiting_message_count(self) -> int:
        """The number of messages that ``consume`` can yield without a wait."""
        return 0 if self._iterated is None else len(self._iterated.messages)

    def cancel(self) -> int:
        """End ``consume`` and requeue the messages that were not handed out.  Returns 0, as in
        pika."""
        iterated, self._iterated = self._iterated, None
        if iterated is not None:
            if not iterated.params[1]:
                for message in iterated.messages:
                    self._do(self._impl.basic_reject, message.delivery_tag, True)
            self.basic_cancel(iterated.tag)
        return 0
