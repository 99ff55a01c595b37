"""A queue or an exchange of a broker as a target: each message at least once.

Messages are published as mandatory, and a batch has ended when the broker has confirmed all of it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ..errors import ShovelError
from .addresses import AmqpPlace
from .amqp_link import Link, Precondition
from .ends import Batch, Doubt, Later, Refused, Target

__all__ = ["AmqpTarget"]

_SET_UP_S = 20.0
_CONFIRM_S = 60.0  # after which a broker that confirms nothing is tried anew


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


class AmqpTarget(Target):
    """Properties go as they are, byte by byte."""

    doubt: Doubt = Doubt.NOTHING
    keeps_position: bool = False
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
        self._alone = 0
        """The broker closed a channel over one of many messages: which, shows when each message of
        so many batches is sent alone."""

    @property
    def token(self) -> str:
        """As of Target."""
        return ""

    def open(self) -> int | None:
        """As of Target."""
        self._sent.clear()
        self._unconfirmed.clear()
        self._number = 0
        self._is_ready = False
        try:
            self._link.open(self._prepare)
            self._link.wait(lambda: self._is_ready, _SET_UP_S, "to take publishes")
        except Precondition as error:
            raise ShovelError(str(error)) from None
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
        self._link.check()
        indices = [
            index
            for index in range(len(batch.items))
            if index not in batch.done and index not in batch.dead
        ]
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
        self._alone = max(0, self._alone - 1)
        self._look(0)

    def _confirm_alone(self, sent: _Sent, index: int) -> None:
        try:
            self._link.wait(lambda: not self._unconfirmed, _CONFIRM_S, "to confirm a message")
        except Precondition as error:
            raise Refused(sent.batch, index, str(error)) from None

    def _answered(self, frame: Any) -> None:
        """Confirms, and refusals: those of a queue that is full."""
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
                sent.open -= 1
                if is_refusal:
                    sent.nacked += 1
                elif sent.indices[at] not in sent.refused:
                    sent.batch.done.add(sent.indices[at])
                return

    def _returned(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        """A message that no queue takes comes back before its confirm: the first of those that are
        not confirmed, and look like it."""
        told, key = method.reply_text, method.routing_key
        for sent in self._sent:
            batch = sent.batch
            for index in sent.indices:
                item = batch.items[index]
                its_key = item.routing_key if self._key is None else self._key
                is_open = index not in batch.done and index not in sent.refused
                if is_open and its_key == key and item.body == body:
                    sent.refused[index] = f"{self.shown}: {told}: no queue for key {key!r}"
                    return

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
        if sent.refused or sent.nacked:
            self._give_up(sent)
        self._sent.popleft()
        return sent.batch

    def _give_up(self, sent: _Sent) -> None:
        """Not all of it was taken.  What else is on its way is waited for, so that it is not sent
        twice."""
        try:
            self._link.wait(lambda: not self._unconfirmed, _CONFIRM_S, "to confirm messages")
        except Precondition as error:
            raise Later(str(error)) from None
        for index, reason in sorted(sent.refused.items()):
            raise Refused(sent.batch, index, reason)
        raise Later(f"{self.shown}: the broker refuses messages (nack), as where a queue is full")

    def _look(self, seconds: float) -> None:
        try:
            self._link.look(seconds)
        except Precondition as error:
            self._alone = max(1, len(self._sent))
            raise Later(str(error)) from None

    def tend(self, seconds: float) -> None:
        """As of Target."""
        self._link.tend(seconds)

    def close(self) -> None:
        """As of Target."""
        self._link.close()
        self._sent.clear()
