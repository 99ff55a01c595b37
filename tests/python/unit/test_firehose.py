"""Copies of messages to amq.rabbitmq.trace, while a virtual host is traced."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import pyqstore
from pyqstore import _core
from pyqstore.http import firehose
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from ..support import get, wait_until
from .http_asking import Asking, asked

TRACE = "amq.rabbitmq.trace"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that happened is copied, however long that takes."""
    monkeypatch.setattr(firehose, "_REST_S", 60.0)
    monkeypatch.setattr(firehose, "_JOIN_S", 120.0)


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as store:
        yield store


def trace(ask: Asking, on: object = True, vhost: str = "%2F") -> int:
    return ask("PUT", f"/api/vhosts/{vhost}", {"tracing": on}).status


class Looker:
    """Who gets the copies."""

    def __init__(self, store: pyqstore.Store, key: str = "#") -> None:
        self.channel = store.channel()
        self.queue = self.channel.queue_declare("", exclusive=True).queue
        self.channel.queue_bind(self.queue, TRACE, key)

    def next(self) -> pyqstore.Message:
        """The next copy, however long it takes."""
        self.channel.basic_consume(self.queue, auto_ack=True, consumer_tag="looker")
        found = self.channel.next_delivery("looker", 60)
        self.channel.basic_cancel("looker")
        assert found is not None
        return found

    def headers(self) -> dict[str, Any]:
        return dict(self.next().properties.headers)

    def nothing(self) -> bool:
        return self.channel.basic_get(self.queue) is None


@pytest.fixture
def looker(store: pyqstore.Store) -> Looker:
    return Looker(store)


def test_what_is_published_and_delivered_is_copied(
    ask: Asking, store: pyqstore.Store, looker: Looker
) -> None:
    assert trace(ask) == 204
    properties = pyqstore.Properties(
        content_type="t/p", priority=3, delivery_mode=2, headers={"a": 1}, timestamp=5
    )
    with store.channel() as channel:
        channel.queue_declare("jobs")
        channel.basic_publish("", "jobs", b"body", properties)
        copy = looker.next()
        assert (copy.routing_key, copy.body) == ("publish.", b"body")
        assert copy.properties.headers == {
            "exchange_name": "",
            "routing_keys": ["jobs"],
            "properties": {
                "content_type": "t/p",
                "priority": 3,
                "delivery_mode": 2,
                "headers": {"a": 1},
                "timestamp": 5,
            },
            "node": ask.get("overview")["node"],
            "vhost": "/",
            "connection": f"in-process {channel.number}",
            "channel": channel.number,
            "user": "",
            "routed_queues": ["jobs"],
        }
        assert copy.properties.delivery_mode is None
        message = get(channel, "jobs")
        copy = looker.next()
        assert (copy.routing_key, copy.body) == ("deliver.jobs", b"body")
        found = copy.properties.headers
        assert (found["redelivered"], found["exchange_name"]) == (0, "")
        assert "routed_queues" not in found
        message.nack()
        channel.basic_get("jobs", auto_ack=True)
        assert looker.headers()["redelivered"] == 1


def test_copies_are_not_copied(ask: Asking, store: pyqstore.Store, looker: Looker) -> None:
    trace(ask)
    with store.channel() as channel:
        for number in range(3):
            channel.basic_publish("amq.direct", "nowhere", b"%d" % number)
        for number in range(3):
            copy = looker.next()
            assert (copy.routing_key, copy.body) == ("publish.amq.direct", b"%d" % number)
    assert trace(ask, False) == 204
    assert looker.nothing()


def test_tracing_is_told_and_ends(ask: Asking, store: pyqstore.Store, looker: Looker) -> None:
    assert ask.get("vhosts/%2F")["tracing"] is False
    assert (trace(ask), trace(ask, "true")) == (204, 204)
    assert ask.get("vhosts/%2F")["tracing"] is True
    assert [each["tracing"] for each in ask.get("vhosts")] == [True]
    with store.channel() as channel:
        channel.basic_publish("", "nowhere", b"last")
        assert (trace(ask, False), trace(ask, "false")) == (204, 204)
        channel.basic_publish("", "nowhere", b"too late")
    assert ask.get("vhosts/%2F")["tracing"] is False
    assert looker.next().body == b"last"
    assert looker.nothing()


@pytest.mark.parametrize("tracing", ["yes", 1, [], {}, 0.5])
def test_tracing_is_true_or_false(ask: Asking, tracing: object) -> None:
    answer = ask("PUT", "/api/vhosts/%2F", {"tracing": tracing})
    assert answer.status == 400
    assert "tracing must be true or false" in answer.json["reason"]


def test_a_vhost_that_is_not_there_is_not_traced(ask: Asking) -> None:
    assert trace(ask, True, "none") == 400  # and none is made here


def test_each_virtual_host_is_traced_by_itself(store: pyqstore.Store) -> None:
    with pyqstore.open(":memory:") as other, asked(store, vhosts={"o": other}) as ask:
        assert trace(ask, True, "o") == 204
        here, there = Looker(store), Looker(other)
        with store.channel() as channel, other.channel() as other_channel:
            channel.basic_publish("", "nowhere", b"here")
            other_channel.basic_publish("", "nowhere", b"there")
        copy = there.next()
        assert (copy.body, copy.properties.headers["vhost"]) == (b"there", "o")
        assert trace(ask, False, "o") == 204
        assert here.nothing()
        assert there.nothing()


def test_only_administrators_switch_it(tmp_path: Path) -> None:
    with changed_users(tmp_path / "store", create=True) as users:
        for name in ("administrator", "monitoring"):
            users[name] = User(hashed("p"), (name,), {"/": Permission()})
    with pyqstore.open(tmp_path / "store") as store, asked(store) as ask:
        for name, status in (("monitoring", 401), ("administrator", 204)):
            answer = ask("PUT", "/api/vhosts/%2F", {"tracing": True}, login=(name, "p"))
            assert answer.status == status
            told = ask.get("vhosts/%2F", login=("monitoring", "p"))["tracing"]
            assert told is (name == "administrator")


def test_clients_of_the_listener_are_named(
    ask: Asking, store: pyqstore.Store, looker: Looker
) -> None:
    trace(ask)
    with store.listen("127.0.0.1:0") as listener:
        host, port = listener.address.split(":")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        channel = connection.channel(5)
        channel.basic_publish("", "nowhere", b"x")
        found = looker.headers()
        names = [each["name"] for each in ask.get("connections") if each["type"] == "network"]
        assert [found["connection"]] == names
        assert (found["channel"], found["user"]) == (5, "guest")
        connection.close()


def test_further_keys_are_told(ask: Asking, store: pyqstore.Store, looker: Looker) -> None:
    trace(ask)
    headers = {"CC": ["b", "c"], "BCC": ["hidden"]}
    with store.channel() as channel:
        channel.basic_publish("", "a", b"x", pyqstore.Properties(headers=headers))
    found = looker.headers()
    assert found["routing_keys"] == ["a", "b", "c"]
    assert found["properties"]["headers"] == {"CC": ["b", "c"]}


def test_values_of_any_bytes_are_copied(ask: Asking, store: pyqstore.Store, looker: Looker) -> None:
    """Clients may send any bytes: none of them ends the copying."""
    trace(ask)
    blob = b"\x04\x40" + b"\x02\xff\xfe" + b"\xff" * 8  # correlation id, timestamp
    with store.channel() as channel:
        channel._publish_anywhere("", b"\xff", blob, b"x")
        channel.basic_publish("", "nowhere", b"y")
    found = looker.headers()
    assert found["routing_keys"] == [b"\xff"]
    assert found["properties"]["correlation_id"] == b"\xff\xfe"
    assert looker.next().body == b"y"


def test_long_names_are_cut_off_in_the_key(
    ask: Asking, store: pyqstore.Store, looker: Looker
) -> None:
    trace(ask)
    name = "n" * 255
    with store.channel() as channel:
        channel.exchange_declare(name, "fanout")
        channel.basic_publish(name, "k", b"x")
    copy = looker.next()
    assert copy.routing_key == f"publish.{name}"[:255]
    assert copy.properties.headers["exchange_name"] == name


def hold_copies(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Set when there is something to copy, and to be set when it may be."""
    has_one, may_copy = threading.Event(), threading.Event()
    copy = firehose.Firehose._copy

    def wait(self: firehose.Firehose, told: firehose.Told) -> None:
        has_one.set()
        assert may_copy.wait(60)
        copy(self, told)

    monkeypatch.setattr(firehose.Firehose, "_copy", wait)
    return has_one, may_copy


def told_missed(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Of each warning how many messages were not copied, and why."""
    found = []
    for record in caplog.records:
        match = re.fullmatch(
            f"vhost '/': (\\d+) messages were not copied to {TRACE}: (.*)", record.getMessage()
        )
        assert match is not None, record
        found.append((int(match[1]), match[2]))
    return found


def test_what_cannot_be_copied_is_told_and_others_go_on(
    ask: Asking,
    store: pyqstore.Store,
    looker: Looker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers_of = firehose.Firehose._headers

    def fail(self: firehose.Firehose, told: firehose.Told) -> bytes:
        if told.body == b"bad":
            raise ValueError("planted")
        return headers_of(self, told)

    monkeypatch.setattr(firehose.Firehose, "_headers", fail)
    monkeypatch.setattr(firehose, "_LOOK_S", 1e9)
    trace(ask)
    with caplog.at_level(logging.WARNING, "pyqstore"), store.channel() as channel:
        for body in (b"bad", b"bad", b"good"):
            channel.basic_publish("", "nowhere", body)
        assert looker.next().body == b"good"
        assert ask.get("vhosts/%2F")["tracing"] is True
        trace(ask, False)
    assert told_missed(caplog) == [(2, "planted")]


def test_what_is_missing_is_told_while_it_goes_on(
    ask: Asking,
    store: pyqstore.Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(self: firehose.Firehose, told: firehose.Told) -> bytes:
        raise ValueError("planted")

    monkeypatch.setattr(firehose.Firehose, "_headers", fail)
    monkeypatch.setattr(firehose, "_LOOK_S", 0)
    trace(ask)
    with caplog.at_level(logging.WARNING, "pyqstore"), store.channel() as channel:
        for _ in range(2):
            before = len(caplog.records)
            channel.basic_publish("", "nowhere", b"x")
            wait_until(lambda before=before: len(caplog.records) > before)  # type: ignore[misc]
    assert told_missed(caplog) == [(1, "planted"), (1, "planted")]


def test_a_channel_that_an_error_closed_is_replaced(
    ask: Asking, store: pyqstore.Store, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(ask)
    with store.channel() as channel:
        with monkeypatch.context() as patch:
            patch.setattr(firehose, "_EXCHANGE", "none")
            before = store._firehose._channel
            channel.basic_publish("", "nowhere", b"lost")
            wait_until(lambda: store._firehose._channel is not before)
        channel.basic_publish("", "nowhere", b"kept")
    assert looker.next().body == b"kept"


def test_a_copying_that_ends_says_so(
    ask: Asking,
    store: pyqstore.Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(self: firehose.Firehose) -> bool:
        raise MemoryError

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "pyqstore"):
        patch.setattr(firehose.Firehose, "_copy_next", fail)
        trace(ask)
        wait_until(lambda: ask.get("vhosts/%2F")["tracing"] is False)
    assert [each.getMessage() for each in caplog.records] == [
        "vhost '/': messages are copied no more"
    ]
    assert trace(ask) == 204
    assert ask.get("vhosts/%2F")["tracing"] is True


def test_a_message_for_which_there_is_no_memory_is_told(
    ask: Asking,
    store: pyqstore.Store,
    looker: Looker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    next_of, failed = firehose.Firehose._next, []

    def fail_once(self: firehose.Firehose) -> object:
        found = next_of(self)
        if found is not None and not failed:
            failed.append(found)
            raise MemoryError("planted")
        return found

    monkeypatch.setattr(firehose.Firehose, "_next", fail_once)
    monkeypatch.setattr(firehose, "_LOOK_S", 1e9)
    trace(ask)
    with caplog.at_level(logging.WARNING, "pyqstore"), store.channel() as channel:
        channel.basic_publish("", "nowhere", b"lost")
        channel.basic_publish("", "nowhere", b"kept")
        assert looker.next().body == b"kept"
        trace(ask, False)
    assert told_missed(caplog) == [(1, "planted")]


def test_what_happens_behind_the_end_is_not_copied(
    ask: Asking, store: pyqstore.Store, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the last copy is made, and when the tracing begins anew meanwhile."""
    has_one, may_copy = hold_copies(monkeypatch)
    trace(ask)
    with store.channel() as channel:
        channel.basic_publish("", "nowhere", b"first")
        assert has_one.wait(60)
        before = store._firehose
        ends = threading.Thread(target=trace, args=(ask, False))
        ends.start()
        wait_until(lambda: store._firehose is None)
        wait_until(lambda: not before.is_running)
        trace(ask)
        channel.basic_publish("", "nowhere", b"second")
        may_copy.set()
        ends.join(60)
        trace(ask, False)
    assert sorted(looker.next().body for _ in range(2)) == [b"first", b"second"]
    assert looker.nothing()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "pyqstore-firehose"]


def test_it_is_the_stores_and_ends_with_it(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "s.qs") as store:
        with asked(store) as one, asked(store) as other:
            trace(one)
            assert other.get("vhosts/%2F")["tracing"] is True
            trace(other)
            assert len(threads()) == 1
        with asked(store) as again:
            assert again.get("vhosts/%2F")["tracing"] is True
        assert len(threads()) == 1
    assert threads() == []


def test_a_body_may_name_the_virtual_host(ask: Asking) -> None:
    body = {"name": "/", "tracing": "true"}
    assert ask("PUT", "/api/vhosts/%2F", body).status == 204
    assert ask.get("vhosts/%2F")["tracing"] is True


def test_what_there_is_no_room_for_is_told(
    ask: Asking,
    store: pyqstore.Store,
    looker: Looker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The trace keeps 8 MiB of messages that are not copied yet, and holds nobody up."""
    _, may_copy = hold_copies(monkeypatch)
    monkeypatch.setattr(firehose, "_LOOK_S", 1e9)
    trace(ask)
    with store.channel() as channel, caplog.at_level(logging.WARNING, "pyqstore"):
        for _ in range(12):
            channel.basic_publish("", "nowhere", bytes(1 << 20))
        may_copy.set()
        trace(ask, False)
    copied = 0
    while looker.channel.basic_get(looker.queue, auto_ack=True) is not None:
        copied += 1
    assert 7 <= copied <= 9  # one may be out of the room already
    assert told_missed(caplog) == [(12 - copied, "copies take longer than messages")]


def test_what_is_left_at_the_end_is_told(
    ask: Asking,
    store: pyqstore.Store,
    looker: Looker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    has_one, may_copy = hold_copies(monkeypatch)
    monkeypatch.setattr(firehose, "_REST_S", -1.0)
    trace(ask)
    with store.channel() as channel, caplog.at_level(logging.WARNING, "pyqstore"):
        for _ in range(3):
            channel.basic_publish("", "nowhere", b"x")
        assert has_one.wait(60)
        store._firehose.end()
        may_copy.set()
        trace(ask, False)
    assert looker.next().body == b"x"
    assert looker.nothing()
    assert told_missed(caplog) == [(2, "copies take longer than messages")]


def test_a_trace_without_content_has_none(store: pyqstore.Store) -> None:
    trace = _core.Trace(store, None, None)
    with store.channel() as channel:
        channel.basic_publish("", "nowhere", b"x")
    with pytest.raises(TypeError, match="without content"):
        trace._next_content(0)
    trace._close()
