"""Waiting for messages in a loop, and the task that calls listeners."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import weakref
from contextlib import suppress
from functools import partial

from ... import session as synchronous
from ...errors import Error
from ...session.consumer import Consumer
from ...session.errors import IllegalState
from ..threads import Threads

__all__ = ["Turns"]

_log = logging.getLogger(__name__)


class Turns:
    """How messages of one session come to the tasks of a loop: to those that receive, and to
    listeners, which one task calls."""

    def __init__(self, session: synchronous.Session, threads: Threads) -> None:
        self._session = session
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._peers = session._peers
        self._link = session._link
        self._peers.listen = self._listen
        self._waiters: set[asyncio.Future[None]] = set()
        self._watched: tuple[int, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._current: Consumer | None = None  # whose listener runs, or is about to
        self._idle = asyncio.Event()  # there is none
        self._closing: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._wakes = 0
        self._job: asyncio.Future[synchronous.Message | None] | None = None
        self.is_ending: bool = False
        """The session is about to be closed."""

    @property
    def is_here(self) -> bool:
        """Whether this is the task that calls listeners."""
        return self._task is not None and asyncio.current_task() is self._task

    async def end(self) -> None:
        """Nothing is handed out any more, and no listener is running."""
        self.is_ending = True
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def await_listener(self, consumer: Consumer) -> None:
        """Until none of this consumer's is running; it is about to be closed."""
        self._closing.add(consumer)
        while self._current is consumer and not self.is_here:
            await self._idle.wait()

    async def consumed(self, consumer: Consumer, message: synchronous.Message) -> None:
        """It is about to be handed out by ``receive``."""
        after = partial(_after, consumer, message)
        if self._peers.wait_for_acks:
            await asyncio.shield(self._threads.run(after))
        else:
            after()

    @property
    def wakes(self) -> int:
        """How often tasks that wait were told to look again; for ``wait``."""
        return self._wakes

    async def wait(self, seconds: float, wakes: int) -> None:
        """Until something may have come, or tasks were told to look again since ``wakes``."""
        if self._wakes != wakes:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        self._watch()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if seconds == math.inf else seconds):
                    await waiter
        finally:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._unwatch()

    def _watch(self) -> None:
        self._unwatch()
        self._watched = tuple(each for each in self._link.descriptors if each >= 0)
        for descriptor in self._watched:
            self._loop.add_reader(descriptor, self._readable, descriptor)

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        self._watched = ()

    def _readable(self, descriptor: int) -> None:
        with suppress(BlockingIOError, OSError):
            os.eventfd_read(descriptor)
        self.wake()

    def wake(self) -> None:
        """All that wait look again."""
        self._wakes += 1
        self._unwatch()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _listen(self) -> None:
        if self._task is None and not self.is_ending:
            self._task = self._loop.create_task(self._run())
        self.wake()

    async def _run(self) -> None:
        try:
            while not self.is_ending and not self._session.closed:
                wakes = self._wakes
                if not await self._serve():
                    await self.wait(self._until_due(), wakes)
        except Error as error:
            if not self.is_ending:
                _log.error("listeners are not called any more: %s", error, exc_info=error)

    def _until_due(self) -> float:
        waits = [each._wait_s for each in self._peers.consumers if each.listener is not None]
        return min(waits, default=math.inf)

    async def _serve(self) -> bool:
        served = False
        for consumer in list(self._peers.consumers):
            if consumer.listener is None or consumer in self._closing or self.is_ending:
                continue
            self._current = consumer
            self._idle.clear()
            try:
                message = await self.take(consumer, True)
                if message is not None:
                    served = True
                    await self._call(consumer, message)
            finally:
                self._current = None
                self._idle.set()
        return served

    async def _call(self, consumer: Consumer, message: synchronous.Message) -> None:
        raised: BaseException | None = None
        try:
            listener = consumer.listener
            if listener is None:  # it was taken away just now
                raise IllegalState("there is no listener any more")
            result = listener(message)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            assert self._task is not None
            if self._task.cancelling():
                self._put_back(consumer, message)
                raise
            raised = error
        except Exception as error:
            raised = error
        await asyncio.shield(self._threads.run(partial(_returned, consumer, message, raised)))

    async def take(self, consumer: Consumer, arm: bool) -> synchronous.Message | None:
        """What is there: here when it is in the buffer, else a thread asks the engine.

        Who is cancelled does not get it: it is put back before another task takes something.
        """
        while self._job is not None:
            await asyncio.wait([self._job])
        if consumer._has_more:
            return _take(consumer, arm)
        self._job = job = asyncio.ensure_future(self._threads.run(partial(_take, consumer, arm)))
        try:
            message = await asyncio.shield(job)
        except asyncio.CancelledError:
            job.add_done_callback(partial(self._end_job, consumer))
            raise
        except BaseException:
            self._job = None
            raise
        self._job = None
        return message

    def _end_job(self, consumer: Consumer, job: asyncio.Future[synchronous.Message | None]) -> None:
        self._job = None
        if not job.cancelled() and job.exception() is None:
            self._put_back(consumer, job.result())

    def _put_back(self, consumer: Consumer, message: synchronous.Message | None) -> None:
        if message is not None:
            with self._link.lock:
                consumer._put_first(message)


def _take(consumer: Consumer, arm: bool) -> synchronous.Message | None:
    with consumer._link.lock:
        return consumer._take(arm=arm)


def _returned(
    consumer: Consumer, message: synchronous.Message, error: BaseException | None
) -> None:
    with consumer._link.lock:
        if not consumer._link.is_closed:
            consumer._returned(message, error)


def _after(consumer: Consumer, message: synchronous.Message) -> None:
    with consumer._link.lock:
        consumer._after(message)
