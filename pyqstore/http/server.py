"""The server: an application on uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Never

import uvicorn

from .. import _core
from .. import store as _store
from ..closing import Closing
from ..sequences import listed
from ..serve.door import Authenticate, Door
from ..serve.listeners import Entrance
from ..serve.stored_users import StoredUsers, users_of
from ..serve.users import Users, is_loopback
from ..serve.vhosts import Stores
from .app import application
from .connections import Connections, ListeningSocket, Protocol
from .context import Context
from .sampler import Sampler

__all__ = ["HttpListener", "HttpServer"]

_STOP_S = 5.0
_START_S = 30.0
_HEADER_BYTES_MAX = 64 << 10


class HttpServer(Closing):
    """What answers HTTP requests about a store, from ``Store.serve_page()``: RabbitMQ's management
    API, metrics and a page to look at.

    It has a thread of its own, and others for calls that wait.  It ends when it is closed, or its
    store is.
    """

    def __init__(
        self,
        store: _store.Store,
        address: str,
        *,
        vhosts: Mapping[str, _store.Store] | None = None,
        users: Mapping[str, str] | Authenticate | Users | StoredUsers | None = None,
        tls: ssl.SSLContext | None = None,
        hosts: Collection[str] = (),
        keeper: Stores | None = None,
    ) -> None:
        """See ``Store.serve_page``; ``keeper``: of ``vhosts``, if they may come and go."""
        if not isinstance(address, str):
            raise TypeError(f"address must be str, not {type(address).__name__}")
        if not isinstance(tls, ssl.SSLContext | None):
            raise TypeError(f"tls must be ssl.SSLContext or None, not {type(tls).__name__}")
        hosts = listed("hosts", hosts, str, ordered=False)
        known = _users(store, users)
        door = Door(users if callable(users) else known)
        if door.is_for_this_machine and not _is_of_this_machine(address):
            raise ValueError(
                f"serve HTTP on {address!r} without users: guest comes in from this machine alone;"
                " give users, or take 127.0.0.1"
            )
        self._process = os.getpid()
        self._tls = tls
        self._vhosts = {} if vhosts is None else vhosts
        self._sampler = Sampler(lambda: {"/": store, **self._vhosts})
        fd, self._address = _core._bind(address)
        self._context = Context(
            store, self._vhosts, known, self._sampler, self._address, keeper, tls
        )
        self._connections = Connections()
        self._socket = ListeningSocket(self._connections, fd)
        self._ended = Event()
        try:
            self._server = uvicorn.Server(self._config(application(self._context, door, hosts)))
            self._thread = Thread(target=self._run, name="pyqstore-http", daemon=True)
            self._thread.start()
            self._wait_until_started()
        except BaseException:
            self._socket.close()
            raise
        store._faces.add(self)  # it closes this before itself

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url!r}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Never:
        """TypeError: it belongs to this process."""
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    @property
    def address(self) -> str:
        """Where it accepts, in numbers: "127.0.0.1:15672", "[::1]:15672", "unix:PATH"."""
        return self._address

    @property
    def url(self) -> str:
        """The page's address for a browser; for "unix:PATH" the same text."""
        if self._address.startswith("unix:"):
            return self._address
        return f"{'http' if self._tls is None else 'https'}://{self._address}/"

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its store was."""
        return self._ended.is_set()

    def close(self, timeout: float = _STOP_S) -> bool:
        """Accept nothing more and end what is under way; whether all of it ended within
        ``timeout`` seconds.  Closing twice is fine."""
        if not 0 <= timeout < math.inf:
            raise ValueError(f"timeout must be 0 seconds or more, not {timeout}")
        if self._process != os.getpid():  # the thread is the parent's
            self._ended.set()
            return True
        self._server.config.timeout_graceful_shutdown = math.ceil(timeout)
        self._context.ending.set()
        self._server.should_exit = True
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1)
        self._sampler.close()
        self._ended.set()
        return not self._thread.is_alive()

    def _config(self, app: object) -> uvicorn.Config:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            proxy_headers=False,
            # Connections have a limit of their own; this one is for requests without a connection.
            limit_concurrency=self._connections.limit + 1,
            timeout_keep_alive=math.ceil(self._connections.idle_s),
            h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
            http=partial(Protocol, self._connections),  # type: ignore[arg-type]
            loop="asyncio",
        )
        config.load()
        config.ssl = self._tls
        return config

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()
            if self._address.startswith("unix:"):
                with suppress(OSError):
                    os.unlink(self._address.removeprefix("unix:"))
            self._ended.set()

    def _wait_until_started(self) -> None:
        waited = 0.0
        while not self._server.started and not self._ended.wait(0.005):
            waited += 0.005
            if waited > _START_S:
                break
        if not self._server.started:
            raise RuntimeError(f"the server at {self._address} did not start")


class HttpListener:
    """``pyqstore serve --http``: one of the listeners of a process."""

    protocol = "http"

    def __init__(
        self, own: Stores, address: str, entrance: Entrance, hosts: Collection[str] = ()
    ) -> None:
        """ValueError: there are no users, and clients of other machines could connect; OSError."""
        self._server = HttpServer(
            own.store,
            address,
            vhosts=own.vhosts,
            users=entrance.users,
            tls=None if entrance.tls is None else entrance.tls.context,
            hosts=hosts,
            keeper=own,
        )

    @property
    def address(self) -> str:
        """Where it accepts: HOST:PORT, or unix:PATH."""
        return self._server.address

    def close(self, timeout: float) -> bool:
        """End what is under way; whether all of it ended within ``timeout`` seconds."""
        return self._server.close(timeout)


def _users(
    store: _store.Store, given: Mapping[str, str] | Authenticate | Users | StoredUsers | None
) -> Users | StoredUsers:
    if isinstance(given, Users | StoredUsers):
        return given
    return users_of(store.directory, None if callable(given) else given)


def _is_of_this_machine(address: str) -> bool:
    """An invalid address is refused elsewhere."""
    host, colon, _ = address.rpartition(":")
    return not colon or address.startswith("unix:") or is_loopback(host)
