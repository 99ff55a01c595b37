"""Sockets that misbehave: slow, silent, lost, reset, stopped, too many.  Beside each of them a
good client is served."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

import pyqstore

from ..differential.wire import BODY, CLOSED, SILENCE, Wire, content, frame, long, method, short
from ..support import get, wait_until

QUEUE, BASIC = 50, 60
NO_TABLE = long(b"")
DECLARE = method(1, QUEUE, 10, b"\0\0" + short("q") + b"\x02" + NO_TABLE)
CONSUME = method(1, BASIC, 20, b"\0\0" + short("q") + short("t") + b"\x02" + NO_TABLE)
PUBLISH = method(1, BASIC, 40, b"\0\0" + short("") + short("q") + b"\0")
FLOW = method(1, 20, 20, b"\1")
UNSENT = 256 << 10


@pytest.fixture
def listener(store: pyqstore.Store) -> pyqstore.Listener:
    return store.listen("127.0.0.1:0", heartbeat=1)


@pytest.fixture
def wire(listener: pyqstore.Listener) -> Iterator[Wire]:
    wire = connect(listener)
    try:
        yield wire
    finally:
        wire.close()


def connect(listener: pyqstore.Listener, patience: float = 30.0) -> Wire:
    return Wire(int(listener.address.rpartition(":")[2]), patience)


def is_served(listener: pyqstore.Listener) -> None:
    wire = connect(listener)
    wire.ready()
    wire.send(FLOW)
    assert wire.expect(20, 21) == b"\1"
    wire.close()


def wait_for_end(listener: pyqstore.Listener) -> None:
    wait_until(lambda: listener.stats()["connections"] == 0)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"AMQP\0\0\x09"])
def test_a_client_that_is_slow_to_come_in_is_reset(wire: Wire, sent: bytes) -> None:
    wire.send(sent)
    begun = time.monotonic()
    assert wire.read() == CLOSED
    assert time.monotonic() - begun > 8


@pytest.mark.slow
def test_a_client_that_sends_a_byte_a_second_is_reset_too(
    wire: Wire, listener: pyqstore.Listener
) -> None:
    wire.send(b"AMQP\0\0\x09\x01")
    wire.expect(10, 10)
    begun = time.monotonic()
    while listener.stats()["connections"] > 0:
        wire.send(b"\1")
        time.sleep(0.2)
        assert time.monotonic() - begun < 30
    is_served(listener)


@pytest.mark.slow
def test_a_client_without_heartbeats_is_reset(wire: Wire, listener: pyqstore.Listener) -> None:
    wire.login()
    wire.tune(heartbeat=1)
    wire.open()
    wire.expect(10, 41)
    heard = []
    while (got := wire.read()) not in (CLOSED, SILENCE):
        heard.append(got)
    assert got == CLOSED
    assert heard
    assert all(each == (8, 0, b"") for each in heard)
    wait_until(lambda: listener.stats()["heartbeats_missed"] == 1)


@pytest.mark.slow
def test_heartbeats_go_on_while_python_is_busy(store: pyqstore.Store) -> None:
    """The GIL is held for three times as long as a client waits."""
    listener = store.listen("127.0.0.1:0", heartbeat=1)
    wire = connect(listener)
    wire.login()
    wire.tune(heartbeat=1)
    wire.open()
    wire.expect(10, 41)
    sum(range(2 * 10**8))  # one call of C
    heard = [wire.read() for _ in range(2)]
    assert heard == [(8, 0, b"")] * 2
    wire.close()


STATES = {
    "accepted": lambda wire: None,
    "in the header": lambda wire: wire.send(b"AMQP"),
    "started": lambda wire: wire.send(b"AMQP\0\0\x09\x01"),
    "logged in": lambda wire: wire.login(),
    "in a frame": lambda wire: (wire.ready(), wire.send(FLOW[:5])),
    "between frames of a content": lambda wire: (
        wire.ready(),
        wire.send(DECLARE + PUBLISH + content(1, 100) + frame(BODY, 1, b"x" * 50)),
    ),
    "consuming": lambda wire: (wire.ready(), wire.send(DECLARE + CONSUME)),
    "closing": lambda wire: (wire.ready(), wire.send(method(0, 10, 50, b"\0\xc8\0" + b"\0" * 4))),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", ["reset", "end"])
def test_a_client_that_is_lost_leaves_nothing(
    listener: pyqstore.Listener, store: pyqstore.Store, state: str, how: str
) -> None:
    wire = connect(listener)
    STATES[state](wire)  # type: ignore[no-untyped-call]
    if how == "reset":
        linger = struct.pack("ii", 1, 0)
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    wire.close()
    wait_for_end(listener)
    if "q" in store.queues():
        status = store.queue_status("q")
        assert (status["consumers"], status["messages_ready"]) == (0, 0)
    is_served(listener)


def test_an_end_that_comes_with_the_last_bytes_is_seen(listener: pyqstore.Listener) -> None:
    """Both are told at once, and the bytes are fewer than the server has room for."""
    for _ in range(200):
        wire = connect(listener)
        wire.send(b"AMQP")
        wire.close()
    wait_for_end(listener)


def test_what_a_lost_client_had_is_requeued(
    listener: pyqstore.Listener, wire: Wire, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"x")
    wire.ready()
    wire.send(method(1, BASIC, 70, b"\0\0" + short("q") + b"\0"))
    wire.expect(BASIC, 71)
    wire.close()
    wait_for_end(listener)
    message = get(channel, "q")
    assert message.redelivered


def test_messages_that_had_no_room_in_the_output_come_when_it_was_written(
    wire: Wire, channel: pyqstore.Channel
) -> None:
    body, count = b"x" * 3_000, 10 * UNSENT // 3_000
    channel.queue_declare("q", durable=True)
    for _ in range(count):
        channel.basic_publish("", "q", body)
    wire.ready()
    wire.send(CONSUME)
    wire.expect(BASIC, 21)
    for _ in range(count):
        wire.expect(BASIC, 60)
        assert wire.read()[0] == 2
        assert wire.read()[2] == body


def test_a_reader_that_stops_leaves_messages_in_the_queue(
    listener: pyqstore.Listener, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    body, count = b"x" * 10_000, 2_000
    channel.queue_declare("q", durable=True)
    wire = connect(listener)
    wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.ready()
    wire.send(CONSUME)  # without acknowledgements: nothing else bounds it
    wire.expect(BASIC, 21)
    for _ in range(count):
        channel.basic_publish("", "q", body)
    last = -1
    while (ready := store.queue_status("q")["messages_ready"]) != last:
        last = ready
        time.sleep(0.3)
    # What left is with the kernel, whose buffers have their own limits, and at most UNSENT with us.
    assert last > count // 2
    is_served(listener)
    wire.close()
    wait_for_end(listener)


def test_a_client_that_does_not_answer_a_close_is_cut_off(
    listener: pyqstore.Listener, wire: Wire
) -> None:
    wire.ready()
    listener.close(timeout=0.2)
    assert wire.expect(10, 50)[:2] == struct.pack(">H", 320)
    assert wire.read() == CLOSED
    assert listener.stats()["connections"] == 0


def test_announced_bodies_cost_nothing(listener: pyqstore.Listener) -> None:
    wires = [connect(listener) for _ in range(50)]
    for wire in wires:
        wire.ready()
        wire.send(DECLARE + PUBLISH + content(1, 128 << 20) + frame(BODY, 1, b"x"))
    for wire in wires:
        wire.expect(QUEUE, 11)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    is_served(listener)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    for wire in wires:
        wire.close()
    wait_for_end(listener)


def test_connections_beyond_the_limit_are_turned_away(store: pyqstore.Store) -> None:
    listener = store.listen("127.0.0.1:0", connections_max=2)
    first, second = connect(listener), connect(listener)
    first.ready()
    second.ready()
    third = connect(listener)
    assert third.read() == CLOSED
    assert listener.stats()["connections_turned_away"] == 1
    first.close()
    wait_until(lambda: listener.stats()["connections"] == 1)
    is_served(listener)
    second.close()
    third.close()


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_logins_that_wait_are_bounded(store: pyqstore.Store) -> None:
    go_on = threading.Event()
    with descriptors(4000), contextlib.ExitStack() as stack:
        listener = store.listen("127.0.0.1:0", users=lambda *_: go_on.wait(120))
        stack.callback(go_on.set)
        for _ in range(1025):
            waiting = connect(listener)
            stack.callback(waiting.close)
            waiting.login()
        wait_until(lambda: listener.stats()["logins_refused"] == 1, 60)
        wire = connect(listener)
        wire.login()
        assert wire.expect(10, 50)[:2] == (403).to_bytes(2)
        wire.close()
        go_on.set()
    wait_for_end(listener)
    is_served(listener)


def test_logins_of_clients_that_have_gone_hold_up_nobody(store: pyqstore.Store) -> None:
    go_on, asked = threading.Event(), []

    def may_enter(user: str, *_: object) -> bool:
        asked.append(user)
        return go_on.wait(120)

    listener = store.listen("127.0.0.1:0", users=may_enter)
    waiting = []
    try:
        for count in range(1, 5):  # each of the threads that ask has one
            waiting.append(connect(listener))
            waiting[-1].login()
            wait_until(lambda count=count: len(asked) == count)
        for _ in range(1100):
            gone = connect(listener)
            gone.login(b"\0gone\0secret")
            gone.close()
        wait_until(lambda: listener.stats()["connections"] == 4, 60)
        assert listener.stats()["logins_refused"] == 0
    finally:
        go_on.set()
        for wire in waiting:
            wire.close()
    is_served(listener)
    assert "gone" not in asked


def test_many_connections_come_and_go(listener: pyqstore.Listener) -> None:
    for _ in range(5):
        wires = [connect(listener) for _ in range(40)]
        for wire in wires:
            wire.send(b"AMQP\0\0\x09\x01")
        for wire in wires:
            wire.expect(10, 10)
            wire.close()
    wait_for_end(listener)
    assert listener.stats()["connections_accepted"] == 200


def test_large_bodies_are_written_where_waiting_is_allowed(
    listener: pyqstore.Listener, wire: Wire, store: pyqstore.Store
) -> None:
    """Beside them another client is served at once."""
    body, count = b"x" * 50_000, 60
    one = PUBLISH + content(1, len(body), b"\x10\0\x02") + frame(BODY, 1, body)
    wire.ready()
    wire.send(DECLARE + method(1, 85, 10, b"\0"))
    wire.expect(QUEUE, 11)
    wire.expect(85, 11)
    wire.send(one * count)
    confirmed = 0
    while confirmed < count:
        got = wire.read()
        assert not isinstance(got, str)
        assert got.method == (BASIC, 80)
        (confirmed,) = struct.unpack(">Q", got.payload[4:12])
    assert store.queue_status("q")["messages_ready"] == count
    assert listener.stats()["handovers"] > 0
