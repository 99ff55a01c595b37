"""What is left out of scripts, and why: what RabbitMQ does not determine, and known differences.

A rule sees the world as it is before an operation, and the operation.  Every known difference is
also a row of docs/SEMANTICS.md, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .script import Operation


@dataclass
class Held:
    """A delivery that is out: its tag in the store and at the broker."""

    store_tag: int
    broker_tag: int
    by_consumer: bool


@dataclass
class Consumer:
    queue: str
    auto_ack: bool
    exclusive: bool


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
    tx_lost_queue: bool = False
    tx_settled: list[Held] = field(default_factory=list)


@dataclass
class World:
    """Both sides, as far as they agreed."""

    channels: list[Channel]
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # of exclusive queues: their channels

    def consumers_of(self, queue: str) -> list[Consumer]:
        return [
            consumer
            for channel in self.channels
            for consumer in channel.consumers.values()
            if consumer.queue == queue
        ]


@dataclass(frozen=True)
class Rule:
    name: str
    reason: str
    applies: Callable[[World, Operation], bool]
    example: tuple[Operation, ...] = ()  # differs, as long as the difference is one


def requeues(operation: Operation) -> bool:
    return operation.verb in ("nack", "reject", "recover") and bool(operation.arguments["requeue"])


def second_consumer(world: World, operation: Operation) -> bool:
    if operation.verb != "consume":
        return False
    consumers = world.consumers_of(operation.arguments["queue"])
    refused = operation.arguments["exclusive"] or any(each.exclusive for each in consumers)
    return bool(consumers) and not refused


def consumers_share_limit(world: World, operation: Operation) -> bool:
    channel = world.channels[operation.channel]
    if operation.verb == "consume":
        return channel.limit > 0 and bool(channel.consumers)
    if operation.verb != "qos":
        return False
    limits = operation.arguments["global_"] and operation.arguments["count"] > 0
    return limits and len(channel.consumers) > 1


def requeues_under_limit(world: World, operation: Operation) -> bool:
    channel = world.channels[operation.channel]
    return requeues(operation) and channel.limit > 0 and bool(channel.consumers)


def requeues_and_publishes(world: World, operation: Operation) -> bool:
    channel = world.channels[operation.channel]
    if not channel.tx:
        return False
    return (requeues(operation) and channel.tx_publishes) or (
        operation.verb == "publish" and channel.tx_requeues
    )


UNDETERMINED = (
    Rule(
        "a second consumer of a queue",
        "which of two gets a message depends on who is quicker",
        second_consumer,
    ),
    Rule(
        "consumers that share a channel's limit",
        "their queues race for the place that becomes free",
        consumers_share_limit,
    ),
    Rule(
        "a requeue under a channel's limit",
        "the free place is told to the queue beside the requeue and may overtake it",
        requeues_under_limit,
    ),
    Rule(
        "requeues and publishes in one transaction",
        "a broker pushes the published message before it hears of the requeue; a store's consumers"
        " ask after the commit",
        requeues_and_publishes,
    ),
)


PUBLISH: Mapping[str, object] = {
    "exchange": "",
    "routing_key": "q0",
    "bodies": (b"1", b"2"),
    "properties": {},
    "mandatory": False,
}
GET: Mapping[str, object] = {"queue": "q0", "auto_ack": False}


def on_channel(*verbs: tuple[str, Mapping[str, object]]) -> tuple[Operation, ...]:
    """An example on the first channel, where two messages are in q0."""
    declare = {"queue": "q0", "passive": False}
    return tuple(
        Operation(0, verb, arguments)
        for verb, arguments in (("queue_declare", declare), ("publish", PUBLISH), *verbs)
    )


def recovers_in_transaction(world: World, operation: Operation) -> bool:
    recovers = operation.verb == "recover" and operation.arguments["requeue"]
    return bool(recovers) and world.channels[operation.channel].tx


def queue_changes_under_transaction(world: World, operation: Operation) -> bool:
    if operation.verb == "tx_commit":
        return world.channels[operation.channel].tx_lost_queue
    if operation.verb != "queue_declare" or operation.arguments["queue"] in world.counts:
        return False
    return any(channel.tx_publishes for channel in world.channels)


def gets_under_limit(world: World, operation: Operation) -> bool:
    channel = world.channels[operation.channel]
    if operation.verb == "get":
        return channel.limit > 0 and not operation.arguments["auto_ack"]
    if operation.verb != "qos" or not operation.arguments["global_"]:
        return False
    return any(not held.by_consumer for held in channel.held + channel.tx_settled)


def unbinds_locked_queue(world: World, operation: Operation) -> bool:
    if operation.verb != "queue_unbind":
        return False
    return world.owners.get(operation.arguments["queue"], operation.channel) != operation.channel


KNOWN = (
    Rule(
        "queue.unbind of nothing at another's exclusive queue",
        "a store says that the queue is locked; RabbitMQ only if there is such a binding",
        unbinds_locked_queue,
        (
            Operation(0, "queue_declare", {"queue": "q0", "passive": False, "exclusive": True}),
            Operation(
                1,
                "queue_unbind",
                {"queue": "q0", "exchange": "amq.direct", "routing_key": "k", "arguments": {}},
            ),
        ),
    ),
    Rule(
        "basic.recover in a transaction",
        "a store requeues with the commit, as it does with basic.nack; RabbitMQ at once",
        recovers_in_transaction,
        on_channel(("tx_select", {}), ("get", GET), ("recover", {"requeue": True})),
    ),
    Rule(
        "a queue that comes or goes under a transaction",
        "a store routes to queues when it is published to; RabbitMQ to names, and looks for the"
        " queues when it commits: it returns what has none by then, and finds new ones",
        queue_changes_under_transaction,
        on_channel(
            ("tx_select", {}),
            ("publish", {**PUBLISH, "mandatory": True}),
            ("queue_delete", {"queue": "q0", "if_unused": False, "if_empty": False}),
            ("tx_commit", {}),
        ),
    ),
    Rule(
        "basic.get and the channel's limit",
        "in a store every unacknowledged message counts; RabbitMQ counts those of basic.get only"
        " if they were there when the limit was set, and then for ever",
        gets_under_limit,
        on_channel(
            ("qos", {"count": 1, "global_": True}),
            ("get", GET),
            ("consume", {"queue": "q0", "tag": "t", "auto_ack": False, "exclusive": False}),
        ),
    ),
)
