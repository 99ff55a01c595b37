"""Waiting in slices: a call into C cannot be interrupted, so each is short and Python looks around
between two.

A thread of the program that waits for ever would keep the process alive after the traceback of the
main thread: the interpreter waits for it.  So a wait without an end ends when the main thread has
ended with an exception.  Where that returned, or called ``sys.exit``, threads go on, as Python has
it.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - it waits for its threads after us: see _end
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from .errors import StoreClosed

if TYPE_CHECKING:
    import asyncio

__all__ = ["SLICE_NS", "Deadline", "Seconds", "check_main", "check_timeout", "told", "woken"]

Seconds = float | timedelta
"""A time span: a number of seconds, or a timedelta."""

SLICE_NS = 100_000_000
_FOR_EVER = 2**62 / 1e9  # seconds whose nanoseconds a clock can count: 146 years


def check_timeout(timeout: Seconds | None, what: str = "timeout") -> float:
    """The seconds to wait, infinite for None and for what no clock can count.

    ValueError for a timeout that is negative or not a number; TypeError for one of another type.
    """
    if timeout is None:
        return math.inf
    try:
        waits = timeout >= 0  # type: ignore[operator]
    except ArithmeticError:  # decimal's NaN compares with nothing
        waits = False
    except TypeError:
        if isinstance(timeout, timedelta):
            return check_timeout(timeout.total_seconds(), what)
        kind = type(timeout).__name__
        raise TypeError(f"{what} must be None, seconds or a timedelta, not {kind}") from None
    if not waits:
        raise ValueError(f"{what} must be None or 0 seconds or more, not {timeout}")
    return float(timeout) if timeout < _FOR_EVER else math.inf  # type: ignore[operator,arg-type]


def told(timeout: Seconds | None) -> str:
    """In texts of errors."""
    return f"{timeout.total_seconds() if isinstance(timeout, timedelta) else timeout} s"


class Deadline:
    """When a wait is over: ``timeout`` seconds from now, or never when that is None."""

    __slots__ = ("_end_ns", "_for_commit")

    def __init__(self, timeout: Seconds | None, *, for_commit: bool = False) -> None:
        """ValueError for a timeout that is negative or not a number.  ``for_commit``: what this
        waits for comes by itself, so it goes on although the main thread has ended."""
        seconds = check_timeout(timeout)
        self._for_commit = for_commit
        self._end_ns: int | None = None
        if seconds != math.inf:
            self._end_ns = time.monotonic_ns() + int(seconds * 1e9)

    def slice_ns(self) -> int:
        """How long the next call may wait, in nanoseconds; 0 when the time is over.  Raises as
        ``check_main`` when it never is."""
        if self._end_ns is None:
            if not self._for_commit:
                check_main()
            return SLICE_NS
        return max(0, min(SLICE_NS, self._end_ns - time.monotonic_ns()))

    def left_s(self) -> float:
        """How many seconds are left, infinite or 0 or more.  Raises as ``slice_ns``."""
        if self._end_ns is None:
            if not self._for_commit:
                check_main()
            return math.inf
        return max(0.0, (self._end_ns - time.monotonic_ns()) / 1e9)

    def end(self) -> None:
        """The time is over.  Any thread may call it."""
        self._end_ns = 0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self._end_ns is not None and time.monotonic_ns() >= self._end_ns


class _Main:
    has_raised = False


_waiters: set[asyncio.Future[None]] = set()


def check_main() -> None:
    """StoreClosed: the main thread has ended with an exception, and so do waits without an end."""
    if _Main.has_raised:
        raise StoreClosed(
            "the main thread has ended with an exception, so this does not wait for ever: the store"
            " is closed with the process"
        )


@contextmanager
def woken(waiter: asyncio.Future[None]) -> Iterator[None]:
    """Meanwhile the waiter of a loop, without an end, gets its result when ``check_main`` would
    raise, which the caller asks next."""
    _waiters.add(waiter)
    try:
        if _Main.has_raised:
            _wake(waiter)
        yield
    finally:
        _waiters.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _main_raised() -> bool:
    """Whether the main thread ended with an exception: the traceback that was printed last begins
    where the thread does.  Prompts and tools that handle exceptions leave tracebacks, too."""
    traceback = getattr(sys, "last_traceback", None)
    return traceback is not None and traceback.tb_frame.f_back is None and not hasattr(sys, "ps1")


def _end() -> None:
    """The interpreter is about to wait for the threads that are no daemons."""
    if not _main_raised():
        return
    _Main.has_raised = True
    for waiter in list(_waiters):
        with suppress(RuntimeError):  # its loop was closed
            waiter.get_loop().call_soon_threadsafe(_wake, waiter)


with suppress(AttributeError, RuntimeError):  # another interpreter; it ends already
    threading._register_atexit(_end)  # type: ignore[attr-defined]
