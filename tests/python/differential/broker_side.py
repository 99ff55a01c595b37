"""A RabbitMQ node through pika, as the side that a store is compared with.

Each script channel has a connection of its own: there an error of a connection ends one channel,
and an exclusive queue belongs to one, as in a store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from .sides import POLL_SECONDS, Confirms, Failure, Message, Side, described


class Server(Protocol):
    """What a side is behind: RabbitMQ, or a listener."""

    def parameters(self) -> pika.ConnectionParameters: ...


class BrokerSide(Side):
    """pika's blocking channels.  Confirms and returns are taken from the channel beneath, which
    tells them in the order in which they come and waits for none."""

    def __init__(self, broker: Server, channels: int) -> None:
        super().__init__(channels)
        self._parameters = broker.parameters()
        self._connections: list[BlockingConnection] = []
        self._channels: list[BlockingChannel] = []
        self._observers: dict[BlockingConnection, BlockingChannel] = {}
        self._owners: dict[str, int] = {}  # of exclusive queues
        self._bound: list[Mapping[str, Any]] = []  # exchanges to others, which may outlive them all
        self._control = BlockingConnection(self._parameters)
        for index in range(channels):
            connection = BlockingConnection(self._parameters)
            self._connections.append(connection)
            self._channels.append(self._new_channel(index, connection))

    def close(self) -> None:
        for connection in (*self._connections, self._control):
            self._close_connection(connection)

    def clear(self, queues: Iterable[str], exchanges: Iterable[str], timeout: float) -> None:
        """Delete what a script may have left, once its channels are gone."""
        for connection in self._connections:
            self._close_connection(connection)
        deadline = time.monotonic() + timeout
        for alias in queues:
            while not self._deleted(self.names.name(alias)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"queue {alias!r} is still locked")
        for binding in self._bound:
            self._observer(self._control).exchange_unbind(**binding)
        for exchange in exchanges:
            self._observer(self._control).exchange_delete(exchange)

    def apply(self, index: int, verb: str, arguments: Mapping[str, Any]) -> object:
        """The operation's result, or its Failure."""
        try:
            result = getattr(self, verb)(index, **arguments)
            if self._channels[index].is_open:
                self._channels[index].flow(True)  # answered behind what the channel did before
        except (
            pika.exceptions.ChannelClosedByBroker,
            pika.exceptions.ConnectionClosedByBroker,
        ) as error:
            return Failure(error.reply_code, self.names.aliased(error.reply_text))
        return result

    def closed(self, index: int) -> bool:
        return not self._channels[index].is_open

    def end(self, index: int) -> None:
        """A channel that is closed takes its connection with it."""
        self._close_connection(self._connections[index])

    def reopen(self, index: int) -> None:
        self.end(index)
        self.confirms[index] = Confirms()
        self._connections[index] = BlockingConnection(self._parameters)
        self._channels[index] = self._new_channel(index, self._connections[index])

    def pump(self, wait: bool) -> None:
        """Take what has come; ``wait`` a moment for it."""
        for connection in self._connections:
            if connection.is_open:
                connection.process_data_events(POLL_SECONDS if wait else 0)

    def count(self, alias: str) -> tuple[int, int] | int:
        """Ready messages and consumers of a queue, or the code of the error."""
        connection = self._connections[self._owners[alias]] if alias in self._owners else None
        if connection is None or not connection.is_open:
            connection = self._control
        try:
            answer = self._observer(connection).queue_declare(self.names.name(alias), passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return int(error.reply_code)
        return (answer.method.message_count, answer.method.consumer_count)

    def has_exchange(self, name: str) -> bool:
        try:
            self._observer(self._control).exchange_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            return False
        return True

    def _deleted(self, name: str) -> bool:
        try:
            self._observer(self._control).queue_delete(name)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 405:
                raise
            return False
        return True

    def _observer(self, connection: BlockingConnection) -> BlockingChannel:
        """A channel beside the script's: looking must change nothing there."""
        channel = self._observers.get(connection)
        if channel is None or not channel.is_open:
            channel = self._observers[connection] = connection.channel()
        return channel

    def _close_connection(self, connection: BlockingConnection) -> None:
        self._observers.pop(connection, None)
        with suppress(pika.exceptions.AMQPError):
            if connection.is_open:
                connection.close()

    def _new_channel(self, index: int, connection: BlockingConnection) -> BlockingChannel:
        def on_return(_: object, method: Any, properties: object, body: bytes) -> None:
            code, text = method.reply_code, method.reply_text
            self.on_return(index, code, text, method.exchange, method.routing_key, body, properties)

        def on_cancel(frame: Any) -> None:
            self.events[index].cancelled.add(frame.method.consumer_tag)

        channel = connection.channel()
        channel._impl.add_on_return_callback(on_return)
        channel.add_on_cancel_callback(on_cancel)
        return channel

    def _message(self, method: Any, properties: object, body: bytes) -> Message:
        return Message(
            method.delivery_tag,
            method.exchange,
            self.names.alias(method.routing_key),
            method.redelivered,
            body,
            self.names.aliased(described(properties)),
        )

    # Verbs.

    def exchange_bind(self, index: int, **arguments: Any) -> None:
        super().exchange_bind(index, **arguments)
        self._bound.append(arguments)

    def queue_declare(self, index: int, queue: str, passive: bool, **flags: Any) -> object:
        made_up = queue.startswith("@") and not passive
        name = "" if made_up else self.names.name(queue)
        answer = self._channels[index].queue_declare(name, passive=passive, **flags).method
        if made_up:
            self.names.set(queue, answer.queue)
        if flags.get("exclusive") and not passive:
            self._owners[queue] = index
        elif not passive:
            self._owners.pop(queue, None)
        return (self.names.alias(answer.queue), answer.message_count, answer.consumer_count)

    def queue_delete(self, index: int, queue: str, if_unused: bool, if_empty: bool) -> int:
        channel, name = self._channels[index], self.names.name(queue)
        return int(channel.queue_delete(name, if_unused, if_empty).method.message_count)

    def queue_purge(self, index: int, queue: str) -> int:
        answer = self._channels[index].queue_purge(self.names.name(queue))
        return int(answer.method.message_count)

    def publish(
        self,
        index: int,
        exchange: str,
        routing_key: str,
        bodies: Iterable[bytes],
        properties: Mapping[str, Any],
        mandatory: bool,
    ) -> None:
        channel, key = self._channels[index], self.names.name(routing_key)
        of = pika.BasicProperties(**properties)
        for body in bodies:
            self.confirms[index].published(body)
            channel.basic_publish(exchange, key, body, of, mandatory)

    def confirm_select(self, index: int) -> None:
        def on_confirm(frame: Any) -> None:
            method, events = frame.method, self.events[index]
            numbers = self.confirms[index].settled(method.delivery_tag, method.multiple)
            if isinstance(method, pika.spec.Basic.Ack):
                events.acked |= numbers
            else:
                events.nacked |= numbers

        if self.confirms[index].selected:
            return
        self._channels[index]._impl.confirm_delivery(on_confirm)
        self._channels[index].flow(True)  # or the error
        self.confirms[index].selected = True

    def get(self, index: int, queue: str, auto_ack: bool) -> Message | None:
        name = self.names.name(queue)
        method, properties, body = self._channels[index].basic_get(name, auto_ack)
        return None if method is None else self._message(method, properties, body)

    def consume(
        self,
        index: int,
        queue: str,
        tag: str,
        auto_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        def on_message(_: object, method: Any, properties: object, body: bytes) -> None:
            self.events[index].deliver(tag, self._message(method, properties, body))

        self._channels[index].basic_consume(
            self.names.name(queue), on_message, auto_ack, exclusive, tag, arguments
        )

    def qos(self, index: int, count: int, global_: bool) -> None:
        self._channels[index].basic_qos(prefetch_count=count, global_qos=global_)
