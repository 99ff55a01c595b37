"""Transactions as ``async with`` blocks."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..properties import Properties
from ..transaction import check_store, tag_of
from .message import Message, Receipt
from .stream import StreamConsumer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .channel import Channel

__all__ = ["Transaction"]


class Transaction:
    """Like :class:`pyqstore.Transaction`, from ``Channel.transaction()``.

    If its end is cancelled, it may have been committed.
    """

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
        """Whether this was committed.  False before the block's end, after a rollback, and if a
        transaction with its key had been committed before."""
        return self._was_committed

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("the transaction is open already")
        self._offsets = []
        self._refused = None
        self._is_own = await self._channel._begin_transaction()
        self._is_open = True
        return self

    async def __aexit__(
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
                await self._commit()
            else:
                await self._channel.tx_rollback()
        finally:
            if self._is_own and not self._channel.closed:
                await self._channel._leave_transaction()

    async def _commit(self) -> None:
        try:
            if self._refused is not None:
                raise self._refused
            for consumer, _, terms in self._offsets:
                consumer._twin._check_terms(terms)
        except BaseException:
            await self._channel.tx_rollback()
            raise
        self._was_committed = await self._channel.tx_commit(key=self._key)
        if self._was_committed:
            for consumer, offsets, _ in self._offsets:
                consumer._note_committed(offsets)

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: Buffer | str,
        properties: Properties | None = None,
        mandatory: bool = False,
        *,
        delay: float | timedelta | None = None,
    ) -> None:
        """Like ``Channel.basic_publish``, in the transaction."""
        self._check()
        await self._channel.basic_publish(
            exchange, routing_key, body, properties, mandatory, delay=delay
        )

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
        """Like ``Channel.publish_batch``, in the transaction."""
        self._check()
        return await self._channel.publish_batch(
            data, exchange, routing_key, body=body, mandatory=mandatory, properties=properties
        )

    async def ack(self, delivery: Message | int, multiple: bool = False) -> None:
        """Like :meth:`pyqstore.Transaction.ack`."""
        self._check()
        await self._channel.basic_ack(tag_of(delivery, self._channel._twin), multiple)

    async def commit_offsets(self, consumer: StreamConsumer) -> None:
        """Like :meth:`pyqstore.Transaction.commit_offsets`."""
        self._check()
        check_store(consumer._twin._store, self._channel._store)
        await consumer._rest()
        offsets = consumer._twin._uncommitted()
        terms = consumer._twin._terms_of(offsets)
        try:
            for stream, offset in offsets.items():
                await self._channel._commit_offset(stream, consumer.group, offset)
            consumer._twin._check_noted(offsets)
        except BaseException as error:  # what was noted must not be committed, whoever catches it
            self._refused = error
            raise
        self._offsets.append((consumer, offsets, terms))

    def _check(self) -> None:
        if not self._is_open:
            raise RuntimeError("the transaction is not open: use it in its async with block")
