"""A transport of kombu, and so of Celery, over a store: ``pyqstore:///PATH``.

Importing this module makes the name ``pyqstore`` known to kombu::

    import pyqstore.compat.kombu
    app = celery.Celery(broker="pyqstore:////var/lib/orders.qs", backend="rpc://")

The full name, ``pyqstore.compat.kombu:Transport``, needs no import.  The transport is kombu's AMQP
transport, connected to the process that owns the store: this process, unless another one opened the
store before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import kombu.transport
from kombu.transport import pyamqp

from ..errors import StoreError
from .sharing import Attachment, attach, default_path

__all__ = ["StoreConnection", "Transport", "register"]

_ALIAS = "pyqstore"
_TARGET = "pyqstore.compat.kombu:Transport"

if TYPE_CHECKING:

    class _Connection:  # py-amqp ships no types
        client: Any

        def __init__(self, **options: object) -> None: ...

        connected: bool

        def connect(self) -> None: ...
        def collect(self) -> None: ...

else:
    _Connection = pyamqp.Connection


def register() -> None:
    """Register ``pyqstore://`` with kombu.  Importing this module does so."""
    kombu.transport.TRANSPORT_ALIASES[_ALIAS] = _TARGET


class StoreConnection(_Connection):
    """A connection to the owner of a store.  It keeps the store open if this process is the
    owner."""

    attachment: Attachment | None = None

    def collect(self) -> None:
        """Close the socket, and release the store."""
        try:
            super().collect()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Release the store."""
        attachment, self.attachment = self.attachment, None
        if attachment is not None:
            attachment.close()


class Transport(pyamqp.Transport):  # type: ignore[misc, unused-ignore]
    """kombu's transport over a store in a directory.

    The URL's path is the directory: ``pyqstore:///orders.qs`` is relative to the current directory,
    ``pyqstore:////var/orders.qs`` is absolute, ``pyqstore://`` is
    :func:`~pyqstore.compat.default_path`, and ``pyqstore:///:memory:`` is a store in this process's
    memory.  In ``transport_options``, ``store`` is a mapping of options for :func:`pyqstore.open`;
    the other options, such as ``confirm_publish``, go to py-amqp.
    """

    Connection: Any = StoreConnection

    driver_name = "pyqstore"
    client: Any

    connection_errors: tuple[type[BaseException], ...] = (
        *pyamqp.Transport.connection_errors,
        StoreError,
    )
    recoverable_connection_errors: tuple[type[BaseException], ...] = (
        *pyamqp.Transport.recoverable_connection_errors,
        StoreError,
    )

    @property
    def path(self) -> str:
        """The store's directory."""
        named = self.client.virtual_host or ""  # kombu has unquoted it
        return default_path() if named in ("", "/") else os.path.expanduser(named)

    def establish_connection(self) -> StoreConnection:
        """Open the store or find its owner, and connect.  Raises the errors of ``pyqstore.open``,
        and OSError if the owner cannot be reached."""
        given = dict(self.client.transport_options or {})
        attachment = attach(self.path, **given.pop("store", {}))
        try:
            connection = self._connect(attachment, given)
        except BaseException:
            attachment.close()
            raise
        connection.attachment = attachment
        return connection

    def verify_connection(self, connection: StoreConnection) -> bool:
        """Whether the connection is open.  A lost connection releases the store here, as kombu
        replaces lost connections and does not always close them."""
        if connection.connected:
            return True
        connection.let_go()
        return False

    def close_connection(self, connection: StoreConnection) -> None:
        """Close the connection, and release the store even if the connection was lost."""
        try:
            super().close_connection(connection)  # type: ignore[no-untyped-call, unused-ignore]
        finally:
            connection.let_go()

    def _connect(self, attachment: Attachment, given: dict[str, Any]) -> StoreConnection:
        address = attachment.address
        if address is None:
            raise OSError("127.0.0.1 cannot be listened at, which this transport needs")
        options = {
            "host": f"{address.host}:{address.port}",
            "userid": address.user,
            "password": address.password,
            "virtual_host": "/",
            "connect_timeout": self.client.connect_timeout,
            "heartbeat": self.client.heartbeat,
        }
        connection = StoreConnection(**{**options, **given})
        connection.client = self.client
        connection.connect()
        return connection

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """A store has neither users nor a port."""
        return {"virtual_host": "/"}


register()
