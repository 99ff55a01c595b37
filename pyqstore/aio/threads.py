"""The threads of a store, or of a connection of sessions, for calls that may wait for the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import TypeVar

from ..errors import StoreClosed
from ..forking import refuse, tell_in_child

__all__ = ["Threads", "no_stop_iteration"]

T = TypeVar("T")

_THREADS = 4


class Threads:
    """The threads start when they are needed, and end when their owner is closed.  A child of
    fork() has none."""

    __slots__ = ("__weakref__", "_ended", "_executor", "_is_parents")

    def __init__(self, ended: Exception | None = None) -> None:
        """``ended``: what calls raise when the threads have ended.  None: StoreClosed."""
        self._ended = ended or StoreClosed("the store is closed")
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="pyqstore-aio")
        self._is_parents = False
        tell_in_child(self)

    def _forget_parent(self) -> None:
        self._is_parents = True

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Make the call in a thread.  ``ended`` if the threads have ended; ForkedStore."""
        self.check_process()
        try:
            return self._executor.submit(partial(no_stop_iteration, call))
        except RuntimeError:
            raise copy(self._ended) from None

    def check_process(self) -> None:
        """ForkedStore if this is not the process that has the threads."""
        if self._is_parents:
            refuse()

    def end(self) -> None:
        """Begin no more calls; calls that were begun are made."""
        self._executor.shutdown(wait=False)

    def finish(self, call: Callable[[], T]) -> Future[T]:
        """Make the last call, in a thread of its own, so that it need not wait for another call."""
        done = _begin_apart(call, "pyqstore-aio-close")
        self.end()
        return done

    def begin_apart(self, call: Callable[[], T]) -> Future[T]:
        """Make the call in a thread of its own, which it may use for long; the store's threads stay
        free for others.  ForkedStore."""
        self.check_process()
        return _begin_apart(call, "pyqstore-aio-apart")

    async def run_apart(self, call: Callable[[], T]) -> T:
        """Make ``call`` in a thread of its own, and return its result.  ForkedStore."""
        return await asyncio.wrap_future(self.begin_apart(call))

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Make ``call`` in a thread, and return its result.

        If the task is cancelled meanwhile, ``undo`` gets the result instead.  Raises like
        ``begin``.
        """
        job = self.begin(call)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if undo is not None and not job.cancel():
                job.add_done_callback(lambda done: _undo(done, undo))
            raise


def _begin_apart(call: Callable[[], T], name: str) -> Future[T]:
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # whoever waits for it may be cancelled, not the call
    # The process does not wait for the thread: the call may be without an end.
    threading.Thread(target=_fulfil, args=(done, call), name=name, daemon=True).start()
    return done


def _fulfil(done: Future[T], call: Callable[[], T]) -> None:
    try:
        result = no_stop_iteration(call)
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)


def _undo(done: Future[T], undo: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())


def no_stop_iteration(call: Callable[[], T]) -> T:
    """Call it.  StopIteration becomes RuntimeError, as in a coroutine: a future cannot have
    StopIteration."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("a call raised StopIteration") from error
