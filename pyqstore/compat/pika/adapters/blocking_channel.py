"""pika's blocking channel, on a channel of a store."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ....channel import Channel
from ....errors import StoreFailed
from ....message import ReturnedMessage as StoreReturned
from .. import exceptions, spec
from ..frame import Method
from ..returned import ReturnedMessage
from .consuming import REPLY_TO, Consuming
from .link import Link
from .translating import translated

__all__ = ["BlockingChannel"]

_NOT_IMPLEMENTED = 540
_PRECONDITION_FAILED = 406

ReturnCallback = Callable[[Any, spec.Basic.Return, spec.BasicProperties, bytes], object]


class BlockingChannel(Consuming):
    """A channel, from ``BlockingConnection.channel``.

    An AMQP error closes the channel and is raised by the call that caused it: ChannelClosedByBroker
    with AMQP's code, or ConnectionClosedByBroker if the code is 500 or more.  A call on a closed
    channel raises ChannelWrongStateError.
    """

    def __init__(self, channel_impl: Channel, connection: Link) -> None:
        """See ``BlockingConnection.channel``."""
        super().__init__(channel_impl, connection)
        self._confirms = False
        self._returned: list[ReturnedMessage] = []
        self._return_callbacks: list[ReturnCallback] = []

    def __int__(self) -> int:
        return self.channel_number

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<{type(self).__name__} {self.channel_number} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_open:
            self.close()

    @property
    def connection(self) -> Link:
        """The connection of the channel."""
        return self._connection

    @property
    def is_closed(self) -> bool:
        """Whether the channel was closed, by ``close()`` or by an error."""
        return self._impl.closed

    @property
    def is_open(self) -> bool:
        """Whether the channel is open."""
        return not self.is_closed

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        """Cancel the consumers, and return unacknowledged messages to their queues."""
        self._check_open()
        self._cancel_all()
        self._end()

    def flow(self, active: bool) -> bool:
        """``active`` must be True, as in RabbitMQ: prefetch limits deliveries instead."""
        self._check_open()
        if not active:
            self._refuse(_NOT_IMPLEMENTED, "NOT_IMPLEMENTED - active=false")
        return True

    # ---- Publishing ----

    def confirm_delivery(self) -> None:
        """Let ``basic_publish`` wait for the confirm; a durable message is on disk by then."""
        if not self._confirms:
            self._do(self._impl.confirm_select)
            self._confirms = True
            self._listen_for_returns()

    def add_on_return_callback(self, callback: ReturnCallback) -> None:
        """Call ``callback(channel, method, properties, body)`` for each message that was published
        with ``mandatory`` and reached no queue."""
        self._listen_for_returns()
        self._return_callbacks.append(callback)

    def _listen_for_returns(self) -> None:
        if not self._impl._return_listeners:
            self._do(self._impl.add_return_listener, self._came_back)

    def _came_back(self, message: StoreReturned) -> None:
        method = spec.Basic.Return(
            message.reply_code, message.reply_text, message.exchange, message.routing_key
        )
        properties = spec.BasicProperties.of(message.properties)
        if self._confirms:
            self._returned.append(ReturnedMessage(method, properties, message.body))
        for callback in self._return_callbacks:
            self._connection._turns.ask(
                lambda call=callback: call(self, method, properties, message.body)  # type: ignore[misc]
            )

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes | str,
        properties: spec.BasicProperties | None = None,
        mandatory: bool = False,
    ) -> None:
        """Publish a message; after ``confirm_delivery``, wait until it is confirmed.

        After ``confirm_delivery`` this raises UnroutableError if a ``mandatory`` message reached no
        queue, and NackError if a full queue refused it.
        """
        encoded = None if properties is None else self._addressed(properties).encoded()
        self._do(self._impl.basic_publish, exchange, routing_key, body, encoded, mandatory)
        if not self._confirms:
            return
        confirmed = self._do(self._impl.wait_for_confirms)
        returned, self._returned = self._returned, []
        refusal = self._impl.refusal
        if isinstance(refusal, StoreFailed):
            self._fail(translated(refusal), refusal)
        if not confirmed:
            raise exceptions.NackError(returned) from refusal
        if returned:
            raise exceptions.UnroutableError(returned)

    def _addressed(self, properties: spec.BasicProperties) -> spec.BasicProperties:
        """The properties with ``reply_to`` replaced by the channel's reply queue, if it is
        ``amq.rabbitmq.reply-to``."""
        if properties.reply_to != REPLY_TO:
            return properties
        if self._reply_queue is None:
            self._refuse(
                _PRECONDITION_FAILED,
                "PRECONDITION_FAILED - fast reply consumer does not exist",
            )
        return spec.BasicProperties(**{**vars(properties), "reply_to": self._reply_queue})

    # ---- Transactions ----

    def tx_select(self) -> Method[spec.Tx.SelectOk]:
        """Hold back publishes and acknowledgements until ``tx_commit``."""
        self._do(self._impl.tx_select)
        return Method(self._number, spec.Tx.SelectOk())

    def tx_commit(self) -> Method[spec.Tx.CommitOk]:
        """Apply the transaction as a whole; it is durable when this returns."""
        self._do(self._impl.tx_commit)
        return Method(self._number, spec.Tx.CommitOk())

    def tx_rollback(self) -> Method[spec.Tx.RollbackOk]:
        """Discard the transaction."""
        self._do(self._impl.tx_rollback)
        return Method(self._number, spec.Tx.RollbackOk())

    # ---- Settling ----

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False
    ) -> None:
        """Limit the number of unacknowledged messages; 0 is no limit."""
        self._do(self._impl.basic_qos, prefetch_count, global_qos, prefetch_size=prefetch_size)

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledge a message, or with ``multiple`` all messages up to it; tag 0 with
        ``multiple`` is all unacknowledged messages."""
        self._do(self._impl.basic_ack, delivery_tag, multiple)

    def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True
    ) -> None:
        """Requeue a message, or dead-letter it, or drop it if its queue has no dead-letter
        exchange."""
        self._do(self._impl.basic_nack, delivery_tag, multiple, requeue)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """Like ``basic_nack``, for one message."""
        self._do(self._impl.basic_reject, delivery_tag, requeue)

    def basic_recover(self, requeue: bool = False) -> None:
        """Redeliver all unacknowledged messages."""
        self._do(self._impl.basic_recover, requeue)

    def basic_get(
        self, queue: str, auto_ack: bool = False
    ) -> tuple[spec.Basic.GetOk, spec.BasicProperties, bytes] | tuple[None, None, None]:
        """Get a message as (method, properties, body), or three times None if the queue is
        empty."""
        name = self._named(queue)
        message = self._do(self._impl.basic_get, name, auto_ack)
        if message is None:
            return None, None, None
        method = spec.Basic.GetOk(
            message.delivery_tag,
            message.redelivered,
            message.exchange,
            message.routing_key,
            self._ready(name),
        )
        return method, spec.BasicProperties.of(message.properties), message.body
