"""Where messages go that cannot be consumed."""

from __future__ import annotations

import threading

from ..connection import Connection
from ..errors import NotFound, PublishRefused
from ..properties import Properties
from ..store import Store
from .message import Message

__all__ = ["CAUSE", "DeadLetters", "declare_queue"]

CAUSE = "dlqDeliveryFailureCause"
_CHARACTERS_MAX = 1000
_ROUTING_HEADERS = frozenset({"CC", "BCC"})


def declare_queue(store: Store, connection: Connection, queue: str) -> None:
    """Durable, unless there is one: that is taken as it is."""
    try:
        store.queue_status(queue)
    except NotFound:
        with connection.channel() as channel:
            channel.queue_declare(queue, durable=True)


class DeadLetters:
    """The queue of dead letters of a connection, made when it is needed.  Any thread may use
    it."""

    def __init__(self, store: Store, connection: Connection, queue: str) -> None:
        self._store = store
        self._connection = connection
        self.queue = queue
        """Its name."""
        self._lock = threading.Lock()

    def take(self, message: Message, cause: str) -> bool:
        """Put a copy there, durably.  Whether it did: what is not persistent is dropped.
        PublishRefused: the queue is full and refuses."""
        if not message.persistent:
            return False
        with self._lock:
            declare_queue(self._store, self._connection, self.queue)
            with self._connection.channel() as channel:
                channel.confirm_select()
                channel.basic_publish("", self.queue, message.body, _properties(message, cause))
                if not channel.wait_for_confirms():
                    raise PublishRefused(1)
        return True


def _properties(message: Message, cause: str) -> Properties:
    kept = message.amqp.headers.items()
    headers = {
        **{name: value for name, value in kept if name not in _ROUTING_HEADERS},
        CAUSE: cause[:_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode(),
        "dlqOriginalDestination": message.routing_key,
    }
    return message.amqp.replace(headers=headers, expiration=None)
