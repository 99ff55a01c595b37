"""Consumers: registered, cancelled."""

from __future__ import annotations

import logging

from .. import _core
from ..callbacks import check_callable
from ..errors import NotFound
from ..message import Message
from .arguments import Arguments, encoded, flag
from .handle import Consumer, MessageCallback
from .settling import Settling

__all__ = ["Consuming", "warn_of_end"]

_log = logging.getLogger(__name__)
_GONE_MAX = 256


class Consuming(Settling):
    """The consumers of a channel."""

    def basic_consume(
        self,
        queue: str,
        callback: MessageCallback | None = None,
        *,
        auto_ack: bool = False,
        consumer_tag: str = "",
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> str:
        """Register a consumer and return its tag; the store makes up a missing tag.

        ``callback(message)`` runs inside ``start_consuming`` or ``process_events``.  A consumer
        without a callback is read with :meth:`next_delivery`.

        ``arguments``: ``x-priority``, a whole number, 0 without one; others have no effect.
        Messages go to the consumers with the highest priority while one of them has room, that is,
        fewer messages unacknowledged than ``basic_qos`` allows, whether or not its channel asks for
        messages.  Consumers of one priority take turns, across channels: of n consumers with room
        the m-th message is for the one at m modulo n, whichever channel asks first.

        In a queue declared with ``x-single-active-consumer`` only one consumer gets messages: the
        first one.  When it is cancelled or its channel closes, the consumer with the highest
        priority that was registered first takes over.  Unacknowledged messages stay with the old
        one.

        A consumer of a stream reads by a cursor.  ``x-stream-offset`` says where it begins:
        "first", "last", "next" (the default), an offset, a datetime (naive is local time), or an
        age such as "1h".  ``basic_qos``, which must be set, limits the unacknowledged messages; an
        acknowledgement makes room and removes nothing.  Each message has its offset in the header
        ``x-stream-offset``.  ``x-stream-filter``, a str or several, asks for messages whose header
        ``x-stream-filter-value`` is one of these, with ``x-stream-match-unfiltered`` also for those
        without one.  With ``x-stream-automatic-offset-tracking`` acknowledgements record the
        consumer's offset under ``consumer_tag``, and the next consumer of that tag continues there.

        NotAllowed: the channel has a consumer of that tag; NotFound: no such queue; ResourceLocked:
        another connection's exclusive queue; PreconditionFailed: ``x-priority`` is not a whole
        number; AccessRefused: the queue has an exclusive consumer, or ``exclusive`` is asked for
        beside another one or with ``x-single-active-consumer``.
        """
        check_callable(callback=callback)
        flags = (_core.NO_ACK if flag("auto_ack", auto_ack) else 0) | (
            _core.EXCLUSIVE if flag("exclusive", exclusive) else 0
        )
        tag = self._consume(queue, consumer_tag, flags, encoded(arguments))
        self._gone.pop(tag, None)
        self._consumers[tag] = Consumer(callback, auto_ack)
        if callback is not None:
            self._callbacks += 1
        return tag

    def basic_cancel(self, consumer_tag: str) -> list[Message]:
        """Stop a consumer.  Messages that it was handed and has not acknowledged stay
        unacknowledged.

        Messages that came for a consumer without a callback and were not asked for yet are
        requeued; with ``auto_ack`` they have left the queue and are returned.
        """
        self._cancel(consumer_tag)
        self._gone.pop(consumer_tag, None)
        consumer = self._forget(consumer_tag)
        if consumer is None:
            return []
        if consumer.auto_ack:
            return list(consumer.buffered)
        for message in consumer.buffered:
            self._put_back(message)
        return []

    def _cancelled(self, consumer_tag: str, queue: str) -> None:
        """The store did it: the queue was deleted."""
        self._gone[consumer_tag] = queue
        if len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None and consumer.buffered:
            consumer.cancelled = True
        else:
            self._forget(consumer_tag)

    def _check_there(self, consumer_tag: str) -> None:
        """NotFound: the consumer is not, as its queue was deleted."""
        queue = self._gone.get(consumer_tag)
        if queue is not None and consumer_tag not in self._consumers:
            raise NotFound(
                404, f"NOT_FOUND - queue '{queue}' of consumer '{consumer_tag}' was deleted"
            )

    def _forget(self, consumer_tag: str) -> Consumer | None:
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is not None and consumer.callback is not None:
            self._callbacks -= 1
        return consumer

    def _cancel_callbacks(self) -> None:
        for tag in [
            tag for tag, consumer in self._consumers.items() if consumer.callback is not None
        ]:
            self.basic_cancel(tag)

    def _cancel_left(self) -> None:
        """Consumers of iterators that another thread forgot while this channel was in a call."""
        while self._left:
            self.basic_cancel(self._left.pop())


def warn_of_end(consumer_tag: str, queue: str) -> None:
    """Of a consumer with a callback, where nobody listens to cancellations."""
    _log.warning("queue %r was deleted: consumer %r gets nothing any more", queue, consumer_tag)
