"""How many clients may be connected, and how long each may let the server wait.

The sockets do the counting, because they are there for as long as their descriptors: from when they
are accepted, before TLS, until they are closed.  What a connection waits for is known by the
protocol, uvicorn's, which is told of here.
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

_LEAVING_MAX = 16  # that may still have their descriptors while others are accepted
_SWEEP_S = 1.0


class Connections:
    """Those of one server.  All of it is for the thread of the server's loop."""

    connections_max: int = 512
    silent_max: int = 128
    """Without a request that is being answered; the oldest of them give way to new ones."""
    descriptors_kept: int = 64
    """For the store and other listeners of the process; a quarter where there are few."""

    head_s: float = 10.0
    """Until a request's head is there, from when the client connected or began it."""
    idle_s: float = 30.0
    """Between requests."""
    stall_s: float = 60.0
    """In which some of a body must come, or some of an answer be taken."""

    def __init__(self) -> None:
        """There are none at first."""
        self._open: dict[int, Connection] = {}  # by descriptor
        self._silent: dict[Connection, None] = {}  # who was silent first is first
        self._leaving: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def limit(self) -> int:
        """Of ``len``, with those that are about to be closed."""
        return self.connections_max + _LEAVING_MAX

    def of(self, transport: asyncio.BaseTransport) -> Connection:
        """The connection that a transport, of TLS or without, is about."""
        return self._open[transport.get_extra_info("socket").fileno()]

    def can_wait_for_room(self) -> bool:
        """Whether room is being made, so that the next client is better let in a moment later."""
        return len(self._leaving) >= _LEAVING_MAX

    def admit(self, accepted: socket.socket) -> Connection | None:
        """None: there is no room, even without those that are silent; it was closed."""
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
        """No request of it is being answered from now on."""
        if connection.fileno() in self._open and connection not in self._leaving:
            self._silent[connection] = None

    def note_asking(self, connection: Connection) -> None:
        """The head of a request is there."""
        self._silent.pop(connection, None)

    def note_closed(self, connection: Connection) -> None:
        """Its descriptor is about to be free."""
        self._open.pop(connection.fileno(), None)
        self._silent.pop(connection, None)
        self._leaving.discard(connection)

    def close_unknown(self) -> None:
        """End those that no protocol knows yet, such as in a handshake: nobody else does."""
        for connection in list(self._open.values()):
            if connection.protocol is None:
                self._send_off(connection)

    def _is_short_of_descriptors(self, newest: int) -> bool:
        """The newest has the lowest number that was free."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        return limit - newest <= min(self.descriptors_kept, limit // 4)

    def _send_off_oldest(self) -> bool:
        """Whether there was one that neither asks nor takes an answer."""
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
    """One that accepts clients as long as there is room for them."""

    def __init__(self, connections: Connections, fd: int) -> None:
        """The descriptor is its own from now on."""
        super().__init__(fileno=fd)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """BlockingIOError: nobody waits, or the loop is to come again in its next turn."""
        if self._connections.can_wait_for_room():
            raise BlockingIOError("connections are being closed")
        accepted, address = super().accept()
        connection = self._connections.admit(accepted)
        if connection is None:  # one for each turn of the loop, which has others to serve
            raise BlockingIOError("there are too many connections")
        return connection, address

    def close(self) -> None:
        """Accept nobody more."""
        self._connections.close_unknown()
        super().close()


class Connection(socket.socket):
    """A client's socket.  asyncio closes it in all cases, and sends through it what it has."""

    def __init__(self, connections: Connections, accepted: socket.socket) -> None:
        """It takes the descriptor of ``accepted``."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, proto, fileno=accepted.detach())
        self._connections = connections
        self.protocol: Protocol | None = None
        """None: it has not been begun, or TLS's handshake is under way."""
        self.has_unsent: bool = False
        """Whether the client leaves some of an answer waiting."""
        self.since: float = time.monotonic()
        """When it last did what it has a time limit for."""

    def is_late(self, now: float) -> bool:
        """Whether the client lets the server wait for too long."""
        limits = self._connections
        if self.has_unsent:
            return now - self.since > limits.stall_s
        limit = limits.head_s if self.protocol is None else self.protocol.limit_s()
        if limit is None:
            self.since = now  # time that the server takes is not the client's
            return False
        return now - self.since > limit

    def has_unread(self) -> bool:
        """Whether something came that the loop has not had a turn to read."""
        with suppress(OSError):
            return bool(self.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def end(self) -> None:
        """Close it, with what is unsent, in the loop's next turns."""
        if self.protocol is not None:
            self.protocol.transport.abort()
        # asyncio reads the end and closes: before there is a protocol, and where abort() does
        # nothing, as when TLS is being ended and close() was called twice.
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
    """uvicorn's, which tells its connection what it waits for."""

    def __init__(self, connections: Connections, **own: Any) -> None:
        """``own``: uvicorn's."""
        super().__init__(**own)
        self._connections = connections
        self._connection: Connection | None = None  # until it is made
        self._has_begun_head = True  # that of the first is expected at once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio's."""
        super().connection_made(transport)
        self._connection = self._connections.of(transport)
        self._connection.protocol = self

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        was_asking = self._is_asking()
        super().data_received(data)
        self._note(has_moved=was_asking or self._is_asking())

    def on_response_complete(self) -> None:
        """uvicorn's, when the whole answer is with the transport."""
        self._has_begun_head = False
        super().on_response_complete()  # which may begin with the next request
        self._note(has_moved=True)

    def shutdown(self) -> None:
        """uvicorn's, when the server ends."""
        super().shutdown()
        connection = self._connection
        if connection is not None and not (self._is_asking() or connection.has_unsent):
            connection.end()  # without waiting until the client says the end of TLS, too

    def limit_s(self) -> float | None:
        """In which the client must go on; None: the server must."""
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
        if has_moved and not connection.has_unsent:  # who takes no answer does not go on
            connection.since = time.monotonic()

    def _begins_head(self) -> bool:
        """Whether the first bytes of a head came.  The rest of a body that nobody wanted is none:
        it has to come before the connection would be closed for being idle."""
        if self._has_begun_head or self.conn.their_state is not h11.IDLE:
            return False
        self._has_begun_head = bool(self.conn.trailing_data[0])
        return self._has_begun_head
