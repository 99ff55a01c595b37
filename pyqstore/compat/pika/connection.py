"""The location of a store, as pika's connection parameters."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from ..sharing import default_path
from .credentials import ExternalCredentials, PlainCredentials
from .exceptions import AMQPConnectionError, ConnectionClosedByBroker

__all__ = ["ConnectionParameters", "Parameters", "SSLOptions", "URLParameters"]

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "")
_SCHEMES = ("pyqstore", "qstore")
_NUMBERS = {
    "blocked_connection_timeout": float,
    "channel_max": int,
    "connection_attempts": int,
    "frame_max": int,
    "heartbeat": int,
    "retry_delay": float,
    "socket_timeout": float,
    "stack_timeout": float,
}


class SSLOptions:
    """Kept and unused: nothing leaves the machine."""

    def __init__(self, context: Any, server_hostname: str | None = None) -> None:
        self.context: Any = context
        self.server_hostname: str | None = server_hostname


class Parameters:
    """pika's connection parameters.  ``host`` and ``virtual_host`` select the store; the others
    matter only for a connection to another process."""

    DEFAULT_CHANNEL_MAX: ClassVar[int] = 65_535
    DEFAULT_CONNECTION_ATTEMPTS: ClassVar[int] = 1
    DEFAULT_CREDENTIALS: ClassVar[PlainCredentials] = PlainCredentials("guest", "guest")
    DEFAULT_FRAME_MAX: ClassVar[int] = 131_072
    DEFAULT_HOST: ClassVar[str] = "localhost"
    DEFAULT_LOCALE: ClassVar[str] = "en_US"
    DEFAULT_PORT: ClassVar[int] = 5672
    DEFAULT_RETRY_DELAY: ClassVar[float] = 2.0
    DEFAULT_SOCKET_TIMEOUT: ClassVar[float] = 10.0
    DEFAULT_SSL_PORT: ClassVar[int] = 5671
    DEFAULT_STACK_TIMEOUT: ClassVar[float] = 15.0
    DEFAULT_VIRTUAL_HOST: ClassVar[str] = "/"

    host: str
    port: int
    virtual_host: str
    credentials: PlainCredentials | ExternalCredentials
    channel_max: int
    frame_max: int
    heartbeat: int | Callable[..., int] | None
    ssl_options: SSLOptions | None
    connection_attempts: int
    retry_delay: float
    socket_timeout: float | None
    stack_timeout: float | None
    locale: str
    blocked_connection_timeout: float | None
    client_properties: dict[str, Any] | None
    tcp_options: dict[str, Any] | None

    def __init__(self) -> None:
        for name, value in _DEFAULTS.items():
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameters):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host} {self.virtual_host}>"

    @property
    def path(self) -> str:
        """The store's directory: ``host`` if it is a path, else the default directory.

        AMQPConnectionError: ``host`` is another machine.  ConnectionClosedByBroker (530): the
        virtual host is not "/", the only one that a store has here.
        """
        if self.host == ":memory:" or self.host.startswith(("/", ".", "~")):
            found = os.path.expanduser(self.host)
        elif self.host.lower() in _THIS_MACHINE:
            found = default_path()
        else:
            raise AMQPConnectionError(
                f"{self.host!r} is another machine, and a store is a directory of this one: give"
                " 'localhost', which is the directory that PYQSTORE_PATH says, or a path as host;"
                " for a broker use pika itself"
            )
        if self.virtual_host not in ("/", ""):
            raise ConnectionClosedByBroker(
                530,
                f"NOT_ALLOWED - vhost {self.virtual_host} not found: a store is the virtual host"
                " '/'; give another store's path as host",
            )
        return found


_DEFAULTS: dict[str, Any] = {
    "host": Parameters.DEFAULT_HOST,
    "port": Parameters.DEFAULT_PORT,
    "virtual_host": Parameters.DEFAULT_VIRTUAL_HOST,
    "credentials": Parameters.DEFAULT_CREDENTIALS,
    "channel_max": Parameters.DEFAULT_CHANNEL_MAX,
    "frame_max": Parameters.DEFAULT_FRAME_MAX,
    "heartbeat": None,
    "ssl_options": None,
    "connection_attempts": Parameters.DEFAULT_CONNECTION_ATTEMPTS,
    "retry_delay": Parameters.DEFAULT_RETRY_DELAY,
    "socket_timeout": Parameters.DEFAULT_SOCKET_TIMEOUT,
    "stack_timeout": Parameters.DEFAULT_STACK_TIMEOUT,
    "locale": Parameters.DEFAULT_LOCALE,
    "blocked_connection_timeout": None,
    "client_properties": None,
    "tcp_options": None,
}


class ConnectionParameters(Parameters):
    """``ConnectionParameters("localhost")`` is the store in the directory ``PYQSTORE_PATH``.  A
    path as ``host`` is the store in that directory, ":memory:" a store in this process's memory."""

    def __init__(
        self,
        host: str = Parameters.DEFAULT_HOST,
        port: int = Parameters.DEFAULT_PORT,
        virtual_host: str = Parameters.DEFAULT_VIRTUAL_HOST,
        credentials: PlainCredentials | ExternalCredentials = Parameters.DEFAULT_CREDENTIALS,
        channel_max: int = Parameters.DEFAULT_CHANNEL_MAX,
        frame_max: int = Parameters.DEFAULT_FRAME_MAX,
        heartbeat: int | Callable[..., int] | None = None,
        ssl_options: SSLOptions | None = None,
        connection_attempts: int = Parameters.DEFAULT_CONNECTION_ATTEMPTS,
        retry_delay: float = Parameters.DEFAULT_RETRY_DELAY,
        socket_timeout: float | None = Parameters.DEFAULT_SOCKET_TIMEOUT,
        stack_timeout: float | None = Parameters.DEFAULT_STACK_TIMEOUT,
        locale: str = Parameters.DEFAULT_LOCALE,
        blocked_connection_timeout: float | None = None,
        client_properties: dict[str, Any] | None = None,
        tcp_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"unexpected kwargs: {kwargs!r}")
        if not isinstance(host, str):
            raise TypeError(f"host must be a str, but got {host!r}")
        if not isinstance(virtual_host, str):
            raise TypeError(f"virtual_host must be a str, but got {virtual_host!r}")
        super().__init__()
        self.host = host
        self.port = port
        self.virtual_host = virtual_host
        self.credentials = credentials
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        self.ssl_options = ssl_options
        self.connection_attempts = connection_attempts
        self.retry_delay = retry_delay
        self.socket_timeout = socket_timeout
        self.stack_timeout = stack_timeout
        self.locale = locale
        self.blocked_connection_timeout = blocked_connection_timeout
        self.client_properties = client_properties
        self.tcp_options = tcp_options


class URLParameters(Parameters):
    """``pyqstore:///DIRECTORY`` (or ``qstore:``) is the store with that absolute path; ``amqp://``
    is like ConnectionParameters with the URL's host and virtual host.

    ValueError: the scheme is another one, or a value in the query is invalid.
    """

    host: str
    port: int
    virtual_host: str
    credentials: PlainCredentials | ExternalCredentials
    locale: str

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        if parts.scheme in _SCHEMES:
            self.host = unquote(parts.path) if parts.netloc == "" else ""
            if self.host in ("", "/"):
                raise ValueError(
                    f"{url!r} names no directory: three slashes and its absolute path follow the"
                    " scheme, as in pyqstore:///var/lib/orders.qs"
                )
            if self.host == "/:memory:":
                self.host = ":memory:"
        elif parts.scheme in ("amqp", "amqps"):
            self._take_address(parts.hostname, parts.port, parts.scheme == "amqps")
            self.virtual_host = unquote(parts.path.split("/")[1]) if len(parts.path) > 1 else "/"
        else:
            raise ValueError(
                f"Unexpected URL scheme {parts.scheme!r}; supported schemes: pyqstore, qstore,"
                " amqp, amqps"
            )
        if parts.username is not None:
            self.credentials = PlainCredentials(
                unquote(parts.username), unquote(parts.password or "")
            )
        for name, value in parse_qsl(parts.query):
            self._take_option(name, value)

    def _take_address(self, host: str | None, port: int | None, is_tls: bool) -> None:
        self.host = host or self.DEFAULT_HOST
        self.port = port or (self.DEFAULT_SSL_PORT if is_tls else self.DEFAULT_PORT)

    def _take_option(self, name: str, value: str) -> None:
        if name in _NUMBERS:
            try:
                setattr(self, name, _NUMBERS[name](value))
            except ValueError:
                raise ValueError(f"{name}={value!r} in a URL must be a number") from None
        elif name == "locale":
            self.locale = value
        elif name not in ("client_properties", "ssl_options", "tcp_options"):
            raise ValueError(f"unknown option {name!r} in a URL")
