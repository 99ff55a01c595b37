"""Sends parts to the target, in their order, for as long as it takes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from ..backups.target import Target
from .parts import Part

__all__ = ["PARTS_AHEAD", "Sender"]

_log = logging.getLogger("pyqstore")
PARTS_AHEAD = 2  # that wait to be sent; behind them the journal waits where it is
_WAIT_S = 0.1  # before a part is tried again, at first
_WAIT_MOST_S = 30.0


class Sender:
    """A thread that sends one part after the other, and counts the parts that it sent."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._waiting: deque[Part] = deque()
        self._changed = threading.Condition()
        self._stops = False
        self._before = ""
        self.parts: int = 0
        self.bytes: int = 0
        self.journal_bytes: int = 0
        self.sent: tuple[str, int] = ("", 0)
        """The stream, and the LSN up to which the target has it."""
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, name="pyqstore-archive", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Whether another part may wait."""
        with self._changed:
            return len(self._waiting) < PARTS_AHEAD

    def put(self, part: Part) -> None:
        """Add a part, in order; those of a stream have no gap."""
        with self._changed:
            self._waiting.append(part)
            self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Return whether all was sent in that time.  This is the last call: the rest is dropped."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._waiting and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            is_done = not self._waiting
            self._stops = True
            self._changed.notify_all()
        self._thread.join(max(0.1, until - time.monotonic()))
        return is_done

    def _run(self) -> None:
        while (part := self._next()) is not None:
            if part.head.number == 1:
                self._before = ""
            part.before = self._before
            sent = self._sent(part)
            if sent is None:
                return
            size, self._before = sent
            with self._changed:
                self._waiting.popleft()
                self.parts += 1
                self.bytes += size
                self.journal_bytes += part.to_lsn - part.head.from_lsn
                self.sent = (part.stream, part.to_lsn)
                self.error = None
                self._changed.notify_all()

    def _next(self) -> Part | None:
        with self._changed:
            while not self._waiting and not self._stops:
                self._changed.wait()
            return None if self._stops else self._waiting[0]

    def _sent(self, part: Part) -> tuple[int, str] | None:
        """Its bytes and SHA-256; None: the thread is to stop.  The same bytes have the same name,
        so a part whose outcome is unknown may be sent again."""
        wait = _WAIT_S
        packed: tuple[bytes, str] | None = None
        while True:
            try:
                packed = packed or part.encoded()
                self._target.put(part.name, [packed[0]])
            except Exception as error:  # the thread goes on, whatever it is
                if self.error is None:
                    _log.warning("archive: a part could not be sent, and is tried again: %s", error)
                self.error = str(error) or repr(error)
            else:
                return len(packed[0]), packed[1]
            with self._changed:
                if self._stops or self._changed.wait_for(lambda: self._stops, wait):
                    return None
            wait = min(2 * wait, _WAIT_MOST_S)
