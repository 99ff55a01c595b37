"""A queue of a broker as a source."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ..errors import ShovelError
from ..properties import Properties
from .addresses import AmqpPlace
from .amqp_link import Link, Precondition
from .ends import Batch, Doubt, Item, Later, Source

__all__ = ["AmqpSource"]

_SET_UP_S = 20.0
_COUNT_S = 1.0  # between two looks at how many messages wait
_PREFETCH_MAX = 65_535
# Headers by the broker: the first changes when a message comes again.
_COUNTED, _OFFSET = b"x-delivery-count", b"x-stream-offset"


class AmqpSource(Source):
    """Messages are acknowledged when the target has them; others go back when the channel does."""

    is_stream: bool = False

    def __init__(self, place: AmqpPlace, ahead: int) -> None:
        """``ahead``: how many messages may be read and not settled."""
        assert place.queue is not None
        self.shown: str = place.shown
        self._queue = place.queue
        self._link = Link(place)
        self._ahead = min(ahead, _PREFETCH_MAX)
        self._items: deque[Item] = deque()
        self._epoch = 0
        self._is_consuming = False
        self._waiting: int | None = None
        self._counted_at = 0.0
        self._wrong: ShovelError | None = None

    def open(self, _position: int | None) -> None:
        """As of Source."""
        self._items.clear()
        self._epoch += 1
        self._is_consuming = False
        self._wrong = None
        try:
            self._link.open(self._prepare)
            self._link.wait(lambda: self._is_consuming, _SET_UP_S, "to begin with a consumer")
        except Precondition as error:
            raise ShovelError(str(error)) from None

    def doubts(self, _token: str) -> Doubt:
        """As of Source: brokers mark what they deliver again, and all after they were killed."""
        return Doubt.MARKED

    def _prepare(self, channel: Any) -> None:
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_qos(prefetch_count=self._ahead)
        channel.basic_consume(self._queue, self._came, callback=self._consumes)

    def _consumes(self, _frame: Any) -> None:
        self._is_consuming = True

    def _cancelled(self, _frame: Any) -> None:
        self._wrong = ShovelError(
            f"{self.shown}: the broker took the consumer: the queue was deleted"
        )

    def _came(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        encoded = properties.encoded
        if _OFFSET in encoded and _OFFSET.decode() in Properties.decode(encoded).headers:
            self._wrong = ShovelError(f"{self.shown} is a stream: a shovel reads a broker's queues")
            return
        if _COUNTED in encoded:
            encoded = _uncounted(encoded)
        self._items.append(
            Item(
                body,
                encoded,
                method.exchange,
                method.routing_key,
                method.redelivered,
                method.delivery_tag,
            )
        )

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """As of Source."""
        until = time.monotonic() + timeout
        self._look(0)
        while not self._items and (left := until - time.monotonic()) > 0:
            self._look(left)
        came = -1
        while came < len(self._items) < most:  # a look takes a few KiB of what has come
            came = len(self._items)
            self._look(0)
        taken: list[Item] = []
        size = 0
        while self._items and len(taken) < most and size < bytes_most:
            item = self._items.popleft()
            size += len(item.body)
            taken.append(item)
        return Batch(taken, self._epoch) if taken else None

    def _look(self, seconds: float) -> None:
        try:
            self._link.look(seconds)
        except Precondition as error:  # such as an acknowledgement that came too late
            raise Later(str(error)) from None
        if self._wrong is not None:
            raise self._wrong

    def settle(self, batch: Batch) -> None:
        """As of Source.  Later: it may come again."""
        if batch.epoch != self._epoch:
            return
        self._link.check()
        self._link.channel.basic_ack(batch.items[-1].tag, multiple=True)

    def bury(self, batch: Batch) -> None:
        """As of Source: the target does it."""
        raise NotImplementedError(f"{self.shown} has no queue of dead letters")

    def tend(self, seconds: float) -> None:
        """As of Source."""
        self._link.tend(seconds)

    def lag(self) -> int | None:
        """As of Source: it is asked for now and then."""
        channel = self._link.channel
        if channel is not None and channel.is_open:
            now = time.monotonic()
            if now - self._counted_at >= _COUNT_S:
                self._counted_at = now
                channel.queue_declare(self._queue, passive=True, callback=self._counts)
        return self._waiting

    def _counts(self, frame: Any) -> None:
        self._waiting = frame.method.message_count

    def close(self) -> None:
        """As of Source."""
        self._link.close()
        self._items.clear()


def _uncounted(encoded: bytes) -> bytes:
    properties = Properties.decode(encoded)
    headers = properties.headers
    headers.pop(_COUNTED.decode(), None)
    return properties.replace(headers=headers or None).encoded
