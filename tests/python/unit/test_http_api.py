"""The management API on a store: what is asked for happens in the store, and what is listed is what
the store has.  That names and types are RabbitMQ's is differential/test_http.py's."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pika
import pika.exceptions
import pytest

import pyqstore
from pyqstore.http.sampler import Sampler, View
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users, read_users
from pyqstore.serve.user_list import Permission, User

from ..support import wait_until
from .http_asking import Asking, asked

HOSTILE = 'a/b?c#d%2F <script>alert("ä")</script> \u202e'


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as opened:
        yield opened


def test_a_queue_is_declared_shown_and_deleted(ask: Asking, store: pyqstore.Store) -> None:
    body = {"durable": True, "arguments": {"x-max-length": 7}}
    assert ask("PUT", "/api/queues/%2F/q", body).status == 201
    assert ask("PUT", "/api/queues/%2F/q", body).status == 204
    shown = ask.get("queues/%2F/q")
    assert (shown["durable"], shown["arguments"]) == (True, {"x-max-length": 7})
    assert ask("DELETE", "/api/queues/%2F/q").status == 204
    assert store.queues() == []
    assert ask("DELETE", "/api/queues/%2F/q").status == 404


@pytest.mark.parametrize("name", [HOSTILE, "..", "%2F", "a\\b", "\t", "q" * 255])
def test_any_name_can_be_in_a_path(ask: Asking, store: pyqstore.Store, name: str) -> None:
    path = f"/api/queues/%2F/{quote(name, safe='')}"
    assert ask("PUT", path, {}).status == 201
    assert store.queues() == [name]
    assert ask("GET", path).json["name"] == name
    assert ask("GET", f"{path}/bindings").json[0]["destination"] == name
    assert ask("DELETE", path).status == 204


def test_a_name_that_is_no_utf8_is_that_of_nothing(ask: Asking) -> None:
    for method in ("GET", "PUT", "DELETE"):
        body = {} if method == "PUT" else None
        assert ask(method, "/api/queues/%2F/%FF", body).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("PUT", "queues/%2F/q", b"{", 400, "not_json"),
        ("PUT", "queues/%2F/q", b"[]", 400, "not_json"),
        ("PUT", "queues/%2F/q", b'{"arguments": {"x-a": NaN}}', 400, "not_json"),
        ("PUT", "queues/%2F/q", b'{"arguments": {"x-a": 1e400}}', 400, "not_json"),
        ("PUT", "queues/%2F/q", {"durable": "x"}, 400, "durable"),
        ("PUT", "queues/%2F/q", {"arguments": {"x-max-length": -1}}, 400, "x-max-length"),
        ("PUT", "queues/%2F/q", {"arguments": []}, 201, ""),
        ("PUT", "queues/nowhere/q", {}, 404, "Not Found"),
        ("PUT", "exchanges/%2F/x", {"type": "nope"}, 400, "nope"),
        ("DELETE", "exchanges/%2F/amq.direct", None, 401, ""),
        ("POST", "bindings/%2F/e/amq.direct/q/none", {}, 404, "Not Found"),
        ("POST", "exchanges/%2F/amq.direct/publish", {}, 400, "{key_missing,properties}"),
        ("POST", "queues/%2F/there/get", {"count": 1}, 400, "{key_missing,ackmode}"),
        ("GET", "queues?page=0", None, 400, "pagination"),
        ("GET", "queues?page=x", None, 400, "agination"),
        ("GET", "queues?page=9", None, 400, "out of range"),
        ("GET", "queues?page=1&name=(&use_regex=true", None, 400, "agination"),
        ("POST", "overview", {}, 405, "Method"),
        ("GET", "nothing", None, 404, "Not Found"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    ask: Asking, store: pyqstore.Store, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    store.channel().queue_declare("there")
    answer = ask(method, f"/api/{path}", body)
    assert answer.status == status
    if reason:
        assert reason in answer.json["reason"]
        assert answer.json["error"]


def test_messages_are_published_and_got(ask: Asking, store: pyqstore.Store) -> None:
    store.channel().queue_declare("q")

    def publish(payload: str, encoding: str, key: str = "q") -> Any:
        properties = {"delivery_mode": 2, "headers": {"a": [1, None]}, "timestamp": 5}
        body = {"properties": properties, "routing_key": key}
        body |= {"payload": payload, "payload_encoding": encoding}
        return ask("POST", "/api/exchanges/%2F/amq.default/publish", body).json

    assert publish("hello", "string") == {"routed": True}
    assert publish(base64.b64encode(b"\xff\x00").decode(), "base64") == {"routed": True}
    assert publish("x", "string", "nowhere") == {"routed": False}
    wanted = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 3}
    first, second = ask("POST", "/api/queues/%2F/q/get", wanted).json
    assert (first["payload"], first["payload_bytes"], first["message_count"]) == ("hel", 5, 1)
    assert first["properties"] == {"headers": {"a": [1, None]}, "delivery_mode": 2, "timestamp": 5}
    assert (second["payload"], second["payload_encoding"]) == ("/wA=", "base64")
    assert store.queue_status("q").messages_ready == 2
    wanted["ackmode"] = "ack_requeue_false"
    assert [each["redelivered"] for each in ask("POST", "/api/queues/%2F/q/get", wanted).json] == [
        True,
        True,
    ]
    assert store.queue_status("q").messages_ready == 0


def test_a_binding_is_made_and_removed_by_its_key(ask: Asking, store: pyqstore.Store) -> None:
    store.channel().queue_declare("q")
    pair = "/api/bindings/%2F/e/amq.topic/q/q"
    made = ask("POST", pair, {"routing_key": "a.#/%", "arguments": {"n": 1}})
    assert made.status == 201
    ask("POST", pair, {})
    keys = [each["properties_key"] for each in ask.get("bindings/%2F/e/amq.topic/q/q")]
    assert keys[0] == "~"
    assert keys[1].startswith("a.%23%2F%25~")
    assert made.headers["location"] == f"q/{keys[1].replace('%', '%25')}"
    for key in keys:
        assert ask("DELETE", f"{pair}/{quote(key, safe='')}").status == 204
    assert store.bindings() == []


def test_the_place_of_a_binding_is_escaped_as_rabbitmq_does(
    ask: Asking, store: pyqstore.Store
) -> None:
    store.channel().queue_declare("q 1")
    places = {
        "#": "q+1/%2523",
        "a b~c/d%": "q+1/a%2Bb%257Ec%252Fd%2525",
        "": "q+1/~",
        "é": "q+1/%25C3%25A9",
    }
    for key, place in places.items():
        made = ask("POST", "/api/bindings/%2F/e/amq.topic/q/q%201", {"routing_key": key})
        assert made.headers["location"] == place
    keys = [each["properties_key"] for each in ask.get("bindings/%2F/e/amq.topic/q/q%201")]
    assert sorted(keys) == sorted(unquote(place.partition("/")[2]) for place in places.values())
    for key in keys:  # as it is, or as a part of a path
        escaped = key if key == "%23" else quote(key, safe="")
        path = f"/api/bindings/%2F/e/amq.topic/q/q%201/{escaped}"
        assert ask("GET", path).json["properties_key"] == key
        assert ask("DELETE", path).status == 204


def test_queues_are_filtered_sorted_and_shown_by_pages(ask: Asking, store: pyqstore.Store) -> None:
    with store.channel() as channel:
        for number in range(25):
            channel.queue_declare(f"q{number:02}")
        channel.queue_declare("other")
        for _ in range(3):
            channel.basic_publish("", "q07", b"x")
    query = "queues?page=2&page_size=10&name=^q&use_regex=true&sort=name&sort_reverse=true"
    page = ask.get(query)
    assert [each["name"] for each in page["items"]] == [f"q{n:02}" for n in range(14, 4, -1)]
    del page["items"]
    assert page == {
        "total_count": 26,
        "filtered_count": 25,
        "item_count": 10,
        "page": 2,
        "page_size": 10,
        "page_count": 3,
    }
    most = ask.get("queues?sort=messages&sort_reverse=true&columns=name,messages")[0]
    assert most == {"name": "q07", "messages": 3}
    deep = ask.get("queues?sort=pyqstore.q4&columns=name,backing_queue_status.mode&page=1")
    assert set(deep["items"][0]) == {"name", "backing_queue_status"}


def test_a_page_of_ten_thousand_queues_does_not_hold_the_store_up(
    ask: Asking, store: pyqstore.Store
) -> None:
    with store.channel() as channel:
        for number in range(10_000):
            channel.queue_declare(f"q{number}")
        page = ask.get("queues?page=100&page_size=100")
        assert (page["total_count"], len(page["items"])) == (10_000, 100)
        channel.basic_publish("", "q1", b"x")
    assert len(ask.get("queues?columns=name")) == 10_000


def test_clients_are_listed_and_can_be_sent_away(ask: Asking, store: pyqstore.Store) -> None:
    with store.listen("127.0.0.1:0") as listener:
        host, port = listener.address.split(":")
        parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        first, second = connection.channel(), connection.channel()
        first.queue_declare("q", exclusive=True)
        second.basic_qos(prefetch_count=7)
        second.confirm_delivery()
        tag = second.basic_consume("q", lambda *_: None, exclusive=True)
        (told,) = ask.get("connections")
        assert told["name"].endswith(f" -> {listener.address}")
        assert (told["user"], told["channels"]) == ("guest", 2)
        assert told["client_properties"]["product"] == "Pika Python Client Library"
        channels = {each["number"]: each for each in ask.get("channels")}
        assert (channels[2]["prefetch_count"], channels[2]["confirm"]) == (7, True)
        assert (channels[1]["consumer_count"], channels[2]["consumer_count"]) == (0, 1)
        (consumer,) = ask.get("consumers/%2F")
        assert (consumer["consumer_tag"], consumer["exclusive"]) == (tag, True)
        assert consumer["channel_details"]["connection_name"] == told["name"]
        shown = ask.get("queues/%2F/q")
        assert shown["exclusive_consumer_tag"] == tag
        assert shown["owner_pid_details"]["peer_port"] == told["peer_port"]
        path = f"/api/connections/{quote(told['name'], safe='')}"
        assert ask("DELETE", path).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(30)
        assert closed.value.reply_code == 320
        wait_until(lambda: ask.get("connections") == [])
        assert ask("DELETE", path).status == 404


def test_channels_of_the_process_are_listed_and_not_sent_away(
    ask: Asking, store: pyqstore.Store
) -> None:
    with store.channel() as channel:
        channel.queue_declare("q")
        channel.basic_consume("q", lambda _message: None)
        (told,) = ask.get("connections")
        assert told["type"] == "direct"
        assert len(ask.get("consumers")) == 1
        name = quote(told["name"], safe="")
        assert ask("DELETE", f"/api/connections/{name}").status == 404
        assert not channel.closed
    assert ask.get("channels") == []


def test_rates_are_told_while_somebody_looks(ask: Asking, store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.queue_declare("q")
        ask.get("overview")

        def is_told() -> bool:
            channel.basic_publish("", "q", b"x")
            stats = ask.get("queues/%2F/q").get("message_stats", {})
            total = ask.get("overview")["message_stats"]
            rates = [each.get("publish_details", {}).get("rate", 0) for each in (stats, total)]
            return all(rate > 0 for rate in rates)

        wait_until(is_told)


def test_definitions_come_back_as_they_went(ask: Asking, store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-max-length": 5})
        channel.exchange_declare("x", "topic", durable=True)
        channel.exchange_bind("amq.fanout", "x", "all")
        channel.queue_bind("q", "x", "a.#", {"n": 1})
    written = ask.get("definitions")
    with pyqstore.open(":memory:") as other, asked(other) as there:
        assert there("POST", "/api/definitions", written).status == 204
        assert there.get("definitions") == written
        assert other.bindings() == store.bindings()


def test_definitions_that_cannot_be_done_change_nothing(ask: Asking, store: pyqstore.Store) -> None:
    queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    for more, reason in (
        ({"policies": [{"name": "p", "vhost": "/"}]}, "policies"),
        ({"vhosts": [{"name": "other"}]}, "other"),
        ({"exchanges": [{"name": "x", "vhost": "/", "type": "nope"}]}, "nope"),
    ):
        answer = ask("POST", "/api/definitions", {"queues": [queue], **more})
        assert (answer.status, reason in answer.json["reason"]) == (400, True)
        assert store.queues() == []


def test_users_and_permissions_are_changed_in_the_stores_file(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with changed_users(directory, create=True) as users:
        users["root"] = User(hashed("p"), ("administrator",), {"/": Permission()})
    with pyqstore.open(directory) as store, asked(store) as ask:
        ask.login = ("root", "p")
        assert ask("PUT", "/api/users/ann", {"password": "s", "tags": "management"}).status == 201
        given = {"configure": "^a", "write": ".*", "read": ""}
        assert ask("PUT", "/api/permissions/%2F/ann", given).status == 201
        assert ask.get("permissions/%2F/ann") == {"user": "ann", "vhost": "/", **given}
        assert ask.get("whoami", login=("ann", "s"))["tags"] == ["management"]
        bad = ask("PUT", "/api/permissions/%2F/ann", {**given, "read": "("})
        assert (bad.status, "read" in bad.json["reason"]) == (400, True)
        assert ask("PUT", "/api/users/eve", {}, login=("ann", "s")).status == 401
        assert set(read_users(directory / "users.json")) == {"root", "ann"}
        assert ask("DELETE", "/api/users/ann").status == 204
        assert ask("DELETE", "/api/users/root").status == 400  # nobody could come in


def test_several_users_are_deleted_all_or_none(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with changed_users(directory, create=True) as users:
        users["root"] = User(hashed("p"), ("administrator",), {"/": Permission()})
        users["ann"] = users["bob"] = User(hashed("p"), ("monitoring",), {"/": Permission()})
    with pyqstore.open(directory) as store, asked(store) as ask:

        def deleted(names: Any, user: str = "root") -> int:
            answer = ask("POST", "/api/users/bulk-delete", {"users": names}, login=(user, "p"))
            return answer.status

        assert deleted(["bob"], user="ann") == 401
        for refused in (["ann", "none"], ["ann", "bob", "root"], "ann", [1], None):
            assert deleted(refused) == 400
        assert set(read_users(directory / "users.json")) == {"root", "ann", "bob"}
        assert deleted(["ann", "bob", "ann"]) == 204
        assert deleted([]) == 204
        assert set(read_users(directory / "users.json")) == {"root"}


def test_guest_is_not_left_for_the_first_user(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, asked(store) as ask:
        answer = ask("PUT", "/api/users/ann", {"password": "s", "tags": ""})
        assert (answer.status, "pyqstore user add" in answer.json["reason"]) == (400, True)
        assert [each["name"] for each in ask.get("users")] == ["guest"]


def test_users_that_the_server_was_given_are_not_changed(store: pyqstore.Store) -> None:
    with asked(store, users={"ann": "secret"}) as ask:
        ask.login = ("ann", "secret")
        answer = ask("PUT", "/api/users/ann", {"password": "s", "tags": ""})
        assert (answer.status, "when it was started" in answer.json["reason"]) == (400, True)
        assert ask.get("users")[0]["password_hash"] == ""


def test_the_overview_tells_where_http_is_served(ask: Asking) -> None:
    told = ask.get("overview")
    (context,) = told["contexts"]
    assert (context["node"], context["path"]) == (told["node"], "/")
    assert f"{context['ip']}:{context['port']}" == ask.address


def test_a_listener_that_the_program_does_not_keep_is_told(
    ask: Asking, store: pyqstore.Store
) -> None:
    host, port = store.listen("127.0.0.1:0").address.split(":")
    gc.collect()
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
    told = {each["protocol"]: each["port"] for each in ask.get("overview")["listeners"]}
    assert told["amqp"] == int(port)
    (client,) = ask.get("connections")
    assert client["name"].endswith(f" -> {host}:{port}")
    assert ask("DELETE", f"/api/connections/{quote(client['name'], safe='')}").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(30)


def test_health_checks_tell_what_listens(ask: Asking, store: pyqstore.Store) -> None:
    assert ask.get("aliveness-test/%2F") == {"status": "ok"}
    assert ask.get("health/checks/alarms") == {"status": "ok"}
    assert ask("GET", "/api/health/checks/protocol-listener/amqp091").status == 503
    with store.listen("127.0.0.1:0") as listener:
        port = listener.address.rpartition(":")[2]
        assert ask.get("health/checks/protocol-listener/amqp091")["protocol"] == "amqp"
        assert ask.get(f"health/checks/port-listener/{port}")["port"] == int(port)
    assert ask("GET", f"/api/health/checks/port-listener/{port}").status == 503


def test_each_virtual_host_is_a_store(ask: Asking, store: pyqstore.Store) -> None:
    with pyqstore.open(":memory:") as other, asked(store, vhosts={"a b": other}) as both:
        assert both("PUT", "/api/queues/a%20b/q", {}).status == 201
        assert (store.queues(), other.queues()) == ([], ["q"])
        assert [each["name"] for each in both.get("vhosts")] == ["/", "a b"]
        assert [each["vhost"] for each in both.get("queues")] == ["a b"]
        assert both("GET", "/api/queues/none/q").status == 404


@pytest.mark.parametrize("path", ["vhosts", "queues", "exchanges", "overview"])
def test_a_vhost_that_ends_while_it_is_looked_at_is_not_told_of(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    vhosts = {"gone": pyqstore.open(":memory:")}
    with vhosts["gone"].channel() as channel:
        channel.queue_declare("q")
    look = Sampler.look

    def end_and_look(sampler: Sampler, vhost: str) -> View:
        if vhost == "gone":
            vhosts.pop("gone").close()
        return look(sampler, vhost)

    monkeypatch.setattr(Sampler, "look", end_and_look)
    with asked(store, vhosts=vhosts) as ask:
        assert "gone" not in str(ask.get(path))
    assert vhosts == {}
