"""Messages and receipts whose verbs are awaited."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from types import TracebackType
from typing import NoReturn, Self

from .. import message as synchronous
from ..waiting import SLICE_NS, Seconds, check_timeout
from .loop_channel import LoopChannel
from .threads import Threads

__all__ = ["Message", "Receipt"]


class Message(synchronous.Message):
    """Like the synchronous channel's message, but its methods are awaited."""

    settled: bool

    # Other signatures on purpose: the verbs of a channel that is asynchronous.

    async def ack(self) -> None:  # type: ignore[override]
        """Acknowledge this message.  Raises as ``Channel.basic_ack`` does."""
        await _channel_of(self).face().basic_ack(self.delivery_tag)
        self.settled = True

    async def nack(  # type: ignore[override]
        self, requeue: bool = True, delay: float | timedelta | None = None
    ) -> None:
        """Refuse this message.  It is requeued at its place, or, with ``delay`` (seconds, or a
        timedelta), after the delay; or it is dead-lettered, or dropped."""
        channel = _channel_of(self).face()
        await channel.basic_nack(self.delivery_tag, requeue=requeue, delay=delay)
        self.settled = True

    async def reject(self, requeue: bool = True) -> None:  # type: ignore[override]
        """The same as ``nack``, under AMQP's older name, and with the same default: the message is
        requeued unless ``requeue`` is False."""
        await self.nack(requeue)

    async def retry(self, delay: float | timedelta | None = None) -> None:  # type: ignore[override]
        """Requeue the message: ready again after ``delay`` (seconds, or a timedelta), or at
        once."""
        await self.nack(True, delay)

    def __enter__(self) -> NoReturn:
        raise TypeError("a message of asyncio: async with")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.settled:
            return
        if kind is None:
            await self.ack()
        elif not _channel_of(self).closed:  # which has requeued it
            await self.nack()


def _channel_of(message: Message) -> LoopChannel:
    channel = message._channel
    assert isinstance(channel, LoopChannel)
    return channel


class Receipt(synchronous.Receipt):
    """The outcome of the rows of a ``publish_batch``, like :class:`pyqstore.Receipt`, with awaited
    methods."""

    __slots__ = ("_threads",)

    _threads: Threads

    @classmethod
    def of(cls, receipt: synchronous.Receipt, threads: Threads) -> Receipt:
        """The same receipt, whose waits run in one of the threads."""
        self = cls(
            receipt.first_publish_number,
            receipt.last_publish_number,
            receipt.count,
            refused=receipt.refused,
            returned=receipt.returned,
            unroutable=receipt.unroutable,
            refused_rows=receipt._refused_rows,
            refused_by=receipt._refused_by,
            store=receipt._store,
            lsn=receipt._lsn,
            transaction=receipt._transaction,
        )
        self._threads = threads
        return self

    async def wait(self, timeout: Seconds | None = None) -> bool:  # type: ignore[override]
        """Return True once ``done``; ``timeout`` in seconds.

        Raises PublishRefused if rows were refused, once the others are durable; TimeoutError;
        StoreFailed if the batch never will be durable; StoreClosed; ForkedStore; RuntimeError for a
        batch of a transaction that was not committed.
        """
        seconds = check_timeout(timeout)
        if self._transaction is not None:
            self._transaction.check()
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            while not self._is_decided():
                await self._threads.run(self._wait_slice)
        self._check_refused()
        return True

    def _wait_slice(self) -> None:
        assert self._store is not None
        self._store._wait_durable(self._lsn, SLICE_NS)
