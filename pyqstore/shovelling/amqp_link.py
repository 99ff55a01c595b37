"""A connection to a broker, by pika, with one channel.

pika's loop runs in the shovel's thread, while an end waits or is told to: so publishes need no wait
for each confirm, and nothing is shared between threads.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

from ..errors import ShovelError
from .addresses import AmqpPlace
from .ends import Blamed, Later
from .pika_raw import Pika

__all__ = ["Link"]

_OPEN_S = 20.0
_CLOSE_S = 3.0
_WATCH_S = 0.2  # between two looks at whether to stop
_NO_RIGHTS = 403
_NOT_FOUND = 404
_NOT_ALLOWED = 530
# Codes with which a broker closes a channel or a connection over what it was sent: 406, errors of
# frames and syntax, what it does not implement, and content that is too large.
_BLAMED = frozenset((311, 406, 501, 502, 503, 504, 505, 540))
# pika tells of what ended a handshake in words only.
_CLOSED_BY_BROKER = re.compile(r"ConnectionClosedByBroker: \((\d+)\)")
# Of refusals that end by themselves: a queue on a node that is down, a virtual host that starts,
# too many connections.
_FOR_NOW = ("is down", "connection limit")


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
        self.watch: Callable[[], None] = _nothing
        """As of Source."""
        self._ended: Exception | None = None
        self._is_set_up = False

    @property
    def frame_bytes_max(self) -> int:
        """Of a frame that the broker takes; 0: it says no limit."""
        return int(self._connection.params.frame_max)

    def open(
        self, prepare: Callable[[Any], None], is_set_up: Callable[[], bool], seconds: float
    ) -> None:
        """Connect, open a channel, and let ``prepare`` begin to set it up, which has so many
        seconds to end.  Later; ShovelError: the broker refuses for good."""
        self.close()
        self._ended = None
        self._is_set_up = False
        try:
            self._connect()
            prepare(self.channel)
            self.wait(is_set_up, seconds, "to set up a channel")
        except Blamed as error:
            raise ShovelError(str(error)) from None
        self._is_set_up = True

    def _connect(self) -> None:
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

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._failed)
        self.channel = channel

    def _failed(self, _of: Any, reason: Any) -> None:
        """A connection or a channel is closed; the first reason counts."""
        if self._ended is None:
            self._ended = self._error_of(reason)

    def _error_of(self, reason: Any) -> Exception:
        """What to raise: each caller tries Later again."""
        exceptions = self.pika.exceptions
        told = f"{self.shown}: {_told(reason)}"
        code = getattr(reason, "reply_code", 0)
        is_of_login = isinstance(
            reason, exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError
        )
        if is_of_login:  # or the connection was lost just then
            by_broker = _CLOSED_BY_BROKER.search(repr(reason))
            code = int(by_broker[1]) if by_broker else 0
        is_final = code in (_NO_RIGHTS, _NOT_FOUND, _NOT_ALLOWED)
        if any(each in told for each in _FOR_NOW):
            return Later(told)
        if isinstance(reason, exceptions.AuthenticationError) or (is_of_login and is_final):
            return ShovelError(f"{told}: look at user, password and virtual host")
        if code in _BLAMED or (code == _NO_RIGHTS and self._is_set_up):
            return Blamed(told)
        return ShovelError(told) if is_final else Later(told)

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
        except self.pika.exceptions.AMQPError as error:  # over what pika does not expect
            raise Later(f"{self.shown}: {_told(error)}") from None
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
            self.look(min(left, _WATCH_S))
            self.watch()

    def tend(self, seconds: float) -> None:
        """Heartbeats, while nothing else is done.  What has ended is told by the next call."""
        if self._connection is None or self._ended is not None:
            return
        with contextlib.suppress(Later, ShovelError):
            self.look(seconds)

    def close(self) -> None:
        """In order, if the broker answers; else at once."""
        connection, self._connection, self.channel = self._connection, None, None
        if connection is None:
            return
        ioloop = connection.ioloop
        try:
            if not connection.is_closed and not connection.is_closing:
                connection.close()
            until = time.monotonic() + _CLOSE_S
            while not connection.is_closed and time.monotonic() < until:
                timer = ioloop.call_later(0.1, _nothing)
                ioloop.poll()
                ioloop.process_timeouts()
                ioloop.remove_timeout(timer)
        except (self.pika.exceptions.AMQPError, AssertionError):
            pass  # an assertion of pika's fails where a connection was only beginning
        finally:
            ioloop.deactivate_poller()
            ioloop.close()


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
