"""Which moment corresponds to which place in the journal, and for how long durable data waits."""

from __future__ import annotations

import threading
import time
from typing import TypeVar

__all__ = ["Moments"]

_Note = TypeVar("_Note")
_MOST = 4096  # of each kind; then every second one goes


class Moments:
    """The moments of one stream of parts.  Any thread may call it."""

    def __init__(self, lsn: int) -> None:
        self._lock = threading.Lock()
        self._last_lsn = lsn
        self._last_us = 0
        self._noted: list[tuple[int, int]] = []
        """Not in a part yet: µs since 1970, and the LSN up to which the journal was durable."""
        self._waiting: list[tuple[float, int]] = []
        """Not sent yet: the same, with the monotonic clock's time."""

    def note(self, lsn: int) -> None:
        """The journal is durable up to there, now.  Times do not go back with the clock."""
        with self._lock:
            if lsn <= self._last_lsn:
                return
            self._last_lsn = lsn
            self._last_us = max(self._last_us, time.time_ns() // 1000)
            self._noted.append((self._last_us, lsn))
            self._waiting.append((time.monotonic(), lsn))
            _thin_out(self._noted)
            _thin_out(self._waiting)

    def first_behind(self, lsn: int) -> int:
        """The time at which something after it was durable for the first time.  REQUIRES that it is
        noted."""
        with self._lock:
            return next(time_us for time_us, noted in self._noted if noted > lsn)

    def take(self, lsn: int) -> list[tuple[int, int]]:
        """Return the moments up to there, once."""
        with self._lock:
            taken = [each for each in self._noted if each[1] <= lsn]
            self._noted = self._noted[len(taken) :]
            return taken

    def waits_s(self, sent: int) -> float:
        """For how long the oldest data after ``sent`` has been durable; 0: all is sent."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each[1] > sent]
            return time.monotonic() - self._waiting[0][0] if self._waiting else 0.0


def _thin_out(notes: list[_Note]) -> None:
    """Drop every second moment; the first and the last one stay."""
    if len(notes) > _MOST:
        del notes[1:-1:2]
