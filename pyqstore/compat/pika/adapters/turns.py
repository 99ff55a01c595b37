"""The work of a blocking connection between messages: calls from other threads, timers, waits."""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Turns"]

_SLICE_S = 1.0  # the longest wait; then a store that another thread closed is noticed


class Turns:
    """The work of one connection.  Only ``ask`` may be called by any thread."""

    def __init__(self) -> None:
        self._asked: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int]] = []
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._mutex = threading.Lock()  # guards _is_closed and the descriptor
        self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)

    def ask(self, call: Callable[[], object]) -> bool:
        """Schedules a call in the connection's thread.  False: the connection is closed."""
        with self._mutex:
            if self._is_closed:
                return False
            self._asked.append(call)
            os.eventfd_write(self._wake, 1)
            return True

    def later(self, delay_s: float, callback: Callable[[], object]) -> int:
        """Schedules a call after a delay; returns its number."""
        self._number += 1
        self._callbacks[self._number] = callback
        heapq.heappush(self._timers, (time.monotonic() + delay_s, self._number))
        return self._number

    def forget(self, number: int) -> None:
        """Cancels a call that has not run."""
        self._callbacks.pop(number, None)

    def run(self) -> int:
        """Runs the calls that are due; returns their number."""
        handled = 0
        for _ in range(len(self._asked)):
            handled += 1
            self._asked.popleft()()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, number = heapq.heappop(self._timers)
            callback = self._callbacks.pop(number, None)
            if callback is not None:
                handled += 1
                callback()
        return handled

    def watch(self, event_fd: int) -> None:
        """Makes a signal of the descriptor end the wait."""
        self._poll.register(event_fd, select.POLLIN)

    def unwatch(self, event_fd: int) -> None:
        """Undoes ``watch``."""
        with suppress(KeyError):
            self._poll.unregister(event_fd)

    def wait(self, most_s: float) -> None:
        """Waits for a call of another thread, a timer or a watched descriptor, but at most a
        second, as another thread may close the store."""
        limit = min(most_s, _SLICE_S)
        if self._timers:
            limit = min(limit, self._timers[0][0] - time.monotonic())
        for event_fd, _ in self._poll.poll(max(limit, 0.0) * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(event_fd)

    def close(self) -> None:
        """Drops all scheduled calls."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._wake)
        self._asked.clear()
        self._callbacks.clear()
