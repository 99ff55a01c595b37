"""Transactions as ``with`` blocks."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .message import Message, Receipt
from .properties import Properties

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .channel import Channel
    from .stream_consumer import StreamConsumer

__all__ = ["Transaction"]


class Transaction:
    """Publishes, acknowledgements and offsets that are done together or not at all: from
    ``Channel.transaction()``."""

    def __init__(self, channel: Channel, key: str | None) -> None:
        """See ``Channel.transaction``."""
        self._channel = channel
        self._key = key
        self._offsets: list[tuple[StreamConsumer, dict[str, int], dict[str, int]]] = []
        self._refused: BaseException | None = None
        self._is_open = False
        self._is_own = False
        self._was_committed = False

    @property
    def committed(self) -> bool:
        """Whether it was committed: False before the block's end, when it was rolled back, and when
        a transaction with its key had been committed before."""
        return self._was_committed

    def __enter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("the transaction is open already")
        self._offsets = []
        self._refused = None
        self._is_own = self._channel._begin_transaction()
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        if kind is not None and self._channel.closed:  # it was rolled back with the channel
            return
        try:
            if kind is None:
                self._commit()
            else:
                self._channel.tx_rollback()
        finally:
            if self._is_own and not self._channel.closed:
                self._channel._leave_transaction()

    def _commit(self) -> None:
        try:
            if self._refused is not None:
                raise self._refused
            for consumer, _, terms in self._offsets:
                consumer._check_terms(terms)
        except BaseException:
            self._channel.tx_rollback()
            raise
        self._was_committed = self._channel.tx_commit(key=self._key)
        if self._was_committed:
            for consumer, offsets, _ in self._offsets:
                consumer._note_committed(offsets)

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: Buffer | str,
        properties: Properties | None = None,
        mandatory: bool = False,
        *,
        delay: float | timedelta | None = None,
    ) -> None:
        """As ``Channel.basic_publish``, in the transaction."""
        self._check()
        self._channel.basic_publish(exchange, routing_key, body, properties, mandatory, delay=delay)

    def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> Receipt:
        """As ``Channel.publish_batch``, in the transaction."""
        self._check()
        return self._channel.publish_batch(
            data, exchange, routing_key, body=body, mandatory=mandatory, properties=properties
        )

    def ack(self, delivery: Message | int, multiple: bool = False) -> None:
        """Acknowledge a delivery of the channel, a message or its tag, as ``Channel.basic_ack``, in
        the transaction.  ValueError: a message that another channel got, or that was peeked at."""
        self._check()
        self._channel.basic_ack(tag_of(delivery, self._channel), multiple)

    def commit_offsets(self, consumer: StreamConsumer) -> None:
        """The consumer's group goes on behind what its ``poll`` has returned, from the commit of
        the transaction on.

        ValueError: a consumer of another store, or a closed one; at the end of the block: a stream
        has gone to another consumer of the group.  NotFound, OffsetOutOfRange as
        ``StreamConsumer.commit``.  The transaction is rolled back then.
        """
        self._check()
        check_store(consumer._store, self._channel._store)
        offsets = consumer._uncommitted()
        terms = consumer._terms_of(offsets)
        try:
            for stream, offset in offsets.items():
                self._channel._commit_offset(stream, consumer.group, offset)
            consumer._check_noted(offsets)
        except BaseException as error:  # what was noted must not be committed, whoever catches it
            self._refused = error
            raise
        self._offsets.append((consumer, offsets, terms))

    def _check(self) -> None:
        if not self._is_open:
            raise RuntimeError("the transaction is not open: use it in its with block")


# Shared with the transactions of asyncio.


def tag_of(delivery: Message | int, channel: object) -> int:
    """Its tag, which means nothing to other channels.  ValueError: ``channel`` did not get it."""
    if isinstance(delivery, int):
        return delivery
    if delivery._channel is not channel:
        raise ValueError(
            "the message is no delivery of the transaction's channel: get it with that channel"
        )
    return delivery.delivery_tag


def check_store(consumers: object, channels: object) -> None:
    """ValueError: the consumer's store is not that of the transaction's channel."""
    if consumers is not channels:
        raise ValueError(
            f"the consumer is of another store: {consumers!r}, and the transaction of {channels!r}"
        )
