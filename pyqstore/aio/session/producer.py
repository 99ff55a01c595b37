"""Producers of the sessions of asyncio."""

from __future__ import annotations

from ... import session as synchronous
from ...session.destinations import Destination
from ..threads import Threads
from ..twin import Closing, Twin, awaited

__all__ = ["Producer"]


class Producer(Twin[synchronous.Producer], Closing):
    """Sends messages: see :class:`pyqstore.session.Producer`."""

    def __init__(self, threads: Threads, producer: synchronous.Producer) -> None:
        """See ``Session.producer``."""
        self._threads = threads
        self._twin = producer
        self.destination: Destination | None = producer.destination
        """The destination; None: each ``send`` names one."""

    def __repr__(self) -> str:
        return f"<aio.{self._twin!r}"[:-1] + ">"

    async def close(self) -> None:
        """Like :meth:`pyqstore.session.Producer.close`."""
        self._twin.close()

    @awaited(synchronous.Producer.send)
    def send(self) -> None:
        """If this is cancelled, the message may have been sent."""
