"""The queue for messages that cannot be consumed."""

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
    """Declares a durable queue, unless it exists: then it is used unchanged."""
    try:
        store.queue_status(queue)
    except NotFound:
        with connection.channel() as channel:
            channel.queue_declare(queue, durable=True)


class DeadLetters:
    """The dead-letter queue of a connection, declared when it is needed.  Any thread may use it."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self.queue = queue
        """The queue's name."""

    def take(self, link: Link, message: Message, cause: str) -> bool:
        """Moves a message there from its queue, durably.  False: the message is not persistent, and
        was dropped.

        The move is one transaction, unless the queue was declared with arguments: a queue that
        refuses would close the session's channel.  In that case the copy is published first, and a
        crash, or a signal handler that raises, between the two steps leaves both messages.
        PublishRefused: the queue refuses; nothing happened.
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
        """Whether the queue has no arguments; a missing one is declared now."""
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
