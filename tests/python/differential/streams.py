"""Scripts about streams, each small, and what they are answered: by a store, or by RabbitMQ.

The answers of RabbitMQ 3.10 are written down in ``streams.json``, so that a store is compared with
them where there is no RabbitMQ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .broker_side import BrokerSide
from .sides import Events, Failure, Message
from .store_side import StoreSide

ANSWERS = Path(__file__).with_name("streams.json")
CHANNELS = 2
PATIENCE_SECONDS = 10.0
SILENCE_SECONDS = 1.0
"""After so long without a delivery nobody expects another, where it is not known how many come."""
SHORT_SILENCE_SECONDS = 0.05
"""RabbitMQ is given so long to deliver one too many."""
STREAM = {"x-queue-type": "stream"}
EPOCH = datetime(1970, 1, 2, tzinfo=UTC)
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)

Operation = tuple[str, dict[str, Any]]
Script = list[Operation]

# ---- operations; `on` is the channel, 0 unless it is told ----


def declare(queue: str = "s", **more: Any) -> Operation:
    arguments = STREAM | more.pop("arguments", {})
    flags = {"passive": False, "durable": True, "exclusive": False, "auto_delete": False}
    return "queue_declare", {"queue": queue, **flags, **more, "arguments": arguments}


def declare_classic(queue: str, **arguments: Any) -> Operation:
    return declare(queue, arguments={"x-queue-type": "classic", **arguments})


def look(queue: str = "s") -> Operation:
    return "queue_declare", {"queue": queue, "passive": True}


def publish(*bodies: str, exchange: str = "", key: str = "s", **more: Any) -> Operation:
    return "publish", {
        "exchange": exchange,
        "routing_key": key,
        "mandatory": more.pop("mandatory", False),
        "bodies": [body.encode() for body in bodies],
        "properties": more,
    }


def qos(count: int, *, global_: bool = False, on: int = 0) -> Operation:
    return "qos", {"count": count, "global_": global_, "on": on}


def consume(offset: Any = None, tag: str = "c", **more: Any) -> Operation:
    arguments = dict(more.pop("arguments", {}))
    if offset is not None:
        arguments["x-stream-offset"] = offset
    flags = {"queue": "s", "auto_ack": False, "exclusive": False}
    return "consume", {**flags, **more, "tag": tag, "arguments": arguments}


def receive(tag: str = "c", on: int = 0) -> Operation:
    """What comes to the consumer."""
    return "receive", {"tag": tag, "on": on}


def ack(tag: int, *, multiple: bool = False, on: int = 0) -> Operation:
    return "ack", {"tag": tag, "multiple": multiple, "on": on}


def nack(tag: int, *, requeue: bool = True) -> Operation:
    return "nack", {"tag": tag, "multiple": False, "requeue": requeue}


def delete(queue: str = "s", *, if_unused: bool = False, if_empty: bool = False) -> Operation:
    return "queue_delete", {"queue": queue, "if_unused": if_unused, "if_empty": if_empty}


def filled(*bodies: str) -> Script:
    """A stream with these messages, and a prefetch for who reads it."""
    published: Script = [publish(each) for each in bodies]  # each confirmed before the next
    return [declare(), ("confirm_select", {}), *published, qos(10)]


THREE = filled("a", "b", "c")

# ---- the scripts ----

_REFUSED_ARGUMENTS = {
    "x-message-ttl": 1000,
    "x-expires": 100_000,
    "x-max-length": 10,
    "x-max-priority": 5,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "k",
    "x-dead-letter-strategy": "at-most-once",
    "x-single-active-consumer": True,
    "x-overflow": "drop-head",
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-delivery-limit": 5,
    "x-max-in-memory-length": 5,
    "x-max-in-memory-bytes": 5,
    "x-quorum-initial-group-size": 1,
    "x-nonsense": 1,
}
_ARGUMENTS: dict[str, Sequence[Any]] = {
    "x-max-age": [*(f"7{unit}" for unit in "YMDhms"), "", "7", "D", "7W", "7d", "-7D", "1.5h",
                  "0s", "7DD", " 7D", 7],
    "x-max-length-bytes": [1_000_000, 0, -1, "1000"],
    "x-stream-max-segment-size-bytes": [1_000_000, 3_000_000_000, 3_000_000_001, 0, -1, "1000"],
    "x-initial-cluster-size": [1, 3, 0, -1, "1"],
    "x-queue-leader-locator": ["client-local", "random", "least-leaders", "nowhere", 1],
}  # fmt: skip
_OFFSETS: Sequence[Any] = [
    None, "first", "last", "next", 0, 1, 2, 3, 100, -1, EPOCH, FUTURE, "1h", "1Y", "0s", "-1h",
    "1W", "1", "nonsense", "", "First", True, b"first",
]  # fmt: skip


def scripts() -> dict[str, Script]:
    """By name, in the order in which they are written down."""
    return dict([*_declaring(), *_publishing(), *_consuming(), *_settling(), *_others()])


def _declaring() -> Iterator[tuple[str, Script]]:
    again = [declare(), look()]
    yield "declare", [declare(), *again]
    for flag, value in (("durable", False), ("exclusive", True), ("auto_delete", True)):
        yield f"declare {flag}={value}", [declare(**{flag: value})]
        yield f"declare again {flag}={value}", [declare(), declare(**{flag: value})]
    yield "declare without a name", [declare("")]
    for name, refused in _REFUSED_ARGUMENTS.items():
        yield f"declare {name}", [declare(arguments={name: refused})]
    for name, values in _ARGUMENTS.items():
        for value in values:
            given = {name: value}
            yield f"declare {name}={value!r}", [declare(arguments=given), declare(arguments=given)]
        first, second, *_ = values
        yield f"declare again with {name}", [declare(), declare(arguments={name: first})]
        yield (
            f"declare again with another {name}",
            [declare(arguments={name: first}), declare(arguments={name: second})],
        )
        yield f"declare a classic queue with {name}", [declare_classic("s", **{name: first})]
    yield "declare again as a classic queue", [declare(), declare_classic("s")]
    yield "declare a classic queue again as a stream", [declare_classic("s"), declare()]
    for kind in ("Stream", "streams", 1):
        yield f"declare x-queue-type={kind!r}", [declare(arguments={"x-queue-type": kind})]


def _publishing() -> Iterator[tuple[str, Script]]:
    read: Script = [qos(10), consume("first")]
    fill: Script = [declare(), ("confirm_select", {})]
    properties: dict[str, dict[str, Any]] = {
        "nothing": {},
        "persistent": {"delivery_mode": 2},
        "transient": {"delivery_mode": 1},
        "expiration": {"expiration": "1"},
        "priority": {"priority": 5},
        "headers": {"headers": {"k": "v", "n": 1}},
        "an offset of its own": {"headers": {"x-stream-offset": 77}},
        "all": {"content_type": "t", "content_encoding": "e", "correlation_id": "c", "type": "y",
                "reply_to": "r", "message_id": "m", "app_id": "a", "user_id": "guest"},
    }  # fmt: skip
    for name, given in properties.items():
        yield f"publish with {name}", [*fill, publish("a", **given), *read, receive()]
    yield "publish mandatory", [*fill, publish("a", mandatory=True), *read, receive()]
    yield "publish nothing", [*fill, publish(""), *read, receive()]
    both: Script = [
        declare_classic("q"),
        ("exchange_declare", {"exchange": "e1", "exchange_type": "topic", "durable": True}),
        ("queue_bind", {"queue": "s", "exchange": "e1", "routing_key": "eu.#"}),
        ("queue_bind", {"queue": "q", "exchange": "e1", "routing_key": "#"}),
    ]
    yield (
        "publish to a stream and a queue",
        [*fill, *both, publish("a", exchange="e1", key="eu.x"),
         publish("b", exchange="e1", key="us.x"), publish("c", exchange="e1", key="eu"),
         *read, receive(), ("get", {"queue": "q", "auto_ack": True}), look("q"),
         delete("q"), ("exchange_delete", {"exchange": "e1", "if_unused": False})],
    )  # fmt: skip
    carbon = {"CC": ["s"], "BCC": ["q"]}
    yield (
        "publish with CC",
        [*fill, declare_classic("q"), publish("a", key="nowhere", headers=carbon), *read,
         receive(), delete("q")],
    )  # fmt: skip
    tx: Script = [declare(), ("tx_select", {}), publish("a", "b")]
    yield "transaction, committed", [*tx, ("tx_commit", {}), *read, receive()]
    yield "transaction, rolled back", [*tx, ("tx_rollback", {}), *read, receive()]
    dead = declare_classic("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"})
    yield (
        "dead letters go to a stream",
        [declare(), dead, ("confirm_select", {}), publish("a", key="q"),
         ("get", {"queue": "q", "auto_ack": False}),
         ("reject", {"tag": 1, "requeue": False}), *read, receive(), delete("q")],
    )  # fmt: skip


def _consuming() -> Iterator[tuple[str, Script]]:
    for offset in _OFFSETS:
        told = "nothing" if offset is None else repr(offset)
        more = [publish("d")] if offset in (None, "next", 3, 100, "last") else []
        script = [*THREE, consume(offset), receive(), *more, *([receive()] if more else [])]
        yield f"consume from {told}", script
    yield "consume without prefetch", [*filled("a")[:-1], consume("first")]
    yield "consume with prefetch 0", [*filled("a")[:-1], qos(0), consume("first")]
    yield (
        "consume with prefetch of the channel",
        [*filled("a")[:-1], qos(10, global_=True), consume("first")],
    )
    yield "consume without acknowledgements", [*THREE, consume("first", auto_ack=True)]
    yield "consume exclusively", [*THREE, consume("first", exclusive=True), receive()]
    yield (
        "consume exclusively beside another",
        [*THREE, consume("first"), receive(), consume("first", "d", exclusive=True)],
    )
    yield (
        "consume beside an exclusive one",
        [*THREE, consume("first", exclusive=True), receive(), consume("first", "d")],
    )
    for arguments in ({"x-priority": 5}, {"x-nonsense": 1}, {"x-credit": 1}):
        yield (
            f"consume with {next(iter(arguments))}",
            [*THREE, consume("first", arguments=arguments), receive()],
        )
    yield (
        "two consumers have one copy",
        [*THREE, consume("first"), receive(), consume(1, "d"), receive("d"), look()],
    )  # fmt: skip
    yield (
        "consumers on two channels",
        [*THREE, consume("first"), receive(), qos(10, on=1), consume("first", on=1),
         receive(on=1), ack(3, multiple=True), ack(3, multiple=True, on=1), publish("d"),
         receive(), receive(on=1)],
    )  # fmt: skip
    yield (
        "cancel and consume again",
        [*THREE, consume("first"), receive(), ack(3, multiple=True), ("cancel", {"tag": "c"}),
         consume("first"), receive()],
    )  # fmt: skip
    yield (
        "close and consume again",
        [*THREE, consume("first"), receive(), ("close_channel", {}), qos(10), consume("first"),
         receive()],
    )  # fmt: skip
    yield "delete while consumed", [*THREE, consume("first"), receive(), delete(), look()]


def _settling() -> Iterator[tuple[str, Script]]:
    two = [*THREE[:-1], qos(2), consume("first"), receive()]
    yield "prefetch is credit", [*two, ack(1), receive(), ack(2), ack(3), publish("d"), receive()]
    yield "ack multiple", [*two, ack(2, multiple=True), receive()]
    yield "ack all", [*two, ack(0, multiple=True), receive()]
    yield "ack out of order", [*two, ack(2), receive(), ack(1), receive()]
    yield "ack twice", [*two, ack(1), receive(), ack(1)]
    yield "ack what was never given", [*two, ack(77)]
    yield "nack", [*two, nack(1)]
    yield "nack without requeue", [*two, nack(1, requeue=False)]
    yield "reject", [*two, ("reject", {"tag": 1, "requeue": True})]
    yield "reject without requeue", [*two, ("reject", {"tag": 1, "requeue": False})]
    yield "recover", [*two, ("recover", {"requeue": True}), receive()]
    yield (
        "ack in a transaction",
        [*THREE[:-1], ("tx_select", {"on": 1}), qos(2, on=1), consume("first", on=1),
         receive(on=1), ack(2, multiple=True, on=1), receive(on=1),
         ("tx_commit", {"on": 1}), receive(on=1)],
    )  # fmt: skip


def _others() -> Iterator[tuple[str, Script]]:
    yield "get", [*THREE, ("get", {"queue": "s", "auto_ack": False})]
    yield "get without acknowledgement", [*THREE, ("get", {"queue": "s", "auto_ack": True})]
    yield "get from an empty one", [declare(), ("get", {"queue": "s", "auto_ack": False})]
    yield "purge", [*THREE, ("queue_purge", {"queue": "s"}), look()]
    yield "delete", [*THREE, delete(), look()]
    yield "delete if empty", [*THREE, delete(if_empty=True), look()]
    yield "delete an empty one if empty", [declare(), delete(if_empty=True), look()]
    yield "delete if unused", [*THREE, delete(if_unused=True), look()]
    yield (
        "delete if unused while consumed",
        [*THREE, consume("first"), receive(), delete(if_unused=True), look()],
    )
    yield (
        "delete and declare again",
        [*THREE, delete(), declare(), publish("x"), consume("first"), receive()],
    )
    yield "declare passively as it is", [declare(), look(), look("nowhere")]


# ---- playing ----


def play(
    side: StoreSide | BrokerSide, script: Script, written: Sequence[Any] | None = None
) -> list[Any]:
    """Each operation as text, and its answer as JSON has it.

    A broker is waited for until it delivered as much as is written; where nothing is, until it is
    silent.
    """
    told: list[Any] = []
    taken: dict[tuple[int, str], int] = {}
    for place, (verb, given) in enumerate(script):
        arguments = dict(given)
        index = arguments.pop("on", 0)
        if verb == "receive":
            key = index, arguments["tag"]
            if isinstance(side, BrokerSide):
                least = None if written is None else len(written[place][1])
                _wait_for_deliveries(side, key, taken.get(key, 0), least)
            _settle(side)
            answer = side.events[index].deliveries.get(arguments["tag"], [])[taken.get(key, 0) :]
            taken[key] = taken.get(key, 0) + len(answer)
        else:
            answer = side.apply(index, verb, arguments)
            if verb == "queue_declare" and arguments["queue"] == "s" and isinstance(answer, tuple):
                answer = answer[:1]  # RabbitMQ's counts of a stream lag behind
            _settle(side)
        if side.closed(index):
            answer = {"closed by": plain(answer)}
            taken = {key: count for key, count in taken.items() if key[0] != index}
            side.events[index] = Events()
            if isinstance(side, BrokerSide):
                side.end(index)
            side.reopen(index)
        told.append([f"{index}: {verb} {given!r}", plain(answer)])
    return told + [
        [name, [len(getattr(events, name)) for events in side.events]]
        for name in ("cancelled", "returned", "nacked")
    ]


def _settle(side: StoreSide | BrokerSide) -> None:
    """What is under way has come."""
    if isinstance(side, StoreSide):
        side.settle()
        return
    deadline = time.monotonic() + PATIENCE_SECONDS
    side.pump(wait=False)
    while any(each.bodies for each in side.confirms) and time.monotonic() < deadline:
        side.pump(wait=True)


def _wait_for_deliveries(
    side: BrokerSide, key: tuple[int, str], begin: int, least: int | None
) -> None:
    index, tag = key
    silence = SILENCE_SECONDS if least is None else SHORT_SILENCE_SECONDS
    came, since = begin, time.monotonic()
    deadline = since + PATIENCE_SECONDS
    while True:
        side.pump(wait=True)
        now = time.monotonic()
        count = len(side.events[index].deliveries.get(tag, ()))
        if count > came:
            came, since = count, now
        enough = least is None or count - begin >= least
        if (enough and now - since > silence) or now > deadline:
            return


def plain(answer: Any) -> Any:
    """As JSON has it."""
    if isinstance(answer, Failure):
        return f"{answer.code} {answer.text}"
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if isinstance(answer, Message):
        return [answer.tag, answer.body.decode(), answer.exchange, answer.routing_key,
                answer.redelivered, answer.properties]  # fmt: skip
    return json.loads(json.dumps(answer))
