"""Settling while deliveries may be on their way to tasks: awaited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from ... import _core
from ...errors import Error
from .handle import Handle

__all__ = ["Settling"]


class Settling(Handle):
    """The methods that settle deliveries."""

    async def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Like :meth:`pyqstore.Channel.basic_ack`; ``multiple`` covers messages that were handed
        out before this call."""
        if multiple:
            await self._settle_all(self._twin.basic_ack, delivery_tag, False, False, 0)
            return
        if self._lane.free:
            self._check()
            try:
                self._twin.basic_ack(delivery_tag)
                return
            except BlockingIOError:
                pass
            except Error as error:
                self._failed(error)
                raise
        await self._inline(partial(self._twin.basic_ack, delivery_tag))

    async def basic_nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,
        requeue: bool = True,
        *,
        delay: float | timedelta | None = None,
    ) -> None:
        """Like :meth:`pyqstore.Channel.basic_nack`; ``multiple`` covers messages that were handed
        out before this call."""
        nack = partial(self._twin.basic_nack, requeue=requeue, delay=delay)
        if multiple:
            delay_us = _core.delay_us(requeue, delay)
            await self._settle_all(nack, delivery_tag, requeue, not requeue, delay_us)
        else:
            await self._inline(partial(nack, delivery_tag))

    async def _settle_all(
        self, verb: Callable[..., None], tag: int, requeue: bool, reject: bool, delay_us: int
    ) -> None:
        """Settle up to ``tag``; 0: all.  Messages on their way to a task are left out: the task
        could not settle them any more, and a message that never arrived would be lost."""
        self._check()
        if tag < 0 or self._deliveries.handed_out(tag) == [(1, tag)]:
            await self._inline(partial(verb, tag, multiple=True))
            return
        buffered, last = self._deliveries.buffered, self._deliveries.last
        settle = partial(self._twin._settle_around, buffered, tag, requeue, reject, delay_us, last)
        # Inline only what may be begun anew: a tag is known once.
        await self._lane.run(settle, inline=tag == 0)

    async def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        """Like :meth:`pyqstore.Channel.basic_reject`."""
        await self._inline(partial(self._twin.basic_reject, delivery_tag, requeue))

    async def basic_recover(self, requeue: bool = True) -> None:
        """Like :meth:`pyqstore.Channel.basic_recover`, for messages that were handed out before
        this call."""
        if not requeue:
            await self._threaded(partial(self._twin.basic_recover, requeue))
            return
        self._check()
        for consumer in self._consumers:
            self._consumers.put_back(consumer)
        between = self._deliveries.handed_out(self._deliveries.last)
        await self._threaded(partial(self._twin._recover_handed_out, between))

    async def _commit_offset(self, stream: str, group: str, offset: int) -> None:
        await self._threaded(partial(self._twin._commit_offset, stream, group, offset))
