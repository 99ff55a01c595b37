"""A way to a server that a test can cut: connections through it end at once, and new ones come
through."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

_ABORT = struct.pack("ii", 1, 0)  # of SO_LINGER: what is not sent yet is dropped


class Proxy:
    """Listens at ``port`` of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """End what is connected now; how many connections that were."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                end.shutdown(socket.SHUT_RDWR)
        return len(ends) // 2

    def close(self) -> None:
        """Nothing comes through any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to), timeout=30)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._ends += [near, far]
            for one, another in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(one, another), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, another: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                another.sendall(data)
        for end in (one, another):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
