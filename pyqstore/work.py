"""A worker: threads that take messages from a queue and call a function with each."""

from __future__ import annotations

import logging
import operator
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from .errors import Empty
from .fields import decode_table
from .message import Message
from .properties import Properties
from .queue import Queue, Seconds, check_name
from .waiting import check_main

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Plan", "Work"]

_log = logging.getLogger(__name__)

LOOK_S = 0.2
"""How often a thread that waits for a message looks whether it is to stop."""
_BACKOFF_MOST_S = 3600.0
_ERROR_CHARACTERS = 1000
_ROUTING_HEADERS = frozenset({"CC", "BCC"})

Backoff = Seconds | Callable[[int], Seconds]


class Plan:
    """What becomes of a message whose call raised.  Shared with the workers of asyncio."""

    def __init__(
        self,
        function: Callable[..., object],
        queue: str,
        retries: int,
        backoff: Backoff,
        dead: str | None,
    ) -> None:
        """TypeError and ValueError for arguments that mean nothing."""
        if not callable(function):  # nor None
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        if retries < 0:
            raise ValueError(f"retries must be 0 or more, not {retries}")
        if not callable(backoff) and not isinstance(backoff, SupportsFloat | timedelta):
            raise TypeError(
                f"backoff must be seconds, a timedelta or callable, not {type(backoff).__name__}"
            )
        if not callable(backoff) and not _seconds(backoff) >= 0:
            raise ValueError(f"backoff must not be negative: {backoff}")
        if dead == queue:
            raise ValueError(f"queue {queue!r} cannot be its own queue of dead letters")
        self._queue = queue
        self._retries = retries
        self._backoff = backoff
        self.dead: str = check_name(f"{queue}.dead" if dead is None else dead)
        """Where dead letters go."""

    def heed_limit(self, store: Store) -> None:
        """Try again only as often as the queue's delivery limit lets a message come back: the
        engine would drop it, or send it elsewhere."""
        limit = _delivery_limit(store, self._queue)
        if limit is not None:
            self._retries = min(self._retries, limit)

    def delay(self, message: Message, error: BaseException) -> float | None:
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

    def dead_letter(self, message: Message, error: BaseException) -> Properties:
        """The properties of a dead letter: it is persistent, does not expire, and goes to one
        queue, whatever CC says."""
        kept = message.properties.headers.items()
        headers = {
            **{name: value for name, value in kept if name not in _ROUTING_HEADERS},
            "x-error": _text_of(error),
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
        self._queue = queue
        self._function = function
        self._plan = Plan(function, queue.name, retries, backoff, dead)
        if stop is not None and not callable(getattr(stop, "is_set", None)):
            raise TypeError(f"stop must be an Event, not {type(stop).__name__}")
        self._stop = stop
        self._dead: Queue | None = None
        # No Event of threading: SIGTERM may come while the main thread is inside its set().
        self._is_ending = False
        self._raised: BaseException | None = None

    def run(self, threads: int) -> None:
        """Return when every thread has ended."""
        count = worker_count("threads", threads)
        self._plan.heed_limit(self._queue._store)
        self._dead = Queue(self._queue._store, self._plan.dead)
        workers = [_Worker(f"{self._queue.name}-{i}", self._serve) for i in range(1, count + 1)]
        _log.info("%d threads work on queue %r", count, self._queue.name)
        with ending_on_sigterm(self._end):
            try:
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.wait()
            finally:
                self._end()
                for worker in workers:
                    worker.wait()
        _log.info("work on queue %r has ended", self._queue.name)
        if self._raised is not None:
            raise self._raised

    def _end(self) -> None:
        self._is_ending = True

    def _is_over(self) -> bool:
        return self._is_ending or (self._stop is not None and self._stop.is_set())

    def _serve(self) -> None:
        try:
            while not self._is_over():
                try:
                    message = self._queue.get(timeout=LOOK_S)
                except Empty:
                    check_main()
                    continue
                self._handle(message)
        except BaseException as error:  # raised again by run(), in the thread that waits
            self._raised = self._raised or error
            self._end()

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
        assert self._dead is not None
        properties = self._plan.dead_letter(message, error)
        self._dead._publish("", self._dead.name, message.body, properties)


class _Worker:
    """A thread whose end can be waited for again when Ctrl-C broke off the wait: a ``join`` that
    was broken off takes the thread for ended (Python 3.11 and 3.12)."""

    def __init__(self, name: str, serve: Callable[[], None]) -> None:
        self._serve = serve
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._ended.set()

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        """Until it has ended, unless it was not started."""
        if self._thread.ident is not None:
            # A signal that another thread had, or that came just before the wait, wakes nobody: its
            # handler runs when this thread looks.
            while not self._ended.wait(LOOK_S):
                pass
            self._thread.join()


class _Sigterm:
    """Whoever works in the main thread, as several tasks of a loop may, ends when SIGTERM comes.
    Used in the main thread only."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], object]] = []
        self._before: Any = None

    def add(self, end: Callable[[], object]) -> None:
        """Call ``end`` when it comes."""
        self._ends.append(end)
        if len(self._ends) == 1:
            self._before = signal.signal(signal.SIGTERM, self._handle)

    def remove(self, end: Callable[[], object]) -> None:
        """Not any more.  With the last one, the handler that was there is there again."""
        if len(self._ends) == 1 and signal.getsignal(signal.SIGTERM) == self._handle:
            before = signal.SIG_DFL if self._before is None else self._before
            signal.signal(signal.SIGTERM, before)
        self._ends.remove(end)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        for end in list(self._ends):
            end()
        if callable(self._before):
            self._before(number, frame)


_sigterm = _Sigterm()


@contextmanager
def ending_on_sigterm(end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` when SIGTERM comes, and then the handler there was.  Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _sigterm.add(end)
    try:
        yield
    finally:
        _sigterm.remove(end)


def worker_count(name: str, count: SupportsIndex) -> int:
    """How many work at once.  TypeError and ValueError for what is no number of workers."""
    number = operator.index(count)
    if number < 1:
        raise ValueError(f"{name} must be 1 or more, not {number}")
    return number


def _delivery_limit(store: Store, queue: str) -> int | None:
    """What the queue was declared with."""
    name = queue.encode("utf-8", "surrogateescape")
    for row in store._queues():
        if row[0] == name:
            limit = decode_table(row[4]).get("x-delivery-limit")
            return None if limit is None else int(limit)
    return None


def _text_of(error: BaseException) -> str:
    """Its type and what it says, in characters that a header can hold."""
    try:
        said = str(error)
    except Exception:  # of a __str__ that raises
        said = "?"
    text = f"{type(error).__name__}: {said}"[:_ERROR_CHARACTERS]
    return text.encode("utf-8", "backslashreplace").decode()


def _seconds(span: Seconds) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
