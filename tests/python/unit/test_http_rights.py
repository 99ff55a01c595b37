"""Who may do what over HTTP: users of a store's file with patterns and tags, by the API and by the
page's actions.  What one way refuses the other must refuse, too, as AMQP does."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..support import wait_until
from .http_asking import Answer, Asking, asked

MINE = Permission("^mine", "^mine", "^mine")
NOT_AMQ = Permission(".*", r"^(?!amq\.)", ".*")
USERS = {
    "root": (("administrator",), Permission()),
    "watch": (("monitoring",), Permission()),
    "ann": (("management",), MINE),
    "eve": (("management",), NOT_AMQ),
    "app": ((), Permission()),
}
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
PUBLISH = "/api/exchanges/%2F/amq.default/publish"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with changed_users(tmp_path / "store", create=True) as users:
        secret = hashed("p")
        for name, (tags, permission) in USERS.items():
            users[name] = User(secret, tags, {"/": permission})
    with pyqstore.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def root(store: pyqstore.Store) -> Iterator[Asking]:
    with asked(store) as asking:
        asking.login = ("root", "p")
        yield asking


def act(root: Asking, user: str, name: str, **given: Any) -> Answer:
    login = (user, "p")
    token = root("GET", "/page/session", login=login).json["token"]
    headers = {"x-page-token": token}
    return root("POST", f"/page/action/{name}", given, login=login, headers=headers)


@pytest.mark.parametrize(
    ("kind", "arguments", "is_allowed"),
    [
        ("queue", {"x-dead-letter-exchange": "secret"}, False),
        ("queue", {"x-dead-letter-exchange": ""}, False),
        ("queue", {"x-stream-source": "secret"}, False),
        ("queue", {"x-dead-letter-exchange": "mine too"}, True),
        ("exchange", {"alternate-exchange": "secret"}, False),
        ("exchange", {"alternate-exchange": "mine too"}, True),
    ],
)
def test_a_declare_needs_rights_to_what_its_arguments_name(
    root: Asking, store: pyqstore.Store, kind: str, arguments: Any, is_allowed: bool
) -> None:
    typed = json.dumps(arguments)
    by_page = act(root, "ann", f"declare_{kind}", type="fanout", arguments=typed, **{kind: "mine"})
    assert by_page.status == (200 if is_allowed else 403)
    path = f"/api/{kind}s/%2F/mine"
    by_api = root("PUT", path, {"type": "fanout", "arguments": arguments}, login=("ann", "p"))
    assert by_api.status == (204 if is_allowed else 401)
    assert ("mine" in (*store.queues(), *store.exchanges())) == is_allowed


def test_a_queue_without_a_name_needs_a_right_to_the_one_it_gets(root: Asking) -> None:
    refused = act(root, "ann", "declare_queue", queue="")
    assert (refused.status, "'amq.gen-'" in refused.json["error"]) == (403, True)


def test_the_default_exchange_is_not_written_to_without_a_right_to_amq_default(
    root: Asking, store: pyqstore.Store
) -> None:
    store.channel().queue_declare("q")
    login = ("eve", "p")
    refused = root("POST", PUBLISH, MESSAGE, login=login)
    assert (refused.status, "'amq.default'" in refused.json["reason"]) == (401, True)
    assert act(root, "eve", "publish", exchange="", routing_key="q", body="x").status == 403
    assert root("GET", "/api/aliveness-test/%2F", login=login).status == 401
    dead = {"arguments": {"x-dead-letter-exchange": ""}}
    assert root("PUT", "/api/queues/%2F/dead", dead, login=login).status == 401
    assert store.queue_status("q").messages_ready == 0


def test_a_message_does_not_claim_to_be_of_another_user(
    root: Asking, store: pyqstore.Store
) -> None:
    store.channel().queue_declare("q")
    for user, api, page in (("root", 200, 200), ("watch", 400, 400)):
        given = {"user_id": user}
        assert root("POST", PUBLISH, MESSAGE | {"properties": given}).status == api
        answer = act(root, "root", "publish", routing_key="q", properties=json.dumps(given))
        assert answer.status == page
    assert store.queue_status("q").messages_ready == 2


def test_a_monitor_sees_nodes_and_others_do_not(root: Asking) -> None:
    (node,) = root.get("nodes", login=("watch", "p"))
    for path in ("/api/nodes", f"/api/nodes/{node['name']}"):
        assert root("GET", path, login=("watch", "p")).status == 200
        assert root("GET", path, login=("ann", "p")).status == 401


def test_a_monitor_does_not_close_the_connections_of_others(
    root: Asking, store: pyqstore.Store
) -> None:
    with store.listen("127.0.0.1:0") as listener:
        host, port = listener.address.split(":")
        for user, is_allowed in (("app", False), ("watch", True)):
            credentials = pika.PlainCredentials(user, "p")
            connection = pika.BlockingConnection(
                pika.ConnectionParameters(host, int(port), credentials=credentials, heartbeat=0)
            )
            (told,) = root.get("connections")
            path = f"/api/connections/{quote(told['name'], safe='')}"
            status = root("DELETE", path, login=("watch", "p")).status
            assert status == (204 if is_allowed else 401)
            if not is_allowed:
                connection.channel()  # it goes on
                assert root("DELETE", path).status == 204
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                connection.process_data_events(30)
            wait_until(lambda: root.get("connections") == [])


def opened_at(path: Path, user: str) -> socket.socket:
    """A client's connection by a socket of the machine, on which nothing more is said."""

    def read() -> bytes:
        head = read_all(7)
        return read_all(int.from_bytes(head[3:7], "big") + 1)

    def read_all(count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = client.recv(count - len(found))
            assert more
            found += more
        return found

    def send(method: bytes) -> None:
        client.sendall(b"\1\0\0" + len(method).to_bytes(4, "big") + method + b"\xce")

    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(str(path))
    client.sendall(b"AMQP\0\0\x09\x01")
    read()
    secret = f"\0{user}\0p".encode()
    start = b"\0\0\0\0\5PLAIN" + len(secret).to_bytes(4, "big") + secret + b"\5en_US"
    send(b"\0\x0a\0\x0b" + start)
    read()
    send(b"\0\x0a\0\x1f\x07\xff\0\2\0\0\0\0")
    send(b"\0\x0a\0\x28\1/\0\0")
    assert read()[:4] == b"\0\x0a\0\x29"
    return client


def test_closing_one_of_two_connections_without_ports_ends_that_one(
    root: Asking, store: pyqstore.Store, tmp_path: Path
) -> None:
    place = tmp_path / "socket"
    with (
        store.listen(f"unix:{place}"),
        opened_at(place, "app") as first,
        opened_at(place, "watch") as second,
    ):
        wait_until(lambda: len(root.get("connections")) == 2)
        names = {each["user"]: each["name"] for each in root.get("connections")}
        assert names["app"] != names["watch"]
        assert root("DELETE", f"/api/connections/{quote(names['watch'], safe='')}").status == 204
        wait_until(lambda: [each["user"] for each in root.get("connections")] == ["app"])
        assert second.recv(100)[7:11] == b"\0\x0a\0\x32"  # connection.close
        first.setblocking(False)
        with pytest.raises(BlockingIOError):
            first.recv(1)
