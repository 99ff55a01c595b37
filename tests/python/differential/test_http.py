"""The management API and the metrics beside RabbitMQ's own, after the same script of a client of
AMQP: what is called by the same name has the same type, what tools look for is there, and answers
have the same codes.  rabbitmqadmin, which comes with RabbitMQ, works on a store."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

import pyqstore

from .broker import Broker, is_installed

PATIENCE_SECONDS = 30
ADMIN = "usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"
OWN = {"pyqstore", "messages_delayed"}  # keys that RabbitMQ has not
# What has keys of its own, or, of message_stats, those of kinds that were counted.
FREE = ("client_properties", "arguments", "cluster_state", "message_stats")

# Path, and what tools (rabbitmqadmin, KEDA, Flower, Terraform's provider, dashboards) look for.
LISTS = {
    "overview": "cluster_name node object_totals queue_totals message_stats listeners"
    " contexts rabbitmq_version management_version exchange_types",
    "nodes": "name type running mem_used mem_limit fd_used fd_total disk_free uptime processors",
    "vhosts": "name messages messages_ready messages_unacknowledged tracing",
    "exchanges": "name vhost type durable auto_delete internal arguments",
    "exchanges/%2F/x": "name type message_stats incoming outgoing",
    "queues": "name vhost durable auto_delete exclusive arguments node state type consumers"
    " messages messages_ready messages_unacknowledged message_stats memory policy",
    "queues/%2F/q": "name consumer_details backing_queue_status message_stats",
    "queues/%2F/q/bindings": "source destination destination_type routing_key properties_key",
    "bindings": "source vhost destination destination_type routing_key arguments properties_key",
    "connections": "name user vhost state channels client_properties peer_host peer_port protocol"
    " connected_at timeout frame_max channel_max type auth_mechanism",
    "channels": "name number user vhost confirm transactional consumer_count prefetch_count"
    " messages_unacknowledged messages_unconfirmed connection_details message_stats",
    "consumers": "consumer_tag queue ack_required exclusive active prefetch_count channel_details",
    "users": "name password_hash hashing_algorithm tags limits",
    "permissions": "user vhost configure write read",
    "definitions": "rabbit_version users vhosts permissions queues exchanges bindings policies",
    "whoami": "name tags",
    "cluster-name": "name",
    "parameters": "",
    "policies": "",
    "aliveness-test/%2F": "status",
    "healthchecks/node": "status",
    "health/checks/alarms": "status",
    "health/checks/virtual-hosts": "status",
    "health/checks/protocol-listener/amqp091": "status protocol",
    "queues?page=1&page_size=1&name=q": "items page page_count page_size total_count",
}

# Method, path, body: the codes of both, in this order.
CALLS: list[tuple[str, str, Any]] = [
    ("PUT", "queues/%2F/new", {"durable": True}),
    ("PUT", "queues/%2F/new", {"durable": True}),
    ("PUT", "queues/%2F/new", {"durable": False}),
    ("PUT", "queues/%2F/bad", {"durable": "x"}),
    ("PUT", "queues/%2F/bad", {"arguments": {"x-max-length": -1}}),
    ("PUT", "exchanges/%2F/y", {"type": "fanout"}),
    ("PUT", "exchanges/%2F/z", {"type": "nope"}),
    ("POST", "bindings/%2F/e/y/q/new", {"routing_key": "k"}),
    ("POST", "bindings/%2F/e/y/q/none", {"routing_key": "k"}),
    ("POST", "bindings/%2F/e/y/e/x", {}),
    ("DELETE", "bindings/%2F/e/y/q/new/k", None),
    ("DELETE", "bindings/%2F/e/y/q/new/k", None),
    ("POST", "exchanges/%2F/y/publish", {"properties": {}}),
    (
        "POST",
        "queues/%2F/none/get",
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    ("POST", "queues/%2F/new/get", {"count": 1}),
    ("DELETE", "queues/%2F/new/contents", None),
    ("DELETE", "queues/%2F/none/contents", None),
    ("DELETE", "queues/%2F/q?if-unused=true", None),
    ("DELETE", "queues/%2F/new", None),
    ("DELETE", "queues/%2F/new", None),
    ("DELETE", "exchanges/%2F/y", None),
    ("DELETE", "exchanges/%2F/y", None),
    ("DELETE", "exchanges/%2F/amq.direct", None),
    ("DELETE", "connections/none", None),
    ("GET", "queues/%2F/none", None),
    ("GET", "queues/none", None),
    ("GET", "queues?page=0", None),
    ("GET", "queues?page=99", None),
    ("GET", "queues?page=x", None),
    ("GET", "health/checks/port-listener/1", None),
    ("GET", "permissions/%2F/none", None),
    ("GET", "users/none", None),
    ("POST", "users/bulk-delete", {"users": ["none"]}),
    ("POST", "users/bulk-delete", {}),
    ("POST", "overview", {}),
    ("POST", "definitions", b"{"),
]


@dataclass
class Side:
    """One of the two servers."""

    api: str
    metrics: str
    amqp: pika.ConnectionParameters

    def ask(self, method: str, url: str, body: Any = None) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        login = "Basic " + base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": login, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    def get(self, path: str) -> Any:
        status, data = self.ask("GET", f"{self.api}/api/{path}")
        assert status == 200, (path, status, data)
        return json.loads(data)

    def code(self, method: str, path: str, body: Any) -> int:
        return self.ask(method, f"{self.api}/api/{path}", body)[0]


class Client:
    """Does the same on each side, and stays."""

    def __init__(self, side: Side) -> None:
        self.connection = pika.BlockingConnection(side.amqp)
        publisher, consumer = self.connection.channel(), self.connection.channel()
        publisher.queue_declare("q", durable=True, arguments={"x-max-length": 100})
        publisher.exchange_declare("x", "topic")
        publisher.queue_bind("q", "x", "a.#", {"n": 1})
        consumer.basic_qos(prefetch_count=10)
        consumer.basic_consume("q", lambda *_: None)
        publisher.confirm_delivery()
        for _ in range(5):
            publisher.basic_publish("x", "a.b", b"hello")
        until = time.monotonic() + PATIENCE_SECONDS
        while not self.is_told(side):
            assert time.monotonic() < until
            self.connection.process_data_events(0.2)

    def is_told(self, side: Side) -> bool:
        """RabbitMQ tells in its own time."""
        listed = [side.get(each) for each in ("connections", "channels", "consumers")]
        counted = [side.get(each).get("message_stats", {}) for each in ("overview", "queues/%2F/q")]
        exchange = side.get("exchanges/%2F/x").get("message_stats")
        told = all("message_stats" in each for each in listed[1])
        return (
            all(listed) and told and all("publish" in each for each in counted) and bool(exchange)
        )


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    if not is_installed():
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing("the package rabbitmq-server is not installed")
    broker = Broker(tmp_path_factory.mktemp("rabbitmq"), managed=True)
    try:
        broker.start()
        metrics = f"http://127.0.0.1:{broker.metrics_port}"
        side = Side(f"http://127.0.0.1:{broker.management_port}", metrics, broker.parameters())
        client = Client(side)
        yield side
        client.connection.close()
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    with (
        pyqstore.open(":memory:") as store,
        store.listen("127.0.0.1:0") as listener,
        store.serve_page(0) as server,
    ):
        host, port = listener.address.split(":")
        url = server.url.rstrip("/")
        side = Side(url, url, pika.ConnectionParameters(host, int(port), heartbeat=0))
        client = Client(side)
        yield side
        client.connection.close()


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """What has another type.  An empty object is a list to Erlang, and what is unknown null."""
    if ours in ({}, [], None) or theirs in ({}, [], None):
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        unknown = [f"{where}.{key} is not RabbitMQ's" for key in ours.keys() - theirs.keys() - OWN]
        if where.endswith(FREE):
            unknown = []
        return unknown + [
            difference
            for key in ours.keys() & theirs.keys()
            for difference in differences(ours[key], theirs[key], f"{where}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        return differences(ours[0], theirs[0], f"{where}[]")
    kinds = [{int: float}.get(type(each), type(each)) for each in (ours, theirs)]
    return [] if kinds[0] is kinds[1] else [f"{where}: {ours!r}, RabbitMQ {theirs!r}"]


def named(found: Any) -> Any:
    """That of the same name, of each list: not the first one, which may be another."""
    if not isinstance(found, list):
        return found
    return [each for each in found if each.get("name") in ("q", "x")] or found


@pytest.mark.parametrize("path", LISTS)
def test_names_and_types_are_those_of_rabbitmq(rabbitmq: Side, ours: Side, path: str) -> None:
    here, there = named(ours.get(path)), named(rabbitmq.get(path))
    assert differences(here, there, path) == []
    for told in (here, there):
        first = told[0] if isinstance(told, list) and told else told
        assert set(LISTS[path].split()) <= set(first or ())


def test_calls_have_the_codes_of_rabbitmq(rabbitmq: Side, ours: Side) -> None:
    codes = [(call, ours.code(*call), rabbitmq.code(*call)) for call in CALLS]
    assert [each for each in codes if each[1] != each[2]] == []


def test_messages_come_as_rabbitmqs_do(rabbitmq: Side, ours: Side) -> None:
    def told(side: Side) -> Any:
        assert side.code("PUT", "queues/%2F/letters", {}) == 201
        properties = {"delivery_mode": 2, "headers": {"a": 1, "b": ["x"]}, "content_type": "t/p"}
        body = {"properties": properties, "routing_key": "letters"}
        body |= {"payload": base64.b64encode(b"\xff").decode(), "payload_encoding": "base64"}
        url = f"{side.api}/api/exchanges/%2F/amq.default/publish"
        answers = [json.loads(side.ask("POST", url, body)[1])]
        url = f"{side.api}/api/queues/%2F/letters/get"
        for mode in ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false"):
            wanted = {"count": 2, "ackmode": mode, "encoding": "auto"}
            answers.append(json.loads(side.ask("POST", url, wanted)[1]))
        assert side.code("DELETE", "queues/%2F/letters", None) == 204
        return answers

    assert told(ours) == told(rabbitmq)


def copies_of(side: Side) -> list[tuple[str, bytes, dict[str, Any]]]:
    """What is copied while a client publishes, gets and consumes: keys, bodies and headers, by
    key and body, as two connections have no order."""
    connection = pika.BlockingConnection(side.amqp)
    channel, looker = connection.channel(), connection.channel()
    queue = looker.queue_declare("", exclusive=True).method.queue
    looker.queue_bind(queue, "amq.rabbitmq.trace", "#")
    channel.queue_declare("traced")
    channel.queue_bind("traced", "amq.direct", "k")
    assert side.code("PUT", "vhosts/%2F", {"tracing": True}) == 204
    headers = {"i": 1, "big": 2**40, "t": "x", "l": [1, "y"], "d": {"e": True}}
    every = pika.BasicProperties(
        "a/b", "gzip", headers, 2, 7, "c", "r", "60000", "m", 1_700_000_000, "t", "guest", "a"
    )
    copied = pika.BasicProperties(headers={"CC": ["other"]}, delivery_mode=1)
    channel.basic_publish("", "traced", b"all", every)
    channel.basic_publish("amq.direct", "k", b"none")
    channel.basic_publish("amq.direct", "k", b"copied", copied)
    channel.basic_publish("amq.direct", "nowhere", b"unrouted")
    channel.basic_publish("amq.direct", "nowhere", b"returned", mandatory=True)
    tag = channel.basic_get("traced")[0].delivery_tag
    channel.basic_nack(tag, requeue=True)
    channel.basic_get("traced", auto_ack=True)
    for method, _, _ in channel.consume("traced", auto_ack=True, inactivity_timeout=30):
        if method.delivery_tag == 4:
            break
    channel.cancel()
    found: list[tuple[str, bytes, dict[str, Any]]] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found) < 9 and time.monotonic() < until:
        method, properties, body = looker.basic_get(queue, auto_ack=True)
        if method is not None:
            found.append((method.routing_key, body, properties.headers))
    assert side.code("PUT", "vhosts/%2F", {"tracing": False}) == 204
    channel.basic_publish("amq.direct", "nowhere", b"too late")
    assert looker.basic_get(queue, auto_ack=True)[0] is None
    channel.queue_delete("traced")
    connection.close()
    for _, _, told in found:
        assert told.pop("node")
        assert re.fullmatch(r"127.0.0.1:\d+ -> 127.0.0.1:\d+", told.pop("connection"))
    return sorted(found, key=lambda each: (each[0], each[1], each[2].get("redelivered", 0)))


def test_a_traced_virtual_host_copies_the_same(rabbitmq: Side, ours: Side) -> None:
    assert copies_of(ours) == copies_of(rabbitmq)


def test_metrics_have_the_names_types_and_labels_of_rabbitmqs(rabbitmq: Side, ours: Side) -> None:
    def families(side: Side) -> dict[str, str]:
        text = side.ask("GET", f"{side.metrics}/metrics")[1].decode()
        return {family.name: family.type for family in parsed(text)}

    here, there = families(ours), families(rabbitmq)
    shared = {name for name in here if name.startswith("rabbitmq_")}
    assert len(shared) > 35
    assert {name: here[name] for name in shared} == {name: there.get(name) for name in shared}


CHURN = re.compile("rabbitmq_(connections|channels|queues)_[a-z]+ed_total")


def churn_of(side: Side) -> dict[str, float]:
    """By how much each of these counters grows."""

    def counts() -> dict[str, float]:
        text = side.ask("GET", f"{side.metrics}/metrics")[1].decode()
        return {
            each.name: each.value
            for family in parsed(text)
            for each in family.samples
            if CHURN.fullmatch(each.name)
        }

    def grown() -> dict[str, float]:
        return {name: value - before[name] for name, value in counts().items()}

    def settled() -> dict[str, float]:
        """RabbitMQ counts an end in its own time."""
        found, until = grown(), time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            time.sleep(1)
            last, found = found, grown()
            if found == last:
                break
        return found

    before = counts()
    connection = pika.BlockingConnection(side.amqp)
    channel = connection.channel()
    for _ in range(3):
        channel.queue_declare("churn", durable=True)
    channel.queue_declare("churn", passive=True)
    channel.queue_declare("churn.exclusive", exclusive=True)
    channel.queue_declare("churn.auto", auto_delete=True)
    tag = channel.basic_consume("churn.auto", lambda *_: None)
    channel.basic_cancel(tag)  # which deletes the queue
    channel.queue_delete("churn")
    channel.queue_delete("churn")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.queue_declare("churn", passive=True)
    connection.channel().close()
    connection.close()
    return settled()


def test_metrics_count_what_came_and_went_as_rabbitmq_does(rabbitmq: Side, ours: Side) -> None:
    assert churn_of(ours) == churn_of(rabbitmq)


def test_metrics_of_queues_have_the_labels_of_rabbitmqs(rabbitmq: Side, ours: Side) -> None:
    def labels(side: Side) -> dict[str, set[str]]:
        text = side.ask("GET", f"{side.metrics}/metrics/per-object")[1].decode()
        return {
            sample.name: set(sample.labels)
            for family in parsed(text)
            for sample in family.samples
            if sample.name.startswith("rabbitmq_queue_messages") and "queue" in sample.labels
        }

    here, there = labels(ours), labels(rabbitmq)
    assert {"rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked"} <= here.keys()
    for name, found in here.items():
        assert found <= there[name]


# ---- rabbitmqadmin ----


@pytest.fixture
def admin(ours: Side, tmp_path: Path) -> Any:
    found = sorted(Path("/").glob(ADMIN))
    if not found:
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing("rabbitmqadmin is not here: it comes with the package rabbitmq-server")
    host, port = ours.api.removeprefix("http://").split(":")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(found[-1]), "-H", host, "-P", port, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done
        return done.stdout

    return run


def test_rabbitmqadmin_works_on_a_store(admin: Any, ours: Side) -> None:
    admin("declare", "queue", "name=jobs", "durable=true", 'arguments={"x-max-length": 5}')
    admin("declare", "exchange", "name=in", "type=topic")
    admin("declare", "binding", "source=in", "destination=jobs", "routing_key=a.#")
    assert "published" in admin("publish", "exchange=in", "routing_key=a.b", "payload=hello")
    assert "hello" in admin("get", "queue=jobs", "ackmode=ack_requeue_true")
    for kind in ("queues", "exchanges", "bindings", "connections", "channels", "consumers"):
        assert admin("list", kind).strip()
    for kind in ("users", "vhosts", "nodes", "permissions"):
        assert admin("list", kind).strip()
    assert "jobs" in admin("--format=tsv", "list", "queues", "name", "messages")
    assert "object_totals" in admin("show", "overview")
    admin("export", "all.json")
    admin("purge", "queue", "name=jobs")
    key = f"properties_key={quote('a.#', safe='')}"
    binding = ("source=in", "destination_type=queue", "destination=jobs", key)
    admin("delete", "binding", *binding)
    admin("delete", "queue", "name=jobs")
    admin("delete", "exchange", "name=in")
    assert ours.code("GET", "queues/%2F/jobs", None) == 404
    admin("import", "all.json")
    assert ours.get("queues/%2F/jobs")["arguments"] == {"x-max-length": 5}
    assert [each["source"] for each in ours.get("queues/%2F/jobs/bindings")] == ["", "in"]
    admin("delete", "queue", "name=jobs")
    admin("delete", "exchange", "name=in")
