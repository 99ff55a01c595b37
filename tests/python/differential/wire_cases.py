"""What is sent to both servers, a case each: the handshake, frames out of order, tables, limits,
errors of each class."""

from __future__ import annotations

import struct
from collections.abc import Callable

from .wire import (
    BODY,
    CHANNEL,
    CONNECTION,
    HEADER,
    HEARTBEAT,
    METHOD,
    START,
    TUNE_OK,
    Wire,
    body,
    content,
    frame,
    long,
    method,
    short,
)

Case = Callable[[Wire], list[str]]
EXCHANGE, QUEUE, BASIC, CONFIRM, TX = 40, 50, 60, 85, 90
FLOW = method(1, CHANNEL, 20, b"\1")  # answered when all before it was handled
NOWHERE = method(1, BASIC, 40, b"\0\0" + short("") + short("nowhere") + b"\0")
NO_TABLE = long(b"")
DURABLE, EXCLUSIVE, AUTO_DELETE = b"\x02", b"\x04", b"\x08"
DURABLE_AUTO_DELETE, EXCLUSIVE_AUTO_DELETE = b"\x0a", b"\x0c"
LEFT = "declared-otherwise"  # a queue that a case leaves behind
BAD_TABLE = long(b"\1aZ")
CLOSE_ARGUMENTS = b"\0\xc8" + short("") + b"\0" * 4
ACK_OF_7 = method(1, BASIC, 80, b"\0" * 7 + b"\7\0")
QOS = method(1, BASIC, 10, b"\0" * 7)


def deep_table() -> bytes:
    table = b""
    for _ in range(5000):
        table = short("a") + b"F" + long(table)
    return long(table)


def declare(queue: str | bytes, flags: bytes, table: bytes = NO_TABLE) -> bytes:
    return method(1, QUEUE, 10, b"\0\0" + short(queue) + flags + table)


def exchange(name: str, kind: str, flags: bytes) -> bytes:
    return method(1, EXCHANGE, 10, b"\0\0" + short(name) + short(kind) + flags + NO_TABLE)


def consume(queue: str, tag: str = "") -> bytes:
    return method(1, BASIC, 20, b"\0\0" + short(queue) + short(tag) + b"\0" + NO_TABLE)


# ---- before the handshake, and it ----


def first(data: bytes) -> Case:
    """The case that sends nothing else."""

    def play(wire: Wire) -> list[str]:
        wire.send(data)
        return wire.answers()

    return play


def start_of_0_8(wire: Wire) -> list[str]:
    wire.send(b"AMQP\1\1\x08\0")
    wire.expect(CONNECTION, START)
    return ["start"]


def tune_before_start_ok(wire: Wire) -> list[str]:
    wire.send(HEADER)
    wire.expect(CONNECTION, START)
    wire.send(method(0, CONNECTION, TUNE_OK, bytes(8)))
    return wire.answers()


def logged_in(
    response: bytes, *, mechanism: str = "PLAIN", able: bool = True, count: int = 3
) -> Case:
    def play(wire: Wire) -> list[str]:
        wire.login(response, mechanism=mechanism, able=able)
        return wire.answers(count)

    return play


def tuned(count: int = 3, vhost: str = "/", **limits: int) -> Case:
    def play(wire: Wire) -> list[str]:
        wire.login()
        wire.tune(**limits)
        wire.open(vhost)
        return wire.answers(count)

    return play


def channel_open_before_connection_open(wire: Wire) -> list[str]:
    wire.login()
    wire.tune()
    wire.send(method(1, CHANNEL, 10, b"\0"))
    return wire.answers()


AMQPLAIN = b"".join(short(name) + b"S" + long(b"guest") for name in ("LOGIN", "PASSWORD"))

HANDSHAKE: dict[str, Case] = {
    "header of HTTP": first(b"GET / HTTP/1.1\r\n\r\n"),
    "header of AMQP 1.0": first(b"AMQP\0\1\0\0"),
    "header of another version": first(b"AMQP\1\1\x64\3"),
    "header of AMQP 0-8": start_of_0_8,
    "tune-ok before start-ok": tune_before_start_ok,
    "unknown mechanism": logged_in(b"\0guest\0guest", mechanism="FOO"),
    "anonymous": logged_in(b"", mechanism="ANONYMOUS"),
    "wrong password": logged_in(b"\0guest\0no"),
    "wrong password, unable to be told": logged_in(b"\0guest\0no", able=False),
    "malformed PLAIN": logged_in(b"guest"),
    "AMQPLAIN": logged_in(AMQPLAIN, mechanism="AMQPLAIN", count=1),
    "frame_max 1000": tuned(frame_max=1000),
    "frame_max 200000": tuned(frame_max=200000),
    "frame_max 0": tuned(1, frame_max=0),
    "channel_max 3000": tuned(channels=3000),
    "channel_max 0": tuned(1, channels=0),
    "unknown vhost": tuned(vhost="nope"),
    "channel.open before connection.open": channel_open_before_connection_open,
}


# ---- behind it ----


def ready(*data: bytes, count: int = 3, **limits: int) -> Case:
    """The case that sends all of this on an open channel."""

    def play(wire: Wire) -> list[str]:
        wire.ready(**limits)
        wire.send(b"".join(data))
        return wire.answers(count)

    return play


def frame_at_the_limit(wire: Wire) -> list[str]:
    size = 131072 - 8
    wire.ready()
    wire.send(NOWHERE + content(1, size) + body(1, bytes(size)) + FLOW)
    return wire.answers(1)


def close_that_crosses(wire: Wire) -> list[str]:
    """The channel is free for another once the client has said close-ok, too."""
    wire.ready()
    wire.send(ACK_OF_7 + method(1, CHANNEL, 40, CLOSE_ARGUMENTS))
    said = wire.answers(2)
    wire.send(method(1, CHANNEL, 41) + method(1, CHANNEL, 10, b"\0"))
    return said + wire.answers(1)


def properties_beyond_frame_max(wire: Wire) -> list[str]:
    """A header is one frame, however small those are that its reader has asked for."""
    table = long(short("note") + b"S" + long(b"x" * 5000))
    other = wire.another()
    other.ready()
    other.send(declare("large-properties", AUTO_DELETE))
    other.expect(QUEUE, 11)
    to_queue = method(1, BASIC, 40, b"\0\0" + short("") + short("large-properties") + b"\0")
    other.send(to_queue + content(1, 1, b"\x20\0" + table) + body(1, b"x") + FLOW)
    other.expect(CHANNEL, 21)
    wire.ready(frame_max=4096)
    wire.send(method(1, BASIC, 70, b"\0\0" + short("large-properties") + b"\1"))
    said = wire.answers()
    other.send(method(1, QUEUE, 40, b"\0\0" + short("large-properties") + b"\0"))
    other.expect(QUEUE, 41)
    other.close()
    return said


FRAMES: dict[str, Case] = {
    "frame of type 9": ready(frame(9, 1, b"abcd")),
    "frame of type 65": ready(b"A" * 8),
    "frame without its end": ready(frame(METHOD, 1, QOS[7:-1], end=b"\0")),
    "frame too large": ready(struct.pack(">BHI", BODY, 1, 131072 - 7)),
    "frame at the limit": frame_at_the_limit,
    "properties beyond frame_max": properties_beyond_frame_max,
    "empty frame of a method": ready(frame(METHOD, 1, b"")),
    "heartbeat on channel 1": ready(frame(HEARTBEAT, 1, b""), FLOW, count=1),
    "heartbeat with a payload": ready(frame(HEARTBEAT, 0, b"xx"), FLOW, count=1),
    "queue.declare on channel 0": ready(
        method(0, QUEUE, 10, b"\0\0" + short("q") + b"\0" + NO_TABLE)
    ),
    "connection.open on channel 1": ready(method(1, CONNECTION, 40, short("/") + b"\0\0")),
    "content on channel 0": ready(content(0, 5)),
    "second channel.open": ready(method(1, CHANNEL, 10, b"\0")),
    "method on a closed channel": ready(method(2, BASIC, 10, b"\0" * 7)),
    "channel.close of a closed channel": ready(method(2, CHANNEL, 40, CLOSE_ARGUMENTS), count=1),
    "channel.close-ok of a closed channel": ready(method(2, CHANNEL, 41), count=1),
    "unknown class": ready(method(1, 99, 10)),
    "unknown method": ready(method(1, BASIC, 99)),
    "method cut short": ready(method(1, QUEUE, 10, b"\0\0\x20ab")),
    "method with bytes behind it": ready(QOS[:6] + b"\x0e" + QOS[7:-1] + b"zzz\xce", count=1),
    "channel.close that crosses the server's": close_that_crosses,
    "update-secret": ready(method(0, CONNECTION, 70, long(b"new") + short("why")), count=1),
    "connection.close": ready(method(0, CONNECTION, 50, CLOSE_ARGUMENTS), count=1),
    "connection.close with code 0": ready(
        method(0, CONNECTION, 50, b"\0\0" + short("") + b"\0" * 4), count=1
    ),
}


def published(*data: bytes, count: int = 3) -> Case:
    return ready(NOWHERE, *data, FLOW, count=count)


def with_properties(properties: bytes) -> Case:
    return published(content(1, 0, properties), count=1)


CONTENT: dict[str, Case] = {
    "content without a publish": ready(content(1, 5)),
    "body without a publish": ready(body(1, b"x")),
    "method in place of content": published(QOS),
    "body in place of content": published(body(1, b"x")),
    "content of another class": published(content(1, 1, of=10)),
    "content with a weight": published(content(1, 1, weight=1), body(1, b"x"), count=1),
    "method in place of a body": published(content(1, 5), QOS),
    "content in place of a body": published(content(1, 5), content(1, 5)),
    "body longer than it should be": published(content(1, 5), body(1, b"x" * 9)),
    "empty frames of a body": published(
        content(1, 2), body(1, b""), body(1, b"x"), body(1, b""), body(1, b"y"), count=1
    ),
    "content cut short": published(frame(2, 1, b"\0\x3c\0\0")),
    "properties cut short": with_properties(b"\x80\0\x09ab"),
    "properties with bytes behind them": with_properties(b"\0\0zzz"),
    "properties with more flags": with_properties(b"\0\1\0\0"),
    "properties with a bad table": with_properties(b"\x20\0" + BAD_TABLE),
    "properties with a deep table": with_properties(b"\x20\0" + deep_table()),
    "body of 128 MiB and a byte": ready(NOWHERE, content(1, (128 << 20) + 1), count=1),
    "body of 2**63 bytes": ready(NOWHERE, content(1, 1 << 63), count=1),
    "user_id of another user": with_properties(b"\0\x10" + short("other")),
    "expiration that is no number": with_properties(b"\1\0" + short("abc")),
    "delivery_mode 7": with_properties(b"\x10\0\7"),
    "publish to an unknown exchange": ready(
        method(1, BASIC, 40, b"\0\0" + short("nix") + short("") + b"\0"), content(1, 0), count=1
    ),
    "publish with immediate": ready(
        method(1, BASIC, 40, b"\0\0" + short("") + short("k") + b"\2"), content(1, 0)
    ),
    "reply to an unknown channel": ready(
        method(1, BASIC, 40, b"\0\0" + short("") + short("amq.rabbitmq.reply-to.bogus") + b"\1"),
        content(1, 0),
        count=1,
    ),
    "reply-to without a consumer": ready(
        method(1, BASIC, 40, b"\0\0" + short("") + short("q") + b"\0"),
        content(1, 0, b"\2\0" + short("amq.rabbitmq.reply-to")),
        count=1,
    ),
}


def twice(*data: bytes, count: int = 1) -> Case:
    """The answer to the last, each of the others having been answered."""

    def play(wire: Wire) -> list[str]:
        wire.ready()
        for each in data[:-1]:
            wire.send(each)
            wire.read()
        wire.send(data[-1])
        return wire.answers(count)

    return play


LENGTH = short("x-max-length") + b"I\0\0\0"
VERBS: dict[str, Case] = {
    "arguments: a bad table": ready(declare("bad", EXCLUSIVE, BAD_TABLE)),
    "arguments: a deep table": ready(declare("deep", EXCLUSIVE_AUTO_DELETE, deep_table()), count=1),
    "arguments: one key twice": ready(
        declare("dup", EXCLUSIVE_AUTO_DELETE, long(LENGTH + b"\1" + LENGTH + b"\2")), count=1
    ),
    "queue name that is not UTF-8": ready(declare(b"\xff\xfe", EXCLUSIVE_AUTO_DELETE), count=1),
    "ack of an unknown tag": ready(ACK_OF_7, count=1),
    "qos with a size": ready(method(1, BASIC, 10, b"\0\0\0\1\0\0\0")),
    "recover without requeue": ready(method(1, BASIC, 110, b"\0")),
    "recover-async": ready(method(1, BASIC, 100, b"\1"), FLOW, count=1),
    "flow off": ready(method(1, CHANNEL, 20, b"\0")),
    "access.request": ready(method(1, 30, 10, short("/data") + b"\x1f"), count=1),
    "exchange of an unknown type": ready(exchange("e", "nix", b"\0")),
    "default exchange declared": ready(exchange("", "direct", DURABLE), count=1),
    "reserved exchange declared": ready(exchange("amq.foo", "direct", DURABLE), count=1),
    "reserved queue declared": ready(declare("amq.foo", DURABLE), count=1),
    "queue that the server names": ready(declare("", EXCLUSIVE_AUTO_DELETE), count=1),
    "get of no queue": ready(method(1, BASIC, 70, b"\0\0" + short("") + b"\0"), count=1),
    "consumer that the server names": twice(declare("", EXCLUSIVE_AUTO_DELETE), consume("")),
    "consumer tag twice": twice(
        declare("", EXCLUSIVE_AUTO_DELETE), consume("", "t"), consume("", "t"), count=3
    ),
    "cancel of an unknown tag": ready(method(1, BASIC, 30, short("nix") + b"\0"), count=1),
    "commit without select": ready(method(1, TX, 20), count=1),
    "confirm.select behind tx.select": twice(method(1, TX, 10), method(1, CONFIRM, 10, b"\0")),
    "x-message-ttl -1": ready(
        declare("q-1", EXCLUSIVE, long(short("x-message-ttl") + b"I\xff\xff\xff\xff")), count=1
    ),
    "x-queue-type nix": ready(
        declare("qt", DURABLE, long(short("x-queue-type") + b"S" + long(b"nix"))), count=1
    ),
    "declared otherwise": twice(declare(LEFT, AUTO_DELETE), declare(LEFT, DURABLE_AUTO_DELETE)),
    "direct reply-to with acknowledgements": ready(consume("amq.rabbitmq.reply-to"), count=1),
}
CASES = HANDSHAKE | FRAMES | CONTENT | VERBS
