"""A channel's calls, one after another: at once in the loop where they need not wait, in one of the
store's threads where they must."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ..errors import ChannelClosed, Error, StoreClosed
from .engine import Engine

__all__ = ["Lane", "in_thread"]

T = TypeVar("T")


async def in_thread(
    executor: ThreadPoolExecutor, call: Callable[[], T], undo: Callable[[T], object] | None = None
) -> T:
    """What ``call`` returns in a thread of the executor.

    Who is cancelled meanwhile does not get it: ``undo`` does.  StoreClosed when the threads are
    gone.
    """
    try:
        job = executor.submit(call)
    except RuntimeError:
        raise StoreClosed("the store is closed") from None
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        if undo is not None and not job.cancel():
            job.add_done_callback(lambda done: _undo(done, undo))
        raise


def _undo(done: Future[T], undo: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())


class _Job:
    """future: None when nobody waits.  inline: it may be tried in the loop."""

    __slots__ = ("call", "future", "inline", "then")

    def __init__(
        self,
        call: Callable[[], Any],
        then: Callable[[Any], Any] | None,
        inline: bool,
        future: asyncio.Future[Any] | None,
    ) -> None:
        self.call = call
        self.then = then
        self.inline = inline
        self.future = future


class Lane:
    """The order of a channel's calls is that in which they were made, wherever they run.

    ``after`` is called in the loop when the lane is free again, ``failed`` with what a call raised.
    """

    __slots__ = ("_after", "_engine", "_executor", "_failed", "_jobs", "_loop", "free")

    def __init__(
        self,
        engine: Engine,
        executor: ThreadPoolExecutor,
        after: Callable[[], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._after = after
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[_Job] = deque()
        self.free = True
        """No call is under way or waits for its turn."""
        engine._set_no_wait(True)

    async def run(
        self,
        call: Callable[[], Any],
        *,
        then: Callable[[Any], Any] | None = None,
        undo: Callable[[Any], object] | None = None,
        inline: bool = False,
    ) -> Any:
        """What ``then`` makes, in the loop and before anything else happens on the channel, of what
        ``call`` returns.

        With ``inline`` the call is tried here first, and made in a thread when it would wait.  Who
        is cancelled does not get the answer: then the call is not made at all or, when it was under
        way, ``undo`` is told what came of it.
        """
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

    def post(self, call: Callable[[], object]) -> None:
        """Make the call when its turn comes; nobody waits, and a closed channel is no error."""
        self._push(_Job(call, None, True, None))

    def _push(self, job: _Job) -> None:
        self._jobs.append(job)
        if self.free:
            self._next()

    def reject(self, error: BaseException) -> None:
        """Whatever waits for its turn does not get it."""
        while self._jobs:
            job = self._jobs.popleft()
            if job.future is not None and not job.future.done():
                job.future.set_exception(error)

    def _next(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            if job.inline:
                try:
                    result = job.call()
                except BlockingIOError:
                    pass
                except BaseException as error:
                    self._refuse(job, error)
                    continue
                else:
                    self._answer(job, result)
                    continue
            self.free = False
            self._engine._set_no_wait(False)
            try:
                running = self._executor.submit(job.call)
            except RuntimeError:  # shut down
                self._end_of(job, None, ChannelClosed("the store is closed"))
                return
            running.add_done_callback(partial(self._back, job))
            return
        self.free = True

    def _back(self, job: _Job, done: Future[Any]) -> None:
        error = done.exception()
        result = done.result() if error is None else None
        with suppress(RuntimeError):  # the loop was closed: there is nobody to tell
            self._loop.call_soon_threadsafe(self._end_of, job, result, error)

    def _end_of(self, job: _Job, result: Any, error: BaseException | None) -> None:
        self._engine._set_no_wait(True)
        if error is None:
            self._answer(job, result)
        else:
            self._refuse(job, error)
        self._next()
        if self.free:
            self._after()

    def _answer(self, job: _Job, result: Any) -> None:
        answer = result if job.then is None else job.then(result)
        if job.future is not None and not job.future.done():
            job.future.set_result(answer)

    def _refuse(self, job: _Job, error: BaseException) -> None:
        self._failed(error)
        if job.future is not None and not job.future.done():
            job.future.set_exception(error)
        elif job.future is None and not isinstance(error, Error):
            self._loop.call_exception_handler({"message": "pyqstore.aio", "exception": error})


def _undo_answer(done: asyncio.Future[Any], undo: Callable[[Any], object] | None) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
