"""Connections over HTTP that let the server wait: how many there may be, and for how long.  Clients
are plain sockets, so that each byte is sent when the test says; the server is the real one.  Its
bounds are class attributes, which a test lowers before the server begins.  No test asserts that
something was quick: what must end is waited for, and what must stay is asked again."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore.http.connections import Connections
from pyqstore.http.server import HttpServer

from .http_asking import Asking

LOGIN = b"Host: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
WHOAMI = b"GET /api/whoami HTTP/1.1\r\n" + LOGIN + b"\r\n"
LAST = WHOAMI.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
EVENTS = b"GET /page/live?view=overview HTTP/1.1\r\n" + LOGIN + b"\r\n"
LOWERED_S = 0.3
LONG_S = 1000.0


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine ends nothing that a test does not want to end."""
    for name in ("head_s", "idle_s", "stall_s"):
        monkeypatch.setattr(Connections, name, LONG_S)


@pytest.fixture(autouse=True)
def clients() -> Iterator[ExitStack]:
    """They are in this process too, and need descriptors of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield stack


@pytest.fixture
def connect(clients: ExitStack) -> Callable[[HttpServer], socket.socket]:
    def connected(server: HttpServer) -> socket.socket:
        host, _, port = server.address.rpartition(":")
        return clients.enter_context(socket.create_connection((host, int(port)), timeout=60))

    return connected


Connect = Callable[[HttpServer], socket.socket]


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        client.settimeout(60)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def ends(client: socket.socket) -> bool:
    """Whether the server closes the connection; of its answer nothing is looked at."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass  # it was closed with something unread
    return True  # else there was a timeout


def answer(client: socket.socket) -> int:
    """The status of an answer, which is read to its end."""
    response = http.client.HTTPResponse(client)
    response.begin()
    response.read()
    return response.status


def opened(server: HttpServer) -> int:
    return len(server._connections)


# ---- how many ----


def test_a_request_is_answered_while_600_clients_say_nothing(
    store: pyqstore.Store, connect: Connect
) -> None:
    with store.serve_page(0) as server:
        silent = [connect(server) for _ in range(600)]
        for _ in range(3):
            assert Asking(server.address).get("whoami")["name"] == "guest"
        wait_until(lambda: opened(server) <= Connections.silent_max)
        wait_until(lambda: sum(map(is_open, silent)) <= Connections.silent_max)
        assert is_open(silent[-1])
        assert not is_open(silent[0])


def test_clients_that_ask_stay_when_silent_ones_come(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "silent_max", 4)
    with store.serve_page(0) as server:
        stream = connect(server)
        stream.sendall(EVENTS)
        assert stream.recv(12) == b"HTTP/1.1 200"
        uploading = connect(server)
        uploading.sendall(b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + LOGIN + b"Content-Length: 2\r\n")
        uploading.sendall(b"\r\n")
        Asking(server.address).get("whoami")  # so that both heads have been read
        silent = [connect(server) for _ in range(40)]
        wait_until(lambda: sum(map(is_open, silent)) <= Connections.silent_max)
        assert is_open(stream)
        uploading.sendall(b"{}")
        assert answer(uploading) == 201


def test_clients_that_all_ask_at_once_are_all_answered(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come and was not read yet is no silence."""
    monkeypatch.setattr(Connections, "silent_max", 4)
    with store.serve_page(0) as server:
        asking = []
        for _ in range(40):
            asking.append(connect(server))
            asking[-1].sendall(LAST)
        assert [answer(client) for client in asking] == [200] * 40


def test_a_client_above_the_bound_is_closed_when_nobody_is_silent(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "connections_max", 3)
    with store.serve_page(0) as server:
        streams = [connect(server) for _ in range(3)]
        for stream in streams:
            stream.sendall(EVENTS)
            assert stream.recv(12) == b"HTTP/1.1 200"
        for _ in range(20):
            assert ends(connect(server))
        assert all(map(is_open, streams))
        streams.pop().close()
        wait_until(lambda: opened(server) < 3)
        assert Asking(server.address).get("whoami")["name"] == "guest"


def test_descriptors_are_left_to_others(
    store: pyqstore.Store, connect: Connect, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "descriptors_kept", 10)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with store.serve_page(0) as server:
        Asking(server.address).get("whoami")
        highest = max(clients.enter_context(socket.socket()).fileno() for _ in range(8))
        limit = highest + 40
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

        def is_served() -> bool:
            stream = connect(server)
            with suppress(ConnectionError):
                stream.sendall(EVENTS)
                return stream.recv(12) == b"HTTP/1.1 200"
            return False

        served = 0
        while is_served():  # two descriptors each, as the clients are in this process
            served += 1
            assert served <= 16  # 40, without the 10, for two each; one more where counting begins
        assert served > 0


# ---- for how long ----


@pytest.mark.parametrize("begin", [b"", b"GET /api/whoami HT", WHOAMI[:-2]])
def test_a_head_that_does_not_come_ends_the_connection(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(Connections, "head_s", LOWERED_S)
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(begin)
        assert ends(client)


def test_a_head_that_comes_byte_by_byte_ends_the_connection(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "head_s", LOWERED_S)
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: ")

        def is_refused() -> bool:
            try:
                client.sendall(b"x")
            except ConnectionError:
                return True
            return not is_open(client)

        wait_until(is_refused)


@pytest.mark.clock
def test_the_next_head_is_waited_for_from_its_first_byte(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(WHOAMI)
        assert answer(client) == 200
        monkeypatch.setattr(Connections, "head_s", LOWERED_S)
        time.sleep(5 * LOWERED_S)  # between requests another time counts
        client.sendall(WHOAMI[:-2])
        monkeypatch.setattr(Connections, "head_s", LONG_S)
        client.sendall(WHOAMI[-2:])
        assert answer(client) == 200
        monkeypatch.setattr(Connections, "head_s", LOWERED_S)
        client.sendall(WHOAMI[:-2])
        assert ends(client)


def test_a_connection_without_a_next_request_ends(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "idle_s", LOWERED_S)
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(WHOAMI)
        assert ends(client)


def test_a_body_that_nobody_wants_does_not_keep_the_connection(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\n")
        client.sendall(b"Content-Length: 1000\r\n\r\n")
        assert answer(client) == 401
        client.sendall(b"x")
        monkeypatch.setattr(Connections, "idle_s", LOWERED_S)
        assert ends(client)


def test_a_body_that_does_not_go_on_ends_the_connection(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "stall_s", LOWERED_S)
    with store.serve_page(0) as server:
        client = connect(server)
        client.sendall(b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + LOGIN)
        client.sendall(b"Content-Length: 1000\r\n\r\n{")
        assert ends(client)
        assert store.queues() == []
        monkeypatch.setattr(Connections, "stall_s", LONG_S)
        assert Asking(server.address).get("whoami")["name"] == "guest"


def test_an_answer_that_is_not_taken_ends_the_connection(
    store: pyqstore.Store, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "stall_s", LOWERED_S)
    for number in range(500):
        store.channel().queue_declare(f"{number}-{'x' * 200}")
    with store.serve_page(0) as server:
        host, _, port = server.address.rpartition(":")
        client = clients.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect((host, int(port)))
        ask = b"GET /api/queues HTTP/1.1\r\n" + LOGIN + b"\r\n"
        client.sendall(ask * 40)
        assert client.recv(1) == b"H"  # and takes no more
        wait_until(lambda: opened(server) == 0)


def test_a_stream_of_events_stays_when_all_times_are_over(
    store: pyqstore.Store, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.serve_page(0) as server:
        stream = connect(server)
        stream.sendall(EVENTS)
        assert stream.recv(12) == b"HTTP/1.1 200"
        for name in ("head_s", "idle_s", "stall_s"):
            monkeypatch.setattr(Connections, name, LOWERED_S)
        assert ends(connect(server))  # so that the server has looked at all of them
        assert ends(connect(server))
        assert is_open(stream)


def test_a_connection_takes_many_requests(store: pyqstore.Store, connect: Connect) -> None:
    with store.serve_page(0) as server:
        client = connect(server)
        for _ in range(20):
            client.sendall(WHOAMI)
            assert answer(client) == 200
        client.sendall(WHOAMI * 20 + LAST)
        with client.makefile("rb") as answers:
            assert answers.read().count(b"HTTP/1.1 200 OK\r\n") == 21


# ---- TLS, and the end ----


@contextmanager
def served_by_tls(
    store: pyqstore.Store, certificates: Path
) -> Iterator[tuple[HttpServer, ssl.SSLContext]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with store.serve_page(0, tls=context) as server:
        yield server, trusting


def asks_by_tls(server: HttpServer, trusting: ssl.SSLContext) -> int:
    return answer_by_tls(server, trusting, "whoami")[0]


def answer_by_tls(server: HttpServer, trusting: ssl.SSLContext, path: str) -> tuple[int, Any]:
    asking = http.client.HTTPSConnection(server.address, timeout=60, context=trusting)
    with closing(asking):
        asking.request("GET", f"/api/{path}", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        answer = asking.getresponse()
        return answer.status, json.loads(answer.read())


def test_silence_before_the_handshake_of_tls_counts_too(
    store: pyqstore.Store, connect: Connect, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "silent_max", 8)
    with served_by_tls(store, certificates) as (server, trusting):
        silent = [connect(server) for _ in range(40)]
        assert asks_by_tls(server, trusting) == 200
        wait_until(lambda: sum(map(is_open, silent)) <= 8)
        monkeypatch.setattr(Connections, "head_s", LOWERED_S)
        assert all(map(ends, silent))
        monkeypatch.setattr(Connections, "head_s", LONG_S)
        assert asks_by_tls(server, trusting) == 200


@pytest.mark.parametrize("has_tls", [False, True])
def test_silent_clients_do_not_keep_a_server_that_closes(
    store: pyqstore.Store, connect: Connect, certificates: Path, has_tls: bool
) -> None:
    with ExitStack() as stack:
        if has_tls:
            server, _ = stack.enter_context(served_by_tls(store, certificates))
        else:
            server = stack.enter_context(store.serve_page(0))
        silent = [connect(server) for _ in range(20)]
        wait_until(lambda: opened(server) == 20)
        assert server.close(LONG_S)
        assert all(map(ends, silent))
        assert opened(server) == 0


def test_certificates_that_expire_soon_are_told_of(
    store: pyqstore.Store, certificates: Path
) -> None:
    """The fixture's are valid for two days; an address without TLS has none."""
    check = "health/checks/certificate-expiration"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asking.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    asking.load_verify_locations(certificates / "ca.pem")
    asking.verify_mode = ssl.CERT_REQUIRED
    store.listen("127.0.0.1:0")
    with_tls = store.listen("127.0.0.1:0", tls=asking)
    with served_by_tls(store, certificates) as (server, trusting):
        assert answer_by_tls(server, trusting, f"{check}/1/days") == (200, {"status": "ok"})
        status, told = answer_by_tls(server, trusting, f"{check}/1/weeks")
        assert (status, told["status"]) == (503, "failed")
        assert told["reason"] == "Certificates expiring"
        found = {(each["protocol"], each["port"]) for each in told["expired"]}
        ports = [int(each.address.rpartition(":")[2]) for each in (with_tls, server)]
        assert found == {("amqp/ssl", ports[0]), ("https", ports[1])}
        for wrong in ("x/days", "-1/days", "1/foos", "1/day"):
            assert answer_by_tls(server, trusting, f"{check}/{wrong}")[0] == 400
        with_tls.close()
        status, told = answer_by_tls(server, trusting, f"{check}/1/years")
        assert [each["protocol"] for each in told["expired"]] == ["https"]
