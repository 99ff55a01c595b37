"""Letting other processes use a store: AMQP 0-9-1 over sockets."""

from __future__ import annotations

import logging
import math
import socket
import ssl
from _thread import start_new_thread
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from .callbacks import check_callable
from .closing import Closing
from .errors import Error, StoreClosed
from .serve.addresses import is_of_this_machine, place_of
from .serve.certificates import verifies_clients
from .serve.door import Authenticate, Certified, Door
from .serve.stored_users import StoredUsers, users_of
from .serve.user_list import RIGHTS
from .waiting import Seconds, check_timeout

if TYPE_CHECKING:
    from .serve.tls import Bridge

__all__ = ["Authenticate", "Certified", "Listener"]

_log = logging.getLogger("pyqstore")
_MECHANISMS = b"PLAIN AMQPLAIN"
_LOGINS = 4  # that are looked at at once
_STOP_S = 5.0
_LOOK_NS = 1_000_000_000  # from one look at a store's users to the next
_FOR_EVER = 2**64 - 1
_VHOST_BYTES_MAX = 255


class Listener(Closing):
    """What lets other processes use a store, from ``Store.listen()``: any client of RabbitMQ.

    Its threads are the engine's: a busy Python program delays no message and no heartbeat, but
    logins.  It listens until it is closed, or its store is; clients then hear that the connection
    is closed (320), what they had not acknowledged is requeued, and what was accepted from them is
    durable when the store is closed.
    """

    def __init__(
        self,
        store: _core.Store,
        address: str,
        *,
        path: str,
        vhosts: Mapping[str, _core.Store] | None,
        users: Mapping[str, str] | Authenticate | None,
        tls: ssl.SSLContext | None,
        certified: Certified | None,
        product: str,
        heartbeat: int,
        connections_max: int,
        channel_max: int,
        frame_max: int,
        quorum_as_classic: bool,
        proxy_protocol: bool,
    ) -> None:
        """See ``Store.listen``."""
        for name, text in (("address", address), ("product", product)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be str, not {type(text).__name__}")
        for name, number, least, most in (
            ("heartbeat", heartbeat, 0, 65_535),
            ("connections_max", connections_max, 1, 2**32 - 1),
            ("channel_max", channel_max, 1, 65_535),
            ("frame_max", frame_max, 4096, 2**31 - 1),
        ):
            if not isinstance(number, int):
                raise TypeError(f"{name} must be int, not {type(number).__name__}")
            if not least <= number <= most:
                raise ValueError(f"{name} must be {least} to {most}, not {number}")
        check_callable(certified=certified)
        named = _named(vhosts, store)
        asks_for_certificates = tls is not None and verifies_clients(tls)
        place = place_of(address)
        if tls is not None and place.startswith("unix:"):
            raise ValueError(
                f"listen on {address!r} with tls: a socket in the file system has none; who may"
                " open it is up to its mode"
            )
        if certified is not None and not asks_for_certificates:
            raise ValueError("certified: there is no tls that asks clients for certificates")
        may_enter = Door(users if callable(users) else users_of(path, users), certified)
        if may_enter.is_for_this_machine and not is_of_this_machine(place):
            raise ValueError(
                f"listen on {address!r} without users: guest comes in from this machine alone;"
                " give users, or listen on 127.0.0.1"
            )
        self._server = _core.Server(
            store,
            connections_max=connections_max,
            channel_max=channel_max,
            frame_max=frame_max,
            heartbeat_s=heartbeat,
            product=product.encode(),
            mechanisms=_MECHANISMS + b" EXTERNAL" * (asks_for_certificates and may_enter.certifies),
            asks_permissions=may_enter.stored is not None,
            quorum_as_classic=quorum_as_classic,
            proxy_protocol=proxy_protocol,
        )
        try:
            for encoded, other in named.items():
                self._server._add_vhost(encoded, other)
            self._address = self._listen(address, tls, connections_max, proxy_protocol)
            for number in range(_LOGINS):
                start_new_thread(_answer, (self, may_enter, number == 0))
        except BaseException:
            self._server._stop(0)
            raise
        _log.info("listening on %s", self._address)

    def _listen(
        self, address: str, tls: ssl.SSLContext | None, connections_max: int, proxy_protocol: bool
    ) -> str:
        if tls is None:
            return self._server._listen(address)
        fd, bound = _core._bind(address)
        listening = socket.socket(fileno=fd)
        # It needs asyncio, a good part of what the package takes to import.
        from .serve.tls import Bridge

        bridge = Bridge(
            self._server._adopt,
            listening,
            tls,
            proxy_protocol=proxy_protocol,
            connections_max=connections_max,
        )
        try:
            self._server._keep_bridge(bridge)
        except StoreClosed:  # another thread closed the store just now
            bridge.accept_no_more()
            bridge.end()
            raise
        return bound

    def __repr__(self) -> str:
        closed = " (closed)" if self.closed else ""
        return f"<{type(self).__name__} {self._address!r}{closed}>"

    @property
    def address(self) -> str:
        """Where it listens, in numbers: "127.0.0.1:5672", "[::1]:5672", "unix:PATH"."""
        return self._address

    @property
    def closed(self) -> bool:
        """Whether it was closed, by ``close()`` or with its store."""
        return self._server.closed

    @property
    def _tls(self) -> ssl.SSLContext | None:
        bridge: Bridge | None = self._server.bridge
        return None if bridge is None else bridge.tls

    def stats(self) -> dict[str, int]:
        """Counts: ``connections`` now, and since it began ``connections_accepted``,
        ``connections_turned_away`` (there were ``connections_max``, or no descriptor was left),
        ``logins_refused``, ``heartbeats_missed`` (connections ended for it), ``handovers`` (turns
        of connections that had to wait for the disk or for room, in threads for that),
        ``bytes_received`` and ``bytes_sent`` of connections that have ended, and
        ``handshakes_failed`` of TLS."""
        bridge: Bridge | None = self._server.bridge
        failed = 0 if bridge is None else bridge.handshakes_failed
        return {**self._server._counts(), "handshakes_failed": failed}

    def _add_vhost(self, name: str, store: _core.Store) -> None:
        """Serve one more store, until it is closed."""
        self._server._add_vhost(name.encode(), store)

    def _end_connection(self, number: int) -> None:
        """Of a client: it hears of it.  One that has ended, or is another listener's, is fine."""
        self._server._end_connection(number)

    def close(self, timeout: Seconds = _STOP_S) -> None:
        """Listen no more, and end the connections.  Closing twice is fine.

        A client that does not say within ``timeout`` seconds that it has heard is cut off.
        """
        seconds = check_timeout(timeout)
        if seconds == math.inf:
            raise ValueError(f"timeout must be 0 seconds or more, not {timeout}")
        self._server._stop(int(min(seconds, 2**31) * 1e9))


def _named(vhosts: Mapping[Any, Any] | None, store: _core.Store) -> dict[bytes, _core.Store]:
    named: dict[bytes, _core.Store] = {}
    if vhosts is not None and not isinstance(vhosts, Mapping):
        raise TypeError(f"vhosts maps names to open stores, and is no {type(vhosts).__name__}")
    for name, other in ({} if vhosts is None else vhosts).items():
        if not isinstance(name, str) or not isinstance(other, _core.Store):
            raise TypeError(
                f"vhosts maps names to open stores, not {name!r} to {type(other).__name__}"
            )
        encoded = name.encode()
        if not 0 < len(encoded) <= _VHOST_BYTES_MAX or 0 in encoded:
            raise ValueError(
                f"vhosts: {name!r} is no name: 1 to {_VHOST_BYTES_MAX} bytes, and no NUL"
            )
        if name == "/":
            raise ValueError("vhosts: '/' is the store that listens; give others another name")
        if other is store or other in named.values():
            raise ValueError(f"vhosts: {name!r} has the store of another vhost; give each its own")
        named[encoded] = other
    return named


def _answer(listener: Listener, door: Door, looks: bool) -> None:
    """A thread's, beside others: says who may come in, and do what, until the server is stopped.
    One of them looks for changes also while nobody asks.  Until then the listener is one of its
    store's, even if the program keeps nothing of it."""
    server = listener._server
    timeout_ns = _LOOK_NS if looks and door.stored is not None else _FOR_EVER
    while (question := _next(server, timeout_ns)) is not None:
        answer, name = 0, ""
        try:
            if door.stored is not None and door.stored.has_changed():
                server._forget_permissions()
            if question:
                answer, name = _look_at(door, question)
        except Exception:  # the caller's function: others come in all the same
            who = question[3:1:-1] or ("", "")
            _log.exception("AMQP %s: what %r may do could not be told", *who)
        if question:
            server._answer(question[0], answer, name)


_Question = tuple[int, int, str, str, bool, str, str, str]


def _look_at(door: Door, question: _Question) -> tuple[int, str]:
    """The answer, and who it is from now on."""
    _, kind, user, _, _, vhost, name, _ = question
    if kind == 0:
        return _log_in(door, question)
    return (0 if door.stored is None else _permit(door.stored, kind, user, vhost, name)), ""


def _log_in(door: Door, question: _Question) -> tuple[int, str]:
    _, _, said, peer, is_near, mechanism, secret, certified = question
    user, password = (certified, None) if mechanism == "EXTERNAL" else (said, secret)
    return int(door(user, password, peer, is_near)), user


def _permit(users: StoredUsers, kind: int, user: str, vhost: str, name: str) -> int:
    """``kind``: 1 to use the virtual host, from 2 on the rights."""
    if kind == 1:
        return int(users.may_use(user, vhost))
    return users.permits(user, vhost, RIGHTS[kind - 2], name)


def _next(server: _core.Server, timeout_ns: int) -> _Question | tuple[()] | None:
    while True:
        try:
            return server._next_question(timeout_ns)
        except (Error, MemoryError):
            _log.exception("AMQP: a question could not be looked at")
