"""TLS in front of a server: a thread accepts, decrypts, and passes on the content."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from . import tls_ends
from .tls_ends import End, Inner, Outer

__all__ = ["Bridge"]

Adopt = Callable[[int, str, str, bool], None]
"""Takes over a descriptor at once, with the peer's address, the name in its certificate, and
whether the peer is on this machine."""

_log = logging.getLogger("pyqstore")
_CONNECTIONS_MAX = 16_384
_HANDSHAKE_S = 10.0
_HANDSHAKES_MAX = 512  # at the same time; a newcomer replaces the oldest
_ACCEPTED_AT_ONCE = 64
_PAUSE_S = 0.2  # if no descriptor is left, or there are too many connections
_CLOSE_POLL_S = 0.01
_TELL_S = 1.0  # between two log lines about failed handshakes

_bridges: weakref.WeakSet[Bridge] = weakref.WeakSet()


class Bridge:
    """Accepts at a socket, speaks TLS there, and passes the decrypted bytes to a server."""

    def __init__(
        self,
        adopt: Adopt,
        listening: socket.socket,
        tls: ssl.SSLContext,
        *,
        proxy_protocol: bool = False,
        connections_max: int = _CONNECTIONS_MAX,
        handshake_s: float = _HANDSHAKE_S,
        handshakes_max: int = _HANDSHAKES_MAX,
    ) -> None:
        """Takes over the socket, and accepts from now on.

        ``proxy_protocol``: the header of a proxy comes before TLS."""
        self._adopt = adopt
        self._listening = listening
        self.tls: ssl.SSLContext = tls
        self._proxy_protocol = proxy_protocol
        self._handshake_s = handshake_s
        self._handshakes_max = handshakes_max
        self._handshakes: dict[Outer, asyncio.TimerHandle] = {}  # oldest first
        # Besides connections and handshakes some are ending.
        self._clients_max = connections_max + handshakes_max + _ACCEPTED_AT_ONCE
        self._clients: set[End] = set()
        self._ends: set[End] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._told = -_TELL_S
        self._is_ending = False
        self.buffer: memoryview = memoryview(bytearray(tls_ends.READ_BYTES))
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        listening.setblocking(False)
        self._loop.set_exception_handler(_note_fault)
        self._loop.add_reader(listening, self._accept)
        self._thread = threading.Thread(target=self._run, name="qs-amqp-tls", daemon=True)
        _bridges.add(self)
        self._thread.start()

    @property
    def handshakes_failed(self) -> int:
        """The number of failed handshakes so far."""
        return self._failures

    def accept_no_more(self) -> None:
        """Stops accepting: the address is free on return, and running handshakes fail.

        Connections continue."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._stop_accepting, done)
        done.wait()

    def end(self) -> None:
        """Called after the server has closed its ends.  Clients have a few seconds to read the
        remaining bytes."""
        self._loop.call_soon_threadsafe(self._start, self._await_end())
        self._thread.join()

    # ---- in the loop's thread ----

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._ended.wait())
        finally:
            self._loop.close()

    def _start(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                if len(self._clients) >= self._clients_max:
                    self._let_wait("there are too many that have not closed")
                    break
                client, address = self._listening.accept()
                self._start(self._let_in(self._outer_of(client, address), client))
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # the loop calls again if there is more
        except OSError as error:  # no descriptor or no memory
            self._let_wait(error.strerror)

    def _let_wait(self, why: str | None) -> None:
        _log.warning("AMQP over TLS: clients wait: %s", why)
        self._loop.remove_reader(self._listening)
        self._loop.call_later(_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if not self._is_ending:
            self._loop.add_reader(self._listening, self._accept)

    def _outer_of(self, client: socket.socket, address: tuple[Any, ...]) -> Outer:
        host, port = address[:2]
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        is_loopback = ipaddress.ip_address(host).is_loopback
        outer = Outer(self, client, peer, is_loopback, proxied=self._proxy_protocol)
        self._clients.add(outer)
        return outer

    async def _let_in(self, outer: Outer, client: socket.socket) -> None:
        await self._attach(outer, client)
        if self._is_ending:
            outer.abort()
            return
        late = TimeoutError("the handshake took too long")
        self._handshakes[outer] = self._loop.call_later(
            self._handshake_s, outer.fail_handshake, late
        )
        if len(self._handshakes) > self._handshakes_max:
            oldest = next(iter(self._handshakes))
            self.note_failure(oldest, TimeoutError("there are too many at once"))
            oldest.abort()  # this frees its descriptor, too

    async def _attach(self, end: End, own: socket.socket) -> None:
        own.setblocking(False)
        self._ends.add(end)
        try:
            await self._loop.connect_accepted_socket(lambda: end, own)
        except BaseException:
            self.note_lost(end)
            own.close()
            raise

    def note_secured(self, outer: Outer) -> None:
        """Its handshake has finished."""
        self._handshakes.pop(outer).cancel()
        self._start(self._link(outer))

    async def _link(self, outer: Outer) -> None:
        try:
            ours, servers = socket.socketpair()
        except OSError as error:
            _log.warning("AMQP %s: turned away: %s", outer.peer, error)
            outer.abort()
            return
        inner = Inner(self, ours)
        with servers:
            await self._attach(inner, ours)
            inner.other, outer.other = outer, inner
            try:
                self._adopt(servers.detach(), outer.peer, outer.user, outer.is_loopback)
            except Exception as error:  # the listener is closing, or there is no memory
                _log.info("AMQP %s: turned away: %s", outer.peer, error)
                inner.abort()
        outer.begin()

    def note_failure(self, outer: Outer, error: Exception) -> None:
        """Counts a failed handshake, unless it was counted already."""
        timer = self._handshakes.pop(outer, None)
        if timer is None:
            return
        timer.cancel()
        self._failures += 1
        now = time.monotonic()
        level = logging.WARNING if now - self._told >= _TELL_S else logging.DEBUG
        if level == logging.WARNING:
            self._told = now
        what = "closed" if outer.awaits_header else "no TLS"
        _log.log(level, "AMQP %s: %s: %s", outer.peer, what, error)

    def note_lost(self, end: End) -> None:
        """Its socket is closed."""
        self._ends.discard(end)
        self._clients.discard(end)

    def _stop_accepting(self, done: threading.Event) -> None:
        self._is_ending = True
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for outer in list(self._handshakes):
            self._handshakes.pop(outer).cancel()
            outer.abort()
        done.set()

    async def _await_end(self) -> None:
        end = self._loop.time() + tls_ends.SHUTDOWN_S
        while self._ends and self._loop.time() < end:
            await asyncio.sleep(_CLOSE_POLL_S)
        for each in list(self._ends):
            each.abort()
        while self._ends:
            await asyncio.sleep(0)
        self._ended.set()

    def _abandon(self) -> None:
        """In a child of fork(): closes its copies of the sockets, which would keep clients
        waiting."""
        for each in (self._listening, *(end.own for end in self._ends)):
            each.close()


def _note_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
    _log.log(level, "AMQP over TLS: %s", context["message"], exc_info=error)


def _abandon_all() -> None:
    for bridge in list(_bridges):
        with contextlib.suppress(OSError):
            bridge._abandon()


os.register_at_fork(after_in_child=_abandon_all)
