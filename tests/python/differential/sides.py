"""What the two that are compared have in common: messages, events, names, and one face."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyqstore.properties import NAMES

CONFIRM_SECONDS = 10
RECENT_SECONDS = 300
POLL_SECONDS = 0.004


@dataclass(frozen=True)
class Message:
    """What is compared of a delivery, and its tag, which is not always."""

    tag: int = field(compare=False)
    exchange: str
    routing_key: str
    redelivered: bool
    body: bytes
    properties: str


@dataclass(frozen=True)
class Failure:
    """An AMQP error."""

    code: int
    text: str


@dataclass
class Events:
    """What came to a channel unasked during one operation."""

    deliveries: dict[str, list[Message]] = field(default_factory=dict)
    tags: set[int] = field(default_factory=set)
    returned: list[tuple[int, str, str, str, bytes, str]] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    nacked: set[int] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    # Places where a return came behind the confirm of its message.
    late_returns: list[bytes] = field(default_factory=list)

    def deliver(self, consumer_tag: str, message: Message) -> None:
        self.deliveries.setdefault(consumer_tag, []).append(message)
        self.tags.add(message.tag)


def described(properties: object) -> str:
    """Properties as text: equal values are equal texts, whatever type carried them."""
    present = {name: getattr(properties, name) for name in NAMES}
    told = {name: plain(value) for name, value in present.items() if value not in (None, {})}
    for death in told.get("headers", {}).get("x-death", ()):
        death["time"] = abs(death["time"][1] - time.time()) < RECENT_SECONDS
    return repr(told)


def plain(value: object) -> Any:
    if isinstance(value, datetime):
        return ("time", int(value.timestamp()))
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # pika has a type of its own for large ones
    return value


class Names:
    """Aliases of what the server named, and back."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}

    def set(self, alias: str, name: str) -> None:
        self._names[alias] = name
        self._aliases[name] = alias

    def name(self, alias: str) -> str:
        return self._names.get(alias, alias)

    def alias(self, name: str) -> str:
        return self._aliases.get(name, name)

    def aliased(self, text: str) -> str:
        for name, alias in self._aliases.items():
            text = text.replace(name, alias)
        return text


class Confirms:
    """Publish numbers of a channel, and which of them are open."""

    def __init__(self) -> None:
        self.selected = False
        self.bodies: dict[int, bytes] = {}
        self._last = 0
        self._settled: dict[bytes, bool] = {}

    def published(self, body: bytes) -> None:
        if self.selected:
            self._last += 1
            self.bodies[self._last] = body

    def settled(self, number: int, multiple: bool) -> set[int]:
        numbers = {each for each in self.bodies if each <= number} if multiple else {number}
        for each in numbers:
            self._settled[self.bodies.pop(each)] = True
        return numbers

    def is_settled(self, body: bytes) -> bool:
        return bool(body) and body in self._settled


class Side:
    """What both have: names, events, and verbs found by name."""

    _channels: list[Any]

    def __init__(self, channels: int) -> None:
        self.names = Names()
        self.events = [Events() for _ in range(channels)]
        self.confirms = [Confirms() for _ in range(channels)]

    def begin(self) -> None:
        self.events = [Events() for _ in self.events]

    def on_return(
        self, channel: int, code: int, text: str, exchange: str, key: str, body: bytes, of: object
    ) -> None:
        events = self.events[channel]
        if self.confirms[channel].is_settled(body):
            events.late_returns.append(body)
        properties = self.names.aliased(described(of))
        events.returned.append((code, text, exchange, self.names.alias(key), body, properties))

    # Verbs that are the same.

    def exchange_declare(self, index: int, exchange: str, **options: Any) -> None:
        self._channels[index].exchange_declare(exchange, **options)

    def exchange_delete(self, index: int, exchange: str, if_unused: bool) -> None:
        self._channels[index].exchange_delete(exchange, if_unused)

    def exchange_bind(self, index: int, **arguments: Any) -> None:
        self._channels[index].exchange_bind(**arguments)

    def exchange_unbind(self, index: int, **arguments: Any) -> None:
        self._channels[index].exchange_unbind(**arguments)

    def queue_bind(self, index: int, queue: str, **arguments: Any) -> None:
        self._channels[index].queue_bind(self.names.name(queue), **arguments)

    def queue_unbind(self, index: int, queue: str, **arguments: Any) -> None:
        self._channels[index].queue_unbind(self.names.name(queue), **arguments)

    def tx_select(self, index: int) -> None:
        self._channels[index].tx_select()

    def tx_commit(self, index: int) -> None:
        self._channels[index].tx_commit()

    def tx_rollback(self, index: int) -> None:
        self._channels[index].tx_rollback()

    def cancel(self, index: int, tag: str) -> None:
        self._channels[index].basic_cancel(tag)

    def ack(self, index: int, tag: int, multiple: bool) -> None:
        self._channels[index].basic_ack(tag, multiple)

    def nack(self, index: int, tag: int, multiple: bool, requeue: bool) -> None:
        self._channels[index].basic_nack(tag, multiple, requeue)

    def reject(self, index: int, tag: int, requeue: bool) -> None:
        self._channels[index].basic_reject(tag, requeue)

    def recover(self, index: int, requeue: bool) -> None:
        self._channels[index].basic_recover(requeue)

    def close_channel(self, index: int) -> None:
        self._channels[index].close()
