"""A channel's calls, one after another.  Calls that need not wait run at once in the loop, and the
others in the store's threads."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from .._core import Confirm
from ..errors import Error
from .loop_channel import LoopChannel
from .threads import Threads, no_stop_iteration

__all__ = ["Lane"]


class _Job:
    """future: None if no task waits; then ``refused`` gets an exception.  If ``then`` returns the
    future, it is left alone, because it is settled elsewhere.  inline: the call may be tried in the
    loop.  running: the call was given to the threads."""

    __slots__ = ("call", "future", "inline", "refused", "running", "then")

    def __init__(
        self,
        call: Callable[[], Any],
        then: Callable[[Any], Any] | None,
        inline: bool,
        future: asyncio.Future[Any] | Confirm | None,
        refused: Callable[[BaseException], object] | None = None,
    ) -> None:
        self.call = call
        self.then = then
        self.inline = inline
        self.future = future
        self.refused = refused
        self.running: Future[Any] | None = None


class Lane:
    """Calls of a channel keep the order in which they were made, wherever they run.

    ``after`` is called in the loop when the lane is free again, ``failed`` with an exception of a
    call.
    """

    __slots__ = ("_after", "_channel", "_failed", "_jobs", "_loop", "_threads", "end", "free")

    def __init__(
        self,
        channel: LoopChannel,
        threads: Threads,
        after: Callable[[], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._channel = channel
        self._threads = threads
        self._after = after
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[_Job] = deque()
        self.free: bool = True
        """No call is under way or waits for its turn."""
        self.end: BaseException | None = None
        """The exception for waiting tasks once the channel is closed."""
        channel._set_no_wait(True)

    async def run(
        self,
        call: Callable[[], Any],
        *,
        then: Callable[[Any], Any] | None = None,
        undo: Callable[[Any], object] | None = None,
        inline: bool = False,
        until: float = math.inf,
    ) -> Any:
        """Make the call, and return what ``then`` makes of its result, in the loop and before
        anything else happens on the channel.

        With ``inline`` the call is tried here first, and made in a thread if it would wait.  A task
        that is cancelled does not get the result: either the call is not made, or, if it was
        running, ``undo`` gets what ``then`` made of the result.  TimeoutError: the call was not
        begun by ``until``, in the loop's time, and is not made; a call that was begun is waited
        for.  If the channel has ended: ``end``.
        """
        if self.end is not None:
            raise self.end
        job = _Job(call, then, inline, None)
        if self.free and inline:
            try:
                result = call()
            except BlockingIOError:
                job.inline = False
            except BaseException as error:
                self._failed(error)
                raise
            else:
                return result if then is None else then(result)
        future: asyncio.Future[Any] = self._loop.create_future()
        job.future = future
        self._push(job)
        late = None if until == math.inf else self._loop.call_at(until, self._withdraw, job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.done():
                _undo_answer(future, undo)
            elif job in self._jobs:
                self._jobs.remove(job)
            else:
                future.add_done_callback(lambda done: _undo_answer(done, undo))
            raise
        finally:
            if late is not None:
                late.cancel()

    async def finish(self, call: Callable[[], Any]) -> None:
        """Make the last call, in a thread, after the call that was running when the lane was
        closed.  It is made even if tasks are cancelled."""
        job = _Job(call, None, False, self._loop.create_future())
        self._push(job)
        assert job.future is not None
        await asyncio.shield(job.future)

    def post(
        self,
        call: Callable[[], object],
        *,
        then: Callable[[Any], object] | None = None,
        refused: Callable[[BaseException], object] | None = None,
        inline: bool = True,
    ) -> None:
        """Make the call when its turn comes, unless the channel is closed; no task waits.
        ``refused`` gets its exception."""
        if self.end is None:
            self._push(_Job(call, then, inline, None, refused))

    def publish(
        self, publish: Callable[[], int], then: Callable[[int], object], confirm: Confirm
    ) -> None:
        """Publish when the lane's turn comes, unless the confirm is cancelled by then.  ``then``
        gets the number and handles the confirm."""

        def call() -> int | None:
            return None if confirm.done() else publish()

        def answer(number: int | None) -> Confirm:
            if number is not None:
                then(number)
            return confirm

        self._push(_Job(call, answer, True, confirm))

    def _push(self, job: _Job) -> None:
        self._jobs.append(job)
        if self.free:
            self._next()

    def _withdraw(self, job: _Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            _reject(job, TimeoutError())
        elif job.running is not None:
            job.running.cancel()  # unless a thread has begun it

    def close(self, error: BaseException) -> None:
        """The channel is closed: calls that wait for their turn are not made."""
        self.end = error
        self._reject_all(error)

    def _reject_all(self, error: BaseException) -> None:
        while self._jobs:
            _reject(self._jobs.popleft(), error)

    def _next(self) -> None:
        self.free = False  # what is pushed meanwhile waits for its turn
        while self._jobs:
            job = self._jobs.popleft()
            if job.inline:
                try:
                    result = no_stop_iteration(job.call)
                except BlockingIOError:
                    pass
                except BaseException as error:
                    self._refuse(job, error)
                    continue
                else:
                    self._answer(job, result)
                    continue
            self._channel._set_no_wait(False)
            try:
                job.running = self._threads.begin(job.call)
            except Error as error:  # the threads are gone: no job's turn comes any more
                self._channel._set_no_wait(True)
                self._jobs.appendleft(job)
                self._reject_all(error)
                self._failed(error)
                break
            job.running.add_done_callback(partial(self._back, job))
            return
        self.free = True

    def _back(self, job: _Job, done: Future[Any]) -> None:
        error = TimeoutError() if done.cancelled() else done.exception()
        result = done.result() if error is None else None
        with suppress(RuntimeError):  # the loop was closed: there is nobody to tell
            self._loop.call_soon_threadsafe(self._end_of, job, result, error)

    def _end_of(self, job: _Job, result: Any, error: BaseException | None) -> None:
        self._channel._set_no_wait(True)
        try:
            if error is None:
                self._answer(job, result)
            else:
                self._refuse(job, error)
        finally:
            self._next()
        if self.free:
            self._after()

    def _answer(self, job: _Job, result: Any) -> None:
        try:
            answer = result if job.then is None else job.then(result)
        except BaseException as error:
            self._refuse(job, error)
            return
        if job.future is not None and answer is not job.future and not job.future.done():
            job.future.set_result(answer)

    def _refuse(self, job: _Job, error: BaseException) -> None:
        self._failed(error)
        _reject(job, error)
        if job.refused is not None:
            job.refused(error)
        elif job.future is None and not isinstance(error, Error):
            self._loop.call_exception_handler({"message": "pyqstore.aio", "exception": error})


def _reject(job: _Job, error: BaseException) -> None:
    if job.future is not None and not job.future.done():
        job.future.set_exception(error)


def _undo_answer(done: asyncio.Future[Any], undo: Callable[[Any], object] | None) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
