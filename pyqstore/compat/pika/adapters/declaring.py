"""A channel's methods for exchanges, queues and bindings, and the base of all of its methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

from ....channel import Channel
from ....errors import Error
from .. import exceptions, spec
from ..exchange_type import ExchangeType
from ..frame import Method
from .link import Link
from .translating import CONNECTION_CODE, translated

__all__ = ["Declaring"]

P = ParamSpec("P")
R = TypeVar("R")

_NOT_FOUND = 404


class Declaring:
    """Exchanges, queues and bindings: calls of the engine, with its errors translated to pika's."""

    def __init__(self, channel_impl: Channel, connection: Link) -> None:
        """See ``BlockingConnection.channel``."""
        self._impl = channel_impl
        self._connection = connection
        self._number = 0
        self._last_queue = ""

    @property
    def channel_number(self) -> int:
        """The channel's number in its connection, from 1."""
        return self._number

    def _do(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the engine; raises its errors as pika's."""
        try:
            return verb(*args, **kwargs)
        except Error as error:
            self._fail(translated(error), error)

    def _fail(self, trouble: exceptions.AMQPError, cause: Error | None = None) -> NoReturn:
        """Closes the channel or connection that the error closes, and raises the error."""
        if isinstance(trouble, (exceptions.ConnectionClosed, exceptions.StreamLostError)):
            self._connection._end()
        elif isinstance(trouble, exceptions.ChannelClosed):
            self._end()
        raise trouble from cause

    def _refuse(self, code: int, text: str) -> NoReturn:
        """Raises an error of AMQP, as a broker would."""
        if code >= CONNECTION_CODE:
            self._fail(exceptions.ConnectionClosedByBroker(code, text))
        self._fail(exceptions.ChannelClosedByBroker(code, text))

    def _end(self) -> None:
        """Closes the channel."""
        self._impl.close()
        self._connection._forget(self)

    def _named(self, queue: str) -> str:
        """The queue's name; for "" the name of the queue that the channel declared last."""
        if not isinstance(queue, str):
            raise TypeError(f"queue must be a str, but got {queue!r}")
        if queue == "" and self._last_queue == "":
            self._refuse(_NOT_FOUND, "NOT_FOUND - no previously declared queue")
        return queue or self._last_queue

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: ExchangeType | str = ExchangeType.direct,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Exchange.DeclareOk]:
        """Declare an exchange; with ``passive`` only check that it exists."""
        self._do(
            self._impl.exchange_declare,
            exchange,
            exchange_type.value if isinstance(exchange_type, ExchangeType) else exchange_type,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        return Method(self._number, spec.Exchange.DeclareOk())

    def exchange_delete(
        self, exchange: str | None = None, if_unused: bool = False
    ) -> Method[spec.Exchange.DeleteOk]:
        """Delete an exchange, if it exists."""
        self._do(self._impl.exchange_delete, exchange or "", if_unused)
        return Method(self._number, spec.Exchange.DeleteOk())

    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Exchange.BindOk]:
        """Bind an exchange to another exchange."""
        self._do(self._impl.exchange_bind, destination, source, routing_key, arguments)
        return Method(self._number, spec.Exchange.BindOk())

    def exchange_unbind(
        self,
        destination: str | None = None,
        source: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Exchange.UnbindOk]:
        """Remove a binding of ``exchange_bind``."""
        self._do(
            self._impl.exchange_unbind, destination or "", source or "", routing_key, arguments
        )
        return Method(self._number, spec.Exchange.UnbindOk())

    def queue_declare(
        self,
        queue: str,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Queue.DeclareOk]:
        """Declare a queue.  For "" the store makes up a name, which is ``.method.queue`` of the
        answer.  A quorum queue becomes a durable classic queue whose messages are all persistent,
        as there are no other machines."""
        if not isinstance(queue, str):
            raise TypeError(f"queue must be a str, but got {queue!r}")
        is_quorum = (arguments or {}).get("x-queue-type") == "quorum"
        if is_quorum:
            arguments = _as_classic(arguments or {})
        answer = self._do(
            self._impl.queue_declare,
            queue,
            passive=passive,
            durable=durable or is_quorum,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        self._last_queue = answer.queue
        return Method(self._number, spec.Queue.DeclareOk(*answer))

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Queue.BindOk]:
        """Bind a queue to an exchange.  The routing key defaults to the queue's name."""
        name = self._named(queue)
        key = name if routing_key is None else routing_key
        self._do(self._impl.queue_bind, name, exchange, key, arguments)
        return Method(self._number, spec.Queue.BindOk())

    def queue_unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Method[spec.Queue.UnbindOk]:
        """Remove a binding of ``queue_bind``."""
        name = self._named(queue)
        key = name if routing_key is None else routing_key
        self._do(self._impl.queue_unbind, name, exchange, key, arguments)
        return Method(self._number, spec.Queue.UnbindOk())

    def queue_purge(self, queue: str) -> Method[spec.Queue.PurgeOk]:
        """Remove the ready messages."""
        purged = self._do(self._impl.queue_purge, self._named(queue))
        return Method(self._number, spec.Queue.PurgeOk(purged))

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False
    ) -> Method[spec.Queue.DeleteOk]:
        """Delete a queue, if it exists."""
        deleted = self._do(self._impl.queue_delete, self._named(queue), if_unused, if_empty)
        return Method(self._number, spec.Queue.DeleteOk(deleted))


def _as_classic(arguments: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in arguments.items()
        if name != "x-queue-type" and not name.startswith("x-quorum-")
    }
    return {**kept, "x-persistent": True}
