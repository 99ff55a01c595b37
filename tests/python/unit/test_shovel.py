"""Shovels between stores, and between stores and brokers: our own listener is the broker here.
``differential/test_shovel`` has RabbitMQ, and kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import Properties, ShovelError, Shovelled, shovel
from pyqstore.control.reaching import reach_owner
from pyqstore.shovelling.ends import Batch
from pyqstore.shovelling.store_source import StoreSource
from pyqstore.shovelling.store_target import StoreTarget

from ..proxy import Proxy
from ..serving import served
from ..shovelling import FULL, IDLE, at, bodies, drained, put, refusing, table, working
from ..support import own_host, run_command, wait_until

NUMBERS = [str(number).encode() for number in range(9000)]


# Between stores.


def test_shovel_moves_a_queue_to_another_store(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    put(store, "a", NUMBERS)
    other.queue("b")
    report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (report.moved, report.lag, report.repeated, report.error) == (9000, 0, 0, None)
    assert report.bytes == sum(map(len, NUMBERS))
    assert bodies(store, "a") == []
    assert bodies(other, "b") == NUMBERS


def test_shovel_takes_queues_and_streams_of_open_stores(store: pyqstore.Store) -> None:
    source, target = store.stream("events"), store.queue("b")
    source.publish(b"one")
    assert shovel(source, target, idle=IDLE).moved == 1
    assert bodies(store, "b") == [b"one"]


def test_shovel_opens_stores_that_are_closed(tmp_path: Path) -> None:
    for name, queue in (("one", "a"), ("two", "b")):
        with pyqstore.open(tmp_path / name) as store:
            put(store, queue, NUMBERS[:10])
    assert shovel(f"{tmp_path}/one#a", f"{tmp_path}/two#b", idle=IDLE).moved == 10
    with pyqstore.open(tmp_path / "two") as store:
        assert bodies(store, "b") == NUMBERS[:10] * 2


def test_shovel_of_a_stream_goes_on_where_it_was(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    events = store.stream("events")
    other.queue("b")
    for _ in range(2):
        events.publish_batch(table(NUMBERS))
        assert shovel(events, at(other, "b"), idle=IDLE).moved == len(NUMBERS)
    assert bodies(other, "b") == NUMBERS * 2
    assert len(events) == 2 * len(NUMBERS)


def test_shovel_of_a_stream_begins_where_it_is_told(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    events = store.stream("events")
    other.queue("b")
    events.publish_batch(table(NUMBERS[:10]))
    assert shovel(events, at(other, "b"), idle=IDLE, start=7).moved == 3
    assert bodies(other, "b") == NUMBERS[7:10]


@pytest.mark.parametrize("properties", [FULL, FULL.replace(headers=None), Properties()])
@pytest.mark.parametrize("is_stream", [False, True])
def test_shovel_keeps_properties_and_routing_keys(
    store: pyqstore.Store, other: pyqstore.Store, properties: Properties, is_stream: bool
) -> None:
    if is_stream:
        store.stream("a")
    else:
        store.queue("a")
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind("a", "x", "#")
        channel.basic_publish("x", "eu.rome", b"body", properties)
    other.queue("b")
    assert shovel(at(store, "a"), at(other, "b"), idle=IDLE).moved == 1
    with other.channel() as channel:
        message = channel.basic_get("b")
    assert message is not None
    assert (message.body, message.routing_key) == (b"body", "eu.rome")
    assert message.properties == properties.replace(delivery_mode=2)


def test_shovel_leads_copies_nowhere_else(store: pyqstore.Store, other: pyqstore.Store) -> None:
    store.queue("a")
    with store.channel() as channel:
        properties = Properties(delivery_mode=2, headers={"CC": ["copies"]})
        channel.basic_publish("", "a", b"body", properties)
    other.queue("b")
    other.queue("copies")
    shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (len(other.queue("b")), len(other.queue("copies"))) == (1, 0)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batches that a store as the source acknowledges before it dies: one for each number in it."""
    left: list[int] = []
    settle = StoreSource.settle

    def dies(self: StoreSource, batch: Any) -> None:
        if not left:
            raise pyqstore.StoreFailed("it dies between the commit and the acknowledgement")
        left.pop()
        settle(self, batch)

    monkeypatch.setattr(StoreSource, "settle", dies)
    return left


def test_shovel_drops_what_comes_again_from_a_store(
    store: pyqstore.Store, other: pyqstore.Store, deaf: list[int]
) -> None:
    """Of messages that are all equal, too."""
    put(store, "a", [b"tick"] * 2500)
    other.queue("b")
    deaf.append(1)
    with pytest.raises(pyqstore.StoreFailed):  # two batches are there, one is acknowledged
        shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert len(other.queue("b")) == 2000
    put(store, "a", [b"tick"] * 500)
    with pytest.raises(pyqstore.StoreFailed):  # one has come again, and one is new
        shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    deaf += [1] * 9
    assert len(other.queue("b")) == 2000
    report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (report.moved, report.repeated) == (1000, 1000)
    assert len(other.queue("b")) == 3000
    put(store, "a", [b"tick"] * 10)
    assert shovel(at(store, "a"), at(other, "b"), idle=IDLE).moved == 10


def test_shovel_moves_equal_messages_each(store: pyqstore.Store, other: pyqstore.Store) -> None:
    other.queue("b")
    for _ in range(3):
        put(store, "a", [b"tick"] * 50)
        assert shovel(at(store, "a"), at(other, "b"), idle=IDLE).moved == 50


def test_shovel_says_what_is_wrong_with_an_address(store: pyqstore.Store, tmp_path: Path) -> None:
    store.queue("a")
    here = at(store, "a")
    for source, target, told in (
        ("orders.qs", here, "say DIRECTORY#QUEUE"),
        (here, "#a", "say DIRECTORY#QUEUE"),
        (here, "http://host/", "the scheme 'http'"),
        (here, "amqp://host", "queue=NAME, or .exchange=NAME"),
        (here, "amqp://host?queue=q&key=k", "key= goes with exchange="),
        (here, "amqp://host?queue=q&queue=r", "queue= is there twice"),
        (here, "amqp://host?queue=q&retry_delay=1", "retry_delay= is unknown"),
        (here, "amqp://host:port?queue=q", "the port"),
        (here, "amqp:///?queue=q", "no host"),
        (here, "amqp://host#q", "by .queue=q"),
        ("amqp://host?exchange=x", here, "say .queue=NAME, and nothing else"),
    ):
        with pytest.raises(ValueError, match=told):
            shovel(source, target, idle=0)
    with pytest.raises(ValueError, match="source 'amqp://me@host': ") as caught:
        shovel("amqp://me:secret@host", here)
    assert "secret" not in str(caught.value)
    with pytest.raises(ShovelError, match="between brokers"):
        shovel("amqp://host?queue=q", "amqp://host?queue=r")
    with pytest.raises(pyqstore.NotFound, match="nowhere"):
        shovel(here, f"{store.path}#nowhere")
    with pytest.raises(pyqstore.NotFound, match="nowhere"):
        shovel(f"{store.path}#nowhere", here)
    assert store.queues() == ["a"]  # and no notes
    with pytest.raises(pyqstore.StoreNotFound):
        shovel(here, f"{tmp_path}/none#q")
    with pytest.raises(ValueError, match="tries"):
        shovel(here, here, tries=0)
    assert len(store.queue("a")) == 0


def test_shovel_tells_of_a_stream_that_dropped_messages(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    events = store.stream("events", max_messages=100, segment_bytes=4096)
    other.queue("b")
    events.publish(b"0")
    assert shovel(events, at(other, "b"), idle=IDLE).moved == 1
    for _ in range(20):
        events.publish_batch(table([b"x" * 100_000] * 100))
    store.checkpoint()
    wait_until(lambda: events.first > 1)
    with pytest.raises(pyqstore.OffsetOutOfRange):
        shovel(events, at(other, "b"), idle=IDLE)
    assert bodies(other, "b") == [b"0"]


def test_a_name_is_for_one_shovel_at_a_time(store: pyqstore.Store, other: pyqstore.Store) -> None:
    put(store, "a", NUMBERS[:1])
    target = other.queue("b")
    with working(at(store, "a"), at(other, "b")):
        wait_until(lambda: len(target) == 1)
        with pytest.raises(ShovelError, match="another shovel named"):
            shovel(at(store, "a"), at(other, "b"))


@pytest.mark.parametrize("source", ["queue", "stream", "broker"])
def test_a_queue_that_takes_less_than_a_batch_gets_smaller_ones(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, source: str
) -> None:
    numbers = NUMBERS[:2000]
    target = store.queue("b", max_length=300, overflow="reject-publish")
    if source == "stream":
        other.stream("a").publish_batch(table(numbers))
    else:
        put(other, "a", numbers)
    place = f"{broker}?queue=a" if source == "broker" else at(other, "a")
    with working(place, at(store, "b"), idle=IDLE) as future:
        assert drained(target, len(numbers)) == numbers
        assert future.result(60).moved == len(numbers)
    assert len(target) == 0


def test_a_full_target_holds_a_shovel_back(store: pyqstore.Store, other: pyqstore.Store) -> None:
    put(store, "a", NUMBERS[:10])
    target = other.queue("b", max_length=10, overflow="reject-publish")
    target.put(b"first")
    told: list[Shovelled] = []
    with working(at(store, "a"), at(other, "b"), progress=told.append) as future:
        wait_until(lambda: bool(told) and "full" in str(told[-1].error))
        assert len(target) == 1
        target.purge()
        wait_until(lambda: len(target) == 10)
    assert future.result(30).moved == 10


LARGE = 300_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[pyqstore.Store]:
    """It refuses messages of LARGE bytes."""
    with pyqstore.open(tmp_path / "small", body_bytes_max=LARGE - 1) as store:
        yield store


def test_a_message_that_a_store_refuses_ends_a_shovel_and_stays(
    store: pyqstore.Store, small: pyqstore.Store
) -> None:
    put(store, "a", [b"1", b"x" * LARGE, b"2"])
    small.queue("b")
    with pytest.raises(ShovelError, match="refuses a message, 2 times"):
        shovel(at(store, "a"), at(small, "b"), tries=2)
    assert len(store.queue("a")) == 3


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_message_that_a_broker_refuses_becomes_a_dead_letter(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, is_stream: bool
) -> None:
    """No queue takes the second; the others come once each."""
    (store.stream if is_stream else store.queue)("a")
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind("a", "x", "#")
        for key in ("known", "unknown", "known"):
            channel.basic_publish("x", key, key.encode(), Properties(delivery_mode=2, type="t"))
    other.queue("b")
    with other.channel() as channel:
        channel.exchange_declare("x", "direct")
        channel.queue_bind("b", "x", "known")
        to = f"{broker}?exchange=x"
        with pytest.raises(ShovelError, match="NO_ROUTE: no queue for key 'unknown'"):
            shovel(at(store, "a"), to, tries=2)
        assert store.queue_status("a").messages_ready == 3
        other.queue("b").purge()
        report = shovel(at(store, "a"), to, tries=2, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (2, 1)
    assert bodies(other, "b") == [b"known"] * 2
    with store.channel() as channel:
        message = channel.basic_get("graves")
    assert message is not None
    headers = message.properties.headers
    assert (message.body, message.properties.type) == (b"unknown", "t")
    assert headers["x-shovel-exchange"] == "x"
    assert headers["x-shovel-routing-key"] == "unknown"
    assert "NO_ROUTE" in headers["x-shovel-error"]


def test_a_message_that_a_store_refuses_becomes_a_dead_letter(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With others that it takes, in one transaction."""
    refusing(monkeypatch, b"1")
    other.queue("a").put_many([b"0", b"1", b"2"])
    store.queue("b")
    source = f"{broker}?queue=a"
    report = shovel(source, at(store, "b"), tries=3, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (2, 1)
    assert bodies(store, "b") == [b"0", b"2"]
    assert bodies(store, "graves") == [b"1"]


def test_a_target_that_is_deleted_meanwhile_takes_no_messages_along(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted and declared again behind the last look at it, before the commit."""
    put(store, "a", NUMBERS[:10])
    other.queue("b")
    look = StoreTarget._check_there

    def deletes(self: StoreTarget, channel: pyqstore.Channel, batch: Batch) -> None:
        look(self, channel, batch)
        with other.channel() as another:
            another.queue_delete("b")
        other.queue("b")

    with monkeypatch.context() as patch:
        patch.setattr(StoreTarget, "_check_there", deletes)
        with pytest.raises(pyqstore.NotFound, match="deleted"):
            shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert len(store.queue("a")) == 10
    assert shovel(at(store, "a"), at(other, "b"), idle=IDLE).moved == 10
    assert bodies(other, "b") == NUMBERS[:10]


def test_a_message_that_no_queue_takes_stays(small: pyqstore.Store, other: pyqstore.Store) -> None:
    """Too large for the store, and so for its queue of dead letters."""
    put(other, "a", [b"1", b"x" * LARGE, b"2"])
    small.queue("b")
    with pytest.raises(ShovelError, match="the queue of dead letters refuses a message"):
        shovel(at(other, "a"), at(small, "b"), tries=1, dead="graves")
    assert len(other.queue("a")) == 3
    assert len(small.queue("b")) == 0


# From and to a broker.


def test_shovel_moves_from_a_broker(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    put(other, "a", NUMBERS)
    store.queue("b")
    report = shovel(f"{broker}?queue=a", at(store, "b"), idle=IDLE)
    assert (report.moved, report.repeated) == (len(NUMBERS), 0)
    assert bodies(store, "b") == NUMBERS
    assert len(other.queue("a")) == 0


def test_shovel_moves_to_a_broker(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    put(store, "a", NUMBERS)
    other.queue("b")
    assert shovel(at(store, "a"), f"{broker}?queue=b", idle=IDLE).moved == len(NUMBERS)
    assert bodies(other, "b") == NUMBERS
    assert len(store.queue("a")) == 0


def test_shovel_of_a_stream_to_a_broker_goes_on_where_it_was(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    events = store.stream("events")
    other.queue("b")
    for _ in range(2):
        events.publish_batch(table(NUMBERS))
        assert shovel(events, f"{broker}?queue=b", idle=IDLE).moved == len(NUMBERS)
    assert bodies(other, "b") == NUMBERS * 2


@pytest.mark.parametrize("properties", [FULL, FULL.replace(headers=None), Properties()])
def test_a_broker_has_the_same_properties_and_keys(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, properties: Properties
) -> None:
    """To it and back again."""
    store.queue("a")
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind("a", "x", "#")
        channel.basic_publish("x", "eu.rome", b"body", properties)
    other.queue("b")
    with other.channel() as channel:
        channel.exchange_declare("y", "topic", durable=True)
        channel.queue_bind("b", "y", "eu.*")
        shovel(at(store, "a"), f"{broker}?exchange=y", idle=IDLE)
        message = channel.basic_get("b")
    assert message is not None
    assert message.routing_key == "eu.rome"
    assert message._encoded in (properties.encoded, b"\0\0")
    store.queue("c")
    shovel(f"{broker}?queue=b", at(store, "c"), idle=IDLE)
    with store.channel() as channel:
        message = channel.basic_get("c")
    assert message is not None
    assert (message.body, message.routing_key) == (b"body", "eu.rome")
    assert message.properties == properties.replace(delivery_mode=2)


def test_an_exchange_gets_the_key_that_is_said(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    put(store, "a", [b"body"])
    other.queue("b")
    with other.channel() as channel:
        channel.exchange_declare("y", "direct", durable=True)
        channel.queue_bind("b", "y", "here")
        assert shovel(at(store, "a"), f"{broker}?exchange=y&key=here", idle=IDLE).moved == 1


@pytest.mark.parametrize("place", ["queue=nowhere", "exchange=nowhere"])
def test_what_a_broker_does_not_have_is_told_at_once(
    store: pyqstore.Store, broker: str, place: str
) -> None:
    put(store, "a", [b"body"])
    with pytest.raises(ShovelError, match="nowhere"):
        shovel(at(store, "a"), f"{broker}?{place}")
    assert len(store.queue("a")) == 1


def test_a_wrong_password_is_told_at_once(store: pyqstore.Store, broker: str) -> None:
    store.queue("a")
    wrong = broker.replace("guest:guest", "guest:wrong")
    with pytest.raises(ShovelError, match="look at user, password") as caught:
        shovel(at(store, "a"), f"{wrong}?queue=a")
    assert "guest:wrong" not in str(caught.value)


def test_a_stream_of_a_broker_is_no_source(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    other.stream("events")
    store.queue("b")
    with working(f"{broker}?queue=events", at(store, "b")) as future:
        wait_until(lambda: other.queue_status("events").consumers == 1)
        other.stream("events").publish(b"one")
        with pytest.raises(ShovelError, match="is a stream"):
            future.result(30)


def test_without_pika_the_extra_is_named(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue("a")
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(ShovelError, match=r"pip install 'pyqstore\[amqp\]'"):
        shovel(at(store, "a"), "amqp://127.0.0.1:1?queue=b")


@pytest.mark.parametrize("is_source", [False, True])
def test_a_lost_connection_is_made_again(
    store: pyqstore.Store, other: pyqstore.Store, proxy: Proxy, is_source: bool
) -> None:
    """Cut ten times while messages are under way.  Into the store each message comes once."""
    rows = [b"%d" % number for number in range(20_000)]
    from_, to = (other, store) if is_source else (store, other)
    source_queue, target_queue = from_.queue("a"), to.queue("b")
    broker = f"amqp://127.0.0.1:{proxy.port}"
    source = f"{broker}?queue=a" if is_source else at(store, "a")
    target = at(store, "b") if is_source else f"{broker}?queue=b"
    cuts = 0
    with working(source, target) as future:
        for round_ in range(10):
            source_queue.put_many(rows[round_ * 2000 : (round_ + 1) * 2000])
            wait_until(lambda: len(target_queue) > cuts * 2000)  # noqa: B023
            cuts += proxy.cut()
        wait_until(lambda: _is_empty(from_, "a"), 60)
    report = future.result(60)
    assert cuts == 10
    assert report.connected >= cuts
    found = bodies(to, "b")
    assert set(found) == set(rows)
    if is_source:
        assert sorted(found) == sorted(rows)


def _is_empty(store: pyqstore.Store, name: str) -> bool:
    status = store.queue_status(name)
    return int(status.messages_ready) + int(status.messages_unacked) == 0


def test_a_shovel_waits_for_a_broker_that_is_not_there(store: pyqstore.Store) -> None:
    """An edge device begins without a network."""
    put(store, "a", NUMBERS[:1])
    host = own_host()
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
    told: list[Shovelled] = []
    with working(at(store, "a"), f"amqp://{host}:{port}?queue=b", progress=told.append) as future:
        wait_until(lambda: bool(told) and told[-1].error is not None)
    report = future.result(30)
    assert (report.moved, report.lag) == (0, 1)
    assert "refused" in str(report.error)
    assert len(store.queue("a")) == 1


# As a command.


def command(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return run_command("shovel", *arguments, **more)


def test_the_command_moves_and_reports(tmp_path: Path) -> None:
    """Paths are those of the command's folder, though another process has one of the stores."""
    for name, queue in (("one", "a"), ("two", "b")):
        with pyqstore.open(tmp_path / name) as store:
            put(store, queue, NUMBERS[:10] if queue == "a" else [])
    for owned in ("one", "two"):
        with pyqstore.open(tmp_path / owned) as store:
            if owned == "two":
                store.queue("b")
            done = command("--from", "one#a", "--to", "two#b", "--idle", "0.3", "--json",
                           cwd=tmp_path)  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["moved"] == (10 if owned == "one" else 0)
    with pyqstore.open(tmp_path / "two") as store:
        assert bodies(store, "b") == NUMBERS[:10]


def test_the_command_says_that_two_processes_have_the_stores(
    store: pyqstore.Store, tmp_path: Path
) -> None:
    put(store, "a", NUMBERS[:1])
    with pyqstore.open(tmp_path / "served") as other:
        other.queue("b")
    with served(tmp_path / "served", "--listen", "127.0.0.1:0") as one:
        address = one.addresses()["amqp"]
        done = command("--from", at(store, "a"), "--to", f"{tmp_path}/served#b", "--idle", "0.3")
        assert done.returncode == 3
        assert "name its queue by grpc:// or amqp://" in done.stderr
        done = command(
            "--from", at(store, "a"), "--to", f"amqp://{address}?queue=b", "--idle", "0.3"
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("1 messages moved in ")
    assert len(store.queue("a")) == 0


def test_a_shovel_goes_on_when_the_owner_of_its_store_goes(tmp_path: Path) -> None:
    """First with the next owner, which comes soon, then by itself.  What is under way when an owner
    goes comes to the broker twice."""
    found: set[bytes] = set()
    with pyqstore.open(tmp_path / "two") as other:
        other.queue("b")

        def has_come(number: int) -> bool:
            found.update(bodies(other, "b"))
            return b"%d" % number in found

        with pyqstore.open(tmp_path / "one") as store:
            put(store, "a", [])
        to = f"amqp://{other.listen('127.0.0.1:0').address}?queue=b"
        with ExitStack() as stack:
            # In another process: what this one has open and closes ends the shovel.
            for number in range(2):
                with served(tmp_path / "one", "--listen", "127.0.0.1:0") as owner:
                    owner.addresses()
                    if number == 0:
                        future = stack.enter_context(working(f"{tmp_path}/one#a", to))
                    run_command("publish", str(tmp_path / "one"), "a", "--body", str(number))
                    wait_until(lambda: has_come(number))  # noqa: B023
                    assert owner.end(signal.SIGKILL if number else signal.SIGTERM)[0] <= 0
            wait_until(lambda: reach_owner(tmp_path / "one", "queues", {}) is not None, 60)
            run_command("publish", str(tmp_path / "one"), "a", "--body", "2")
            wait_until(lambda: has_come(2))
        report = future.result(30)
    assert found == {b"0", b"1", b"2"}
    assert report.connected >= 2
    assert "closed it" in str(report.error)


def test_who_looks_at_a_store_sees_its_shovels(tmp_path: Path) -> None:
    """In the process that does the work: figures, metrics, and what was last the trouble."""
    with pyqstore.open(tmp_path / "one") as store:
        put(store, "a", NUMBERS[:10])
    host = own_host()
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
    with served(tmp_path / "one", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0") as owner:
        address = owner.addresses()["http"]
        to = f"amqp://{host}:{port}?queue=b"

        def shovels() -> dict[str, Any]:
            told = json.loads(run_command("stats", str(tmp_path / "one"), "--json").stdout)
            return dict(told.get("shovels", {}))

        assert shovels() == {}
        with working(f"{tmp_path}/one#a", to, name="mine"):
            wait_until(lambda: "refused" in str(shovels().get("mine", {}).get("error")), 60)
            assert shovels()["mine"]["lag"] == 10
            request = urllib.request.Request(
                f"http://{address}/metrics",
                headers={"Authorization": "Basic " + b64encode(b"guest:guest").decode()},
            )
            metrics = urllib.request.urlopen(request, timeout=60).read().decode()
        labels = '{shovel="mine",vhost="/"}'
        assert f"pyqstore_shovel_waiting_messages{labels} 10.0" in metrics
        assert f"pyqstore_shovel_messages_total{labels} 0.0" in metrics
        wait_until(lambda: shovels() == {}, 60)


def test_the_command_ends_in_order_on_sigterm(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "one") as store:
        put(store, "a", NUMBERS)
    with pyqstore.open(tmp_path / "two") as store:
        target = store.queue("b")
        process = subprocess.Popen(
            [sys.executable, "-m", "pyqstore", "shovel", "--json",
             "--from", f"{tmp_path}/one#a", "--to", f"{tmp_path}/two#b"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: len(target) == len(NUMBERS), 60)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(out)["moved"] == len(NUMBERS)


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_shovel_that_is_killed_moves_each_message_once(tmp_path: Path, kind: str) -> None:
    """Between two stores, which it has open itself; killed at any moment, five times."""
    rows = [b"%d" % number for number in range(30_000 if kind == "queue" else 120_000)]
    with pyqstore.open(tmp_path / "one") as store:
        if kind == "stream":
            store.stream("a").publish_batch(table(rows))
        else:
            put(store, "a", rows)
    with pyqstore.open(tmp_path / "two") as store:
        store.queue("b")
    source, target = f"{tmp_path}/one#a", f"{tmp_path}/two#b"
    seed = int(os.environ.get("QS_KILL_SEED", time.time_ns() % 10**9))
    print(f"QS_KILL_SEED={seed}")
    for number in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, source, target, str(seed + number)]
        )
        assert process.wait(120) == -signal.SIGKILL
    report = shovel(source, target, idle=IDLE)
    assert report.lag == 0
    with pyqstore.open(tmp_path / "two") as store:
        assert bodies(store, "b") == rows


_KILLED = """
import os, random, signal, sys, threading, time
import pyqstore
from pyqstore.shovelling.store_source import StoreSource
from pyqstore.shovelling.store_target import StoreTarget

chosen = random.Random(int(sys.argv[3]))
left = chosen.randrange(5)
moment = chosen.choice([(StoreSource, "settle"), (StoreTarget, "begin"), (StoreTarget, "ended")])
before = chosen.random() < 0.5
call = getattr(*moment)

def die(*arguments):
    global left
    left -= 1
    if left < 0 and before:
        os.kill(os.getpid(), signal.SIGKILL)
    result = call(*arguments)
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(*moment, die)
pyqstore.shovel(sys.argv[1], sys.argv[2])
"""
