"""Where messages go that cannot be consumed."""

from __future__ import annotations

from ..connection import Connection
from ..errors import NotFound, PreconditionFailed
from ..properties import Properties
from ..store import Store
from .link import Link
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

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self.queue = queue
        """Its name."""

    def take(self, link: Link, message: Message, cause: str) -> bool:
        """Move it there from its queue, durably.  Whether it did: what is not persistent is
        dropped.

        In one step, unless the queue was declared with arguments of its own: a queue that refuses
        would end the session's channel.  Then the copy comes first, and a crash, or a signal
        handler that raises, between the two leaves both.  PublishRefused: it refuses; nothing
        happened.
        """
        if not message.persistent:
            link.drop(message._tag)
            return False
        properties = _properties(message, cause)
        if self._is_plain():
            link.move(message._tag, self.queue, message.body, properties)
        else:
            self._copy(message.body, properties)
            link.drop(message._tag)
        return True

    def _is_plain(self) -> bool:
        """Declared without arguments: now, if it was not there."""
        try:
            with self._connection.channel() as channel:
                channel.queue_declare(self.queue, durable=True)
        except PreconditionFailed:
            return False
        return True

    def _copy(self, body: bytes, properties: Properties) -> None:
        with self._connection.channel() as channel:
            channel.confirm_select()
            channel.basic_publish("", self.queue, body, properties)
            if not channel.wait_for_confirms():
                raise channel._refusals.told()


def _properties(message: Message, cause: str) -> Properties:
    kept = message.amqp.headers.items()
    headers = {
        **{name: value for name, value in kept if name not in _ROUTING_HEADERS},
        CAUSE: cause[:_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode(),
        "dlqOriginalDestination": message.routing_key,
    }
    return message.amqp.replace(headers=headers, expiration=None)
