"""Settling the deliveries of a channel from other threads than the one that receives them."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from . import _core
from .errors import ChannelClosed
from .forking import check_process

__all__ = ["Settler"]

_Event = tuple[int, Any, Any]


class Settler:
    """Acknowledges and refuses deliveries of a channel from any thread: from
    ``Channel.threadsafe()``.

    The thread that is inside ``process_events``, ``start_consuming``, ``next_delivery`` or an
    iteration of ``consume`` makes the calls, in the order they were asked for, at once when it
    waits; when no thread is, the next one that comes makes them, or ``Channel.close``.  Each verb
    returns a :class:`concurrent.futures.Future`, whose ``result()`` is None when it was done, or
    raises what it raised: ``PreconditionFailed`` for an unknown delivery tag, which closes the
    channel and is raised in the receiving thread as well; ``ChannelClosed`` when it was not made.
    """

    def __init__(self, channel: _core.Channel, store: _core.Store) -> None:
        """See ``Channel.threadsafe``."""
        self._channel = channel
        self._store = store
        self._asked: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._mutex = threading.Lock()  # of _is_closed, _is_waiting and the descriptors
        self._is_closed = False
        self._is_waiting = False
        # Of our own: the store closes the channel's with the channel, and its number is another's.
        self._watched_fd = os.dup(channel._event_fd())
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._watched_fd, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def basic_ack(self, delivery_tag: int) -> Future[None]:
        """As :meth:`pyqstore.Channel.basic_ack`, of one delivery."""
        return self._ask(partial(self._channel.basic_ack, delivery_tag))

    def basic_nack(
        self,
        delivery_tag: int,
        requeue: bool = True,
        *,
        delay: float | timedelta | None = None,
    ) -> Future[None]:
        """As :meth:`pyqstore.Channel.basic_nack`, of one delivery."""
        return self._ask(
            partial(self._channel.basic_nack, delivery_tag, requeue=requeue, delay=delay)
        )

    def basic_reject(self, delivery_tag: int, requeue: bool = True) -> Future[None]:
        """As :meth:`pyqstore.Channel.basic_reject`."""
        return self._ask(partial(self._channel.basic_reject, delivery_tag, requeue))

    def _ask(self, call: Callable[[], None]) -> Future[None]:
        check_process(self._store)
        future: Future[None] = Future()
        with self._mutex:
            if self._is_closed or self._channel.closed:
                future.set_exception(ChannelClosed("the channel is closed"))
                return future
            self._asked.append((future, call))
            if self._is_waiting:
                os.eventfd_write(self._wake, 1)
        return future

    # For the channel, in the thread that uses it.

    def _next_event(self, kinds: int, timeout_ns: int) -> _Event | None:
        """As ``Channel._next_event``, making the calls that are asked for meanwhile."""
        try:
            return self._receive(kinds, timeout_ns)
        finally:
            if self._channel.closed:  # nobody may come to close it until those who asked are told
                self._close()

    def _receive(self, kinds: int, timeout_ns: int) -> _Event | None:
        receive = partial(_core.Channel._next_event, self._channel)
        self._settle()
        if self._is_closed:
            return receive(kinds, timeout_ns)
        event: _Event | None = receive(kinds, 0)
        if event is not None or timeout_ns == 0:
            return event
        events = self._channel._take_events(kinds | _core.EVENT_ARM, 1)[0]
        if events:
            return events[0]
        self._wait(timeout_ns)
        self._settle()
        return receive(kinds, 0)

    def _wait(self, timeout_ns: int) -> None:
        with self._mutex:
            if self._is_closed or self._asked:
                return
            self._is_waiting = True  # whoever asks from here on sees that somebody waits
        try:
            self._poll.poll(timeout_ns / 1e6)
        finally:
            with self._mutex:
                self._is_waiting = False
                if self._is_closed:
                    self._close_descriptors()
                else:
                    for event_fd in (self._watched_fd, self._wake):
                        with suppress(BlockingIOError):
                            os.eventfd_read(event_fd)

    def _settle(self) -> None:
        """Make the calls that were asked for.  Raises what closed the channel."""
        while self._asked:
            future, call = self._asked.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                call()
            except BaseException as error:
                future.set_exception(error)
                if self._channel.closed or not isinstance(error, Exception):
                    raise
            else:
                future.set_result(None)

    def _close(self) -> None:
        """Nothing is settled any more: the channel is closed."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            if self._is_waiting:  # and closes them when it wakes
                os.eventfd_write(self._wake, 1)
            else:
                self._close_descriptors()
        while self._asked:
            future, _ = self._asked.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(ChannelClosed("the channel is closed"))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Settler cannot be copied: its descriptors would be closed twice")

    def _close_descriptors(self) -> None:
        os.close(self._watched_fd)
        os.close(self._wake)
