"""A worker: tasks that take messages from a queue and call a function with each."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..work import LOOK_S, Backoff, Plan, ending_on_sigterm, worker_count
from .message import Message

if TYPE_CHECKING:
    from .queue import Queue

__all__ = ["Work"]

_log = logging.getLogger("pyqstore.work")


class Work:
    """One call of ``Queue.work``."""

    def __init__(
        self,
        queue: Queue,
        function: Callable[[Message], object],
        *,
        retries: int,
        backoff: Backoff,
        dead: str | None,
        stop: asyncio.Event | None,
    ) -> None:
        """See ``Queue.work``."""
        self._queue = queue
        self._function = function
        self._plan = Plan(function, queue.name, retries, backoff, dead)
        if stop is not None and not isinstance(stop, asyncio.Event):
            raise TypeError(f"stop must be an asyncio.Event, not {type(stop).__name__}")
        self._dead: Queue | None = None
        self._stop = stop
        self._end = asyncio.Event()

    async def run(self, tasks: int) -> None:
        """Return when every task has ended."""
        count = worker_count("tasks", tasks)
        self._plan.heed_limit(self._queue._store._store)
        self._dead = await self._queue._store.queue(self._plan.dead)
        loop = asyncio.get_running_loop()
        _log.info("%d tasks work on queue %r", count, self._queue.name)
        with ending_on_sigterm(lambda: loop.call_soon_threadsafe(self._end.set)):
            workers = [asyncio.create_task(self._serve()) for _ in range(count)]
            try:
                await self._until_over(workers)
                self._end.set()
                await asyncio.wait(workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        _log.info("work on queue %r has ended", self._queue.name)
        for worker in workers:
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error

    async def _until_over(self, workers: list[asyncio.Task[None]]) -> None:
        """Return when the work is to end, or when a worker has ended, which happens only with an
        error."""
        ends = [asyncio.create_task(self._end.wait())]
        if self._stop is not None:
            ends.append(asyncio.create_task(self._stop.wait()))
        done: set[asyncio.Task[Any]] = set()
        try:
            while not done:  # else a signal that another thread had would not be handled
                done, _ = await asyncio.wait(
                    [*ends, *workers], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for end in ends:
                end.cancel()

    async def _serve(self) -> None:
        while not self._end.is_set():
            message = await self._next()
            if message is not None:
                async with message:
                    await self._handle(message)

    async def _next(self) -> Message | None:
        """The next message; None: the work is to end."""
        getting = asyncio.ensure_future(self._queue.get())
        ending = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait([getting, ending], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                await asyncio.wait([getting])
            return None if getting.cancelled() else getting.result()
        except asyncio.CancelledError:
            if getting.done() and getting.exception() is None:
                await getting.result().nack()
            raise
        finally:
            ending.cancel()
            getting.cancel()

    async def _handle(self, message: Message) -> None:
        try:
            answer = self._function(message)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this task is, not one that the function waited for
            if message.settled:
                _log.warning("%r failed after it was settled", message, exc_info=error)
            else:
                await self._failed(message, error)

    async def _failed(self, message: Message, error: BaseException) -> None:
        delay = self._plan.delay(message, error)
        if delay is not None:
            await message.retry(delay=delay or None)
            return
        assert self._dead is not None
        properties = self._plan.dead_letter(message, error)
        # Durable there before it is acknowledged here: a crash between the two leaves it twice.
        await self._dead._publish("", self._dead.name, message.body, properties)
