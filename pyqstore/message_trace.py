"""``Store.trace()``: what becomes of messages, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from . import _core
from .closing import Closing
from .errors import StoreClosed
from .times import EPOCH
from .waiting import Deadline, Seconds

__all__ = ["Trace", "TraceEvent"]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A step of a message on its way."""

    time: datetime
    """By the store's clock, in UTC; of ``publish`` when the call began."""
    step: str
    """``publish``, ``route``, ``enqueue``, ``record``, ``sync``, ``confirm``, ``return``,
    ``deliver``, ``ack`` or ``nack``."""
    lsn: int
    """Of its record in the journal, or of that of its batch or commit; 0: none is known."""
    exchange: str
    """Empty for ``ack`` and ``nack`` by a consumer, and for ``deliver`` of ``get_batch``."""
    routing_key: str
    """Empty there, too, and for rows of a batch and messages of a commit."""
    queues: list[str]
    """Where it goes, from ``route`` on; or where it was."""
    number: int
    """In confirm mode the publish number, of rows of a batch the first one; of ``deliver`` and
    what a consumer settles the delivery tag; else 0."""
    count: int
    """Of messages: rows of a batch that go the same way are one event."""
    channel: int
    """``Channel.number``."""


class Trace(Iterator[TraceEvent], Closing):
    """Each step of messages, in order, from when it was opened: iterate it.

    The iteration waits for the next step, and ends when the trace or its store is closed: what was
    not read then is gone.  Steps that were not read wait in memory, 8 MiB of them; ``dropped``
    counts those for which there was no room, and confirms for which no publisher asked, beyond 1
    MiB.  One thread at a time reads it.
    """

    __slots__ = ("_handle", "is_over")

    def __init__(self, store: _core.Store, exchange: str | None, queue: str | None) -> None:
        self._handle = _core.Trace(store, exchange, queue)
        self.is_over: bool = False
        """Nothing comes any more: it was closed, or its store was."""

    def next(self, timeout: Seconds | None = None) -> TraceEvent | None:
        """The next step; None: none came within ``timeout`` seconds, or the trace is over."""
        deadline = Deadline(timeout)
        while not self.is_over:
            found = self._look(deadline.slice_ns())
            if found is not None:
                return found
            if deadline.over:
                break
        return None

    def _look(self, timeout_ns: int) -> TraceEvent | None:
        try:
            found = self._handle._next(timeout_ns)
        except StoreClosed:
            self.is_over = True
            return None
        if found is None:
            return None
        return TraceEvent(EPOCH + timedelta(microseconds=found[0]), *found[1:])

    def __next__(self) -> TraceEvent:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    @property
    def dropped(self) -> int:
        """How many steps were dropped, as they were not read in time.  StoreClosed, ValueError: it
        is closed."""
        return self._handle.dropped

    def close(self) -> None:
        """Trace nothing any more.  Closing twice is fine.  RuntimeError: another thread reads."""
        self._handle._close()
        self.is_over = True
