"""Settling of deliveries, without buffered ones that were not handed out."""

from __future__ import annotations

from datetime import timedelta

from ..deliveries import Tags, handed_out
from ..message import Message
from .handle import Consumer, Handle

__all__ = ["Settling"]

_U64_MAX = 2**64 - 1


class Settling(Handle):
    """Settles several deliveries at once; the engine alone settles a single one."""

    def _settle_handed_out(self, tag: int, requeue: bool, reject: bool, delay_us: int) -> bool:
        buffered = self._buffered()
        if buffered:
            self._settle_around(buffered, tag, requeue, reject, delay_us)
        return bool(buffered)

    def basic_recover(self, requeue: bool = True) -> None:
        """Requeue all unacknowledged messages of this channel, also those not handed out yet.
        NotImplementedByBroker without ``requeue``."""
        self._recover(requeue)
        for tag, consumer in self._consumers.items():
            if not consumer.auto_ack:
                consumer.buffered.clear()
                self._resume(tag, consumer)

    def _resume(self, tag: str, consumer: Consumer) -> None:
        """Nothing is buffered for it any more: what comes next is welcome."""
        if consumer.buffered.is_paused:
            consumer.buffered.is_paused = False
            self._pause(tag, False)

    def _buffered(self) -> list[Tags]:
        """What came and was not handed out; with ``auto_ack`` it is settled already."""
        tags = [
            message.delivery_tag
            for consumer in self._consumers.values()
            if consumer.buffered and not consumer.auto_ack
            for message in consumer.buffered
        ]
        return [(tag, tag) for tag in sorted(tags)]

    def _settle_around(
        self,
        buffered: list[Tags],
        tag: int,
        requeue: bool,
        reject: bool,
        delay_us: int,
        last: int = _U64_MAX,
    ) -> None:
        """Settle all up to ``tag``, or with 0 up to ``last``, except what is buffered."""
        if tag and not any(first <= tag <= last for first, last in buffered):  # unknown: an error
            if requeue or reject:
                delay = timedelta(microseconds=delay_us) if delay_us else None
                self.basic_nack(tag, False, requeue, delay=delay)
            else:
                self.basic_ack(tag)
        between = handed_out(buffered, tag or last)
        self._settle_tags(between, requeue, reject, in_transaction=True, delay_us=delay_us)

    def _recover_handed_out(self, between: list[Tags]) -> None:
        """Requeue these, and what could not be handed out."""
        self._settle_tags(between, True)
        self._recover_withheld()

    def _settle_tags(
        self,
        between: list[Tags],
        requeue: bool,
        reject: bool = False,
        in_transaction: bool = False,
        delay_us: int = 0,
    ) -> None:
        for first, last in between or [(1, 0)]:  # none: a closed channel is an error all the same
            self._settle_range(first, last, requeue, reject, in_transaction, delay_us)

    def _put_back(self, message: Message) -> None:
        """Requeue what nobody was handed: at once, a transaction has no part in it."""
        self._settle_range(message.delivery_tag, message.delivery_tag, True)
