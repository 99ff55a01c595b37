"""The end of a listener: what its clients have heard of when they are told to go."""

import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore

from ..differential.wire import CONNECTION, Frame, Wire, body, content, long, method, short
from ..support import wait_until

QUEUE, BASIC, CONFIRM = 50, 60, 85
ACK = (BASIC, 80)
BURST = b"".join(
    method(1, BASIC, 40, b"\0\0" + short("") + short("q") + b"\0")
    + content(1, 1, b"\x10\0\2")
    + body(1, b"x")
    for _ in range(50)
)


def publisher(port: int) -> Wire:
    """Its confirms come on channel 1, for the durable queue q."""
    wire = Wire(port, 60)
    wire.ready()
    wire.send(method(1, QUEUE, 10, b"\0\0" + short("q") + b"\2" + long(b"")))
    wire.expect(QUEUE, 11)
    wire.send(method(1, CONFIRM, 10, b"\0"))
    wire.expect(CONFIRM, 11)
    return wire


def publish_until(told: threading.Event, wire: Wire) -> None:
    while not told.is_set():
        wire.send(BURST)


def confirmed_until_close(wire: Wire) -> int:
    """How many, when connection.close 320 came."""
    confirmed = 0
    while True:
        got = wire.read()
        assert isinstance(got, Frame), got
        if got.method == (CONNECTION, 50):
            assert struct.unpack(">H", got.payload[4:6]) == (320,)
            return confirmed
        assert got.method == ACK
        confirmed = max(confirmed, *struct.unpack(">Q", got.payload[4:12]))


@pytest.mark.parametrize(
    "end",
    [lambda _, listener: listener.close(60), lambda store, _: store.close()],
    ids=["listener", "store"],
)
def test_a_listener_ended_before_it_had_confirmed_what_it_had_read(
    path: Path, end: Callable[[pyqstore.Store, pyqstore.Listener], None]
) -> None:
    store = pyqstore.open(path)
    listener = store.listen("127.0.0.1:0")
    wire = publisher(int(listener.address.rpartition(":")[2]))
    told = threading.Event()
    sender = threading.Thread(target=publish_until, args=(told, wire))
    sender.start()
    wait_until(lambda: store.queue_status("q")["messages_ready"] > 1000)
    ender = threading.Thread(target=end, args=(store, listener))
    ender.start()
    try:
        confirmed = confirmed_until_close(wire)
    finally:
        told.set()
        sender.join()
    wire.send(method(0, CONNECTION, 51))
    ender.join()
    wire.close()
    store.close()
    with pyqstore.open(path) as again:
        assert again.queue_status("q")["messages_ready"] == confirmed
