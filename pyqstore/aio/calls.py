"""Calls that an object makes in threads, one after another, even if tasks are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from .threads import Threads

__all__ = ["Calls"]

T = TypeVar("T")


class Calls:
    """A thread cannot be cancelled.  If a task is cancelled its call goes on, and the next call
    waits until it has ended."""

    __slots__ = ("_abandoned", "_threads")

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._abandoned: Future[Any] | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """Make the call in one of the store's threads, and return its result.  StoreClosed,
        ForkedStore."""
        self._threads.check_process()
        await self.rest()
        return await self._result(self._threads.begin(call), None)

    async def run_apart(
        self, call: Callable[[], T], abandon: Callable[[], object] | None = None
    ) -> T:
        """Like ``run``, in a thread of its own.  If this is cancelled, ``abandon`` is called so
        that the call ends soon.  ForkedStore."""
        self._threads.check_process()
        await self.rest()
        return await self._result(self._threads.begin_apart(call), abandon)

    async def _result(self, job: Future[T], abandon: Callable[[], object] | None) -> T:
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            self._abandoned = job
            if abandon is not None:
                abandon()
            raise

    async def rest(self) -> None:
        """Return when no abandoned call is running."""
        while (job := self._abandoned) is not None:
            await _ended(job)
            if self._abandoned is job:
                self._abandoned = None


async def _ended(job: Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(tell)

    job.add_done_callback(wake)
    await ended
