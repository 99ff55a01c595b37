"""A queue or an exchange of a broker as a target: each message at least once.

Messages are published as mandatory, and a batch has ended when the broker has confirmed all of it.

A broker returns a message that no queue takes before it confirms it, and does not say which publish
it was; and it closes a channel or a connection without saying over what.  So of what is on its way
then nothing counts as done that may be the one, and each message is sent alone once more: of a
single one on its way it is certain.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .addresses import AmqpPlace
from .amqp_link import Link
from .ends import BATCH, Batch, Blamed, Item, Later, Linked, Position, Refused, Target

__all__ = ["AmqpTarget"]

_SET_UP_S = 20.0
_CONFIRM_S = 60.0  # after which a broker that confirms nothing is tried anew
_HEADER_BYTES = 20  # of a frame of properties, beside them


@dataclass
class _Sent:
    """A batch on its way: publish number ``first`` is the message ``indices[0]``, and so on."""

    batch: Batch
    first: int
    indices: list[int]
    open: int
    """How many are not answered."""
    refused: dict[int, str] = field(default_factory=dict)
    nacked: int = 0
    unclear: set[int] = field(default_factory=set)
    """Which messages may have been returned."""


class AmqpTarget(Linked[Link], Target):
    """Properties go as they are, byte by byte."""

    most: int = BATCH
    keeps_position: bool = False
    may_forget: bool = False
    buries: bool = False

    def __init__(self, place: AmqpPlace) -> None:
        """See Link."""
        self.shown: str = place.shown
        self._place = place
        self._exchange = place.exchange or ""
        self._key = place.key if place.queue is None else place.queue
        self._link = Link(place)
        self._properties = self._link.pika.properties
        self._is_ready = False
        self._number = 0
        self._unconfirmed: deque[int] = deque()
        self._sent: deque[_Sent] = deque()
        self._since = 0.0
        self._why = ""
        self._alone = 0
        """Of how many batches each message is sent alone."""

    def open(self) -> Position | None:
        """As of Target."""
        self._sent.clear()
        self._unconfirmed.clear()
        self._number = 0
        self._is_ready = False
        self._link.open(self._prepare, lambda: self._is_ready, _SET_UP_S)
        return None

    def _prepare(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned)
        if self._place.queue is not None:
            channel.queue_declare(self._place.queue, passive=True)
        else:
            channel.exchange_declare(self._exchange, passive=True)
        channel.confirm_delivery(self._answered, callback=self._ready)

    def _ready(self, _frame: Any) -> None:
        self._is_ready = True

    def begin(self, batch: Batch) -> None:
        """As of Target."""
        with self._blaming():
            self._link.check()
        indices = [
            index
            for index in range(len(batch.items))
            if index not in batch.done and index not in batch.dead
        ]
        self._check_sendable(batch, indices)
        sent = _Sent(batch, self._number + 1, indices, len(indices))
        self._sent.append(sent)
        self._since = time.monotonic()
        publish, exchange, fixed = self._link.channel.basic_publish, self._exchange, self._key
        items, properties = batch.items, self._properties
        for index in indices:
            item = items[index]
            key = item.routing_key if fixed is None else fixed
            self._number += 1
            self._unconfirmed.append(self._number)
            publish(exchange, key, item.body, properties(item.properties), True)
            if self._alone > 0:
                self._confirm_alone(sent, index)
        if sent.refused:
            raise Refused(batch, sent.refused)
        if indices:
            self._alone = max(0, self._alone - 1)
        self._look(0)

    def _check_sendable(self, batch: Batch, indices: list[int]) -> None:
        """Refused: AMQP cannot say a message in one frame, or its key at all."""
        frame_bytes = self._link.frame_bytes_max
        most = frame_bytes - _HEADER_BYTES if frame_bytes else 1 << 32
        for index in indices:
            item = batch.items[index]
            reason = ""
            if len(item.properties) > most:
                reason = f"properties of {len(item.properties)} bytes: the broker takes {most}"
            elif self._key is None and not item.routing_key.isascii() and not _is_utf8(item):
                reason = "the routing key is not UTF-8"
            if reason:
                self._drain()
                raise Refused(batch, {index: f"{self.shown}: {reason}"})

    def _confirm_alone(self, sent: _Sent, index: int) -> None:
        """Refused: it is known to be this message over which the broker closes the channel, after
        others, perhaps, that no queue takes."""
        try:
            self._drain()
        except Blamed as error:
            raise Refused(sent.batch, {**sent.refused, index: str(error)}) from None
        if sent.nacked:
            raise Later(_full(self.shown))

    def _drain(self) -> None:
        """Return when all that is on its way is confirmed."""
        with self._blaming():
            self._link.wait(lambda: not self._unconfirmed, _CONFIRM_S, "to confirm messages")

    def _answered(self, frame: Any) -> None:
        """Confirms, and refusals: those of a queue that is full."""
        if self._link.channel is None:  # it is being closed
            return
        self._since = time.monotonic()
        method = frame.method
        tag, is_refusal = method.delivery_tag, method.NAME == "Basic.Nack"
        if method.multiple:
            while self._unconfirmed and self._unconfirmed[0] <= tag:
                self._answer(self._unconfirmed.popleft(), is_refusal)
        elif self._unconfirmed and self._unconfirmed[0] == tag:
            self._unconfirmed.popleft()
            self._answer(tag, is_refusal)
        else:
            self._unconfirmed.remove(tag)
            self._answer(tag, is_refusal)

    def _answer(self, number: int, is_refusal: bool) -> None:
        for sent in self._sent:
            at = number - sent.first
            if at < len(sent.indices):
                index = sent.indices[at]
                sent.open -= 1
                if is_refusal:
                    sent.nacked += 1
                elif index not in sent.refused and index not in sent.unclear:
                    sent.batch.done.add(index)
                return

    def _returned(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        """A message that no queue takes comes back before its confirm."""
        if channel is not self._link.channel:  # it is being closed
            return
        key = method.routing_key
        self._why = f"{self.shown}: {method.reply_text}: no queue for key {key!r}"
        on_way = list(self._on_way())
        if len(on_way) == 1:
            sent, index = on_way[0]
            sent.refused[index] = self._why
            return
        alike = [
            (sent, index)
            for sent, index in on_way
            if sent.batch.items[index].body == body and self._key_of(sent, index) == key
        ]
        for sent, index in alike or on_way:
            sent.unclear.add(index)

    def _key_of(self, sent: _Sent, index: int) -> str:
        return sent.batch.items[index].routing_key if self._key is None else self._key

    def _on_way(self) -> Iterator[tuple[_Sent, int]]:
        """What is not confirmed, in order."""
        batches = iter(self._sent)
        sent = next(batches, None)
        for number in self._unconfirmed:
            while sent is not None and number - sent.first >= len(sent.indices):
                sent = next(batches, None)
            assert sent is not None
            yield sent, sent.indices[number - sent.first]

    def ended(self, timeout: float) -> Batch | None:
        """As of Target."""
        self._look(0)
        sent = self._sent[0] if self._sent else None
        if sent is None:
            return None
        until = time.monotonic() + timeout
        while sent.open > 0 and (left := until - time.monotonic()) > 0:
            self._look(left)
        if sent.open > 0:
            if time.monotonic() - self._since > _CONFIRM_S:
                raise Later(f"{self.shown}: no confirm for {_CONFIRM_S:.0f} s")
            return None
        if sent.refused or sent.nacked or sent.unclear:
            self._give_up(sent)
        self._sent.popleft()
        return sent.batch

    def _give_up(self, sent: _Sent) -> None:
        """Not all of it was taken.  What else is on its way is waited for, so that it is not sent
        twice."""
        if sent.unclear:
            self._alone = len(self._sent)
        self._drain()
        if sent.refused:
            raise Refused(sent.batch, sent.refused)
        raise Later(self._why if sent.unclear else _full(self.shown))

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Which message the broker means shows when each is sent alone."""
        try:
            yield
        except Blamed:
            self._alone = max(1, self._alone, len(self._sent))
            raise

    def _look(self, seconds: float) -> None:
        with self._blaming():
            self._link.look(seconds)

    def tend(self, seconds: float) -> None:
        """As of Target."""
        self._link.tend(seconds)

    def close(self) -> None:
        """As of Target."""
        self._link.close()
        self._sent.clear()


def _is_utf8(item: Item) -> bool:
    try:
        item.routing_key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _full(shown: str) -> str:
    return f"{shown}: the broker refuses messages (nack), as where a queue is full"
