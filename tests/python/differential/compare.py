"""Play a script on both sides, operation by operation, until they differ; shrink what differs.

RabbitMQ is asynchronous: after each operation the broker's side is looked at until it shows what
the store showed, or until patience ends.  What comes too much is seen with the next operation.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .broker_side import BrokerSide, Server
from .choices import CHANNELS, EXCHANGES
from .rules import KNOWN, UNDETERMINED, Rule
from .script import Operation
from .sides import POLL_SECONDS, Events, Failure, Message
from .store_side import StoreSide
from .world import Channel, Consumer, Held, World

RULES = (*UNDETERMINED, *KNOWN)
PATIENCE_SECONDS = 5.0
SHRINKING_PATIENCE_SECONDS = 0.5
SHRINKING_SECONDS = 100.0
MAY_CHANGE_EXCHANGES = frozenset(
    {"exchange_declare", "exchange_delete", "exchange_unbind", "queue_delete", "queue_unbind"}
    | {"cancel", "close"}
)
# Errors that say the same in other words, by a part of one of the texts.
OTHER_TEXTS = ("invalid arg", "invalid expiration", "invalid header")
EVENT_NAMES = tuple(each.name for each in fields(Events))
SETTLES = frozenset(("ack", "nack", "reject"))


@dataclass
class Difference:
    what: str
    store: object
    broker: object
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join((*self.trace, f"{self.what}:", *self.pair()))

    def pair(self) -> tuple[str, str]:
        return f"    store   {self.store!r}", f"    broker  {self.broker!r}"


def find_difference(
    script: Sequence[Operation],
    broker: Server,
    patience: float = PATIENCE_SECONDS,
    rules: Sequence[Rule] = RULES,
) -> Difference | None:
    directory = Path(tempfile.mkdtemp(prefix="qs-differential-"))
    try:
        run = Run(directory / "store", broker, patience, rules)
        try:
            return run.play(script)
        finally:
            run.close()
    finally:
        shutil.rmtree(directory)


def shrink(
    script: Sequence[Operation], broker: Server, rules: Sequence[Rule] = RULES
) -> tuple[list[Operation], Difference]:
    """Leave out operations, in ever smaller pieces, as long as the rest still differs."""
    shortest = list(script)
    found = find_difference(shortest, broker, rules=rules)
    if found is None:
        raise AssertionError("a difference that was there is gone: the server was not quiescent")
    deadline = time.monotonic() + SHRINKING_SECONDS
    size = len(shortest) // 2
    while size > 0 and time.monotonic() < deadline:
        at = 0
        while at < len(shortest) and time.monotonic() < deadline:
            candidate = shortest[:at] + shortest[at + size :]
            difference = find_difference(candidate, broker, SHRINKING_PATIENCE_SECONDS, rules)
            if difference is not None and difference.what == found.what:
                shortest, found = candidate, difference
            else:
                at += size
        size //= 2
    return shortest, found


class Run:
    def __init__(
        self, directory: Path, broker: Server, patience: float, rules: Sequence[Rule]
    ) -> None:
        self.patience = patience
        self.rules = rules
        self.store = StoreSide(directory, CHANNELS)
        self.broker = BrokerSide(broker, CHANNELS)
        self.world = World([Channel() for _ in range(CHANNELS)])
        self.queues_ever: set[str] = set()
        self.trace: list[str] = []

    def close(self) -> None:
        self.store.close()
        try:
            self.broker.clear(self.queues_ever, EXCHANGES, PATIENCE_SECONDS)
        finally:
            self.broker.close()

    def play(self, script: Sequence[Operation]) -> Difference | None:
        for operation in script:
            difference = self.step(operation)
            if difference is not None:
                difference.trace = self.trace
                return difference
        return None

    def step(self, operation: Operation) -> Difference | None:
        operation = self.directed(operation)
        self.trace.append(str(operation))
        index = operation.channel
        for rule in self.rules:
            if rule.applies(self.world, operation):
                self.trace.append(f"    left out: {rule.name}")
                return None
        arguments = self.resolve(operation)
        if arguments is None:
            self.trace.append("    left out: no such delivery")
            return None
        verb = "close_channel" if operation.verb == "close" else operation.verb
        told = self.store.apply(index, verb, arguments[0])
        self.wait_until_empty(self.world.emptied(operation))
        self.store.settle()
        if operation.verb == "queue_declare":
            self.queues_ever.add(operation.arguments["queue"])
        heard = self.broker.apply(index, verb, arguments[1])
        closed = self.broker.closed(index)
        if closed:
            self.broker.end(index)
        self.trace.append(f"    {told!r}")
        if not same_result(told, heard):
            return Difference("result", told, heard)
        if self.store.closed(index) != closed:
            return Difference("channel is closed", self.store.closed(index), closed)
        difference = self.wait_until_same(operation)
        if difference is None:
            self.learn(operation, told, heard)
            self.note_events()
            self.store.begin()
            self.broker.begin()
            if closed:
                self.store.reopen(index)
                self.broker.reopen(index)
        return difference

    def wait_until_empty(self, queues: Sequence[str]) -> None:
        """A store drops what expires at once a moment later."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            counts = self.store.counts()
            if not any(queue in counts and counts[queue][0] for queue in queues):
                break
            time.sleep(POLL_SECONDS)

    # What the arguments are on each side.

    def directed(self, operation: Operation) -> Operation:
        """At the next channel that has a delivery out, if it is about one and its own has none."""
        if not isinstance(operation.arguments.get("pick"), int):
            return operation
        for step in range(CHANNELS):
            channel = (operation.channel + step) % CHANNELS
            if self.world.channels[channel].held:
                return replace(operation, channel=channel)
        return operation

    def resolve(self, operation: Operation) -> tuple[dict[str, Any], dict[str, Any]] | None:
        arguments = dict(operation.arguments)
        if operation.verb not in SETTLES:
            return arguments, arguments
        held = self.pick(self.world.channels[operation.channel], arguments.pop("pick"), arguments)
        if held is None:
            return None
        return {**arguments, "tag": held.store_tag}, {**arguments, "tag": held.broker_tag}

    def pick(self, channel: Channel, pick: int | str, arguments: dict[str, Any]) -> Held | None:
        everything = Held(0, 0, "", "")
        if pick == "unknown":
            return Held(10**6, 10**6, "", "")
        if pick == "settled":
            return channel.last_settled
        if pick == "all":
            return everything
        if not channel.held:
            return None
        assert isinstance(pick, int)
        held = channel.held[pick % len(channel.held)]
        if arguments.get("multiple") and not same_up_to(channel, held):
            return everything
        return held

    # Comparing.

    def wait_until_same(self, operation: Operation) -> Difference | None:
        counts = self.store.counts()
        gone = self.world.counts.keys() - counts.keys()
        deadline = time.monotonic() + self.patience
        wait = False
        while True:
            difference = self.look(counts, gone, wait)
            if difference is None or time.monotonic() > deadline:
                break
            wait = True
        self.world.counts = counts
        for queue in gone:
            self.world.owners.pop(queue, None)
            self.world.arguments.pop(queue, None)
            self.world.bound.discard(queue)
        return difference or self.exchanges_differ(operation)

    def look(
        self, counts: dict[str, tuple[int, int]], gone: set[str], wait: bool
    ) -> Difference | None:
        """As often as there are queues on a dead letter's way: asked for its count, a queue has
        passed on what it had to."""
        on_the_way = sum(
            "x-dead-letter-exchange" in arguments for arguments in self.world.arguments.values()
        )
        for _ in range(1 + on_the_way):
            self.broker.pump(wait)
            difference = self.events_differ() or self.queues_differ(counts, gone)
            if difference is not None:
                return difference
        return None

    def events_differ(self) -> Difference | None:
        for index, (store, broker) in enumerate(
            zip(self.store.events, self.broker.events, strict=True)
        ):
            for name in EVENT_NAMES:
                mine, theirs = getattr(store, name), getattr(broker, name)
                if mine != theirs:
                    return Difference(f"{name} on channel {index}", mine, theirs)
        return None

    def queues_differ(
        self, counts: dict[str, tuple[int, int]], gone: set[str]
    ) -> Difference | None:
        for queue, expected in counts.items():
            count = self.broker.count(queue)
            if count != expected:
                return Difference(f"ready messages and consumers of {queue}", expected, count)
        for queue in gone:
            count = self.broker.count(queue)
            if count != 404:
                return Difference(f"queue {queue}", 404, count)
        return None

    def exchanges_differ(self, operation: Operation) -> Difference | None:
        channel_failed = self.store.closed(operation.channel)
        if operation.verb not in MAY_CHANGE_EXCHANGES and not channel_failed:
            return None
        expected = self.store.exchanges() & set(EXCHANGES)
        there = {name for name in EXCHANGES if self.broker.has_exchange(name)}
        return None if there == expected else Difference("exchanges", expected, there)

    # What the world is afterwards.

    def learn(self, operation: Operation, told: object, heard: object) -> None:
        channel = self.world.channels[operation.channel]
        arguments = operation.arguments
        if self.store.closed(operation.channel):
            self.world.channels[operation.channel] = Channel()
        elif operation.verb == "queue_declare":
            if arguments.get("exclusive") and not arguments["passive"]:
                self.world.owners[arguments["queue"]] = operation.channel
            self.world.arguments.setdefault(arguments["queue"], arguments.get("arguments") or {})
        elif operation.verb == "queue_bind":
            self.world.bound.add(arguments["queue"])
        elif operation.verb == "tx_select":
            channel.tx = True
        elif operation.verb in ("tx_commit", "tx_rollback"):
            self.learn_end(channel, committed=operation.verb == "tx_commit")
        elif operation.verb == "publish":
            channel.tx_publishes = channel.tx
        elif operation.verb == "qos":
            channel.limit = arguments["count"] if arguments["global_"] else 0
        elif operation.verb == "consume":
            channel.consumers[arguments["tag"]] = Consumer(
                arguments["queue"],
                arguments["auto_ack"],
                arguments["exclusive"],
                operation.channel,
                arguments["arguments"].get("x-priority", 0),
            )
        elif operation.verb == "cancel":
            channel.consumers.pop(arguments["tag"], None)
        elif operation.verb == "recover":
            channel.held.clear()
        elif operation.verb in SETTLES:
            self.learn_settled(operation)
        elif isinstance(told, Message) and isinstance(heard, Message) and not arguments["auto_ack"]:
            channel.held.append(Held(told.tag, heard.tag, arguments["queue"], ""))

    def learn_end(self, channel: Channel, committed: bool) -> None:
        if not committed:
            channel.held = sorted(
                channel.held + channel.tx_settled, key=lambda held: held.store_tag
            )
        channel.tx_settled = []
        channel.tx_publishes = channel.tx_requeues = False

    def learn_settled(self, operation: Operation) -> None:
        channel = self.world.channels[operation.channel]
        arguments = self.resolve(operation)
        assert arguments is not None
        tag, multiple = arguments[0]["tag"], arguments[0].get("multiple", False)
        settled = [
            held
            for held in channel.held
            if held.store_tag == tag or (multiple and (tag == 0 or held.store_tag < tag))
        ]
        channel.held = [held for held in channel.held if held not in settled]
        if settled:
            channel.last_settled = settled[-1]
        if channel.tx:
            channel.tx_settled += settled
            channel.tx_requeues |= bool(arguments[0].get("requeue", False))

    def note_events(self) -> None:
        for channel, store, broker in zip(
            self.world.channels, self.store.events, self.broker.events, strict=True
        ):
            for tag, messages in store.deliveries.items():
                consumer = channel.consumers.get(tag)
                if consumer is not None and not consumer.auto_ack:
                    channel.held += [
                        Held(mine.tag, theirs.tag, consumer.queue, tag)
                        for mine, theirs in zip(messages, broker.deliveries[tag], strict=True)
                    ]
            channel.held.sort(key=lambda held: held.store_tag)
            for tag in store.cancelled:
                channel.consumers.pop(tag, None)


def same_up_to(channel: Channel, last: Held) -> bool:
    """Deliveries of several queues may come in another order: then a tag is another border."""
    store = [held for held in channel.held if held.store_tag <= last.store_tag]
    broker = [held for held in channel.held if held.broker_tag <= last.broker_tag]
    return len(store) == len(broker) and all(held in broker for held in store)


def same_result(told: object, heard: object) -> bool:
    if isinstance(told, Failure) and isinstance(heard, Failure):
        return told.code == heard.code and same_text(told, heard)
    if isinstance(told, Message) and isinstance(heard, Message) and told.tag != heard.tag:
        return False
    return told == heard


def same_text(told: Failure, heard: Failure) -> bool:
    if any(text in told.text or text in heard.text for text in OTHER_TEXTS):
        return True
    return told.text.replace(" in this store", " in vhost '/'") == heard.text
