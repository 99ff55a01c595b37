"""Producers of sessions."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping

from ..channel.arguments import flag
from ..closing import Closing
from ..errors import NotFound
from ..fields import FieldValue
from ..properties import Properties, integer
from ..queue import Seconds, milliseconds_of
from .destinations import Destination, Groups, Queue, Topic
from .errors import IllegalState
from .link import Link
from .message import EXPIRATION
from .subscriptions import TOPICS, Subscriptions

__all__ = ["Producer"]

_PERSISTENT, _TRANSIENT = 2, 1
_PRIORITY_MAX = 9


class Producer(Closing):
    """Sends messages; made by ``Session.producer()``.

    A transacted session sends messages with its commit.  Otherwise a persistent message is durable
    when ``send`` returns, unless the connection has ``useAsyncSend``.
    """

    def __init__(
        self,
        link: Link,
        subscriptions: Subscriptions,
        destination: Destination | None,
        *,
        transacted: bool,
        wait: bool,
    ) -> None:
        """See ``Session.producer``."""
        self._link = link
        self._subscriptions = subscriptions
        self._transacted = transacted
        self._wait = wait and not transacted
        self._ready: dict[Destination, tuple[str, str]] = {}
        self._is_closed = False
        self.destination: Destination | None = destination
        """The destination of its messages; None: each ``send`` has one."""
        if destination is not None:
            with link.lock:
                link.check()
                self._address(destination)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.destination or 'anywhere'}>"

    def close(self) -> None:
        """Closing twice is fine."""
        self._is_closed = True

    def send(
        self,
        body: bytes | bytearray | memoryview | str,
        *,
        destination: Destination | None = None,
        persistent: bool = True,
        priority: int = 4,
        time_to_live: Seconds | None = None,
        properties: Mapping[str, FieldValue] | None = None,
        delivery_delay: Seconds | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | str | None = None,
        type: str | None = None,  # noqa: A002 - AMQP's name
        message_id: str | None = None,
    ) -> str:
        """Send a message; returns its ``message_id``, made up if none is given.

        ``body``: str becomes UTF-8.  ``priority``: 0 to 9.  ``time_to_live``: the time until it
        expires, None: never; ``delivery_delay``: the time before which it is not delivered; both
        are seconds or a timedelta.  ``properties``: the values that selectors test.

        PublishRefused: its queue is full and refuses; StoreFailed; MessageReturned: its queue was
        just deleted; IllegalState; TypeError and ValueError.  A ChannelError, such as
        PreconditionFailed for a body above the limit, takes back all unacknowledged messages of the
        session, and ends its transaction: the next ``commit`` raises TransactionRolledBack.
        """
        address, message_properties = self._prepare(
            destination, persistent, priority, time_to_live, properties, correlation_id, reply_to,
            type, message_id,
        )  # fmt: skip
        with self._link.lock:
            self._link.check()
            if self._is_closed:
                raise IllegalState("The producer is closed")
            self._link.mend()
            exchange, key = self._address(address)
            channel = self._link.channel
            had_sent = self._link.has_sent
            try:
                self._link.has_sent = self._transacted
                channel.basic_publish(
                    exchange,
                    key,
                    body,
                    message_properties,
                    mandatory=self._wait and isinstance(address, Queue),
                    delay=delivery_delay,
                )
                # Also for transient messages: the confirm needs no disk, and a refusal that is not
                # awaited would be raised by the next send.
                if self._wait and not channel.wait_for_confirms():
                    raise channel._refusals.told()
            except Exception as error:
                if isinstance(error, NotFound):
                    self._ready.pop(address, None)
                if channel.closed:  # this one was not sent, and its caller gets the error
                    self._link.has_sent = had_sent
                self._link.mend(error)
                raise
        assert message_properties.message_id is not None
        return message_properties.message_id

    def _prepare(
        self,
        destination: Destination | None,
        persistent: bool,
        priority: int,
        time_to_live: Seconds | None,
        properties: Mapping[str, FieldValue] | None,
        correlation_id: str | None,
        reply_to: Destination | str | None,
        kind: str | None,
        message_id: str | None,
    ) -> tuple[Destination, Properties]:
        """The destination's address, and the properties."""
        if (destination is None) == (self.destination is None):
            raise IllegalState(
                "this producer has no destination: name one in send()"
                if destination is None
                else "this producer has a destination: name none in send()"
            )
        address = destination or self.destination
        assert address is not None
        if not isinstance(properties, Mapping | None):
            raise TypeError(f"properties must be a mapping, not {type(properties).__name__}")
        headers = dict(properties or {})
        expiration = None if not time_to_live else milliseconds_of(time_to_live)
        now = time.time()
        if expiration is not None:
            headers[EXPIRATION] = math.ceil(now * 1000) + expiration
        return address, Properties(
            headers=headers or None,
            delivery_mode=_PERSISTENT if flag("persistent", persistent) else _TRANSIENT,
            priority=integer("priority", priority, 0, _PRIORITY_MAX),
            expiration=expiration,
            correlation_id=correlation_id,
            reply_to=reply_to.name if isinstance(reply_to, Destination) else reply_to,
            message_id=f"ID:{uuid.uuid4()}" if message_id is None else message_id,
            timestamp=int(now),
            type=kind,
        )

    def _address(self, destination: Destination) -> tuple[str, str]:
        """Exchange and routing key; missing ones are declared."""
        if isinstance(destination, Queue):
            # Each time: a message to a deleted queue would be dropped, and confirmed.
            return self._declared(destination)
        found = self._ready.get(destination)
        if found is None:
            found = self._ready[destination] = self._declared(destination)
        return found

    def _declared(self, destination: Destination) -> tuple[str, str]:
        if isinstance(destination, Topic):
            if destination.is_pattern:
                raise ValueError(f"nothing is sent to {destination}: it stands for many topics")
            self._subscriptions.declare_topics()
            return TOPICS, destination.name
        if isinstance(destination, Groups):
            return destination.name, ""
        if isinstance(destination, Queue):
            self._subscriptions.declare_queue(destination)
            return "", destination.name
        raise TypeError(f"a destination is a Queue or a Topic, not {type(destination).__name__}")
