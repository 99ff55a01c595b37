"""Objects that the asynchronous interfaces return beside coroutines: awaitables and iterators."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Self, TypeVar

from ..waiting import woken
from .threads import Threads

__all__ = ["Awaited", "Taken", "wait_until"]

T = TypeVar("T")


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that can have more methods, such as those of ``async with``.  Everything that
    takes a coroutine takes it."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Like any coroutine's."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Like any coroutine's."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Like any coroutine's: a call that was not begun is not made."""
        self._coroutine.close()


class Taken(AsyncIterator[T]):
    """Iterates over results that a thread takes one after another.  One task at a time asks for the
    next.

    If ``anext`` is cancelled nothing is lost: the next ``anext`` returns what the thread takes
    meanwhile.  After an exception, and after ``aclose``, the iteration has ended.
    """

    __slots__ = ("_begin", "_has_more", "_is_asked", "_is_over", "_job", "_take", "_threads")

    def __init__(
        self,
        take: Callable[[], T | None],
        threads: Threads,
        *,
        has_more: Callable[[], bool] = lambda: False,
        waits: bool = False,
    ) -> None:
        """``take`` returns None when there is nothing.  It is called again if ``has_more`` says
        that there may be more later.  ``threads`` make the calls.  ``waits``: ``take`` may wait,
        and runs in a thread of its own."""
        self._begin = threads.begin_apart if waits else threads.begin
        self._take = take
        self._has_more = has_more
        self._threads = threads
        self._job: Future[T | None] | None = None
        self._is_asked = False
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._is_asked:
            raise RuntimeError("another task waits for the next of this iterator")
        self._is_asked = True
        try:
            while not self._is_over:
                found = await self._answer()
                if found is not None:
                    return found
                if not self._has_more():
                    self._is_over = True
            raise StopAsyncIteration
        finally:
            self._is_asked = False

    async def _answer(self) -> T | None:
        self._threads.check_process()
        job = self._job
        if job is None or job.cancelled():  # no thread had begun it
            job = self._job = self._begin(self._take)
        try:
            found = await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._is_over = True
            raise
        self._job = None
        return found

    async def aclose(self) -> None:
        """Take no more."""
        self._is_over = True
        self._job = None


async def wait_until(waiter: asyncio.Future[None], end: float) -> None:
    """Return when the waiter has its result, or at ``end`` in the loop's time.  If ``end`` is
    infinite, also return when the main thread has ended with an exception: see ``check_main``."""
    if end == math.inf:
        with woken(waiter):
            await waiter
        return
    with suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await waiter
