"""The HTTP server: its life, and who it lets in.  Requests are made with the standard library, so
that each header is what the test says; the rest is real: a store, sockets on loopback, threads."""

from __future__ import annotations

import http.client
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyqstore
from pyqstore.http import auth
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..documents import blocks, run
from ..serving import served
from ..support import wait_until
from .http_asking import Asking, asked

ALL = {"/": Permission()}


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as opened:
        yield opened


# ---- its life ----


def test_the_document_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path.mkdir()
    monkeypatch.chdir(path)
    (block,) = blocks("docs/HTTP.md")
    run(block, {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_server_ends_with_its_store(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store:
        server = store.serve_page(0)
        assert not server.closed
        assert Asking(server.address).get("whoami")["name"] == "guest"
    assert server.closed
    with pytest.raises(OSError):
        socket.create_connection(server.address.split(":"), 5).close()  # type: ignore[arg-type]


def test_no_thread_is_left_when_it_is_closed(store: pyqstore.Store) -> None:
    with asked(store) as asking:
        asking.get("overview")  # which begins sampling
    mine = {"pyqstore-http", "pyqstore-sampler"}
    wait_until(lambda: not mine & {thread.name for thread in threading.enumerate()})


def test_closing_twice_is_fine(store: pyqstore.Store) -> None:
    server = store.serve_page(0)
    assert server.close(5)
    assert server.close(5)


def test_a_client_that_keeps_its_connection_does_not_keep_the_server(store: pyqstore.Store) -> None:
    with store.serve_page(0) as server, closing(http.client.HTTPConnection(server.address)) as kept:
        kept.request("GET", "/api/whoami")
        kept.getresponse().read()
        assert server.close(5)


def test_an_address_that_is_taken_is_an_error(store: pyqstore.Store) -> None:
    with store.serve_page(0) as server:
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(OSError, match=str(port)):
            store.serve_page(port)


def test_other_machines_are_not_served_without_users(store: pyqstore.Store) -> None:
    with pytest.raises(ValueError, match="guest comes in from this machine alone"):
        store.serve_page(0, "0.0.0.0")


def test_what_is_no_tls_context_is_refused_before_anything_listens(store: pyqstore.Store) -> None:
    with pytest.raises(TypeError, match=r"tls must be ssl\.SSLContext or None, not str"):
        store.serve_page(0, tls="certificate.pem")  # type: ignore[arg-type]


def test_a_host_is_text_and_is_not_waited_for(store: pyqstore.Store) -> None:
    """A trace is an iterable that goes on until its store is closed."""
    with store.trace() as trace, pytest.raises(TypeError, match="host must be str, not"):
        store.serve_page(0, trace)  # type: ignore[arg-type]


def test_a_server_is_not_pickled(store: pyqstore.Store) -> None:
    with store.serve_page(0) as server, pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(server)


def test_a_closed_store_is_not_served(store: pyqstore.Store) -> None:
    store.close()
    with pytest.raises(pyqstore.StoreClosed):
        store.serve_page(0)


def test_serve_tells_its_address_and_ends_in_order(tmp_path: Path) -> None:
    with served(tmp_path / "store", "--http", "127.0.0.1:0") as process:
        address = process.addresses()["http"]
        assert Asking(address).get("whoami")["name"] == "guest"
        status, out, err = process.end()
    assert (status, err) == (0, "")
    assert f"http: accepting at {address}" in out


def test_a_socket_in_the_file_system_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "page"
    with served(tmp_path / "store", "--http", f"unix:{path}") as process:
        assert process.addresses()["http"] == f"unix:{path}"
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(os.fspath(path))
            client.sendall(b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 401 ")
        assert process.end()[0] == 0
    assert not path.exists()


# ---- who comes in ----


def test_without_a_login_nothing_is_told(ask: Asking) -> None:
    for path in ("/api/overview", "/metrics", "/", "/nowhere"):
        answer = ask("GET", path, login=None)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Basic realm=")


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Bearer x", "Basic /w=="]
)
def test_a_login_that_is_none_is_refused(ask: Asking, header: str) -> None:
    answer = ask("GET", "/api/whoami", login=None, headers={"Authorization": header})
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")


def test_a_wrong_password_is_refused_and_the_next_refusal_waits(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(auth, "asyncio", SimpleNamespace(sleep=sleep))  # not the server's
    for _ in range(8):
        assert ask("GET", "/api/whoami", login=("guest", "wrong")).status == 401
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_users_who_are_given_come_in_and_guest_does_not(store: pyqstore.Store) -> None:
    with asked(store, users={"ann": "secret"}) as asking:
        assert asking("GET", "/api/whoami").status == 401
        told = asking("GET", "/api/whoami", login=("ann", "secret")).json
    assert told == {"name": "ann", "tags": ["administrator"]}


def test_a_function_says_who_comes_in(store: pyqstore.Store) -> None:
    def may_enter(name: str, password: str, peer: str) -> bool:
        return (name, password, peer.startswith("[127.0.0.1]:")) == ("ann", "secret", True)

    with asked(store, users=may_enter) as asking:
        assert asking("GET", "/api/whoami", login=("ann", "secret")).status == 200
        assert asking("GET", "/api/whoami", login=("ann", "other")).status == 401


def test_calls_that_wait_keep_no_login_out(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, waiting = threading.Event(), threading.Semaphore(0)
    channel = pyqstore.Store.channel

    def late(store: pyqstore.Store) -> pyqstore.Channel:
        waiting.release()
        assert goes_on.wait(60)
        return channel(store)

    monkeypatch.setattr(pyqstore.Store, "channel", late)
    with asked(store, users={"ann": "a", "ben": "b"}) as asking:
        calls = [
            threading.Thread(
                target=asking,
                args=("PUT", f"/api/queues/%2F/q{number}", {}),
                kwargs={"login": ("ann", "a")},
            )
            for number in range(45)  # more than there are threads for calls
        ]
        for call in calls:
            call.start()
        for _ in range(40):
            assert waiting.acquire(timeout=60)
        assert asking("GET", "/api/nothing", login=("ben", "b")).status == 404
        assert asking("GET", "/api/nothing", login=("ben", "x")).status == 401
        goes_on.set()
        for call in calls:
            call.join(60)
    assert len(store.queues()) == 45


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Asking]:
    users = {
        "root": User(hashed("p"), ("administrator",), ALL),
        "watch": User(hashed("p"), ("monitoring",), {}),
        "some": User(hashed("p"), ("management",), {"/": Permission("^own", "^own", "^own")}),
        "none": User(hashed("p"), (), ALL),
    }
    with changed_users(tmp_path / "store", create=True) as changed:
        changed.update(users)
    with pyqstore.open(tmp_path / "store") as store:
        store.channel().queue_declare("q")
        with asked(store) as asking:
            yield asking


def test_tags_say_what_a_user_may_see(stored: Asking) -> None:
    def status(user: str, path: str, method: str = "GET", body: object = None) -> int:
        return stored(method, f"/api/{path}", body, login=(user, "p")).status

    assert status("none", "whoami") == 401
    assert [status(user, "overview") for user in ("root", "watch", "some")] == [200, 200, 200]
    assert [status(user, "users") for user in ("root", "watch", "some")] == [200, 401, 401]
    assert stored.get("queues", login=("watch", "p"))[0]["name"] == "q"
    assert status("watch", "queues/%2F/own", "PUT", {}) == 401
    assert status("some", "queues/%2F/other", "PUT", {}) == 401
    assert status("some", "queues/%2F/own", "PUT", {}) == 201
    assert status("some", "queues/%2F/q/contents", "DELETE") == 401


def test_a_password_that_was_changed_counts_at_once(stored: Asking, tmp_path: Path) -> None:
    assert stored("GET", "/api/whoami", login=("root", "p")).status == 200
    with changed_users(tmp_path / "store") as users:
        users["root"] = User(hashed("new"), ("administrator",), ALL)
    assert stored("GET", "/api/whoami", login=("root", "p")).status == 401
    assert stored("GET", "/api/whoami", login=("root", "new")).status == 200


# ---- other sites ----


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_requests_of_other_sites_change_nothing(
    ask: Asking, store: pyqstore.Store, headers: dict[str, str]
) -> None:
    for method, path in (("PUT", "/api/queues/%2F/q"), ("GET", "/api/aliveness-test/%2F")):
        assert ask(method, path, {} if method == "PUT" else None, headers=headers).status == 403
    assert store.queues() == []


def test_the_servers_own_page_may_change_things(ask: Asking, store: pyqstore.Store) -> None:
    own = {"Origin": f"http://{ask.address}", "Sec-Fetch-Site": "same-origin"}
    assert ask("PUT", "/api/queues/%2F/q", {}, headers=own).status == 201
    assert store.queues() == ["q"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:15672", 403),
        ("", 403),
        ("localhost:1", 200),
        ("[::1]:1", 200),
        ("10.1.2.3", 200),
        ("queues.example", 200),
        ("QUEUES.example:80", 200),
    ],
)
def test_only_names_of_the_server_are_answered(
    store: pyqstore.Store, host: str, status: int
) -> None:
    with asked(store, hosts=["queues.example"]) as asking:
        assert asking("GET", "/api/whoami", headers={"Host": host}).status == status


# ---- bounds ----


def test_a_body_that_is_too_large_is_refused_before_it_is_read(ask: Asking) -> None:
    with closing(http.client.HTTPConnection(ask.address, timeout=30)) as connection:
        connection.putrequest("PUT", "/api/queues/%2F/q")
        connection.putheader("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
