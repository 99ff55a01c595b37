"""The world of a script, as far as both sides agreed on it: channels, consumers, queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .script import Operation

LIMITS = frozenset(("x-max-length", "x-max-length-bytes"))


@dataclass
class Held:
    """A delivery that is out: its tag in the store and at the broker."""

    store_tag: int
    broker_tag: int
    queue: str
    consumer: str  # its tag, or "" for one that was got


@dataclass
class Consumer:
    queue: str
    auto_ack: bool
    exclusive: bool
    channel: int
    priority: int


@dataclass
class Channel:
    tx: bool = False
    limit: int = 0  # for the channel as a whole
    consumers: dict[str, Consumer] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    last_settled: Held | None = None
    # Of the transaction that is open.
    tx_publishes: bool = False
    tx_requeues: bool = False
    tx_settled: list[Held] = field(default_factory=list)


@dataclass
class World:
    """Both sides, as far as they agreed."""

    channels: list[Channel]
    arguments: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # of queues
    bound: set[str] = field(default_factory=set)  # queues that bindings have led to
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # of exclusive queues: their channels

    def consumers_of(self, queue: str) -> list[Consumer]:
        return [
            consumer
            for channel in self.channels
            for consumer in channel.consumers.values()
            if consumer.queue == queue
        ]

    # What queues do with messages: by their arguments.

    def bounded(self, queue: str) -> bool:
        return not LIMITS.isdisjoint(self.arguments.get(queue, ()))

    def refuses(self, queue: str) -> bool:
        overflow = self.arguments.get(queue, {}).get("x-overflow", "drop-head")
        return self.bounded(queue) and overflow != "drop-head"

    def expires_at_once(self, queue: str) -> bool:
        return self.arguments.get(queue, {}).get("x-message-ttl") == 0

    def emptied(self, operation: Operation) -> list[str]:
        """Queues that have nothing afterwards, because it expires at once."""
        emptied = [queue for queue in self.arguments if self.expires_at_once(queue)]
        if operation.verb == "publish":
            expiration = operation.arguments["properties"].get("expiration")
            emptied += self.targets(operation) if expiration == "0" else []
        return emptied

    def has_single_active_consumer(self, queue: str) -> bool:
        return bool(self.arguments.get(queue, {}).get("x-single-active-consumer"))

    def dead_letters_to(self, queue: str) -> list[str]:
        """Where dead letters of a queue may go."""
        arguments = self.arguments.get(queue, {})
        exchange = arguments.get("x-dead-letter-exchange")
        if exchange is None:
            return []
        if exchange:
            return sorted(self.bound)
        key = arguments.get("x-dead-letter-routing-key")
        return list(self.arguments) if key is None else [key] if key in self.arguments else []

    def passes_on(self, queue: str) -> bool:
        """Whether a message that comes to it may make a dead letter."""
        return self.bounded(queue) or self.expires_at_once(queue)

    def targets(self, operation: Operation) -> list[str]:
        """Queues that a publish may lead to."""
        arguments = operation.arguments
        if arguments["exchange"]:
            reached = set(self.bound)
        else:
            reached = {arguments["routing_key"]}
        headers = arguments["properties"].get("headers", {})
        for name in ("CC", "BCC"):
            keys = headers.get(name)
            reached |= set(keys) if isinstance(keys, list) else set()
        return sorted(reached & self.arguments.keys())
