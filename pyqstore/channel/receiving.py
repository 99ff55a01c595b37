"""Receiving: in callbacks, message by message, iterated, in record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from ..iteration import Messages
from ..message import Message
from ..waiting import SLICE_NS, Deadline, Seconds, check_main, check_timeout
from .arguments import Arguments
from .events import ALL, Events

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Receiving"]

_U64_MAX = 2**64 - 1


class Receiving(Events):
    """The verbs that wait for messages."""

    def start_consuming(self) -> None:
        """Run callbacks and listeners until ``stop_consuming``, until no consumer with a callback
        is left, or until one of them closes the channel.

        An exception of a callback is raised here, and consuming can be started again.
        """
        self._check_process()
        if self._consuming:
            raise RuntimeError("this channel is consuming already")
        if self._left:
            self._cancel_left()
        self._consuming = True
        self._stop = False
        dispatch = self._dispatch
        try:
            while self._callbacks and not self._stop:
                event = self._next_event(ALL, SLICE_NS)
                if event is None:
                    check_main()
                else:
                    dispatch(event)
                    if self.closed:
                        break
        finally:
            self._consuming = False
            stopped, self._stop = self._stop, False
            if stopped and not self.closed:
                self._cancel_callbacks()

    def stop_consuming(self) -> None:
        """Cancel the consumers that have a callback, which ends ``start_consuming``.

        It may be called from a callback, or from another thread: then it takes effect within 0.1 s.
        """
        self._check_process()
        if self._consuming:
            self._stop = True
        else:
            self._cancel_callbacks()

    def next_delivery(self, consumer_tag: str, timeout: Seconds | None = None) -> Message | None:
        """The next message for a consumer without a callback.

        Returns None if nothing came within ``timeout`` seconds, or ``basic_cancel`` cancelled the
        consumer.  Raises RuntimeError for a consumer with a callback, which gets its messages.
        Raises NotFound after the last message if the queue was deleted, each time until the tag is
        cancelled or given to another consumer; the channel stays open.

        Listeners and other consumers' callbacks run meanwhile.  Messages for other consumers
        without a callback wait for their turn; a consumer with 256 messages or 256 KiB waiting gets
        no more until those were taken, as if its prefetch were used up.
        """
        check_timeout(timeout)
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None and consumer.callback is not None:
            raise RuntimeError("the messages of this consumer go to its callback")
        message = self._next_delivery(consumer_tag, timeout)
        if message is None:
            self._check_there(consumer_tag)
        return message

    def _next_delivery(self, consumer_tag: str, timeout: Seconds | None) -> Message | None:
        deadline: Deadline | None = None  # for what is there already nobody looks at the clock
        if self._left:
            self._cancel_left()
        while True:
            consumer = self._consumers.get(consumer_tag)
            if consumer is None:
                self._check_process()
                return None
            if consumer.buffered:
                if len(consumer.buffered) == 1:
                    self._resume(consumer_tag, consumer)
                return consumer.buffered.popleft()
            if consumer.cancelled:
                self._forget(consumer_tag)
                return None
            event = self._next_event(ALL, 0 if deadline is None else deadline.slice_ns())
            if event is not None:
                kind, what, _ = event
                if kind == _core.EVENT_DELIVERY and what.consumer_tag == consumer_tag:
                    message: Message = what
                    return message
                self._dispatch(event)
            elif deadline is None:
                deadline = Deadline(timeout)
            elif deadline.over:
                return None

    def consume(
        self,
        queue: str,
        *,
        auto_ack: bool = False,
        inactivity_timeout: Seconds | None = None,
        consumer_tag: str = "",
        arguments: Arguments | None = None,
    ) -> Messages:
        """Iterate the messages of ``queue`` as they come.  ``consumer_tag`` and ``arguments``: as
        of :meth:`basic_consume`.

        The iteration ends when no message came for ``inactivity_timeout`` seconds (None: never), or
        when the queue was deleted: without an exception, as in pika.  The consumer is registered by
        the first step, and cancelled when the iteration ends or the iterator is closed or
        forgotten, which leaving a ``for`` loop does unless a variable keeps it; ``with`` closes it
        at once::

            with channel.consume("q") as messages:
                for message in messages:
                    handle(message)
                    message.ack()

        Unacknowledged messages stay so until the channel closes; but if an exception leaves the
        ``with`` block, the current message is requeued.
        """
        check_timeout(inactivity_timeout)
        self._check_process()
        return Messages(self, queue, auto_ack, inactivity_timeout, consumer_tag, arguments)

    def get_batch(
        self,
        queue: str,
        max_messages: int = 65536,
        *,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: Seconds | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """Take up to ``max_messages`` ready messages as one record batch, without rows if none came
        within ``timeout``.

        Columns: ``delivery_tag`` uint64 (ascending: ``basic_ack(last, multiple=True)`` takes them
        all), ``redelivered`` bool, ``exchange`` and ``routing_key`` dictionary<string>, ``body``
        binary, ``headers`` map<string, string>, and the other properties.  ``max_bytes`` bounds the
        bodies together; one message always fits.  The data are not copied on the way from the
        engine.  Needs pyarrow (ImportError).  NotFound: no such queue.
        """
        from pyarrow import record_batch

        most = _positive("max_messages", max_messages)
        bytes_most = _U64_MAX if max_bytes is None else _positive("max_bytes", max_bytes)
        deadline = Deadline(timeout)
        while True:
            batch = self._get_batch(queue, most, bytes_most, auto_ack, deadline.slice_ns())
            if len(batch) > 0 or deadline.over:
                try:
                    return record_batch(batch)
                except BaseException:
                    self._withhold_batch(batch)
                    raise


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not 1 <= value <= _U64_MAX:
        raise ValueError(f"{name} must be 1 or more, not {value}")
    return value
