"""The messages that sessions deliver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol, Self

from .. import _core
from ..fields import FieldValue
from ..properties import Properties
from .destinations import Destination

__all__ = ["EXPIRATION", "Message"]

EXPIRATION = "JMSExpiration"
_PERSISTENT = 2


class Owner(Protocol):
    """The consumer that a message belongs to."""

    def _acknowledge(self, message: Message) -> None: ...


class Message:
    """One delivery of a message: from ``receive``, a listener or ``browse``."""

    __slots__ = ("_again", "_owner", "_raw", "_tag", "destination", "is_settled")

    destination: Destination
    """The destination from which its consumer receives."""

    def __init__(
        self, raw: _core.Message, owner: Owner | None, destination: Destination, again: int = 0
    ) -> None:
        """``again``: the number of earlier deliveries by its consumer."""
        self._raw = raw
        self._tag: int = raw.delivery_tag
        self._owner = owner
        self._again = again
        self.destination = destination
        self.is_settled: bool = False
        """Whether the message was acknowledged or dead-lettered."""

    def __repr__(self) -> str:
        again = f", delivery {self.delivery_count}" if self.redelivered else ""
        return f"<{type(self).__name__} of {self.destination}: {len(self.body)} bytes{again}>"

    @property
    def body(self) -> bytes:
        """What was sent."""
        return self._raw.body

    @property
    def text(self) -> str:
        """The body as UTF-8.  UnicodeDecodeError: it is not UTF-8."""
        return self._raw.body.decode()

    def json(self) -> Any:
        """The body as JSON.  ValueError: it is not JSON."""
        return self._raw.json()

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self._raw.redelivered or self._again > 0

    @property
    def delivery_count(self) -> int:
        """The number of this delivery, from 1."""
        return self._deliveries_before + 1

    @property
    def routing_key(self) -> str:
        """The name of the queue or topic to which the message was sent."""
        return self._raw.routing_key

    @property
    def amqp(self) -> Properties:
        """All AMQP properties."""
        return self._raw.properties

    @property
    def properties(self) -> Mapping[str, FieldValue]:
        """The sender's properties: AMQP's headers."""
        headers = self._raw.properties.headers
        if EXPIRATION not in headers:
            return headers
        return {name: value for name, value in headers.items() if name != EXPIRATION}

    @property
    def persistent(self) -> bool:
        """Whether the message survives a restart."""
        return self._raw.properties.delivery_mode == _PERSISTENT

    @property
    def priority(self) -> int:
        """0 to 255; 4 by default."""
        priority = self._raw.properties.priority
        return 4 if priority is None else priority

    @property
    def message_id(self) -> str | None:
        """The sender's name of the message."""
        return self._raw.properties.message_id

    @property
    def correlation_id(self) -> str | None:
        """For example the message that this one answers."""
        return self._raw.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        """The queue that answers go to."""
        return self._raw.properties.reply_to

    @property
    def type(self) -> str | None:
        """The sender's name of its kind."""
        return self._raw.properties.type

    @property
    def timestamp(self) -> int | None:
        """The time of sending, in seconds since 1970."""
        return self._raw.properties.timestamp

    def acknowledge(self) -> None:
        """Acknowledge, in mode "client", all messages that the session has delivered, in mode
        "individual" this message; in other modes nothing happens.

        IllegalState: the session is closed, or this delivery was taken back, and the message is
        delivered again.  In a session of mode "client" that is so when an error has closed the
        session's channel; after ``recover()`` this message stands for the session as before.
        """
        if self._owner is not None:
            self._owner._acknowledge(self)

    # Called by its consumer.

    @property
    def _deliveries_before(self) -> int:
        return self._raw.delivery_count + self._again

    @property
    def _is_expired(self) -> bool:
        """By the producer's expiration; the engine checked it before the push."""
        if not self._raw._has_expiration:
            return False
        due = self._raw.properties.headers.get(EXPIRATION)
        return isinstance(due, int) and 0 < due <= time.time() * 1000

    def _next(self) -> Self:
        """The delivery after this one."""
        return type(self)(self._raw, self._owner, self.destination, self._again + 1)
