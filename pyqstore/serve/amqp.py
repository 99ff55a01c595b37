"""``pyqstore serve --listen``: AMQP for any client of RabbitMQ."""

from __future__ import annotations

from .addresses import Endpoint
from .certificates import verifies_clients
from .listeners import Entrance
from .users import Users
from .vhosts import Stores

__all__ = ["AmqpListener"]


class AmqpListener:
    """``Store.listen`` as one of the listeners of a process."""

    def __init__(
        self,
        own: Stores,
        endpoint: Endpoint,
        entrance: Entrance,
        *,
        protocol: str = "amqp",
    ) -> None:
        """ValueError: there are no users, and clients of other machines could connect; OSError."""
        users = entrance.users
        tls = entrance.tls if endpoint.speaks_tls else None
        context = None if tls is None else tls.context
        self.protocol = protocol

        def may_enter(name: str, password: str, _peer: str) -> bool:
            return users.check(name, password)

        def is_user(name: str, _peer: str) -> bool:
            return name in users

        # The listener itself uses the users of the store's file, and their rights.
        is_given = isinstance(users, Users) and not users.is_empty
        asks_for_certificates = context is not None and verifies_clients(context)
        self._listener = own.store.listen(
            endpoint.address,
            vhosts=own.vhosts,
            users=may_enter if is_given else None,
            tls=context,
            certified=is_user if is_given and asks_for_certificates else None,
            **entrance.amqp,
        )
        own.follow(self._listener._add_vhost)

    @property
    def address(self) -> str:
        """Where it accepts: HOST:PORT, or unix:PATH."""
        return self._listener.address

    def close(self, timeout: float) -> bool:
        """Closes all connections.  Clients that do not answer within ``timeout`` seconds are cut
        off, so all of them end."""
        self._listener.close(timeout)
        return True
