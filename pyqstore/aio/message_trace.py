"""Traces for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from .. import message_trace as synchronous
from ..message_trace import TraceEvent
from .awaiting import Taken
from .threads import Threads

__all__ = ["Trace"]


class Trace(Taken[TraceEvent]):
    """Like :class:`pyqstore.Trace`: ``async for`` iterates over the steps, and a thread waits for
    each."""

    __slots__ = ("_trace",)

    def __init__(self, trace: synchronous.Trace, threads: Threads) -> None:
        super().__init__(trace.next, threads, has_more=lambda: not trace.is_over, waits=True)
        self._trace = trace

    async def _answer(self) -> TraceEvent | None:
        found = self._trace.next(0) if self._job is None else None
        return await super()._answer() if found is None else found

    @property
    def dropped(self) -> int:
        """Like :attr:`pyqstore.Trace.dropped`."""
        return self._trace.dropped

    async def close(self) -> None:
        """Like :meth:`pyqstore.Trace.close`."""
        job = self._job
        await self.aclose()
        self._trace.is_over = True
        if job is None or job.done():
            self._trace.close()
        else:  # the thread that waits for the next step looks around, and closes
            job.add_done_callback(lambda _: self._trace.close())
            await asyncio.wait([asyncio.wrap_future(job)])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
