"""``Store.listen(proxy_protocol=True)``: the tests are the proxy, and say who the client is."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyqstore

from ..differential.wire import CLOSED, Wire
from ..serving import served
from ..support import wait_until
from .test_listen_tls import START, bridged, client_context, context_of, place

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FAR = "203.0.113.7:40000"
V1 = b"PROXY TCP4 203.0.113.7 198.51.100.9 40000 5672\r\n"
V1_NEAR = b"PROXY TCP4 127.0.0.9 127.0.0.1 40000 5672\r\n"
LOCAL = SIGNATURE + b"\x20\0\0\0"
UNKNOWN = b"PROXY UNKNOWN\r\n"


def binary(source: str, extensions: bytes = b"") -> bytes:
    """Version 2, of a connection from port 40000 there."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    kind = 0x21 if ":" in source else 0x11
    hosts = socket.inet_pton(family, source) * 2
    block = hosts + struct.pack(">HH", 40000, 5672) + extensions
    return SIGNATURE + struct.pack(">BBH", 0x21, kind, len(block)) + block


V2 = binary("203.0.113.7")
HEADERS = {
    "1, IPv4": (V1, FAR),
    "1, IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::9 40000 5672\r\n", "[2001:db8::7]:40000"),
    "2, IPv4": (V2, FAR),
    "2, IPv6": (binary("2001:db8::7"), "[2001:db8::7]:40000"),
    "2, with extensions": (
        binary("203.0.113.7", b"\x04" + struct.pack(">H", 2000) + bytes(2000)),
        FAR,
    ),
    "1, unknown": (UNKNOWN, None),
    "2, local": (LOCAL, None),
}


class Asked:
    """A function of users that lets ann in, and keeps the addresses that it was told."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    def __call__(self, name: str, password: str, peer: str) -> bool:
        self.peers.append(peer)
        return (name, password) == ("ann", "secret")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def listener(store: pyqstore.Store, asked: Asked) -> pyqstore.Listener:
    return store.listen("127.0.0.1:0", users=asked, proxy_protocol=True)


@contextlib.contextmanager
def dialed(listener: pyqstore.Listener, *sent: bytes) -> Iterator[Wire]:
    wire = Wire(place(listener)[1], 60.0)
    try:
        for data in sent:
            wire.send(data)
        yield wire
    finally:
        wire.close()


def own(wire: Wire) -> str:
    return "{}:{}".format(*wire._socket.getsockname())


def enter(wire: Wire, name: str = "ann", password: str = "secret") -> None:
    wire.login(f"\0{name}\0{password}".encode())
    wire.tune()
    wire.open()
    wire.expect(10, 41)


def is_refused(wire: Wire, name: str, password: str) -> bool:
    wire.login(f"\0{name}\0{password}".encode())
    return not (isinstance(got := wire.read(), tuple) and got.method == (10, 30))


@pytest.mark.parametrize("which", HEADERS)
@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_client_behind_a_proxy_has_its_own_address(
    listener: pyqstore.Listener, asked: Asked, which: str, by_bytes: bool
) -> None:
    header, peer = HEADERS[which]
    parts = [header[i : i + 1] for i in range(len(header))] if by_bytes else [header]
    with dialed(listener, *parts) as wire:
        enter(wire)
        assert asked.peers == [peer or own(wire)]


def test_a_header_and_what_the_client_sends_may_come_together(
    listener: pyqstore.Listener, asked: Asked
) -> None:
    for header in (V1, V2, LOCAL, UNKNOWN):
        with dialed(listener, header + START) as wire:
            wire.expect(10, 10)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (START, "the connection begins with something else"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", "its line has a LF without CR, or a NUL"),
        (b"PROXY " + b"x" * 200, "its line has more than 107 bytes"),
        (SIGNATURE + b"\x21\x12", "it is of datagrams, and AMQP is a stream"),
        (SIGNATURE + b"\x21\x11\xff\xff", "it has more than 4096 bytes"),
    ],
)
def test_what_begins_without_a_header_is_closed_with_one_line_of_the_log(
    listener: pyqstore.Listener,
    store: pyqstore.Store,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    why: str,
) -> None:
    with caplog.at_level("INFO", "pyqstore"):
        with dialed(listener, sent) as wire:
            assert wire.read() == CLOSED
            peer = own(wire)
        with dialed(listener, V1) as wire:
            enter(wire)  # others are served
            wire.close()
        store.close()  # the last note has been told
    told = [each.getMessage() for each in caplog.records if peer in each.getMessage()]
    assert told == [f"AMQP {peer}: closed: no PROXY header: {why}"]


def test_a_client_that_ends_within_its_header_leaves_nothing(
    listener: pyqstore.Listener, store: pyqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "pyqstore"):
        for sent in (b"", V1[:10], V2[:20]):
            with dialed(listener, sent):
                pass
        wait_until(lambda: listener.stats()["connections_accepted"] == 3)
        wait_until(lambda: listener.stats()["connections"] == 0)
        store.close()
    told = [each.getMessage() for each in caplog.records if "ended before" in each.getMessage()]
    assert len(told) == 3


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", V1[:10], V2[:20]])
def test_a_header_that_does_not_come_in_time_is_waited_for_no_longer(
    listener: pyqstore.Listener,
    store: pyqstore.Store,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
) -> None:
    with caplog.at_level("INFO", "pyqstore"):
        with dialed(listener, sent) as wire:
            assert wire.read() == CLOSED
            peer = own(wire)
        store.close()
    told = [each.getMessage() for each in caplog.records if peer in each.getMessage()]
    assert told == [f"AMQP {peer}: closed: no PROXY header came in time"]


def test_a_listener_that_is_closed_waits_for_no_header(listener: pyqstore.Listener) -> None:
    with dialed(listener, V1[:10]) as wire:
        wait_until(lambda: listener.stats()["connections"] == 1)
        listener.close()
        while wire.read() != CLOSED:
            pass


def test_guest_comes_in_from_this_machine_alone_also_behind_a_proxy(store: pyqstore.Store) -> None:
    listener = store.listen("127.0.0.1:0", proxy_protocol=True)
    for header in (V1_NEAR, LOCAL, UNKNOWN, binary("::1")):
        with dialed(listener, header) as wire:
            enter(wire, "guest", "guest")
    for header in (V1, V2, binary("2001:db8::7")):
        with dialed(listener, header) as wire:
            assert is_refused(wire, "guest", "guest")


@pytest.mark.slow
def test_failures_count_for_the_address_of_the_header(
    listener: pyqstore.Listener, asked: Asked
) -> None:
    for _ in range(10):
        with dialed(listener, V1) as wire:
            assert is_refused(wire, "ann", "guess")
    with dialed(listener, V2) as wire:
        assert is_refused(wire, "ann", "secret")
    assert len(asked.peers) == 10  # and not about the eleventh
    with dialed(listener, binary("203.0.113.8")) as wire:
        enter(wire)


def test_the_log_has_the_address_of_the_header(
    listener: pyqstore.Listener, store: pyqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "pyqstore"):
        with dialed(listener, V1) as wire:
            assert is_refused(wire, "ann", "guess")
        store.close()
    assert f"AMQP {FAR}: login as 'ann' refused" in [r.getMessage() for r in caplog.records]


def test_a_header_that_no_proxy_was_asked_for_is_no_protocol(
    store: pyqstore.Store, asked: Asked
) -> None:
    listener = store.listen("127.0.0.1:0", users=asked)
    with dialed(listener, V1) as wire:
        assert wire.read() == "header b'AMQP\\x00\\x00\\t\\x01'"
    assert asked.peers == []


def test_a_proxy_may_come_over_a_socket_in_the_file_system(
    store: pyqstore.Store, asked: Asked, tmp_path: Path
) -> None:
    store.listen(f"unix:{tmp_path / 's'}", users=asked, proxy_protocol=True)
    for header in (V1, V2):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(tmp_path / "s"))
            for part in (header[:5], header[5:] + START):
                client.sendall(part)
            assert client.recv(1) == b"\1"


def test_many_clients_behind_a_proxy_at_once(listener: pyqstore.Listener, asked: Asked) -> None:
    def come(number: int) -> None:
        with dialed(listener, binary(f"203.0.113.{number}")) as wire:
            enter(wire)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(1, 51)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(asked.peers) == sorted(f"203.0.113.{number}:40000" for number in range(1, 51))


# ---- TLS that ends at the listener ----


@contextlib.contextmanager
def over_tls(
    listener: pyqstore.Listener, context: ssl.SSLContext, *header: bytes
) -> Iterator[Wire]:
    wire = Wire(place(listener)[1], 60.0)
    for part in header:
        wire.send(part)
    wire._socket = context.wrap_socket(wire._socket, server_hostname="localhost")
    try:
        yield wire
    finally:
        wire.close()


@pytest.mark.parametrize("which", HEADERS)
def test_the_header_of_a_proxy_comes_before_tls(
    store: pyqstore.Store, asked: Asked, certificates: Path, which: str
) -> None:
    header, peer = HEADERS[which]
    tls = context_of(certificates)
    listener = store.listen("127.0.0.1:0", users=asked, tls=tls, proxy_protocol=True)
    for parts in ([header], [header[:3], header[3:-1], header[-1:]]):
        with over_tls(listener, client_context(certificates), *parts) as wire:
            enter(wire)
            assert asked.peers[-1] == (peer or own(wire))


def first_bytes(context: ssl.SSLContext) -> bytes:
    """Of a client's handshake."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def test_a_header_and_a_handshake_may_come_together(
    store: pyqstore.Store, asked: Asked, certificates: Path
) -> None:
    tls = context_of(certificates)
    listener = store.listen("127.0.0.1:0", users=asked, tls=tls, proxy_protocol=True)
    with dialed(listener, V1 + first_bytes(client_context(certificates))) as wire:
        assert wire._socket.recv(1) == b"\x16"  # of a handshake


@pytest.mark.parametrize("how", ["tls", "header"])
def test_tls_without_a_header_is_closed_with_one_line_of_the_log(
    store: pyqstore.Store, certificates: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    tls = context_of(certificates)
    listener = store.listen("127.0.0.1:0", tls=tls, proxy_protocol=True)
    sent = first_bytes(client_context(certificates)) if how == "tls" else b"PROXY TCP5 \r\n"
    with caplog.at_level("DEBUG", "pyqstore"):
        with dialed(listener, sent) as wire:
            assert wire.read() == CLOSED
            peer = own(wire)
        wait_until(lambda: listener.stats()["handshakes_failed"] == 1)
    wait_until(lambda: peer in caplog.text)
    told = [each.getMessage() for each in caplog.records if peer in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"AMQP {peer}: closed: no PROXY header: ")


def test_a_header_before_tls_that_does_not_come_in_time_is_waited_for_no_longer(
    store: pyqstore.Store, certificates: Path
) -> None:
    listener, bridge = bridged(store, certificates, handshake_s=2.0, proxy_protocol=True)
    for sent in (b"", V1[:10], V2[:20]):
        with dialed(listener, sent) as wire:
            assert wire.read() == CLOSED
    wait_until(lambda: bridge.handshakes_failed == 3)


def test_guest_over_tls_comes_in_from_this_machine_alone_also_behind_a_proxy(
    store: pyqstore.Store, certificates: Path
) -> None:
    tls = context_of(certificates)
    listener = store.listen("127.0.0.1:0", tls=tls, proxy_protocol=True)
    with over_tls(listener, client_context(certificates), V1_NEAR) as wire:
        enter(wire, "guest", "guest")
    with over_tls(listener, client_context(certificates), V1) as wire:
        assert is_refused(wire, "guest", "guest")


# ---- the command ----


def test_serve_stands_behind_a_proxy_when_it_is_told(path: Path) -> None:
    with served(path, "--listen", "127.0.0.1:0", "--proxy-protocol") as server:
        port = int(server.addresses()["amqp"].rpartition(":")[2])
        for header, comes_in in ((V1_NEAR, True), (V1, False)):
            wire = Wire(port, 60.0)
            wire.send(header)
            if comes_in:
                enter(wire, "guest", "guest")
            else:
                assert is_refused(wire, "guest", "guest")
            wire.close()
        status, _, complaints = server.end()
    assert status == 0
    assert f"AMQP {FAR}: login as 'guest' refused" in complaints
