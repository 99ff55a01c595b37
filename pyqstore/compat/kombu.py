"""A transport of kombu, and so of Celery, over a store: ``pyqstore:///PATH``.

Importing this module makes the name ``pyqstore`` known to kombu::

    import pyqstore.compat.kombu
    app = celery.Celery(broker="pyqstore:////var/lib/orders.qs", backend="rpc://")

The whole name, ``pyqstore.compat.kombu:Transport``, needs no import before it.  It is kombu's
transport of AMQP, connected to the process that owns the store, which is this one when no other
was there before it.
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
    """Make ``pyqstore://`` known to kombu.  Importing this module has done so."""
    kombu.transport.TRANSPORT_ALIASES[_ALIAS] = _TARGET


class StoreConnection(_Connection):
    """A connection to the owner of a store, which holds on to the store when that is this
    process."""

    attachment: Attachment | None = None

    def collect(self) -> None:
        """Close the socket, and let go of the store."""
        try:
            super().collect()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Of the store."""
        attachment, self.attachment = self.attachment, None
        if attachment is not None:
            attachment.close()


class Transport(pyamqp.Transport):  # type: ignore[misc, unused-ignore]
    """kombu's transport over a store in a directory.

    The URL's path is the directory: ``pyqstore:///orders.qs`` one below the current directory,
    ``pyqstore:////var/orders.qs`` an absolute one, ``pyqstore://`` the one that
    :func:`~pyqstore.compat.default_path` says, ``pyqstore:///:memory:`` a store in this process's
    memory.  ``transport_options``: ``store``, a mapping, has options of :func:`pyqstore.open`; the
    others go to py-amqp, such as ``confirm_publish``.
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
        """Open the store or reach its owner, and connect.  Raises what ``pyqstore.open`` does, and
        OSError when the owner cannot be reached."""
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
        """Whether it is there still.  kombu makes another one in place of a connection that was
        lost, and closes the lost one or not."""
        if connection.connected:
            return True
        connection.let_go()
        return False

    def close_connection(self, connection: StoreConnection) -> None:
        """Close it, and let go of the store also where it was lost."""
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
