"""What is left out of scripts, and why: what RabbitMQ does not determine, and known differences.

A rule sees the world as it is before an operation, and the operation.  Every known difference is
also a row of docs/SEMANTICS.md, under the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .choices import MORE_EXPIRATIONS
from .script import Operation
from .world import World


@dataclass(frozen=True)
class Rule:
    name: str
    reason: str
    applies: Callable[[World, Operation], bool]
    example: tuple[Operation, ...] = ()  # differs, as long as the difference is one


REQUEUES = ("nack", "reject", "recover")


def requeues(operation: Operation) -> bool:
    return operation.verb in REQUEUES and bool(operation.arguments["requeue"])


def second_consumer(world: World, operation: Operation) -> bool:
    if operation.verb != "consume":
        return False
    queue = operation.arguments["queue"]
    consumers = world.consumers_of(queue)
    refused = operation.arguments["exclusive"] or any(each.exclusive for each in consumers)
    if refused or world.has_single_active_consumer(queue):
        return False
    priority = operation.arguments["arguments"].get("x-priority", 0)
    return any(each.channel != operation.channel or each.priority == priority for each in consumers)


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


def settled_queues(world: World, operation: Operation) -> list[str]:
    """Queues of the deliveries that an operation may settle."""
    channel = world.channels[operation.channel]
    pick = operation.arguments.get("pick")
    if operation.verb in ("recover", "close") or operation.arguments.get("multiple"):
        return sorted({held.queue for held in channel.held})
    if not isinstance(pick, int) or not channel.held:
        return []
    return [channel.held[pick % len(channel.held)].queue]


def letters_race(world: World, sources: list[str], ways: Counter[str], sequential: bool) -> bool:
    """Whether one queue is reached in two ways, by what ``sources`` may have to pass on.  A single
    message that goes from queue to queue is in one of them at a time."""
    branches = len(sources) + sum(ways.values()) > 1
    seen: set[str] = set()
    while sources:
        source = sources.pop()
        if source in seen:
            continue
        seen.add(source)
        reached = world.dead_letters_to(source)
        branches |= len(reached) > 1
        ways.update(reached)
        sources += [queue for queue in reached if world.passes_on(queue)]
    twice = any(count > 1 for count in ways.values())
    return twice and (branches or not sequential)


def dead_letters_race(world: World, operation: Operation) -> bool:
    channel = world.channels[operation.channel]
    if operation.verb == "publish" and not channel.tx:
        targets = world.targets(operation)
        sources = [queue for queue in targets if world.passes_on(queue)]
        sequential = len(operation.arguments["bodies"]) == 1 and len(targets) == 1
        return letters_race(world, sources, Counter(targets), sequential)
    if operation.verb in ("nack", "reject", "recover", "close") and not channel.tx:
        settled = settled_queues(world, operation)
        if operation.arguments.get("requeue", True):
            settled = [queue for queue in settled if world.bounded(queue)]
        return letters_race(world, settled, Counter(), not operation.arguments.get("multiple"))
    return False


def dead_letters_in_transaction(world: World, operation: Operation) -> bool:
    if not world.channels[operation.channel].tx or operation.verb not in ("publish", *REQUEUES):
        return False
    return any("x-dead-letter-exchange" in each for each in world.arguments.values())


def holds_from_bounded_queues(world: World, operation: Operation) -> bool:
    if operation.verb != "get" or operation.arguments["auto_ack"]:
        return False
    queue = operation.arguments["queue"]
    held = {held.queue for held in world.channels[operation.channel].held}
    return world.bounded(queue) and any(world.bounded(each) for each in held - {queue})


def consumes_what_expires_at_once(world: World, operation: Operation) -> bool:
    return operation.verb == "consume" and world.expires_at_once(operation.arguments["queue"])


def commits_to_waiting_consumer(world: World, operation: Operation) -> bool:
    publishes = world.channels[operation.channel].tx_publishes
    waiting = any(
        "x-max-priority" in arguments and world.consumers_of(queue)
        for queue, arguments in world.arguments.items()
    )
    return operation.verb == "tx_commit" and publishes and waiting


UNDETERMINED = (
    Rule(
        "consumers of a queue where messages expire at once",
        "in a store one that waits has 20 ms to take a message, which a busy machine may need",
        consumes_what_expires_at_once,
    ),
    Rule(
        "dead letters of several queues for one",
        "which comes first depends on who is quicker",
        dead_letters_race,
    ),
    Rule(
        "dead letters in a transaction",
        "as above; a transaction acts on many queues at once",
        dead_letters_in_transaction,
    ),
    Rule(
        "messages of two bounded queues on one channel",
        "when it closes, both drop what is too much, and their dead letters race",
        holds_from_bounded_queues,
    ),
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
    Rule(
        "a transaction's publishes to a queue with priorities and a consumer",
        "a broker pushes each when it comes, whatever its priority; a store's consumers ask after"
        " the commit, for the highest",
        commits_to_waiting_consumer,
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
CONSUME: Mapping[str, object] = {
    "queue": "q0",
    "tag": "t",
    "auto_ack": False,
    "exclusive": False,
    "arguments": {},
}


def declared(arguments: Mapping[str, object]) -> Operation:
    options = {"queue": "q0", "passive": False, "arguments": arguments}
    return Operation(0, "queue_declare", options)


def on_channel(*verbs: tuple[str, Mapping[str, object]]) -> tuple[Operation, ...]:
    """An example on the first channel, where two messages are in q0."""
    declare = {"queue": "q0", "passive": False}
    return tuple(
        Operation(0, verb, arguments)
        for verb, arguments in (("queue_declare", declare), ("publish", PUBLISH), *verbs)
    )


def queue_comes_under_transaction(world: World, operation: Operation) -> bool:
    if operation.verb != "queue_declare" or operation.arguments["queue"] in world.counts:
        return False
    return any(channel.tx_publishes for channel in world.channels)


def expires_behind(world: World, operation: Operation) -> bool:
    if operation.verb != "publish" or operation.arguments["properties"].get("expiration") != "0":
        return False
    channel, targets = world.channels[operation.channel], world.targets(operation)
    return channel.tx or any(
        len(targets) > 1 or world.counts.get(queue, (0, 0)) != (0, 0) or world.bounded(queue)
        for queue in targets
    )


def consumes_of_bounded_queue(world: World, operation: Operation) -> bool:
    return operation.verb == "consume" and world.bounded(operation.arguments["queue"])


def commits_to_refusing_queue(world: World, operation: Operation) -> bool:
    publishes = world.channels[operation.channel].tx_publishes
    refused = any(world.refuses(queue) for queue in world.arguments)
    return operation.verb == "tx_commit" and publishes and refused


def requeues_of_two_consumers(world: World, operation: Operation) -> bool:
    multiple = operation.verb == "recover" or operation.arguments.get("multiple")
    if not requeues(operation) or not multiple:
        return False
    held = world.channels[operation.channel].held
    ways = Counter(queue for queue, _ in {(each.queue, each.consumer) for each in held})
    return any(count > 1 for count in ways.values())


def differs_twice(world: World, operation: Operation) -> bool:
    """From the queue that there is, in more than one argument."""
    arguments = operation.arguments
    if operation.verb != "queue_declare" or arguments["passive"]:
        return False
    there = world.arguments.get(arguments["queue"])
    asked = arguments.get("arguments") or {}
    if there is None:
        return False
    names = there.keys() | asked.keys()
    return sum(bool(there.get(name) != asked.get(name)) for name in names) > 1


def limits_what_was_got(world: World, operation: Operation) -> bool:
    if operation.verb != "qos" or not operation.arguments["global_"]:
        return False
    channel = world.channels[operation.channel]
    return any(not held.consumer for held in channel.held + channel.tx_settled)


def expires_in_lazy_queue(world: World, operation: Operation) -> bool:
    if operation.verb != "publish" or "expiration" not in operation.arguments["properties"]:
        return False
    return any(
        arguments.get("x-queue-mode") == "lazy" and "x-dead-letter-exchange" in arguments
        for arguments in map(world.arguments.__getitem__, world.targets(operation))
    )


def expires_late(world: World, operation: Operation) -> bool:
    if operation.verb != "publish":
        return False
    return operation.arguments["properties"].get("expiration") in MORE_EXPIRATIONS


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
        "a queue that comes under a transaction",
        "a store routes to queues when it is published to; RabbitMQ to names, and looks for the"
        " queues when it commits: it finds new ones",
        queue_comes_under_transaction,
        on_channel(
            ("tx_select", {}),
            ("publish", {**PUBLISH, "mandatory": True}),
            ("queue_delete", {"queue": "q0", "if_unused": False, "if_empty": False}),
            ("queue_declare", {"queue": "q0", "passive": False}),
            ("tx_commit", {}),
        ),
    ),
    Rule(
        "a message that expires behind one that does not",
        "a store drops it where it is; RabbitMQ when it comes to the queue's head",
        expires_behind,
        on_channel(("publish", {**PUBLISH, "properties": {"expiration": "0"}})),
    ),
    Rule(
        "messages of basic.get that are out when a limit is set for the channel",
        "in a store they never count; RabbitMQ counts them, and for ever, acknowledged or not",
        limits_what_was_got,
        on_channel(("get", GET), ("qos", {"count": 1, "global_": True}), ("consume", CONSUME)),
    ),
    Rule(
        "which argument a 406 names, when several differ",
        "in a store the first by name; RabbitMQ has an order of its own",
        differs_twice,
        (
            declared({"x-max-length": 1, "x-message-ttl": 1}),
            declared({"x-max-length": 2, "x-message-ttl": 2}),
        ),
    ),
    Rule(
        "a dead letter's original-expiration, of a message that was on the disk",
        "in a store every dead letter tells it; RabbitMQ forgets it where it reads messages back",
        expires_in_lazy_queue,
        (
            declared({"x-queue-mode": "lazy", "x-dead-letter-exchange": "amq.fanout"}),
            Operation(0, "queue_declare", {"queue": "q1", "passive": False}),
            Operation(
                0,
                "queue_bind",
                {"queue": "q1", "exchange": "amq.fanout", "routing_key": "", "arguments": {}},
            ),
            Operation(
                0, "publish", {**PUBLISH, "bodies": (b"1",), "properties": {"expiration": "0"}}
            ),
            Operation(0, "get", {"queue": "q1", "auto_ack": True}),
        ),
    ),
    Rule(
        "expirations of more than 4294967294 ms, or with a plus sign",
        "a store keeps them in 32 bits, and takes digits only",
        expires_late,
        on_channel(("publish", {**PUBLISH, "properties": {"expiration": "4294967295"}})),
    ),
    Rule(
        "what several consumers of a queue have, requeued at once",
        "in a store all messages are back in their places before one is delivered; RabbitMQ"
        " requeues consumer by consumer, and delivers in between",
        requeues_of_two_consumers,
        on_channel(
            ("consume", CONSUME),
            ("consume", {**CONSUME, "tag": "u", "arguments": {"x-priority": 1}}),
            ("nack", {"pick": 0, "multiple": False, "requeue": True}),
            ("nack", {"pick": "all", "multiple": True, "requeue": True}),
        ),
    ),
    Rule(
        "consumers of a queue with a limit",
        "in a store messages are in the queue until a consumer's channel asks; RabbitMQ pushes them"
        " and counts what is left",
        consumes_of_bounded_queue,
        (
            declared({"x-max-length": 1}),
            Operation(0, "consume", CONSUME),
            Operation(0, "publish", PUBLISH),
        ),
    ),
    Rule(
        "a transaction for a queue that refuses",
        "a store refuses the transaction as a whole, 406; RabbitMQ commits the rest of it",
        commits_to_refusing_queue,
        (
            declared({"x-max-length": 1, "x-overflow": "reject-publish"}),
            Operation(0, "tx_select", {}),
            Operation(0, "publish", PUBLISH),
            Operation(0, "tx_commit", {}),
        ),
    ),
)
