"""What a blocking connection does between messages: calls of other threads, timers, waiting."""

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

_SLICE_S = 1.0  # a store that is closed by another thread is noticed after


class Turns:
    """Of one connection.  ``ask`` is for any thread, the rest for the connection's."""

    def __init__(self) -> None:
        self._asked: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int]] = []
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._mutex = threading.Lock()  # of is_closed and the descriptor
        self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)

    def ask(self, call: Callable[[], object]) -> bool:
        """Have it called soon.  False: it is too late for that."""
        with self._mutex:
            if self._is_closed:
                return False
            self._asked.append(call)
            os.eventfd_write(self._wake, 1)
            return True

    def later(self, delay_s: float, callback: Callable[[], object]) -> int:
        """Have it called after a while; its number."""
        self._number += 1
        self._callbacks[self._number] = callback
        heapq.heappush(self._timers, (time.monotonic() + delay_s, self._number))
        return self._number

    def forget(self, number: int) -> None:
        """Do not call it, if it was not called yet."""
        self._callbacks.pop(number, None)

    def run(self) -> int:
        """Call what is due; how many there were."""
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
        """Let waiting end when it is signalled."""
        self._poll.register(event_fd, select.POLLIN)

    def unwatch(self, event_fd: int) -> None:
        """As it was before."""
        with suppress(KeyError):
            self._poll.unregister(event_fd)

    def wait(self, most_s: float) -> None:
        """Until somebody asks, a timer is due or a descriptor is signalled; for a second at most,
        as somebody may close the store."""
        limit = min(most_s, _SLICE_S)
        if self._timers:
            limit = min(limit, self._timers[0][0] - time.monotonic())
        for event_fd, _ in self._poll.poll(max(limit, 0.0) * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(event_fd)

    def close(self) -> None:
        """Nothing is called any more."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._wake)
        self._asked.clear()
        self._callbacks.clear()
