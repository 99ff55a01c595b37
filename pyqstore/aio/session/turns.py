"""Waiting for messages in a loop, and the task that calls listeners."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ... import session as synchronous
from ...errors import Error
from ...session.consumer import Consumer
from ...session.errors import IllegalState
from ...waiting import check_main, woken
from ..threads import Threads

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """Brings the messages of one session to the tasks of a loop: to tasks that receive, and to
    listeners, which one task calls."""

    def __init__(self, session: synchronous.Session, threads: Threads) -> None:
        self._session = session
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._peers = session._peers
        self._link = session._link
        self._peers.listen = self._listen
        self._link.watch.looks_itself = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._watched: tuple[int, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._current: Consumer | None = None  # whose listener runs, or is about to
        self._idle = asyncio.Event()  # there is none
        self._wakes = 0
        self._job: asyncio.Task[Any] | None = None
        self._ends = 0  # closes that are under way

    @property
    def is_ending(self) -> bool:
        """Whether the session is about to be closed."""
        return self._ends > 0

    @property
    def is_here(self) -> bool:
        """Whether this is the task that calls listeners."""
        return self._task is not None and asyncio.current_task() is self._task

    async def end(self) -> None:
        """Return when nothing is handed out any more and no listener is running.  If this is
        cancelled, everything goes on."""
        self._ends += 1
        self.wake()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._ends -= 1
            if self._task is not None and self._task.done():
                self._task = None
            if self._peers.has_listener:
                self._listen()
            raise

    async def await_listener(self, consumer: Consumer) -> None:
        """Return when no listener of this consumer is running; the consumer is about to be
        closed."""
        consumer._is_closing = True
        try:
            while self._current is consumer and not self.is_here:
                await self._idle.wait()
        except asyncio.CancelledError:
            consumer._is_closing = consumer.closed
            self.wake()
            raise

    @property
    def wakes(self) -> int:
        """The number of times that waiting tasks were woken, or a message was pushed that no task
        had asked for; for ``wait``."""
        return self._wakes + self._link.watch.pushes

    async def wait(self, seconds: float, wakes: int) -> None:
        """Return when something may have come, or tasks were woken since ``wakes``.  A wait without
        end raises like ``check_main``."""
        if self.wakes != wakes:
            return
        if seconds == math.inf:
            check_main()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        self._watch()
        self._link.watch.enter(self)
        try:
            if self.wakes != wakes:  # before the thread that pushes heard of it
                return
            if seconds == math.inf:
                with woken(waiter):
                    await waiter
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await waiter
        finally:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._unwatch()
                self._link.watch.leave(self)

    def _watch(self) -> None:
        self._unwatch()
        self._watched = self._link.descriptors
        for descriptor in self._watched:
            self._loop.add_reader(descriptor, self._readable, descriptor)

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        self._watched = ()

    def _readable(self, descriptor: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(descriptor)
        self.wake()

    def wake(self) -> None:
        """Wake all tasks that wait."""
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
                wakes = self.wakes
                if not await self._serve():
                    await self.wait(self._until_due(), wakes)
        except Error as error:
            if not self.is_ending:
                await self._tell(error)

    def _until_due(self) -> float:
        waits = [
            each._wait_s
            for each in self._peers.consumers
            if each.listener is not None and not each._is_closing
        ]
        return min(waits, default=math.inf)

    async def _serve(self) -> bool:
        """Call each listener with one message.  Returns whether there was one, or is one now: the
        request of one consumer may have brought messages for those before it."""
        served = False
        for consumer in list(self._peers.consumers):
            if consumer.listener is None or consumer._is_closing or self.is_ending:
                continue
            self._current = consumer
            self._idle.clear()
            try:
                message = await self.take(consumer, True)
                if message is not None:
                    served = True
                    await self._call(consumer, message)
                elif (end := consumer._untold()) is not None:
                    await self._tell(end)
            finally:
                self._current = None
                self._idle.set()
        return served or any(
            each._is_ready for each in self._peers.consumers if each.listener is not None
        )

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
                with self._link.lock:
                    consumer._put_first(message)
                raise
            raised = error
        except Exception as error:
            raised = error
        await self.call(
            partial(consumer._returned, message, raised),
            may_wait=self._peers.wait_for_acks or raised is not None,
        )

    async def _tell(self, error: Error) -> None:
        """Call the exception listener, which may be a coroutine function."""
        failures = self._peers.failures
        result = failures.tell(error)
        if inspect.isawaitable(result):
            try:
                await result
            except Exception as raised:
                failures.failed(error, raised)

    async def take(self, consumer: Consumer, arm: bool) -> synchronous.Message | None:
        """The next message, for a listener."""
        return await self.call(
            partial(consumer._take, arm=arm),
            consumer._put_first,
            may_wait=not consumer._is_at_hand,
        )

    async def receive(self, consumer: Consumer, arm: bool) -> synchronous.Message | None:
        """The next message, consumed."""
        return await self.call(
            partial(consumer._receive, arm=arm),
            consumer._keep,
            may_wait=self._peers.wait_for_acks or not consumer._is_at_hand,
        )

    async def call(
        self,
        call: Callable[[], T],
        undo: Callable[[Any], object] | None = None,
        *,
        may_wait: bool = False,
    ) -> T:
        """Make ``call`` with the link's lock held, and return its result: here, or in a thread if
        another thread holds the lock or the call may wait.  Calls are made one after another.

        If the task is cancelled, ``undo`` gets the result, before the next call is made.
        """
        self._threads.check_process()
        while self._job is not None:
            await asyncio.wait([self._job])
        if not may_wait and self._link.lock.acquire(blocking=False):
            try:
                return call()
            finally:
                self._link.lock.release()
        job = self._begin(self._threads.run(partial(self._locked, call)))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            self._begin(self._undone(job, undo))
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        job = self._loop.create_task(work)
        job.add_done_callback(self._end_job)
        self._job = job
        return job

    def _end_job(self, job: asyncio.Task[Any]) -> None:
        if self._job is job:
            self._job = None

    async def _undone(self, job: asyncio.Task[T], undo: Callable[[Any], object] | None) -> None:
        await asyncio.wait([job])
        if job.cancelled() or job.exception() is not None:
            return
        result = job.result()
        if undo is not None and result is not None:
            await self._threads.run(partial(self._locked, partial(undo, result)))

    def _locked(self, call: Callable[[], T]) -> T:
        with self._link.lock:
            return call()
