"""pika's classes of AMQP methods and properties, as far as programs of ``BlockingConnection`` use
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ...properties import Properties
from .delivery_mode import DeliveryMode

__all__ = [
    "PERSISTENT_DELIVERY_MODE",
    "TRANSIENT_DELIVERY_MODE",
    "Basic",
    "BasicProperties",
    "Exchange",
    "Queue",
    "Shown",
    "Tx",
]

PERSISTENT_DELIVERY_MODE: int = 2
TRANSIENT_DELIVERY_MODE: int = 1


class Shown:
    """Has equality and a repr by its attributes."""

    NAME: ClassVar[str] = ""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = sorted(f"{name}={value}" for name, value in vars(self).items() if value is not None)
        return f"<{self.NAME}({shown})>" if shown else f"<{self.NAME}>"


class _Method(Shown):
    """A method of AMQP.  ``INDEX`` is the class's number and the method's, 16 bits each."""

    INDEX: ClassVar[int] = 0


class Basic:
    """Methods for messages."""

    class Deliver(_Method):
        """Describes a message of a consumer."""

        NAME: ClassVar[str] = "Basic.Deliver"
        INDEX: ClassVar[int] = 0x003C003C

        def __init__(
            self,
            consumer_tag: str | None = None,
            delivery_tag: int | None = None,
            redelivered: bool = False,
            exchange: str | None = None,
            routing_key: str | None = None,
        ) -> None:
            self.consumer_tag: str | None = consumer_tag
            self.delivery_tag: int | None = delivery_tag
            self.redelivered: bool = redelivered
            self.exchange: str | None = exchange
            self.routing_key: str | None = routing_key

    class GetOk(_Method):
        """Describes a message of ``basic_get``, with the number of ready messages behind it."""

        NAME: ClassVar[str] = "Basic.GetOk"
        INDEX: ClassVar[int] = 0x003C0047

        def __init__(
            self,
            delivery_tag: int | None = None,
            redelivered: bool = False,
            exchange: str | None = None,
            routing_key: str | None = None,
            message_count: int | None = None,
        ) -> None:
            self.delivery_tag: int | None = delivery_tag
            self.redelivered: bool = redelivered
            self.exchange: str | None = exchange
            self.routing_key: str | None = routing_key
            self.message_count: int | None = message_count

    class Return(_Method):
        """The reason why a message was returned."""

        NAME: ClassVar[str] = "Basic.Return"
        INDEX: ClassVar[int] = 0x003C0032

        def __init__(
            self,
            reply_code: int | None = None,
            reply_text: str = "",
            exchange: str | None = None,
            routing_key: str | None = None,
        ) -> None:
            self.reply_code: int | None = reply_code
            self.reply_text: str = reply_text
            self.exchange: str | None = exchange
            self.routing_key: str | None = routing_key

    class Cancel(_Method):
        """A consumer was cancelled because its queue was deleted."""

        NAME: ClassVar[str] = "Basic.Cancel"
        INDEX: ClassVar[int] = 0x003C001E

        def __init__(self, consumer_tag: str | None = None, nowait: bool = False) -> None:
            self.consumer_tag: str | None = consumer_tag
            self.nowait: bool = nowait


class Queue:
    """Methods for queues."""

    class DeclareOk(_Method):
        """A queue's name, and its numbers of messages and consumers."""

        NAME: ClassVar[str] = "Queue.DeclareOk"
        INDEX: ClassVar[int] = 0x0032000B

        def __init__(
            self,
            queue: str | None = None,
            message_count: int | None = None,
            consumer_count: int | None = None,
        ) -> None:
            self.queue: str | None = queue
            self.message_count: int | None = message_count
            self.consumer_count: int | None = consumer_count

    class BindOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Queue.BindOk"
        INDEX: ClassVar[int] = 0x00320015

    class UnbindOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Queue.UnbindOk"
        INDEX: ClassVar[int] = 0x00320033

    class PurgeOk(_Method):
        """The number of purged messages."""

        NAME: ClassVar[str] = "Queue.PurgeOk"
        INDEX: ClassVar[int] = 0x0032001F

        def __init__(self, message_count: int | None = None) -> None:
            self.message_count: int | None = message_count

    class DeleteOk(_Method):
        """The number of messages that were deleted with the queue."""

        NAME: ClassVar[str] = "Queue.DeleteOk"
        INDEX: ClassVar[int] = 0x00320029

        def __init__(self, message_count: int | None = None) -> None:
            self.message_count: int | None = message_count


class Exchange:
    """Methods for exchanges."""

    class DeclareOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Exchange.DeclareOk"
        INDEX: ClassVar[int] = 0x0028000B

    class DeleteOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Exchange.DeleteOk"
        INDEX: ClassVar[int] = 0x00280015

    class BindOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Exchange.BindOk"
        INDEX: ClassVar[int] = 0x0028001F

    class UnbindOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Exchange.UnbindOk"
        INDEX: ClassVar[int] = 0x00280033


class Tx:
    """Methods for transactions."""

    class SelectOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Tx.SelectOk"
        INDEX: ClassVar[int] = 0x005A000B

    class CommitOk(_Method):
        """Done; the transaction is durable."""

        NAME: ClassVar[str] = "Tx.CommitOk"
        INDEX: ClassVar[int] = 0x005A0015

    class RollbackOk(_Method):
        """Done."""

        NAME: ClassVar[str] = "Tx.RollbackOk"
        INDEX: ClassVar[int] = 0x005A001F


class BasicProperties(Shown):
    """The mutable properties of a message; None is not set."""

    NAME: ClassVar[str] = "BasicProperties"
    INDEX: ClassVar[int] = 0x003C

    def __init__(
        self,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delivery_mode: int | DeliveryMode | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expiration: str | None = None,
        message_id: str | None = None,
        timestamp: int | None = None,
        type: str | None = None,  # noqa: A002 - AMQP's name
        user_id: str | None = None,
        app_id: str | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.content_type: str | None = content_type
        self.content_encoding: str | None = content_encoding
        self.headers: Mapping[str, Any] | None = headers
        mode = delivery_mode.value if isinstance(delivery_mode, DeliveryMode) else delivery_mode
        self.delivery_mode: int | None = mode
        self.priority: int | None = priority
        self.correlation_id: str | None = correlation_id
        self.reply_to: str | None = reply_to
        self.expiration: str | None = expiration
        self.message_id: str | None = message_id
        self.timestamp: int | None = timestamp
        self.type: str | None = type
        self.user_id: str | None = user_id
        self.app_id: str | None = app_id
        self.cluster_id: str | None = cluster_id

    @classmethod
    def of(cls, properties: Properties) -> Self:
        """The properties of a message of a store."""
        return cls(**properties.asdict())

    def encoded(self) -> Properties:
        """The properties for a store.  TypeError and ValueError name the invalid property."""
        values = {name: getattr(self, name) for name in _PROPERTIES}
        if isinstance(self.delivery_mode, DeliveryMode):  # it may be assigned after the constructor
            values["delivery_mode"] = self.delivery_mode.value
        return Properties(**values)


_PROPERTIES = tuple(vars(BasicProperties()))
