"""A worker: threads that take messages from a queue and call a function with each."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

from .errors import Empty
from .message import Message
from .queue import Queue, Seconds

__all__ = ["Plan", "Work"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.2
"""How often a thread that waits for a message looks whether it is to stop."""
_BACKOFF_MOST_S = 3600.0
_ERROR_CHARACTERS = 1000

Backoff = Seconds | Callable[[int], Seconds]


class Plan:
    """What becomes of a message whose call raised.  Shared with the workers of asyncio."""

    def __init__(self, queue: str, retries: int, backoff: Backoff, dead: str | None) -> None:
        """TypeError and ValueError for arguments that mean nothing."""
        if retries < 0:
            raise ValueError(f"retries must be 0 or more, not {retries}")
        if not callable(backoff) and not _seconds(backoff) >= 0:
            raise ValueError(f"backoff must not be negative: {backoff}")
        if dead == queue:
            raise ValueError(f"queue {queue!r} cannot be its own queue of dead letters")
        self._queue = queue
        self._retries = retries
        self._backoff = backoff
        self.dead = f"{queue}.dead" if dead is None else dead
        """Where dead letters go."""

    def delay(self, message: Message, error: Exception) -> float | None:
        """In how many seconds to try again; None: no more."""
        attempt = message.delivery_count + 1
        if attempt > self._retries:
            _log.error(
                "%r failed %d times and goes to queue %r",
                message,
                attempt,
                self.dead,
                exc_info=error,
            )
            return None
        if callable(self._backoff):
            seconds = _seconds(self._backoff(attempt))
        else:
            seconds = _seconds(self._backoff) * 2.0 ** min(attempt - 1, 64)
        seconds = min(max(seconds, 0.0), _BACKOFF_MOST_S)
        _log.warning("%r failed and is tried again in %g s", message, seconds, exc_info=error)
        return seconds

    def dead_letter(self, message: Message, error: Exception) -> Any:
        """The properties of a dead letter: it is persistent, and does not expire."""
        headers = {
            **(message.properties.headers or {}),
            "x-error": f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS],
            "x-attempts": message.delivery_count + 1,
            "x-queue": self._queue,
            "x-routing-key": message.routing_key,
        }
        return message.properties.replace(headers=headers, delivery_mode=2, expiration=None)


class Work:
    """One call of ``Queue.work``."""

    def __init__(
        self,
        queue: Queue,
        function: Callable[[Message], object],
        *,
        retries: int,
        backoff: Backoff,
        dead: str | None,
        stop: threading.Event | None,
    ) -> None:
        """See ``Queue.work``."""
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        self._queue = queue
        self._function = function
        self._plan = Plan(queue.name, retries, backoff, dead)
        self._dead = Queue(queue._store, self._plan.dead)
        self._stop = stop
        self._end = threading.Event()  # ours, so that a failure does not set the caller's
        self._raised: BaseException | None = None

    def run(self, threads: int) -> None:
        """Return when every thread has ended."""
        if threads < 1:
            raise ValueError(f"threads must be 1 or more, not {threads}")
        workers = [
            threading.Thread(target=self._serve, name=f"{self._queue.name}-{number}")
            for number in range(1, threads + 1)
        ]
        _log.info("%d threads work on queue %r", threads, self._queue.name)
        with ending_on_sigterm(self._end.set):
            try:
                for worker in workers:
                    worker.start()
                for worker in workers:
                    while worker.is_alive():
                        worker.join(_LOOK_S)
            finally:
                self._end.set()
                for worker in workers:
                    if worker.ident is not None:
                        worker.join()
        _log.info("work on queue %r has ended", self._queue.name)
        if self._raised is not None:
            raise self._raised

    def _is_over(self) -> bool:
        return self._end.is_set() or (self._stop is not None and self._stop.is_set())

    def _serve(self) -> None:
        try:
            while not self._is_over():
                try:
                    message = self._queue.get(timeout=_LOOK_S)
                except Empty:
                    continue
                self._handle(message)
        except BaseException as error:  # raised again by run(), in the thread that waits
            self._raised = self._raised or error
            self._end.set()

    def _handle(self, message: Message) -> None:
        with message:
            try:
                self._function(message)
            except Exception as error:
                if message.settled:
                    _log.warning("%r failed after it was settled", message, exc_info=error)
                else:
                    self._failed(message, error)

    def _failed(self, message: Message, error: Exception) -> None:
        delay = self._plan.delay(message, error)
        if delay is not None:
            message.retry(delay=delay or None)
            return
        # Durable there before it is acknowledged here: a crash between the two leaves it twice.
        properties = self._plan.dead_letter(message, error)
        self._dead._publish("", self._dead.name, message.body, properties)


@contextmanager
def ending_on_sigterm(end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` when SIGTERM comes, and then the handler there was.  Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        end()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _seconds(span: Seconds) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
