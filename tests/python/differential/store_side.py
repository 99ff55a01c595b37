"""A store of pyqstore, as the side that is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyqstore

from ..support import sent
from .sides import CONFIRM_SECONDS, Confirms, Failure, Message, Side, described


class StoreSide(Side):
    def __init__(self, path: Path, channels: int) -> None:
        super().__init__(channels)
        self._store = pyqstore.open(path, sync="none")
        self._channels = [self._new_channel(index) for index in range(channels)]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._store.close()

    def apply(self, index: int, verb: str, arguments: Mapping[str, Any]) -> object:
        """The operation's result, or its Failure."""
        try:
            return getattr(self, verb)(index, **arguments)
        except pyqstore.ChannelError as error:
            return Failure(error.reply_code, self.names.aliased(error.reply_text))

    def closed(self, index: int) -> bool:
        return self._channels[index].closed

    def reopen(self, index: int) -> None:
        self._channels[index].close()
        self.confirms[index] = Confirms()
        self._channels[index] = self._new_channel(index)

    def settle(self) -> None:
        """Let everything happen that is to happen."""
        for index, channel in enumerate(self._channels):
            if self.confirms[index].selected and not channel.closed:
                channel.wait_for_confirms(CONFIRM_SECONDS)
        while any(not channel.closed and channel.process_events() for channel in self._channels):
            pass

    def counts(self) -> dict[str, tuple[int, int]]:
        """Ready messages and consumers of each queue."""
        counts = {}
        for name in self._store.queues():
            status = self._store.queue_status(name)
            ready, consumers = int(status["messages_ready"]), int(status["consumers"])
            counts[self.names.alias(name)] = (ready, consumers)
        return counts

    def exchanges(self) -> set[str]:
        return set(self._store.exchanges())

    def _new_channel(self, index: int) -> pyqstore.Channel:
        def on_confirm(number: int, multiple: bool) -> None:
            self.events[index].acked |= self.confirms[index].settled(number, multiple)

        def on_refusal(number: int, multiple: bool) -> None:
            self.events[index].nacked |= self.confirms[index].settled(number, multiple)

        def on_return(message: pyqstore.ReturnedMessage) -> None:
            code, text = message.reply_code, message.reply_text
            exchange, key, body = message.exchange, message.routing_key, message.body
            self.on_return(index, code, text, exchange, key, body, message.properties)

        channel = self._store.channel()
        channel.add_confirm_listener(on_confirm, on_refusal)
        channel.add_return_listener(on_return)
        channel.add_cancel_listener(lambda tag: self.events[index].cancelled.add(tag))
        return channel

    def _message(self, message: pyqstore.Message) -> Message:
        return Message(
            message.delivery_tag,
            message.exchange,
            self.names.alias(message.routing_key),
            message.redelivered,
            message.body,
            self.names.aliased(described(message.properties)),
        )

    # Verbs.

    def queue_declare(self, index: int, queue: str, passive: bool, **flags: Any) -> object:
        made_up = queue.startswith("@") and not passive
        name = "" if made_up else self.names.name(queue)
        answer = self._channels[index].queue_declare(name, passive=passive, **flags)
        if made_up:
            self.names.set(queue, answer.queue)
        return (self.names.alias(answer.queue), answer.message_count, answer.consumer_count)

    def queue_delete(self, index: int, queue: str, if_unused: bool, if_empty: bool) -> int:
        return self._channels[index].queue_delete(self.names.name(queue), if_unused, if_empty)

    def queue_purge(self, index: int, queue: str) -> int:
        return self._channels[index].queue_purge(self.names.name(queue))

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
        of = sent(**properties)
        for body in bodies:
            channel.basic_publish(exchange, key, body, of, mandatory)
            self.confirms[index].published(body)

    def confirm_select(self, index: int) -> None:
        self._channels[index].confirm_select()
        self.confirms[index].selected = True

    def get(self, index: int, queue: str, auto_ack: bool) -> Message | None:
        message = self._channels[index].basic_get(self.names.name(queue), auto_ack)
        return None if message is None else self._message(message)

    def consume(
        self,
        index: int,
        queue: str,
        tag: str,
        auto_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        def on_message(message: pyqstore.Message) -> None:
            self.events[index].deliver(tag, self._message(message))

        self._channels[index].basic_consume(
            self.names.name(queue),
            on_message,
            auto_ack=auto_ack,
            consumer_tag=tag,
            exclusive=exclusive,
            arguments=arguments,
        )

    def qos(self, index: int, count: int, global_: bool) -> None:
        self._channels[index].basic_qos(count, global_)
