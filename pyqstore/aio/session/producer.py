"""Producers of the sessions of asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Self

from ... import session as synchronous
from ...fields import FieldValue
from ...queue import Seconds
from ...session.destinations import Destination
from ..threads import Threads

__all__ = ["Producer"]


class Producer:
    """Sends messages: see :class:`pyqstore.session.Producer`."""

    def __init__(self, threads: Threads, producer: synchronous.Producer) -> None:
        """See ``Session.producer``."""
        self._threads = threads
        self._producer = producer
        self.destination: Destination | None = producer.destination
        """The destination; None: each ``send`` names one."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio.{self._producer!r}"[:-1] + ">"

    async def close(self) -> None:
        """Like :meth:`pyqstore.session.Producer.close`."""
        self._producer.close()

    async def send(
        self,
        body: bytes | bytearray | memoryview | str,
        *,
        destination: Destination | None = None,
        persistent: bool = True,
        priority: int = 4,
        time_to_live: Seconds | None = None,
        properties: Mapping[str, FieldValue] | None = None,
        delivery_delay: Seconds | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | str | None = None,
        type: str | None = None,  # noqa: A002 - AMQP's name
        message_id: str | None = None,
    ) -> str:
        """Like :meth:`pyqstore.session.Producer.send`.  If this is cancelled, the message may have
        been sent."""
        send = partial(
            self._producer.send,
            body,
            destination=destination,
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            properties=properties,
            delivery_delay=delivery_delay,
            correlation_id=correlation_id,
            reply_to=reply_to,
            type=type,
            message_id=message_id,
        )
        return await self._threads.run(send)
