"""The two ends of a TLS connection.

The outer end is the client's, and speaks TLS.  The inner end is half of a socket pair, whose other
half the server has adopted.  Each end writes what the other reads.  An end that cannot write stops
the reading of the other, so each has a limited number of bytes, and a slow reader slows down its
sender.  asyncio's own TLS would take 300 KiB for each connection.
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
"""The size of the read buffer, which all ends share."""
SHUTDOWN_S = 3.0
"""The time for a client to read the last bytes and to answer the close."""

_log = logging.getLogger("pyqstore")
_LAST_READ_S = 30.0  # for the server to read the last bytes of a client
_UNSENT = 128 << 10  # unsent bytes of an end, above which the other end is not read
_LOOK_S = 1.0  # between checks whether the server is gone, while a client does not read


class Bridging(Protocol):
    """The owner of the ends, whose thread uses all of them."""

    tls: ssl.SSLContext
    buffer: memoryview

    def note_secured(self, outer: Outer) -> None:
        """Its handshake has finished."""

    def note_failure(self, outer: Outer, error: Exception) -> None:
        """Its handshake failed, unless this was noted already."""

    def note_lost(self, end: End) -> None:
        """Its socket is closed."""


class End(asyncio.BufferedProtocol):
    """One of the two ends, which writes what the other reads."""

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
        """The other end sends nothing more: this one is closed when everything is written."""
        raise NotImplementedError

    def abort(self) -> None:
        if not self.is_lost:  # its transport may have no loop then
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._bridge.note_lost(self)
        if self.other is not None:
            self.other.close()


class Inner(End):
    """The server's end."""

    _has_ended = False  # the server was told that no more input comes

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
        """Lets the server read the rest, which a full close might drop, and close its half."""
        assert self.other is not None
        if self.is_lost:
            return
        if not self._has_ended:
            self._has_ended = True
            self.transport.write_eof()
            asyncio.get_running_loop().call_later(_LAST_READ_S, self.abort)
        # The server may still write: reading it makes further writes fail (_refuse_more).
        if self.other.is_lost:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        # If writing found that the server is gone, its last bytes may be unread.
        if self.other is not None and not self.other.is_lost:
            with contextlib.suppress(OSError):
                self._refuse_more()
                while nbytes := self.own.recv_into(self._buffer):
                    self.other.write(self._buffer[:nbytes])
        super().connection_lost(exc)

    def _refuse_more(self) -> None:
        """Makes further writes of the server fail, as with a client that is gone; otherwise it
        could fill this end as fast as it is read."""
        self.own.shutdown(socket.SHUT_RD)


class Outer(End):
    """The client's end."""

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
        self.user: str = ""  # the name in the client's certificate
        # The part received so far.
        self._header: bytearray | None = bytearray() if proxied else None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # created with the first input
        self._is_secured = False
        self._has_ended = False  # the client has ended its sending direction
        self._is_closing = False
        self._look: asyncio.TimerHandle | None = None

    # ---- the handshake ----

    @property
    def awaits_header(self) -> bool:
        """Whether the header of a proxy is still missing."""
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
        """The bytes after the header are TLS."""
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
            # A proxy on this machine serves clients of any machine, and the other way round.
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
            self.transport.pause_reading()  # until the other end exists
            self._bridge.note_secured(self)

    def fail_handshake(self, error: Exception) -> None:
        """Closes the connection, with the alert of TLS if there is one."""
        self._bridge.note_failure(self, error)
        self._end_writing()

    def begin(self) -> None:
        """The other end exists now."""
        assert self.other is not None
        if self.is_lost:
            self.other.close()
        else:
            self.transport.resume_reading()
            self._go_on()

    # ---- messages ----

    def _go_on(self) -> None:
        """Passes received bytes to the other end."""
        assert self.other is not None
        assert self._tls is not None
        try:
            while not self._is_closing and (count := self._read(self._tls)) > 0:
                self.other.write(self._buffer[:count])
            self._flush()
        except OSError as error:
            self._fail(error)
        if self._has_ended:  # earlier input has been passed on
            self.other.close()

    def _read(self, tls: ssl.SSLObject) -> int:
        """Reads into the buffer until it is full or there is no more input; returns the bytes."""
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
        except OSError as error:  # also if the client asks for renegotiation
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
        """A server that is gone has its end of stream after bytes that are not read now."""
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
            with contextlib.suppress(OSError):  # the client's close_notify is not awaited
                self._tls.unwrap()
        self._flush()
        self._end_writing()

    def _end_writing(self) -> None:
        """The client closes after it has read the rest."""
        self._is_closing = True
        if not self.transport.is_closing():
            with contextlib.suppress(OSError):  # the client is gone
                self.transport.write_eof()
            self.transport.resume_reading()
            self._cut_off_later()

    def _cut_off_later(self) -> None:
        asyncio.get_running_loop().call_later(SHUTDOWN_S, self.abort)


def _is_cut(own: socket.socket) -> bool:
    """Whether the other half of a pair was closed."""
    poll = select.poll()
    poll.register(own, 0)
    return bool(poll.poll(0))
