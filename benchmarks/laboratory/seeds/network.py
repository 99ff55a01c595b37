"""A network between the engine and a consumer, in one process: whatever crosses it takes so long.

A line is one direction.  What is sent waits in it until it is due, as bytes on their way would; it
is as wide as one likes.  At the engine's end a thread has the channel; at the other end messages
come into the consumer's buffer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

import pyqstore
from pyqstore.bench.loads import QUEUE, WAIT_SECONDS

_T = TypeVar("_T")
_LOOK_SECONDS = 0.02


class Arrived(NamedTuple, Generic[_T]):
    """What came, and when."""

    at: float
    """On the clock of time.perf_counter."""
    what: _T


class Line(Generic[_T]):
    """One direction: first in, first out, each so much later."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._under_way: deque[Arrived[_T]] = deque()
        self._changed = threading.Condition()

    def send(self, what: _T) -> None:
        """Let it go; nothing waits."""
        with self._changed:
            self._under_way.append(Arrived(time.perf_counter() + self._delay, what))
            self._changed.notify()

    def arrived(self, timeout: float) -> list[Arrived[_T]]:
        """All that is due; waits for the first, at most so long."""
        deadline = time.perf_counter() + timeout
        with self._changed:
            while True:
                now = time.perf_counter()
                if self._under_way and self._under_way[0].at <= now:
                    break
                if now >= deadline:
                    return []
                due = min(self._under_way[0].at, deadline) if self._under_way else deadline
                self._changed.wait(due - now)
            found = []
            while self._under_way and self._under_way[0].at <= now:
                found.append(self._under_way.popleft())
            return found


class Ack(NamedTuple):
    """What a consumer sends back."""

    delivery_tag: int
    multiple: bool


class Request:
    """What a consumer that pulls sends."""


class Far:
    """The two lines to a channel, which a thread at the engine's end serves."""

    def __init__(self, delay_seconds: float) -> None:
        self.to_consumer: Line[pyqstore.Message | None] = Line(delay_seconds)
        self.to_engine: Line[Ack | Request] = Line(delay_seconds)
        self._ended = threading.Event()

    def serve(self, channel: pyqstore.Channel, prefetch: int, *, is_pulled: bool) -> None:
        """Push what the window allows, or answer what is asked, until the end."""
        if not is_pulled:
            channel.basic_qos(prefetch)
            channel.basic_consume(QUEUE, self.to_consumer.send)
        while not self._ended.is_set():
            # With a window a message goes out when an acknowledgement came: that is waited for.
            if not is_pulled:
                channel.process_events(0 if prefetch else _LOOK_SECONDS / 10)
            for _, what in self.to_engine.arrived(_LOOK_SECONDS if prefetch or is_pulled else 0):
                if isinstance(what, Ack):
                    channel.basic_ack(what.delivery_tag, what.multiple)
                else:
                    self.to_consumer.send(channel.basic_get(QUEUE))

    def end(self) -> None:
        """Let serve return."""
        self._ended.set()


@contextmanager
def far(
    store: pyqstore.Store, delay_seconds: float, prefetch: int = 0, *, is_pulled: bool = False
) -> Iterator[Far]:
    """A consumer's end of a network, with a channel of its own at the other end."""
    found = Far(delay_seconds)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            with store.channel() as channel:
                found.serve(channel, prefetch, is_pulled=is_pulled)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.end()
        thread.join()
    if failures:
        raise failures[0]


def wait_for(look: Callable[[], list[Arrived[_T]]]) -> list[Arrived[_T]]:
    """What came, when something has to come."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while time.perf_counter() < deadline:
        if found := look():
            return found
    raise RuntimeError("nothing came over the network")
