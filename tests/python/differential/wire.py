"""AMQP 0-9-1 by hand, frame by frame, so that what no client would send can be sent, and what is
answered can be put in words that two servers share."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from typing import NamedTuple

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, CONTENT_HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
CONNECTION, CHANNEL = 10, 20
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = 10, 11, 30, 31, 40, 41, 50, 51
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = 10, 11, 40
CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)
SILENCE = "silence"
CLOSED = "closed"


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> tuple[int, int] | None:
        if self.kind != METHOD or len(self.payload) < 4:
            return None
        found: tuple[int, int] = struct.unpack(">HH", self.payload[:4])
        return found


def short(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def frame(kind: int, channel: int, payload: bytes, end: bytes = FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(channel: int, of: int, number: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", of, number) + arguments)


def content(
    channel: int, size: int, properties: bytes = b"\0\0", of: int = 60, weight: int = 0
) -> bytes:
    fields = struct.pack(">HHQ", of, weight, size)
    return frame(CONTENT_HEADER, channel, fields + properties)


def body(channel: int, data: bytes) -> bytes:
    return frame(BODY, channel, data)


class Wire:
    """One connection.  ``read`` waits for ``patience`` seconds."""

    def __init__(self, port: int, patience: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(patience)
        self._got = b""

    def another(self) -> Wire:
        """A second connection to the same server."""
        return Wire(self._socket.getpeername()[1], self._socket.gettimeout() or 0.0)

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the server has closed it: reading will tell
            self._socket.sendall(data)

    def read(self) -> Frame | str:
        """A frame; a protocol header, in words; SILENCE; CLOSED."""
        while True:
            if self._got[:4] == b"AMQP" and len(self._got) >= 8:
                header, self._got = self._got[:8], self._got[8:]
                return f"header {header!r}"
            if len(self._got) >= 7:
                kind, channel, size = struct.unpack(">BHI", self._got[:7])
                if len(self._got) >= size + 8:
                    payload, self._got = self._got[7 : size + 7], self._got[size + 8 :]
                    return Frame(kind, channel, payload)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return SILENCE
            except OSError:
                return CLOSED
            if not data:
                return CLOSED
            self._got += data

    def expect(self, of: int, number: int) -> bytes:
        """The arguments of the method, which must come next."""
        got = self.read()
        assert isinstance(got, Frame), got
        assert got.method == (of, number), got
        return got.payload[4:]

    def close(self) -> None:
        self._socket.close()

    # ---- the handshake ----

    def login(
        self, response: bytes = b"\0guest\0guest", *, mechanism: str = "PLAIN", able: bool = True
    ) -> bytes:
        """Up to start-ok; what start said."""
        self.send(HEADER)
        start = self.expect(CONNECTION, START)
        able_to = b"".join(short(name) + b"t\1" for name in CAPABILITIES)
        told = short("capabilities") + b"F" + long(able_to) if able else b""
        arguments = long(told) + short(mechanism) + long(response) + short("en_US")
        self.send(method(0, CONNECTION, START_OK, arguments))
        return start

    def tune(self, channels: int = 2047, frame_max: int = 131072, heartbeat: int = 0) -> None:
        self.expect(CONNECTION, TUNE)
        limits = struct.pack(">HIH", channels, frame_max, heartbeat)
        self.send(method(0, CONNECTION, TUNE_OK, limits))

    def open(self, vhost: str = "/") -> None:
        self.send(method(0, CONNECTION, OPEN, short(vhost) + b"\0\0"))

    def ready(self, **limits: int) -> None:
        """With channel 1 open."""
        self.login()
        self.tune(**limits)
        self.open()
        self.expect(CONNECTION, OPEN_OK)
        self.send(method(1, CHANNEL, CHANNEL_OPEN, b"\0"))
        self.expect(CHANNEL, CHANNEL_OPEN_OK)

    def answers(self, count: int = 3) -> list[str]:
        """The next answers in words, as many as there are up to the end; a connection.close is
        answered."""
        said: list[str] = []
        while len(said) < count and (not said or said[-1] not in (SILENCE, CLOSED)):
            got = self.read()
            said.append(words(got))
            if isinstance(got, Frame) and got.method == (CONNECTION, CLOSE):
                self.send(method(0, CONNECTION, CLOSE_OK))
        return said


# Names that a server makes up.
MADE_UP = re.compile(r"amq\.(gen|ctag)-[\w-]+")


def words(got: Frame | str) -> str:
    if isinstance(got, str):
        return got
    if got.method is None:
        return f"frame of type {got.kind} on channel {got.channel}, {len(got.payload)} bytes"
    of, number = got.method
    arguments = got.payload[4:]
    if got.method in ((CONNECTION, CLOSE), (CHANNEL, CHANNEL_CLOSE)):
        (code,) = struct.unpack(">H", arguments[:2])
        text = arguments[3 : 3 + arguments[2]].decode("utf-8", "replace")
        blamed = struct.unpack(">HH", arguments[3 + arguments[2] : 7 + arguments[2]])
        name = "connection" if of == CONNECTION else "channel"
        return f'{name}.close {code} "{text}" ({blamed[0]}.{blamed[1]})'
    if got.method == (CONNECTION, TUNE):
        return f"tune {struct.unpack('>HIH', arguments)}"
    shown = arguments.decode("latin-1")
    if (made_up := MADE_UP.search(shown)) is not None:
        # A short string: its length goes with it.
        before = shown[: made_up.start() - 1]
        shown = f"{before}amq.{made_up[1]}-...{shown[made_up.end() :]}"
    return f"method {of}.{number} on channel {got.channel}: {shown.encode('latin-1')!r}"
