"""Leases: a stream keeps what a job or a query has not read yet, whatever its limits say.

A lease is a work queue over the stream that nobody reads.  The stream keeps what lies behind its
offset (``x-stream-pin``), it is as durable as any queue, and it goes by itself when nobody has
asked for it for as long as it is good (``x-expires``).  So a process that dies leaves nothing for
ever, and nobody need know which of them has died.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import Any

_PREFIX = "spark-lease-"
_EARLY = 3  # a lease is renewed when so much of its time has gone: a third


def take(channel: Any, stream: str, offset: int, seconds: float) -> str:
    """The name of a new lease of what the stream has from an offset on.

    ``channel``: of this process's store, or a client of Arrow Flight.
    """
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    arguments = {
        "x-stream-source": stream,
        "x-stream-offset": offset,
        "x-stream-pin": True,
        "x-expires": int(seconds * 1000),
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    return name


class Renewal:
    """Renews a lease that another process took, in time.  It asks at once, too."""

    def __init__(self, channel: Any, name: str, seconds: float) -> None:
        self._channel, self._name = channel, name
        self._clock = Clock(seconds)

    def keep(self) -> None:
        """To be called often.  A lease that is over stays so: who reads is told what is gone."""
        import pyqstore

        if self._name and self._clock.is_due():
            with suppress(pyqstore.NotFound):
                self._channel.queue_declare(self._name, durable=True, passive=True)
            self._clock.note()


class Clock:
    """When a lease is to be renewed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: float | None = None

    def is_due(self) -> bool:
        """Never without a lease."""
        if self._seconds <= 0:
            return False
        return self._noted is None or time.monotonic() - self._noted >= self._seconds / _EARLY

    def note(self) -> None:
        """It is good from now on."""
        self._noted = time.monotonic()


class MovingLease:
    """Of a query, which needs less of the stream from batch to batch."""

    def __init__(self, stream: str, seconds: float) -> None:
        self.name = ""
        self._stream, self._seconds = stream, seconds
        self._clock = Clock(seconds)

    def is_due(self) -> bool:
        """Whether it is to be moved now; it is not each time, as that is written."""
        return self._clock.is_due()

    def move(self, channel: Any, offset: int) -> None:
        """Keep what is there from an offset on; only then give up the rest."""
        old, self.name = self.name, take(channel, self._stream, offset, self._seconds)
        self._clock.note()
        if old:
            channel.queue_delete(old)
