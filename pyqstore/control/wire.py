"""Frames: a report as JSON, followed by bytes.

``QSC1``, the sizes of the JSON and of the bytes, 4 bytes each, little-endian.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from typing import Any

__all__ = [
    "FIRST_BYTES_MAX",
    "HEAD",
    "Gone",
    "Report",
    "Wire",
    "first_report",
    "is_same_user",
    "names_of",
]

HEAD = struct.Struct("<4sII")
FIRST_BYTES_MAX = 1 << 20  # limit of a client's first frame
_MAGIC = b"QSC1"
_JSON_BYTES_MAX = 1 << 28
_RECEIVE_BYTES = 1 << 16
_COPIED_BYTES_MAX = 1 << 16
_NAMES = 4  # possible names of an owner: other processes may use some of them
_CREDENTIALS = struct.Struct("3i")

Report = dict[str, Any]


class Gone(ConnectionError):
    """The other end has closed, or does not speak this protocol."""


def names_of(directory: str | os.PathLike[str]) -> list[bytes]:
    """The addresses at which the store's owner may listen: Linux's abstract ones, which are in no
    file system.  They identify the directory by its inode, independent of its path.  OSError: it
    does not exist."""
    status = os.stat(directory)
    name = f"pyqstore/{os.geteuid()}/{status.st_dev:x}-{status.st_ino:x}"
    return [f"\0{name}/{number}".encode() for number in range(_NAMES)]


def is_same_user(end: socket.socket) -> bool:
    """Whether the process that made the connection belongs to this user."""
    data = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(data)[1] == os.geteuid())


def _head(report: Report, payload_bytes: int) -> bytes:
    text = json.dumps(report).encode()
    return HEAD.pack(_MAGIC, len(text), payload_bytes) + text


def _decoded(text: bytes) -> Report:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Gone(f"no JSON came: {error}") from None
    if not isinstance(report, dict):
        raise Gone("no JSON object came")
    return report


def _lengths(head: bytes) -> tuple[int, int]:
    magic, text_bytes, payload_bytes = HEAD.unpack(head)
    if magic != _MAGIC or text_bytes > _JSON_BYTES_MAX:
        raise Gone("what came is no frame")
    return text_bytes, payload_bytes


def first_report(data: bytes) -> Report | None:
    """Decodes a client's first frame; None: it is incomplete.  Gone: it is invalid."""
    if len(data) < HEAD.size:
        if data[:4] != _MAGIC[: len(data[:4])]:
            raise Gone("what came is no frame")
        return None
    text_bytes, payload_bytes = _lengths(data[: HEAD.size])
    if text_bytes > FIRST_BYTES_MAX or payload_bytes > 0:
        raise Gone("what came first is too large")
    if len(data) < HEAD.size + text_bytes:
        return None
    if len(data) > HEAD.size + text_bytes:
        raise Gone("more came than one frame")
    return _decoded(data[HEAD.size :])


class Wire:
    """One end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()

    def send(self, report: Report, payload: bytes | memoryview = b"") -> None:
        """Gone: it cannot be sent."""
        head = _head(report, len(payload))
        try:
            if len(payload) <= _COPIED_BYTES_MAX:
                self._socket.sendall(head + payload)
            else:
                self._socket.sendall(head)
                self._socket.sendall(payload)
        except OSError as error:
            raise Gone(f"the other end is gone: {error}") from error

    def receive(self) -> tuple[Report, bytes]:
        """Returns the next frame.  Gone: there is none."""
        text_bytes, payload_bytes = _lengths(self._take(HEAD.size))
        report = _decoded(self._take(text_bytes))
        return report, self._take(payload_bytes)

    def check(self) -> None:
        """Gone: the other end has closed.  It must have nothing to send at this time."""
        looking = select.poll()  # select() does not support descriptors from 1,024 on
        looking.register(self._socket, select.POLLIN)
        if looking.poll(0):
            raise Gone("the other end has ended the call")

    def be_patient(self) -> None:
        """Removes the timeout for the other end."""
        self._socket.settimeout(None)

    def close(self) -> None:
        """Closes both directions."""
        self._socket.close()

    def _take(self, count: int) -> bytes:
        if count > _RECEIVE_BYTES:
            return self._take_large(count)
        while len(self._buffer) < count:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError as error:
                raise Gone(f"the other end is gone: {error}") from error
            if not data:
                raise Gone("the other end is gone")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _take_large(self, count: int) -> bytes:
        """Reads into the result without a buffer, so bytes are copied once."""
        room = memoryview(bytearray(count))
        filled = min(count, len(self._buffer))
        room[:filled] = self._buffer[:filled]
        del self._buffer[:filled]
        while filled < count:
            try:
                received = self._socket.recv_into(room[filled:])
            except OSError as error:
                raise Gone(f"the other end is gone: {error}") from error
            if received == 0:
                raise Gone("the other end is gone")
            filled += received
        return bytes(room)
