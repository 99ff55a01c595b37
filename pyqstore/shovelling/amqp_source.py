"""A queue of a broker as a source."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import partial
from typing import Any

from ..errors import ShovelError
from ..properties import Properties
from .addresses import AmqpPlace
from .amqp_link import Link
from .blobs import without_headers
from .ends import BATCH, Acked, Batch, Item, Later, Linked, Position, Source

__all__ = ["AmqpSource"]

_SET_UP_S = 20.0
_COUNT_S = 1.0  # between two looks at how many messages wait
# After an answer that is behind acknowledgements; a broker writes them to its disk meanwhile.
_WRITTEN_S = 3.0
_END_S = 2.0  # for the answer behind the last of them
_PREFETCH_MAX = 65_535
_HELD_MAX = 16 << 20  # bytes of messages that are read and not asked for: then no more are read
_ITEM_BYTES = 300  # about what a message needs beside its body and its properties
# Headers by the broker.  Those of a quorum queue change when a message comes again.
_COUNTS, _OFFSET = (b"x-delivery-count", b"x-acquired-count"), b"x-stream-offset"
_COUNT = b"-count"  # in both; to look for one is quicker
_EMPTY = b"\0\0\0\0"  # in properties with headers that are none, among others


class AmqpSource(Linked[Link], Source):
    """Messages are acknowledged when the target has them; others go back when the channel does."""

    is_stream: bool = False
    most: int = BATCH

    def __init__(self, place: AmqpPlace, ahead: int) -> None:
        """``ahead``: how many messages may be read and not settled."""
        assert place.queue is not None
        self.shown: str = place.shown
        self._queue = place.queue
        self._link = Link(place)
        self._ahead = min(ahead, _PREFETCH_MAX)
        self._items: deque[Item] = deque()
        self._held = 0
        self._epoch = 0
        self._is_consuming = False
        self._waiting: int | None = None
        self._counted_at = 0.0
        self._wrong: ShovelError | Later | None = None
        self._acked: list[Acked] = []
        """Since the last count was asked for."""
        self._answered: deque[tuple[float, list[Acked]]] = deque()
        """Acknowledgements that the broker has handled, and since when that is known."""
        self._asked = 0
        self._is_ending = False

    def open(self, _position: Position | None) -> None:
        """As of Source."""
        self._forget()
        self._epoch += 1
        self._is_consuming = False
        self._wrong = None
        self._acked = []
        self._answered.clear()
        self._asked = 0
        self._is_ending = False
        self._link.open(self._prepare, lambda: self._is_consuming, _SET_UP_S)

    @property
    def held(self) -> int:
        """About the bytes of messages that were read and not asked for."""
        return self._held

    def _forget(self) -> None:
        self._items.clear()
        self._held = 0

    def _prepare(self, channel: Any) -> None:
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_qos(prefetch_count=self._ahead)
        channel.basic_consume(self._queue, self._came, callback=self._consumes)

    def _consumes(self, _frame: Any) -> None:
        self._is_consuming = True

    def _cancelled(self, _frame: Any) -> None:
        # The queue was deleted, or its node went down: to consume again tells which.
        self._wrong = Later(f"{self.shown}: the broker took the consumer away")

    def _came(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if channel is not self._link.channel or self._is_ending:  # its tags are of no use
            return
        encoded = properties.encoded
        if _OFFSET in encoded and _is_of_stream(encoded):
            self._wrong = ShovelError(f"{self.shown} is a stream: a shovel reads a broker's queues")
            return
        if _COUNT in encoded or _EMPTY in encoded:
            encoded = without_headers(encoded, _COUNTS)
        item = Item(
            body,
            encoded,
            method.exchange,
            method.routing_key,
            method.redelivered,
            method.delivery_tag,
        )
        self._items.append(item)
        self._held += len(body) + len(encoded) + _ITEM_BYTES

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """As of Source."""
        until = time.monotonic() + timeout
        self._look(0)
        while not self._items and (left := until - time.monotonic()) > 0:
            self._look(left)
        came = -1
        # A look takes 100 KiB at the most of what has come.
        while came < len(self._items) < most and self._held < bytes_most:
            came = len(self._items)
            self._look(0)
        taken: list[Item] = []
        size = 0
        while self._items and len(taken) < most and size < bytes_most:
            item = self._items.popleft()
            size += len(item.body) + len(item.properties)
            taken.append(item)
        self._held -= size + len(taken) * _ITEM_BYTES
        return Batch(taken, self._epoch, acked=Acked()) if taken else None

    def _look(self, seconds: float) -> None:
        self._link.look(seconds)
        if self._wrong is not None:
            raise self._wrong

    def settle(self, batch: Batch) -> None:
        """As of Source.  Later: it may come again."""
        if batch.epoch != self._epoch:
            return
        self._link.check()
        self._link.channel.basic_ack(batch.items[-1].tag, multiple=True)
        assert batch.acked is not None
        self._acked.append(batch.acked)

    def tend(self, seconds: float) -> None:
        """As of Source.  With much that is read already it does nothing: the rest waits at the
        broker.  After two heartbeats that takes the connection for lost, and all comes again."""
        if self._held < _HELD_MAX:
            self._link.tend(seconds)

    def lag(self) -> int | None:
        """As of Source: it is asked for now and then."""
        now = time.monotonic()
        if now - self._counted_at >= _COUNT_S:
            self._count()
        self._know_written(now - _WRITTEN_S)
        return self._waiting

    def _count(self) -> None:
        """Ask how many messages wait.  The answer proves, too, that the broker has handled the
        acknowledgements before it, which nothing else tells."""
        channel = self._link.channel
        if channel is None or not channel.is_open:
            return
        self._counted_at = time.monotonic()
        acked, self._acked = self._acked, []
        self._asked += 1
        counts = partial(self._counts, self._epoch, acked)
        channel.queue_declare(self._queue, passive=True, callback=counts)

    def _counts(self, epoch: int, acked: list[Acked], frame: Any) -> None:
        if epoch == self._epoch:
            self._asked -= 1
            self._waiting = frame.method.message_count
            self._answered.append((time.monotonic(), acked))

    def _know_written(self, until: float) -> None:
        while self._answered and self._answered[0][0] <= until:
            for each in self._answered.popleft()[1]:
                each.for_good = True

    def close(self) -> None:
        """As of Source."""
        self._is_ending = True
        with contextlib.suppress(Later, ShovelError):
            self._count()
            until = time.monotonic() + _END_S
            while self._asked > 0 and (left := until - time.monotonic()) > 0:
                self._link.look(left)
            # All that was answered: this connection was not lost, and nothing asks again.
            self._know_written(time.monotonic())
        self._link.close()
        self._forget()


def _is_of_stream(encoded: bytes) -> bool:
    try:
        return _OFFSET.decode() in Properties.decode(encoded).headers
    except ValueError:  # the target says what is wrong
        return False
