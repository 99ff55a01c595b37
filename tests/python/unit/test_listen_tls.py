"""``Store.listen(tls=...)``: pika over TLS, certificates of clients, and clients that misbehave in
front of TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.certificates import common_name
from pyqstore.serve.door import Door
from pyqstore.serve.tls import Bridge

from ..support import own_host, run_python, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
START = b"AMQP\0\0\x09\x01"
OTHER_HEADER = b"AMQP\1\1\0\x0a"


def context_of(folder: Path, name: str = "server", *, ca: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    if ca:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(folder: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.fixture
def listener(store: pyqstore.Store, certificates: Path) -> pyqstore.Listener:
    return store.listen(f"{own_host()}:0", tls=context_of(certificates), heartbeat=2)


def place(listener: pyqstore.Listener) -> tuple[str, int]:
    host, _, port = listener.address.rpartition(":")
    return host, int(port)


@contextmanager
def connected(
    listener: pyqstore.Listener, context: ssl.SSLContext, **more: Any
) -> Iterator[pika.BlockingConnection]:
    host, port = place(listener)
    more = {"heartbeat": 0, "socket_timeout": 60, "stack_timeout": 120} | more
    options = pika.SSLOptions(context, "localhost")
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(host, port, ssl_options=options, **more)
    )
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def dialed(listener: pyqstore.Listener, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """TLS without a client of AMQP."""
    with (
        socket.create_connection(place(listener), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        yield wrapped


def is_let_in(listener: pyqstore.Listener, context: ssl.SSLContext) -> bool:
    try:
        with dialed(listener, context) as client:
            client.sendall(START)
            return client.recv(1) == b"\1"
    except (ssl.SSLError, ConnectionError):
        return False


def is_served(listener: pyqstore.Listener, context: ssl.SSLContext) -> None:
    assert is_let_in(listener, context)


def bridged(
    store: pyqstore.Store, certificates: Path, host: str = "127.0.0.1", **options: Any
) -> tuple[pyqstore.Listener, Bridge]:
    """A listener whose bridge has other limits, and another address."""
    listener = store.listen("127.0.0.1:0", tls=context_of(certificates))
    first = listener._server.bridge
    listening = socket.create_server((host, 0))
    listener._address = "{}:{}".format(*listening.getsockname())
    bridge = Bridge(listener._server._adopt, listening, context_of(certificates), **options)
    listener._server.bridge = bridge
    first.accept_no_more()
    first.end()
    return listener, bridge


# ---- the main job ----


def test_messages_come_and_go_over_tls(
    listener: pyqstore.Listener, certificates: Path, store: pyqstore.Store
) -> None:
    with connected(listener, client_context(certificates)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("", "q", b"%d" % number, PERSISTENT, mandatory=True)
        channel.basic_qos(prefetch_count=20)
        got = []
        for method, _, body in channel.consume("q"):
            got.append(int(body))
            channel.basic_ack(method.delivery_tag)
            if len(got) == 300:
                break
    assert got == list(range(300))
    wait_until(lambda: store.queue_status("q")["messages_unacked"] == 0)
    assert store.queue_status("q")["messages_ready"] == 0


def test_a_large_body_goes_both_ways_over_tls(
    listener: pyqstore.Listener, certificates: Path
) -> None:
    body = os.urandom(20_000_001)
    with connected(listener, client_context(certificates)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", body, PERSISTENT)
        assert channel.basic_get("q", auto_ack=True)[2] == body


def test_a_hundred_handshakes_at_once(store: pyqstore.Store, certificates: Path) -> None:
    listener, bridge = bridged(store, certificates, handshake_s=120.0)
    ready = threading.Barrier(100)
    context = client_context(certificates)

    def come(_: int) -> bytes:
        with socket.create_connection(place(listener), timeout=120) as plain:
            ready.wait(120)
            with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                wrapped.sendall(START)
                return wrapped.recv(1)

    with ThreadPoolExecutor(100) as clients:
        assert list(clients.map(come, range(100))) == [b"\1"] * 100
    assert bridge.handshakes_failed == 0


@pytest.mark.clock
def test_heartbeats_come_over_tls(listener: pyqstore.Listener, certificates: Path) -> None:
    with connected(listener, client_context(certificates), heartbeat=2) as connection:
        connection.process_data_events(time_limit=5)
        assert connection.is_open


def test_a_reader_that_stops_over_tls_leaves_messages_in_the_queue(
    listener: pyqstore.Listener,
    certificates: Path,
    store: pyqstore.Store,
    channel: pyqstore.Channel,
) -> None:
    """What is on its way is bounded, and the bridge holds little of it."""
    body, count = b"x" * 10_000, 3_000
    channel.queue_declare("q", durable=True)
    context = client_context(certificates)
    with connected(listener, context) as connection:
        reader = connection.channel()
        got: list[bytes] = []
        reader.basic_consume("q", lambda *it: got.append(it[3]), auto_ack=True)
        for _ in range(count):
            channel.basic_publish("", "q", body)
        last = -1
        while (ready := store.queue_status("q")["messages_ready"]) != last:
            last = ready
            time.sleep(0.5)
        assert last > count // 4
        is_served(listener, context)
        while len(got) < count:
            connection.process_data_events(time_limit=60)
        assert got == [body] * count


# ---- certificates ----


def test_a_client_that_does_not_trust_the_server_goes_and_others_stay(
    listener: pyqstore.Listener, certificates: Path
) -> None:
    assert not is_let_in(listener, ssl.create_default_context())
    wait_until(lambda: listener.stats()["handshakes_failed"] == 1)
    is_served(listener, client_context(certificates))


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Path:
    """A client's certificate of another authority, and one that has expired."""
    folder = tmp_path_factory.mktemp("foreign")

    def openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-keyout", "self.key", "-out", "self.pem", "-subj", "/CN=client")
    openssl(*new, "-keyout", "expired.key", "-out", "request", "-subj", "/CN=client")
    (folder / "index").write_text("")
    (folder / "serial").write_text("01\n")
    (folder / "conf").write_text(
        "[ca]\ndefault_ca = us\n[us]\ndatabase = index\nserial = serial\nnew_certs_dir = .\n"
        "default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n"
    )
    openssl(
        *("ca", "-batch", "-config", "conf", "-in", "request", "-out", "expired.pem", "-notext"),
        *("-cert", certificates / "ca.pem", "-keyfile", certificates / "ca.key"),
        *("-startdate", "20200101000000Z", "-enddate", "20210101000000Z"),
    )
    (folder / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    return folder


@pytest.mark.parametrize("name", [None, "self", "expired"])
def test_clients_without_a_good_certificate_do_not_come_in(
    store: pyqstore.Store, certificates: Path, foreign: Path, name: str | None
) -> None:
    listener = store.listen("127.0.0.1:0", tls=context_of(certificates, ca=True))
    assert not is_let_in(listener, client_context(foreign, name))
    wait_until(lambda: listener.stats()["handshakes_failed"] == 1)
    assert listener.stats()["connections_accepted"] == 0
    is_served(listener, client_context(certificates, "client"))


def external(listener: pyqstore.Listener, certificates: Path) -> pika.BlockingConnection:
    host, port = place(listener)
    options = pika.SSLOptions(client_context(certificates, "client"), "localhost")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host, port, ssl_options=options, credentials=pika.credentials.ExternalCredentials()
        )
    )


def test_a_certificate_is_a_login(store: pyqstore.Store, certificates: Path) -> None:
    tls = context_of(certificates, ca=True)
    listener = store.listen("127.0.0.1:0", tls=tls, users={"client": "x"})
    connection = external(listener, certificates)
    channel = connection.channel()
    channel.queue_declare("q")
    as_client = pika.BasicProperties(user_id="client")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"x", as_client)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="authenticated user was 'cl"):
        channel.basic_publish("", "q", b"x", pika.BasicProperties(user_id="other"))
    connection.close()


def test_a_certificate_of_nobody_is_refused(store: pyqstore.Store, certificates: Path) -> None:
    tls = context_of(certificates, ca=True)
    for users in ({"ann": "x"}, None):
        listener = store.listen("127.0.0.1:0", tls=tls, users=users)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            external(listener, certificates)


def test_a_certificate_came_in_as_any_name_that_a_function_of_passwords_did_not_know(
    store: pyqstore.Store, certificates: Path
) -> None:
    """``passwords.get(name) == password``: None was None."""
    asked = []

    def may_enter(user: str, password: str, _peer: str) -> bool:
        asked.append(user)
        return {"ann": "secret"}.get(user) == password

    tls = context_of(certificates, ca=True)
    listener = store.listen("127.0.0.1:0", tls=tls, users=may_enter)
    with pytest.raises(pika.exceptions.AMQPConnectionError):  # EXTERNAL is not offered
        external(listener, certificates)
    door = Door(may_enter)
    assert not door("client", None, "10.0.0.1:1000", False)
    assert asked == []


@pytest.mark.parametrize("users", [{"ann": "x"}, lambda *_: False])
def test_a_function_of_certificates_says_whose_let_in(
    store: pyqstore.Store, certificates: Path, users: Any
) -> None:
    asked = []

    def is_welcome(user: str, peer: str) -> bool:
        asked.append((user, peer.rpartition(":")[0]))
        return len(asked) == 1

    tls = context_of(certificates, ca=True)
    listener = store.listen("127.0.0.1:0", tls=tls, users=users, certified=is_welcome)
    external(listener, certificates).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        external(listener, certificates)
    assert asked == [("client", "127.0.0.1")] * 2


def test_a_function_of_certificates_that_nobody_asks_for_is_an_error(
    store: pyqstore.Store, certificates: Path
) -> None:
    for tls in (None, context_of(certificates)):
        with pytest.raises(ValueError, match="no tls that asks clients for certificates"):
            store.listen("127.0.0.1:0", tls=tls, certified=lambda *_: True)
    with pytest.raises(TypeError, match="certified must be callable, not str"):
        store.listen(
            "127.0.0.1:0",
            tls=context_of(certificates, ca=True),
            certified="client",  # type: ignore[arg-type]
        )


def test_without_certificates_of_clients_external_is_not_offered(
    listener: pyqstore.Listener, certificates: Path
) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        external(listener, certificates)


def test_a_common_name_is_one_and_has_no_nul() -> None:
    def certificate(*names: str) -> dict[str, Any]:
        return {"subject": tuple((("commonName", name),) for name in names)}

    assert common_name(certificate("ann")) == "ann"
    for names in [(), ("ann", "bob"), ("ann\0bob",), ("x" * 256,)]:
        assert common_name(certificate(*names)) == ""
    assert common_name(None) == common_name({}) == ""


# ---- clients that misbehave ----


def test_a_plain_client_on_a_tls_port_is_sent_away(
    listener: pyqstore.Listener, certificates: Path
) -> None:
    with socket.create_connection(place(listener), timeout=60) as client:
        client.sendall(START)
        with contextlib.suppress(ConnectionError):
            while client.recv(1000):
                pass
    wait_until(lambda: listener.stats()["handshakes_failed"] == 1)
    is_served(listener, client_context(certificates))


@pytest.mark.clock
def test_a_client_that_does_not_end_its_handshake_is_cut_off(
    store: pyqstore.Store, certificates: Path
) -> None:
    listener, bridge = bridged(store, certificates, handshake_s=5.0)
    with (
        socket.create_connection(place(listener), timeout=60) as silent,
        socket.create_connection(place(listener), timeout=60) as slow,
    ):
        slow.sendall(b"\x16\x03\x01")  # of a hello
        is_served(listener, client_context(certificates))
        for client in (silent, slow):
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
    wait_until(lambda: bridge.handshakes_failed == 2)


def test_handshakes_that_are_too_many_make_room_for_new_ones(
    store: pyqstore.Store, certificates: Path
) -> None:
    listener, _ = bridged(store, certificates, handshakes_max=20)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(place(listener), timeout=60))
            for _ in range(60)
        ]
        is_served(listener, client_context(certificates))
        with contextlib.suppress(ConnectionError):
            assert silent[0].recv(1) == b""


def test_connections_over_tls_are_limited_as_others_are(
    store: pyqstore.Store, certificates: Path
) -> None:
    tls, context = context_of(certificates), client_context(certificates)
    listener = store.listen("127.0.0.1:0", tls=tls, connections_max=1)
    with dialed(listener, context) as first:
        first.sendall(START)
        assert first.recv(1) == b"\1"
        assert not is_let_in(listener, context)
        wait_until(lambda: listener.stats()["connections_turned_away"] == 1)


@pytest.mark.parametrize("how", ["reset", "end"])
def test_a_client_over_tls_that_is_lost_leaves_nothing(
    listener: pyqstore.Listener, certificates: Path, how: str
) -> None:
    context = client_context(certificates)
    with socket.create_connection(place(listener), timeout=60) as plain:
        wrapped = context.wrap_socket(plain, server_hostname="localhost")
        wrapped.sendall(START)
        assert wrapped.recv(1) == b"\1"
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            wrapped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wrapped.close()
    wait_until(lambda: listener.stats()["connections"] == 0)
    wait_until(lambda: not listener._server.bridge._ends)
    is_served(listener, context)


def test_a_last_word_reaches_a_client_that_has_sent_more(
    listener: pyqstore.Listener, certificates: Path
) -> None:
    """The server closes its end of the pair while the bridge still writes to it."""
    context = client_context(certificates)
    for _ in range(20):
        heard = b""
        with dialed(listener, context) as client:
            client.sendall(OTHER_HEADER + b"x" * 400_000)
            while data := client.recv(100):
                heard += data
        assert heard == START


def test_a_connection_whose_server_has_gone_ends_though_its_client_does_not_read(
    certificates: Path,
) -> None:
    adopted: list[socket.socket] = []
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    bridge = Bridge(
        lambda fd, *_: adopted.append(socket.socket(fileno=fd)), listening, context_of(certificates)
    )
    context = client_context(certificates)
    try:
        with (
            socket.create_connection(address, timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            wait_until(lambda: bool(adopted))
            server = adopted.pop()
            server.settimeout(1)
            with contextlib.suppress(TimeoutError):
                while True:
                    server.sendall(b"x" * 65_536)
            server.close()
            wait_until(lambda: not bridge._ends)
    finally:
        bridge.accept_no_more()
        bridge.end()


# ---- options and the end ----


def test_what_is_no_context_of_a_server_is_refused(store: pyqstore.Store) -> None:
    with pytest.raises(ValueError, match="context of clients"):
        store.listen("127.0.0.1:0", tls=ssl.create_default_context())
    with pytest.raises(TypeError, match="tls must be an"):
        store.listen("127.0.0.1:0", tls="server.pem")  # type: ignore[arg-type]


def test_addresses_over_tls_are_refused_as_others_are(
    store: pyqstore.Store, listener: pyqstore.Listener, certificates: Path, tmp_path: Path
) -> None:
    tls = context_of(certificates)
    with pytest.raises(OSError, match=r"in use.*take another port"):
        store.listen(listener.address, tls=tls)
    with pytest.raises(ValueError, match="HOST:PORT"):
        store.listen("127.0.0.1", tls=tls)
    with pytest.raises(ValueError, match="give users"):
        store.listen("0.0.0.0:0", tls=tls)
    with pytest.raises(ValueError, match="file system"):
        store.listen(f"unix:{tmp_path}/socket", tls=tls)


def test_a_listener_over_tls_tells_its_clients_and_frees_its_address(
    store: pyqstore.Store, listener: pyqstore.Listener, certificates: Path
) -> None:
    context = client_context(certificates)
    with (
        connected(listener, context) as connection,
        socket.create_connection(place(listener)),  # in its handshake for ever
    ):
        closer = threading.Thread(target=listener.close)
        closer.start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
            connection.process_data_events(time_limit=60)
        assert ended.value.reply_code == 320
        closer.join()
    listener.close()
    again = store.listen(listener.address, tls=context_of(certificates))
    is_served(again, context)


def test_a_closed_store_ends_its_listener_over_tls(path: Path, certificates: Path) -> None:
    store = pyqstore.open(path)
    listener = store.listen(f"{own_host()}:0", tls=context_of(certificates))
    with dialed(listener, client_context(certificates)) as client:
        client.sendall(START)
        assert client.recv(1) == b"\1"
        store.close()
        assert listener.closed
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(place(listener))


def test_a_listener_over_tls_ends_with_the_interpreter(path: Path, certificates: Path) -> None:
    done = run_python(
        "import ssl, sys, pyqstore\n"
        "tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
        "tls.load_cert_chain(sys.argv[2] + '/server.pem', sys.argv[2] + '/server.key')\n"
        "store = pyqstore.open(sys.argv[1])\n"
        "print(store.listen('127.0.0.1:0', tls=tls).address)",
        path,
        certificates,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")
    assert done.stderr == ""


def test_a_forked_child_keeps_no_connection_over_tls(
    store: pyqstore.Store, listener: pyqstore.Listener, certificates: Path
) -> None:
    context = client_context(certificates)
    with dialed(listener, context) as client:
        client.sendall(START)
        assert client.recv(1) == b"\1"
        child = os.fork()
        if child == 0:
            client.detach()
            time.sleep(600)
        try:
            listener.close(timeout=0)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while client.recv(1000):
                    pass
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(place(listener))
            store.listen(listener.address)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
