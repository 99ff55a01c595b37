"""Limits for the number of clients, and for the time that each may let the server wait.

The sockets are counted, because they exist as long as their descriptors: from the accept, before
TLS, to the close.  uvicorn's protocol knows what a connection waits for, and is extended here.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Connection", "Connections", "ListeningSocket", "Protocol"]

_LEAVING_MAX = 16  # closing ones that may still have descriptors while others are accepted
_SWEEP_S = 1.0


class Connections:
    """The connections of one server.  Use it only in the thread of the server's event loop."""

    connections_max: int = 512
    silent_max: int = 128
    """The limit of connections without a request in progress; new ones replace the oldest of
    them."""
    descriptors_kept: int = 64
    """Descriptors reserved for the store and other listeners of the process, at most a quarter of
    the limit."""

    head_s: float = 10.0
    """The limit for a request's head, from its first byte or from the connect."""
    idle_s: float = 30.0
    """The limit between requests."""
    stall_s: float = 60.0
    """The limit for progress: some of a body must be received, or some of an answer taken."""

    def __init__(self) -> None:
        """There are no connections at first."""
        self._open: dict[int, Connection] = {}  # by descriptor
        self._silent: dict[Connection, None] = {}  # in the order in which they became silent
        self._leaving: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of open connections."""
        return len(self._open)

    @property
    def limit(self) -> int:
        """The limit of ``len``, closing connections included."""
        return self.connections_max + _LEAVING_MAX

    def of(self, transport: asyncio.BaseTransport) -> Connection:
        """The connection of a transport, with or without TLS."""
        return self._open[transport.get_extra_info("socket").fileno()]

    def can_wait_for_room(self) -> bool:
        """Whether room is being made, so that the next client should be accepted a little later."""
        return len(self._leaving) >= _LEAVING_MAX

    def admit(self, accepted: socket.socket) -> Connection | None:
        """Counts an accepted client.  None: there is no room, even without silent ones, and the
        client was disconnected."""
        is_full = len(self._open) - len(self._leaving) >= self.connections_max
        is_full = is_full or self._is_short_of_descriptors(accepted.fileno())
        has_gone = (is_full or len(self._silent) >= self.silent_max) and self._send_off_oldest()
        if is_full and not has_gone:
            accepted.close()
            return None
        connection = Connection(self, accepted)
        self._open[connection.fileno()] = connection
        self.note_silent(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._send_off_late)
        return connection

    def note_silent(self, connection: Connection) -> None:
        """Called when none of its requests is being answered any more."""
        if connection.fileno() in self._open and connection not in self._leaving:
            self._silent[connection] = None

    def note_asking(self, connection: Connection) -> None:
        """Called when the head of a request is complete."""
        self._silent.pop(connection, None)

    def note_closed(self, connection: Connection) -> None:
        """Called before its descriptor is closed."""
        self._open.pop(connection.fileno(), None)
        self._silent.pop(connection, None)
        self._leaving.discard(connection)

    def close_unknown(self) -> None:
        """Closes connections without a protocol, such as those in a handshake, which nothing else
        closes."""
        for connection in list(self._open.values()):
            if connection.protocol is None:
                self._send_off(connection)

    def _is_short_of_descriptors(self, newest: int) -> bool:
        """Whether few descriptors are left: the newest has the lowest number that was free."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        return limit - newest <= min(self.descriptors_kept, limit // 4)

    def _send_off_oldest(self) -> bool:
        """Closes the oldest connection that neither sends a request nor receives an answer; whether
        there was one."""
        for connection in self._silent:
            if not connection.has_unsent and not connection.has_unread():
                self._send_off(connection)
                return True
        return False

    def _send_off(self, connection: Connection) -> None:
        self._silent.pop(connection, None)
        self._leaving.add(connection)
        connection.end()

    def _send_off_late(self) -> None:
        now = time.monotonic()
        for connection in list(self._open.values()):
            if connection.is_late(now):
                self._send_off(connection)
        self._sweep = None
        if self._open:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._send_off_late)


class ListeningSocket(socket.socket):
    """A listening socket that accepts clients while there is room for them."""

    def __init__(self, connections: Connections, fd: int) -> None:
        """Takes over the descriptor."""
        super().__init__(fileno=fd)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """BlockingIOError: no client waits, or the loop should come again in its next turn."""
        if self._connections.can_wait_for_room():
            raise BlockingIOError("connections are being closed")
        accepted, address = super().accept()
        connection = self._connections.admit(accepted)
        if connection is None:  # one for each turn of the loop, which serves others as well
            raise BlockingIOError("there are too many connections")
        return connection, address

    def close(self) -> None:
        """Stops accepting."""
        self._connections.close_unknown()
        super().close()


class Connection(socket.socket):
    """A client's socket.  asyncio closes it in all cases, and sends its data through it."""

    def __init__(self, connections: Connections, accepted: socket.socket) -> None:
        """Takes over the descriptor of ``accepted``."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, proto, fileno=accepted.detach())
        self._connections = connections
        self.protocol: Protocol | None = None
        """None: not created yet, or the TLS handshake is in progress."""
        self.has_unsent: bool = False
        """Whether part of an answer waits for the client to read."""
        self.since: float = time.monotonic()
        """The time of the last progress, from which the limits count."""

    def is_late(self, now: float) -> bool:
        """Whether the client lets the server wait for too long."""
        limits = self._connections
        if self.has_unsent:
            return now - self.since > limits.stall_s
        limit = limits.head_s if self.protocol is None else self.protocol.limit_s()
        if limit is None:
            self.since = now  # time that the server takes does not count
            return False
        return now - self.since > limit

    def has_unread(self) -> bool:
        """Whether there is input that the loop has not read yet."""
        with suppress(OSError):
            return bool(self.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def end(self) -> None:
        """Closes it, unsent data included, in the loop's next turns."""
        if self.protocol is not None:
            self.protocol.transport.abort()
        # asyncio reads the end and closes.  This works before there is a protocol, and where
        # abort() has no effect, as while TLS is being ended after a second close().
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See ``socket.socket``."""
        self._connections.note_closed(self)
        super().close()

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """See ``socket.socket``."""
        return self._sent(lambda: super(Connection, self).send(data, flags), [data])

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /, *more: Any) -> int:
        """See ``socket.socket``."""
        parts = list(buffers)
        return self._sent(lambda: super(Connection, self).sendmsg(parts, *more), parts)

    def _sent(self, send: Callable[[], int], parts: list[ReadableBuffer]) -> int:
        sent = 0
        try:
            sent = send()
        finally:
            had_unsent = self.has_unsent
            self.has_unsent = sent < sum(memoryview(part).nbytes for part in parts)
            if (had_unsent and sent) or (self.has_unsent and not had_unsent):
                self.since = time.monotonic()
        return sent


class Protocol(H11Protocol):
    """uvicorn's protocol, which also updates its connection."""

    def __init__(self, connections: Connections, **own: Any) -> None:
        """``own``: uvicorn's arguments."""
        super().__init__(**own)
        self._connections = connections
        self._connection: Connection | None = None  # until connection_made
        self._has_begun_head = True  # the head of the first request is expected at once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio."""
        super().connection_made(transport)
        self._connection = self._connections.of(transport)
        self._connection.protocol = self

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        was_asking = self._is_asking()
        super().data_received(data)
        self._note(has_moved=was_asking or self._is_asking())

    def on_response_complete(self) -> None:
        """Called by uvicorn when the transport has the whole answer."""
        self._has_begun_head = False
        super().on_response_complete()  # may begin with the next request
        self._note(has_moved=True)

    def shutdown(self) -> None:
        """Called by uvicorn when the server ends."""
        super().shutdown()
        connection = self._connection
        if connection is not None and not (self._is_asking() or connection.has_unsent):
            connection.end()  # without waiting for the client's end of TLS

    def limit_s(self) -> float | None:
        """The time limit of the client; None: the server must act."""
        if not self._is_asking():
            return self._connections.head_s if self._has_begun_head else self._connections.idle_s
        cycle = self.cycle
        is_ours = self.flow.read_paused or cycle.waiting_for_100_continue or not cycle.more_body
        return None if is_ours else self._connections.stall_s

    def _is_asking(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _note(self, *, has_moved: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._is_asking():
            self._connections.note_asking(connection)
        else:
            self._connections.note_silent(connection)
            has_moved = self._begins_head() or has_moved
        # A client that does not read its answer makes no progress.
        if has_moved and not connection.has_unsent:
            connection.since = time.monotonic()

    def _begins_head(self) -> bool:
        """Whether the first bytes of a head arrived.  The rest of an unread body does not count: it
        must arrive before the idle timeout."""
        if self._has_begun_head or self.conn.their_state is not h11.IDLE:
            return False
        self._has_begun_head = bool(self.conn.trailing_data[0])
        return self._has_begun_head
