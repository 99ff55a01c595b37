"""The two ends of a connection that TLS protects.

The outer one is the client's, and speaks TLS; the inner one is half of a pair of sockets, whose
other half the server has adopted.  What one reads the other writes.  An end whose writes wait stops
the reading of the other, so each holds a bounded number of bytes, and a client or a server that
reads slowly holds back who sends to it.  asyncio's own TLS would take 300 KiB of each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import ssl
from typing import Protocol

from .. import _core
from .certificates import common_name

__all__ = ["READ_BYTES", "SHUTDOWN_S", "End", "Inner", "Outer"]

READ_BYTES = 64 << 10
"""At once, into one buffer for all ends."""
SHUTDOWN_S = 3.0
"""For a client to take the last bytes and to answer the end."""

_log = logging.getLogger("pyqstore")
_LAST_READ_S = 30.0  # for a server to take the last bytes of a client
_UNSENT = 128 << 10  # of an end, then the other one is not read
_LOOK_S = 1.0  # for a server that has gone, while a client does not read


class Bridging(Protocol):
    """Whose ends they are; all of them are in its thread."""

    tls: ssl.SSLContext
    buffer: memoryview

    def note_secured(self, outer: Outer) -> None:
        """Its handshake is done."""

    def note_failure(self, outer: Outer, error: Exception) -> None:
        """Of its handshake, if it is not noted yet."""

    def note_lost(self, end: End) -> None:
        """Its socket is closed."""


class End(asyncio.BufferedProtocol):
    """One of the two ends: what it reads the other writes."""

    transport: asyncio.Transport

    def __init__(self, bridge: Bridging, own: socket.socket) -> None:
        self._bridge = bridge
        self._buffer = bridge.buffer
        self.own: socket.socket = own
        self.is_lost: bool = False
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_UNSENT)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def write(self, data: memoryview) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """The other end sends nothing more: this one ends when what was written has gone."""
        raise NotImplementedError

    def abort(self) -> None:
        if not self.is_lost:  # then its transport may have no loop
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._bridge.note_lost(self)
        if self.other is not None:
            self.other.close()


class Inner(End):
    """The server's."""

    _has_ended = False  # the server has been told that nothing more comes

    def buffer_updated(self, nbytes: int) -> None:
        assert self.other is not None
        if self.other.is_lost:
            self._refuse_more()
        else:
            self.other.write(self._buffer[:nbytes])

    def write(self, data: memoryview) -> None:
        if not (self._has_ended or self.transport.is_closing()):
            self.transport.write(bytes(data))

    def close(self) -> None:
        """The server reads the rest, which a full close would let it drop, and closes its half."""
        assert self.other is not None
        if self.is_lost:
            return
        if not self._has_ended:
            self._has_ended = True
            self.transport.write_eof()
            asyncio.get_running_loop().call_later(_LAST_READ_S, self.abort)
        if self.other.is_lost:  # it goes on writing to nobody
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        # Where writing found that the server has gone, its last words may be unread.
        if self.other is not None and not self.other.is_lost:
            with contextlib.suppress(OSError):
                self._refuse_more()
                while nbytes := self.own.recv_into(self._buffer):
                    self.other.write(self._buffer[:nbytes])
        super().connection_lost(exc)

    def _refuse_more(self) -> None:
        """What the server writes from now on fails, as with a client that has gone: it does not
        fill this end as fast as that is read."""
        self.own.shutdown(socket.SHUT_RD)


class Outer(End):
    """The client's."""

    def __init__(
        self,
        bridge: Bridging,
        own: socket.socket,
        peer: str,
        is_loopback: bool,
        *,
        proxied: bool = False,
    ) -> None:
        super().__init__(bridge, own)
        self.peer: str = peer
        self.is_loopback: bool = is_loopback
        self.user: str = ""  # whom its certificate names
        self._header: bytearray | None = bytearray() if proxied else None  # what has come of it
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # made when something comes
        self._is_secured = False
        self._has_ended = False  # the client has said that it sends nothing more
        self._is_closing = False
        self._look: asyncio.TimerHandle | None = None

    # ---- the handshake ----

    @property
    def awaits_header(self) -> bool:
        """Whether the header of a proxy is still to come."""
        return self._header is not None

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return  # until the client's end
        if self._header is not None:
            self._take_header(self._header, self._buffer[:nbytes])
            return
        self._incoming.write(self._buffer[:nbytes])
        if self._is_secured:
            self._go_on()
        else:
            self._shake_hands()

    def _take_header(self, header: bytearray, data: memoryview) -> None:
        """What lies behind it is TLS."""
        header += data
        try:
            found = _core._proxy_header(bytes(header))
        except ValueError as error:
            self.fail_handshake(error)
            return
        if found is None:
            return
        count, peer, is_loopback = found
        if peer is not None:
            self.peer = peer
            # Who reaches a proxy of this machine may be of any other, and the other way round.
            self.is_loopback = self.is_loopback and is_loopback
        self._header = None
        if len(header) > count:
            self._incoming.write(header[count:])
            self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            if self._tls is None:
                self._tls = self._bridge.tls.wrap_bio(
                    self._incoming, self._outgoing, server_side=True
                )
            self._tls.do_handshake()
            self.user = common_name(self._tls.getpeercert())
        except ssl.SSLWantReadError:
            self._flush()
        except (OSError, ValueError) as error:
            self._flush()  # an alert
            self.fail_handshake(error)
        else:
            self._flush()
            self._is_secured = True
            self.transport.pause_reading()  # until there is another end
            self._bridge.note_secured(self)

    def fail_handshake(self, error: Exception) -> None:
        """The connection ends, as far as TLS has come."""
        self._bridge.note_failure(self, error)
        self._end_writing()

    def begin(self) -> None:
        """There is another end."""
        assert self.other is not None
        if self.is_lost:
            self.other.close()
        else:
            self.transport.resume_reading()
            self._go_on()

    # ---- messages ----

    def _go_on(self) -> None:
        """Pass what has come."""
        assert self.other is not None
        assert self._tls is not None
        try:
            while not self._is_closing and (count := self._read(self._tls)) > 0:
                self.other.write(self._buffer[:count])
            self._flush()
        except OSError as error:
            self._fail(error)
        if self._has_ended:  # what came before has been passed
            self.other.close()

    def _read(self, tls: ssl.SSLObject) -> int:
        """Bytes in the buffer: until that is full, or nothing more is there."""
        count = 0
        try:
            while count < READ_BYTES:
                got = tls.read(READ_BYTES - count, self._buffer[count:])
                if not got:
                    self._has_ended = True
                    break
                count += int(got)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._has_ended = True
        return count

    def write(self, data: memoryview) -> None:
        if self._is_closing or self._tls is None or self.transport.is_closing():
            return
        try:
            while data:
                data = data[self._tls.write(data) :]
            self._flush()
        except OSError as error:  # also where the client would agree on keys once more
            self._fail(error)

    def _flush(self) -> None:
        if self._outgoing.pending and not (self._is_closing or self.transport.is_closing()):
            self.transport.write(self._outgoing.read())

    def _fail(self, error: OSError) -> None:
        _log.info("AMQP %s: TLS failed: %s", self.peer, error)
        self.abort()

    # ---- the end ----

    def eof_received(self) -> None:
        self._bridge.note_failure(self, ConnectionResetError("the client has gone"))
        self._cut_off_later()
        if self.other is not None:
            self.other.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_no_more()
        self._bridge.note_failure(self, exc or ConnectionResetError("the client has gone"))
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_no_more()
        self._look_for_server()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look_no_more()

    def _look_no_more(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_for_server(self) -> None:
        """A server that has gone has its end behind bytes that nobody reads now."""
        inner = self.other
        if inner is None or inner.is_lost or inner.transport.is_reading():
            return
        if _is_cut(inner.own):
            self._cut_off_later()
        else:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_for_server)

    def close(self) -> None:
        if self._is_closing or self.is_lost:
            return
        if self._tls is not None:
            with contextlib.suppress(OSError):  # that the client's answer is to come
                self._tls.unwrap()
        self._flush()
        self._end_writing()

    def _end_writing(self) -> None:
        """The client closes when it has read the rest."""
        self._is_closing = True
        if not self.transport.is_closing():
            with contextlib.suppress(OSError):  # the client has gone
                self.transport.write_eof()
            self.transport.resume_reading()
            self._cut_off_later()

    def _cut_off_later(self) -> None:
        asyncio.get_running_loop().call_later(SHUTDOWN_S, self.abort)


def _is_cut(own: socket.socket) -> bool:
    """Has the other half of a pair been closed?"""
    poll = select.poll()
    poll.register(own, 0)
    return bool(poll.poll(0))
