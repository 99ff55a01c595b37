"""The state shared by all HTTP routes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event

from .. import store as _store
from ..errors import StoreClosed
from ..listening import Listener
from ..serve.stored_users import StoredUsers
from ..serve.users import Users
from ..serve.vhosts import Stores
from .clients import address_parts
from .sampler import Sampler

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The served stores, their users, and their rates."""

    store: _store.Store
    """The store of the virtual host "/"."""
    vhosts: Mapping[str, _store.Store]
    """The other stores by name.  A failed one may be removed while the server runs."""
    users: Users | StoredUsers
    sampler: Sampler
    address: str
    """The address of the listener, such as "127.0.0.1:15672"."""
    keeper: Stores | None = None
    """Adds and deletes virtual hosts; None: only the program that has the stores can."""
    tls: ssl.SSLContext | None = None
    """The listener's TLS context; None: no TLS."""
    ending: Event = field(default_factory=Event)
    """Set when the server ends; ends streamed answers."""
    started: float = field(default_factory=time.monotonic)

    def stores(self) -> dict[str, _store.Store]:
        """All stores by virtual host, "/" first."""
        return {"/": self.store, **self.vhosts}

    def listeners(self) -> list[Listener]:
        """The AMQP listeners, in the order of their addresses."""
        stores = self.stores().values()
        found = {each for store in stores for each in list(store._listeners) if not each.closed}
        return sorted(found, key=lambda each: each.address)

    def amqp_addresses(self) -> list[str]:
        """Their addresses."""
        return [each.address for each in self.listeners()]

    def connection_name(self, number: int, client: int, peer: str) -> str:
        """The connection's name, as in RabbitMQ.  A connection of this process is named by its
        number, and so is one whose address has no port, because others have the same address."""
        if not client:
            return f"in-process {number}"
        places = self.amqp_addresses()
        named = peer if address_parts(peer)[1] else f"{peer} {client}"
        return f"{named} -> {places[0] if places else 'closed'}"

    def end_connection(self, number: int) -> None:
        """Closes a client's connection, with connection.close."""
        for each in self.listeners():
            with suppress(StoreClosed):  # its clients are told anyway
                each._end_connection(number)
