"""A connection to a broker, by pika, with one channel.

pika's loop runs in the shovel's thread, while an end waits or is told to: so publishes need no wait
for each confirm, and nothing is shared between threads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from ..errors import ShovelError
from .addresses import AmqpPlace
from .ends import Later
from .pika_raw import Pika

__all__ = ["Link"]

_OPEN_S = 20.0
_CLOSE_S = 3.0
_NO_RIGHTS = 403
_NOT_FOUND = 404
_PRECONDITION = 406
_NOT_ALLOWED = 530
# A 404 of a queue that is there, on a node of the broker that is not, for now.
_INACCESSIBLE = "is down or inaccessible"


class Link:
    """``open`` makes a connection and a channel; afterwards ``channel`` is pika's."""

    def __init__(self, place: AmqpPlace) -> None:
        """ShovelError: the URL is none that pika takes."""
        self.pika: Pika = Pika()
        self.shown: str = place.shown
        try:
            self._parameters = self.pika.parameters_of(place.url)
        except Exception as error:  # pika raises many kinds
            raise ShovelError(f"{self.shown}: {error}") from None
        self._parameters.connection_attempts = 1  # the loop tries again
        self._parameters.client_properties = {"connection_name": "pyqstore shovel"}
        self._connection: Any = None
        self.channel: Any = None
        self._ended: Exception | None = None
        self._heard = False

    def open(self, prepare: Callable[[Any], None]) -> None:
        """Connect, open a channel, and let ``prepare`` begin to set it up.  Later; ShovelError: the
        broker refuses for good."""
        self.close()
        self._ended = None
        self._connection = self.pika.connection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(
                on_open_callback=self._channel_opened
            ),
            on_open_error_callback=self._failed,
            on_close_callback=self._failed,
        )
        self._connection.ioloop.activate_poller()
        self.wait(lambda: self.channel is not None, _OPEN_S, "to open a channel")
        prepare(self.channel)

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._failed)
        self.channel = channel

    def _failed(self, _of: Any, reason: Any) -> None:
        """A connection or a channel is closed; the first reason counts."""
        if self._ended is None:
            self._ended = self._error_of(reason)

    def _error_of(self, reason: Any) -> Exception:
        exceptions = self.pika.exceptions
        told = f"{self.shown}: {_told(reason)}"
        if isinstance(
            reason,
            exceptions.ProbableAuthenticationError
            | exceptions.AuthenticationError
            | exceptions.ProbableAccessDeniedError,
        ):
            return ShovelError(f"{told}: look at user, password and virtual host")
        code = getattr(reason, "reply_code", 0)
        if code in (_NO_RIGHTS, _NOT_FOUND, _NOT_ALLOWED) and _INACCESSIBLE not in told:
            return ShovelError(told)
        if code == _PRECONDITION:
            return Precondition(told)
        return Later(told)

    def check(self) -> None:
        """Raise what has ended the channel or the connection, if they have ended."""
        if self._ended is not None:
            raise self._ended
        if self._connection is None:
            raise Later(f"{self.shown}: not connected")

    def look(self, seconds: float) -> None:
        """Do what there is to do, and wait so long for something.  Raises what ``check`` does."""
        self.check()
        ioloop = self._connection.ioloop
        timer = ioloop.call_later(seconds, _nothing)
        try:
            ioloop.poll()
            ioloop.process_timeouts()
        finally:
            ioloop.remove_timeout(timer)
        self.check()

    def wait(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Return when ``holds()``.  Later: it did not in time."""
        until = time.monotonic() + seconds
        while not holds():
            left = until - time.monotonic()
            if left <= 0:
                raise Later(f"{self.shown}: the broker took longer than {seconds:.0f} s {what}")
            self.look(left)

    def tend(self, seconds: float) -> None:
        """Heartbeats, while nothing else is done.  What has ended is told by the next call."""
        if self._connection is None or self._ended is not None:
            return
        with contextlib.suppress(Later, ShovelError, Precondition):
            self.look(seconds)

    def close(self) -> None:
        """In order, if the broker answers; else at once."""
        connection, self._connection, self.channel = self._connection, None, None
        if connection is None:
            return
        ioloop = connection.ioloop
        try:
            if connection.is_open:
                connection.close()
            until = time.monotonic() + _CLOSE_S
            while not connection.is_closed and time.monotonic() < until:
                timer = ioloop.call_later(0.1, _nothing)
                ioloop.poll()
                ioloop.process_timeouts()
                ioloop.remove_timeout(timer)
        except self.pika.exceptions.AMQPError:
            pass
        finally:
            ioloop.deactivate_poller()
            ioloop.close()


class Precondition(Exception):
    """406: the broker closed the channel over something that was published."""


def _nothing() -> None:
    pass


def _told(reason: Any) -> str:
    """An exception of pika's for people: some have others in them, and some have no words."""
    inner: Any = getattr(reason, "exceptions", None) or getattr(reason, "args", ())
    for each in inner:
        if isinstance(each, BaseException):
            return _told(getattr(each, "exception", each))
    text = str(reason)
    return text if text else type(reason).__name__
