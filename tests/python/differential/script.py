"""Scripts: what a seed makes the channels do.

A script is a list of operations that names what it acts on so that every part of it is a script,
too: queues named by the server have an alias ("@3"), deliveries are picked by their place among
those that the channel has out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .choices import (
    CHANGES,
    CHANNELS,
    COPIES,
    EXCHANGES,
    GROUPS,
    HEADERS,
    HOUR_MS,
    KEYS,
    LARGE_BYTES,
    LAST_GETS,
    LAZY,
    MATCHES,
    MORE_EXPIRATIONS,
    NO_ARGUMENTS,
    NO_COPIES,
    NO_EXPIRATIONS,
    PATTERNS,
    PREDECLARED,
    PROPERTIES,
    QUEUES,
    TYPES,
)


@dataclass(frozen=True)
class Operation:
    channel: int
    verb: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.channel}: {self.verb}({values})"


Maker = Callable[[], Mapping[str, Any]]


class Generator:
    """One script.  It remembers roughly what there is, so that most operations meet something."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = frozenset(group for group in GROUPS if self.chance(0.6))
        self.bodies = 0
        self.aliases = 0
        self.tags = 0
        self.channel = 0
        self.queue_flags = {name: self.flags("durable", "auto_delete") for name in QUEUES}
        self.queue_flags[QUEUES[3]]["exclusive"] = True
        self.queue_arguments = {name: self.arguments_of_queue() for name in QUEUES}
        self.queue_arguments[QUEUES[4]] |= LAZY
        if "dead-letters" in self.groups and self.chance(0.6):
            self.collect_dead_letters(QUEUES[1])
        self.exchange_flags = {name: self.flags("durable", "auto_delete") for name in EXCHANGES}
        self.types = {name: self.random.choice(self.known_types()) for name in EXCHANGES}
        self.alternates = {
            name: self.random.choice((None, *EXCHANGES, "nowhere"))
            for name in EXCHANGES
            if "alternate-exchange" in self.groups
        }
        # What there should be: queues with their owners if they are exclusive, and so on.
        self.queues: dict[str, int | None] = {}
        self.exchanges: set[str] = set()
        self.consumers: list[tuple[int, str]] = []
        self.confirming: set[int] = set()
        self.transacting: set[int] = set()
        self.receiving: list[int] = []
        self.filled: list[str] = []

    def operations(self, count: int) -> list[Operation]:
        script = [self.operation(maker) for maker in self.opening()]
        weighted = self.weighted()
        makers, weights = list(weighted), list(weighted.values())
        while len(script) < count:
            maker = self.random.choices(makers, weights)[0]
            ends = maker in (self.tx_commit, self.tx_rollback)
            if ends and not self.transacting and not self.chance(0.05):
                maker = self.tx_select
            script.append(self.operation(maker))
        return script + self.closing()

    def closing(self) -> list[Operation]:
        """Look at what is left in the queues."""
        return [
            Operation(owner or 0, "get", {"queue": name, "auto_ack": True})
            for name, owner in self.queues.items()
            for _ in range(LAST_GETS)
        ]

    def operation(self, maker: Maker) -> Operation:
        self.channel = self.random.randrange(CHANNELS)
        arguments = maker()
        return Operation(self.channel, maker.__name__, arguments)

    def opening(self) -> list[Maker]:
        makers: list[Maker] = [self.queue_declare] * 5 + [self.exchange_declare] * 2
        makers += [self.queue_bind] * 4 + [self.publish] * 2
        modes: list[Maker] = [self.confirm_select]
        if "transactions" in self.groups and not self.leaves_queues():
            modes.append(self.tx_select)
        makers += self.random.sample(modes, self.random.randrange(len(modes) + 1))
        return [*makers, self.confirm_select] if "limits" in self.groups else makers

    def weighted(self) -> dict[Maker, float]:
        weighted: dict[Maker, float] = {
            self.exchange_declare: 3,
            self.exchange_delete: 0.7,
            self.queue_declare: 3.5,
            self.queue_delete: 1.2,
            self.queue_purge: 1.2,
            self.queue_bind: 4,
            self.queue_unbind: 1.5,
            self.publish: 26,
            self.confirm_select: 0.7,
            self.get: 18,
            self.consume: 8,
            self.cancel: 2.5,
            self.ack: 11,
            self.nack: 9,
            self.reject: 5,
            self.recover: 1.5,
            self.qos: 4,
            self.close: 1,
        }
        if "transactions" in self.groups:
            weighted |= {self.tx_select: 0.7, self.tx_commit: 4, self.tx_rollback: 1.5}
        if "exchange-to-exchange" in self.groups:
            weighted |= {self.exchange_bind: 4, self.exchange_unbind: 1.5}
        return weighted

    # Choices.

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def flags(self, *names: str) -> dict[str, bool]:
        return {name: self.chance(0.4) for name in names}

    def arguments_of_queue(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if "limits" in self.groups and self.chance(0.6):
            if self.chance(0.6):
                arguments["x-max-length"] = self.random.choice((0, 1, 1, 2, 2, 3))
            if not arguments or self.chance(0.2):
                arguments["x-max-length-bytes"] = self.random.choice((0, 1, 3, 3, 5, 6000))
            if self.chance(0.7):
                overflows = ("drop-head", "reject-publish", "reject-publish-dlx")
                arguments["x-overflow"] = self.random.choice(overflows)
        if "expiry" in self.groups and self.chance(0.3):
            arguments["x-message-ttl"] = 0 if not arguments and self.chance(0.5) else HOUR_MS
        if "expiry" in self.groups and self.chance(0.1):
            arguments["x-expires"] = HOUR_MS
        if "dead-letters" in self.groups and self.chance(0.6):
            exchanges = ("",) * 8 + (*EXCHANGES, "amq.topic", "nowhere")
            arguments["x-dead-letter-exchange"] = self.random.choice(exchanges)
            if self.chance(0.9):
                keys = (*QUEUES, *QUEUES, *QUEUES, "a.b", "nowhere")
                arguments["x-dead-letter-routing-key"] = self.random.choice(keys)
        if "single-active-consumer" in self.groups and self.chance(0.3):
            arguments["x-single-active-consumer"] = True
        if "priorities" in self.groups and self.chance(0.4):
            arguments["x-max-priority"] = self.random.choice((1, 3, 3, 10))
        return arguments

    def collect_dead_letters(self, collector: str) -> None:
        """Have a plain queue for what leaves some of the others."""
        self.queue_arguments[collector] = {}
        for name, arguments in self.queue_arguments.items():
            if name != collector and self.chance(0.7):
                arguments["x-dead-letter-exchange"] = ""
                arguments["x-dead-letter-routing-key"] = collector

    def leaves_queues(self) -> bool:
        """Whether messages may go on from queues, which is what the script is about then."""
        return not self.groups.isdisjoint(("limits", "dead-letters"))

    def known_types(self) -> tuple[str, ...]:
        return (*TYPES, "headers") if "headers" in self.groups else TYPES

    def queue(self) -> str:
        """A queue that should be there, but for now and then; on its owner's channel if it has
        one."""
        if not self.queues or self.chance(0.02):
            return self.random.choice((*QUEUES, "nowhere"))
        name = self.random.choice(list(self.queues))
        owner = self.queues[name]
        if owner is not None and not self.chance(0.05):
            self.channel = owner
        return name

    def exchange(self) -> str:
        if self.chance(0.02):
            return self.random.choice((*EXCHANGES, "nowhere", ""))
        predeclared = PREDECLARED + (("amq.headers",) if "headers" in self.groups else ())
        if not self.exchanges or self.chance(0.2):
            return self.random.choice(predeclared)
        return self.random.choice(sorted(self.exchanges))

    def one_of(self, channels: Iterable[int]) -> bool:
        """Turn to one of these channels, but for now and then; whether it is one of them."""
        fitting = sorted(channels)
        if fitting and not self.chance(0.02):
            self.channel = self.random.choice(fitting)
        return self.channel in fitting

    def forget_channel(self) -> None:
        """It is closed: what belongs to it goes."""
        self.confirming.discard(self.channel)
        self.transacting.discard(self.channel)
        self.receiving = [each for each in self.receiving if each != self.channel]
        self.consumers = [each for each in self.consumers if each[0] != self.channel]
        self.queues = {name: owner for name, owner in self.queues.items() if owner != self.channel}

    def binding_arguments(self) -> Mapping[str, Any]:
        if "invalid" in self.groups and self.chance(0.02):
            return {"x-match": self.random.choice(("some", 1))}
        if "headers" in self.groups:
            return self.random.choice(MATCHES)
        return {"n": 1} if self.chance(0.1) else {}

    # Topology.

    def exchange_declare(self) -> Mapping[str, Any]:
        name = self.random.choice(EXCHANGES)
        passive = name in self.exchanges and self.chance(0.2)
        flags = dict(self.exchange_flags[name])
        kind = self.types[name]
        if self.chance(0.03):
            flags["durable"] = not flags["durable"]
        if self.chance(0.02):
            kind = self.random.choice((*TYPES, "x-none"))
        if not passive:
            self.exchanges.add(name)
        if self.chance(0.03):
            name = self.random.choice(("", "amq.direct", "amq.own", "amq.topic"))
        alternate: object = self.alternates.get(name)
        if "invalid" in self.groups and self.chance(0.02):
            alternate = 7
        return {
            "exchange": name,
            "exchange_type": kind,
            "passive": passive,
            "internal": self.chance(0.01),
            **flags,
            "arguments": {} if alternate is None else {"alternate-exchange": alternate},
        }

    def exchange_delete(self) -> Mapping[str, Any]:
        name, if_unused = self.exchange(), self.chance(0.2)
        self.exchanges.discard(name)
        return {"exchange": name, "if_unused": if_unused}

    def exchange_bind(self) -> Mapping[str, Any]:
        return {
            "destination": self.exchange(),
            "source": self.exchange(),
            "routing_key": self.random.choice(PATTERNS),
            "arguments": self.binding_arguments(),
        }

    def exchange_unbind(self) -> Mapping[str, Any]:
        return self.exchange_bind()

    def queue_declare(self) -> Mapping[str, Any]:
        if self.chance(0.1):
            self.aliases += 1
            flags = self.flags("durable", "auto_delete", "exclusive")
            name = f"@{self.aliases}"
            self.queues[name] = self.channel if flags["exclusive"] else None
            arguments = self.arguments_of_queue()
            return {"queue": name, "passive": False, **flags, "arguments": arguments}
        missing = [name for name in QUEUES if name not in self.queues]
        name = self.random.choice(missing) if missing and self.chance(0.8) else self.queue()
        passive = name not in QUEUES or (name in self.queues and self.chance(0.3))
        flags = dict(self.queue_flags.get(name, {}))
        if not passive and name not in self.queues:
            self.queues[name] = self.channel if flags.get("exclusive") else None
        if self.chance(0.03):
            changed = self.random.choice(("durable", "auto_delete", "exclusive"))
            flags[changed] = not flags.get(changed, False)
        arguments = dict(self.queue_arguments.get(name, {}))
        if self.chance(0.02):
            arguments |= self.random.choice(CHANGES)
        elif arguments and self.chance(0.02):
            del arguments[self.random.choice(list(arguments))]
        if "invalid" in self.groups and self.chance(0.05):
            arguments |= self.random.choice(NO_ARGUMENTS)
        if self.chance(0.05):  # it may differ when the queue is declared again
            arguments["x-nothing"] = self.random.choice((1, "1"))
        if self.chance(0.01):
            name = "amq.own"
        return {"queue": name, "passive": passive, **flags, "arguments": arguments}

    def queue_delete(self) -> Mapping[str, Any]:
        name = self.queue()
        arguments = {"queue": name, "if_unused": self.chance(0.15), "if_empty": self.chance(0.15)}
        self.queues.pop(name, None)
        return arguments

    def queue_purge(self) -> Mapping[str, Any]:
        return {"queue": self.queue()}

    def queue_bind(self) -> Mapping[str, Any]:
        return {
            "queue": self.queue(),
            "exchange": self.exchange(),
            "routing_key": self.random.choice(PATTERNS),
            "arguments": self.binding_arguments(),
        }

    def queue_unbind(self) -> Mapping[str, Any]:
        return self.queue_bind()

    # Publishing.

    def publish(self) -> Mapping[str, Any]:
        count = self.random.randrange(2, 7) if self.chance(0.3) else 1
        if self.chance(0.75 if self.leaves_queues() else 0.55):
            exchange, key = "", self.queue()
            arguments = self.queue_arguments.get(key, {})
            self.filled += [key, arguments.get("x-dead-letter-routing-key", key)]
        else:
            exchange, key = self.exchange(), self.random.choice(KEYS)
        return {
            "exchange": exchange,
            "routing_key": key,
            "bodies": [self.body() for _ in range(count)],
            "properties": self.properties(),
            "mandatory": self.chance(0.35),
        }

    def body(self) -> bytes:
        self.bodies += 1
        if self.chance(0.02):
            return b""
        return b"%d" % self.bodies + (b"." * LARGE_BYTES if self.chance(0.1) else b"")

    def properties(self) -> Mapping[str, Any]:
        properties: dict[str, Any] = {}
        if self.chance(0.6):
            properties["delivery_mode"] = self.random.choice((1, 2, 2))
        if "properties" in self.groups and self.chance(0.3):
            properties |= self.random.choice(PROPERTIES)
        if "priorities" in self.groups and self.chance(0.6):
            properties["priority"] = self.random.choice((0, 1, 2, 3, 4, 255))
        if "properties" in self.groups and self.chance(0.3):
            properties["headers"] = self.random.choice(HEADERS)
        if "copies" in self.groups and self.chance(0.2):
            properties["headers"] = self.random.choice(COPIES)
        if "expiry" in self.groups and self.chance(0.2):
            properties["expiration"] = self.random.choice((str(HOUR_MS), "0"))
        if "invalid" in self.groups and self.chance(0.01):
            properties["headers"] = self.random.choice(NO_COPIES)
        elif "invalid" in self.groups and self.chance(0.01):
            properties["expiration"] = self.random.choice(NO_EXPIRATIONS + MORE_EXPIRATIONS)
        return properties

    def confirm_select(self) -> Mapping[str, Any]:
        self.one_of(set(range(CHANNELS)) - self.transacting)
        self.confirming.add(self.channel)
        return {}

    def tx_select(self) -> Mapping[str, Any]:
        self.one_of(set(range(CHANNELS)) - self.confirming)
        self.transacting.add(self.channel)
        return {}

    def tx_commit(self) -> Mapping[str, Any]:
        if not self.one_of(self.transacting):
            self.forget_channel()
        return {}

    def tx_rollback(self) -> Mapping[str, Any]:
        return self.tx_commit()

    # Receiving.

    def get(self) -> Mapping[str, Any]:
        name = self.queue()
        filled = [each for each in self.filled[-6:] if self.queues.get(each, 0) is None]
        if filled and self.chance(0.8):
            name = self.random.choice(filled)
        arguments = {"queue": name, "auto_ack": self.chance(0.25)}
        if not arguments["auto_ack"]:
            self.receiving.append(self.channel)
        return arguments

    def consume(self) -> Mapping[str, Any]:
        self.tags += 1
        arguments = {
            "queue": self.queue(),
            "tag": f"t{self.tags}",
            "auto_ack": self.chance(0.2),
            "exclusive": self.chance(0.07),
            "arguments": self.consumer_arguments(),
        }
        self.consumers.append((self.channel, f"t{self.tags}"))
        if not arguments["auto_ack"]:
            self.receiving.append(self.channel)
        return arguments

    def consumer_arguments(self) -> Mapping[str, Any]:
        if "invalid" in self.groups and self.chance(0.03):
            return {"x-priority": self.random.choice(("1", True, None, b"2"))}
        if "consumer-priorities" in self.groups and self.chance(0.8):
            return {"x-priority": self.random.choice((-(2**40), -1, 0, 1, 5))}
        return {}

    def cancel(self) -> Mapping[str, Any]:
        if not self.consumers:
            return {"tag": "nobody"}
        self.channel, tag = self.consumers.pop(self.random.randrange(len(self.consumers)))
        return {"tag": tag}

    def pick(self, multiple: bool) -> int | str:
        """Which delivery: its place among those that are out, or one of the words."""
        self.one_of(set(self.receiving[-4:]))
        if self.chance(0.015):
            self.forget_channel()
            return self.random.choice(("settled", "unknown"))
        if multiple and self.chance(0.25):
            return "all"
        return self.random.randrange(1000)

    def ack(self) -> Mapping[str, Any]:
        multiple = self.chance(0.35)
        return {"pick": self.pick(multiple), "multiple": multiple}

    def nack(self) -> Mapping[str, Any]:
        return {**self.ack(), "requeue": self.chance(0.4 if self.leaves_queues() else 0.7)}

    def reject(self) -> Mapping[str, Any]:
        requeue = self.chance(0.3 if self.leaves_queues() else 0.6)
        return {"pick": self.pick(False), "requeue": requeue}

    def recover(self) -> Mapping[str, Any]:
        self.one_of(set(self.receiving))
        if self.chance(0.05):
            self.forget_channel()
            return {"requeue": False}
        return {"requeue": True}

    def qos(self) -> Mapping[str, Any]:
        return {"count": self.random.choice((0, 1, 1, 2, 3, 10)), "global_": self.chance(0.4)}

    def close(self) -> Mapping[str, Any]:
        self.forget_channel()
        return {}
