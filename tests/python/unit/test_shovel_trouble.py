"""Shovels and brokers that return messages, close connections, are silent, or send too much: our
own listener, or a part of one, is the broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import Properties, ShovelError, Shovelled, shovel
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User
from pyqstore.shovelling.addresses import AmqpPlace, place_of
from pyqstore.shovelling.amqp_source import AmqpSource
from pyqstore.shovelling.amqp_target import AmqpTarget
from pyqstore.shovelling.blobs import without_headers
from pyqstore.shovelling.ends import Batch, Item, Later, Source, id_of
from pyqstore.shovelling.store_source import StoreSource
from pyqstore.shovelling.store_target import StoreTarget

from ..shovelling import IDLE, at, bodies, changing, put, working
from ..support import wait_until

MIB = 1 << 20


def amqp_place(address: str, *, is_target: bool) -> AmqpPlace:
    place = place_of(address, is_target=is_target)
    assert isinstance(place, AmqpPlace)
    return place


def leading(store: pyqstore.Store, name: str) -> None:
    """To a queue all that is published to the exchange x, by its headers or its key."""
    store.queue(name)
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind(name, "x", "#")


# Messages that no queue takes.


def test_a_return_is_of_the_message_that_no_queue_takes(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    """Others are equal to it but for a header, by which the broker routes."""
    leading(store, "a")
    with store.channel() as channel:
        for number in range(300):
            where = "nowhere" if number % 100 == 50 else "here"
            properties = Properties(
                delivery_mode=2, message_id=str(number), headers={"where": where}
            )
            channel.basic_publish("x", "key", b"tick", properties)
    other.queue("b")
    with other.channel() as channel:
        channel.exchange_declare("y", "headers", durable=True)
        channel.queue_bind("b", "y", "", arguments={"where": "here"})
    report = shovel(at(store, "a"), f"{broker}?exchange=y", tries=2, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (297, 3)
    assert ids(store, "graves") == ["50", "150", "250"]
    assert set(ids(other, "b")) == {str(n) for n in range(300) if n % 100 != 50}


def test_a_return_that_looks_like_none_is_of_any(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may change what it returns."""
    for number in range(100):
        put(store, "a", [b"%d" % number])
    returned = AmqpTarget._returned

    def changed(self: AmqpTarget, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        returned(self, channel, method, properties, b"other")

    monkeypatch.setattr(AmqpTarget, "_returned", changed)
    with other.channel() as channel:
        channel.exchange_declare("y", "direct", durable=True)
    report = shovel(at(store, "a"), f"{broker}?exchange=y", tries=1, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (0, 100)
    assert bodies(store, "graves") == [b"%d" % number for number in range(100)]


def ids(store: pyqstore.Store, name: str) -> list[str | None]:
    found = []
    with store.channel() as channel:
        while (message := channel.basic_get(name, auto_ack=True)) is not None:
            found.append(message.properties.message_id)
    return found


# Messages that a broker does not bear.


def check_poison(store: pyqstore.Store, other: pyqstore.Store, to: str, told: str) -> None:
    """The second of three messages in ``a`` becomes a dead letter, and the others come."""
    with pytest.raises(ShovelError, match=told):
        shovel(at(store, "a"), to, tries=2)
    assert len(store.queue("a")) == 3
    bodies(other, "b")
    report = shovel(at(store, "a"), to, tries=2, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (2, 1)
    assert set(bodies(other, "b")) == {b"1", b"3"}
    assert bodies(store, "graves") == [b"poison"]


def test_properties_that_are_larger_than_a_frame_are_refused(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    other.queue("b")
    queue = store.queue("a")
    queue.put(b"1")
    with store.channel() as channel:
        properties = Properties(delivery_mode=2, headers={"large": "x" * 10_000})
        channel.basic_publish("", "a", b"poison", properties)
    queue.put(b"3")
    check_poison(store, other, f"{broker}?queue=b&frame_max=8192", "properties of 10.* bytes")


def test_a_routing_key_that_is_no_text_is_refused(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client can publish such a one here, but it may be in files that others made."""

    def damaged(item: Item) -> Item:
        return item._replace(routing_key="\udcff") if b"p" in item.body else item

    changing(monkeypatch, damaged)
    leading(store, "a")
    leading(other, "b")
    with store.channel() as channel:
        for key, body in (("ä", b"1"), ("key", b"poison"), ("key", b"3")):
            channel.basic_publish("x", key, body)
    check_poison(store, other, f"{broker}?exchange=x", "key is not UTF-8")


def test_a_message_over_which_a_broker_closes_the_connection_is_refused(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its properties are damaged, as another broker may find those of a client."""

    def damaged(item: Item) -> Item:
        return item._replace(properties=b"\x20\0\0\0\0\x05zzzzz") if b"p" in item.body else item

    changing(monkeypatch, damaged)
    other.queue("b")
    put(store, "a", [b"1", b"poison", b"3"])
    check_poison(store, other, f"{broker}?queue=b", r"\(502, ")


def test_a_message_whose_properties_are_cut_off_is_a_dead_letter(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(item: Item) -> Item:
        return item._replace(properties=b"\x20\0\0\0\0\x09zzzzz") if b"p" in item.body else item

    changing(monkeypatch, damaged)
    other.queue("b")
    put(store, "a", [b"1", b"poison", b"3"])
    report = shovel(at(store, "a"), at(other, "b"), tries=2, dead="dead", idle=IDLE)
    assert (report.moved, report.dead) == (2, 1)
    assert (bodies(other, "b"), bodies(other, "dead")) == ([b"1", b"3"], [b"poison"])


def test_a_message_that_a_user_may_not_publish_is_refused(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    with changed_users(Path(other.path), create=True) as known:
        known["ann"] = User(hashed("secret"), permissions={"/": Permission("", "b", ".*")})
    address = other.listen("127.0.0.1:0").address
    put(store, "a", [b"1"])
    with other.channel() as channel:
        channel.exchange_declare("y", "fanout", durable=True)
    to = f"amqp://ann:secret@{address}?exchange=y"
    with pytest.raises(ShovelError, match=r"refuses a message, 2 times.*403"):
        shovel(at(store, "a"), to, tries=2)
    report = shovel(at(store, "a"), to, tries=2, dead="graves", idle=IDLE)
    assert report.dead == 1


# Channels and connections that a broker closes.


def test_a_channel_that_is_closed_meanwhile_is_opened_again(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    """With 406, as after RabbitMQ's consumer_timeout; told while the ends are only tended."""
    put(other, "a", [b"body"])
    source = AmqpSource(amqp_place(f"{broker}?queue=a", is_target=False), 10)
    target = AmqpTarget(amqp_place(f"{broker}?queue=b", is_target=True))
    other.queue("b")
    try:
        source.open(None)
        target.open()
        batch = source.read(1, 1, 30)
        assert batch is not None
        ends: tuple[AmqpSource | AmqpTarget, ...] = (source, target)
        for end in ends:
            channel = end._link.channel
            channel.basic_ack(999)
            until = time.monotonic() + 30
            while not channel.is_closed:
                assert time.monotonic() < until
                end.tend(0.01)
        with pytest.raises(Later, match="406"):
            source.settle(batch)
        with pytest.raises(Later, match="406"):
            source.read(1, 1, 0)
        with pytest.raises(Later, match="406"):
            target.begin(batch)
        target.open()
        target.begin(batch)
        assert target.ended(30) is batch
    finally:
        source.close()
        target.close()


def test_a_consumer_that_is_taken_away_consumes_again(other: pyqstore.Store, broker: str) -> None:
    """A broker cancels it where a node goes down, too.  Only a queue that was deleted is not there
    the next time."""
    put(other, "a", [b"body"])
    source = AmqpSource(amqp_place(f"{broker}?queue=a", is_target=False), 10)
    try:
        source.open(None)
        source._cancelled(None)
        with pytest.raises(Later, match="took the consumer away"):
            source.read(1, 1, 0)
        source.open(None)
        assert source.read(1, 1, 30) is not None
        with other.channel() as channel:
            channel.queue_delete("a")
        with pytest.raises(Later, match="took the consumer away"):
            source.read(1, 1, 30)
        with pytest.raises(ShovelError, match="404"):
            source.open(None)
    finally:
        source.close()


# Ends that are away, or full, for longer than a shovel may be idle.


def test_a_source_that_is_away_is_not_idle(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(other, "a", [b"1"])
    target = store.queue("b")
    open_, settle = AmqpSource.open, AmqpSource.settle
    away_until = 0.0

    def opens(self: AmqpSource, position: int | None) -> None:
        if time.monotonic() < away_until:
            raise Later("planted")
        open_(self, position)

    def leaves(self: AmqpSource, batch: Batch) -> None:
        nonlocal away_until
        settle(self, batch)
        if not away_until:
            put(other, "a", [b"2"])
            away_until = time.monotonic() + 3
            self._cancelled(None)

    monkeypatch.setattr(AmqpSource, "open", opens)
    monkeypatch.setattr(AmqpSource, "settle", leaves)
    assert shovel(f"{broker}?queue=a", at(store, "b"), idle=2).moved == 2
    assert len(target) == 2


def test_a_target_that_was_full_is_not_idle(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "a", [b"tick"] * 1500)
    other.queue("b")
    begin = StoreTarget.begin
    full_until = 0.0

    def full(self: StoreTarget, batch: Batch) -> None:
        nonlocal full_until
        full_until = full_until or time.monotonic() + 1
        if time.monotonic() < full_until:
            raise Later("planted")
        begin(self, batch)

    monkeypatch.setattr(StoreTarget, "begin", full)
    assert shovel(at(store, "a"), at(other, "b"), idle=0.5).moved == 1500


def test_what_is_before_a_damaged_message_is_moved(
    store: pyqstore.Store, other: pyqstore.Store, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shovel ends over it, to a store and to a broker."""

    def damaged(item: Item) -> Item:
        if item.body == b"damaged":
            raise pyqstore.StoreCorrupt("planted")
        return item

    changing(monkeypatch, damaged)
    other.queue("b")
    for to in (at(other, "b"), f"{broker}?queue=b"):
        put(store, "a", [b"1", b"2", b"damaged", b"4"])
        with pytest.raises(pyqstore.StoreCorrupt, match="planted"):
            shovel(at(store, "a"), to)
        assert bodies(other, "b") == [b"1", b"2"]
        assert bodies(store, "a") == [b"damaged", b"4"]


@contextmanager
def answering(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """An address where ``serve`` has each connection, and what it returns is kept."""
    kept: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    end, _ = listening.accept()
                    kept.append(serve(end))

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in kept:
                if isinstance(each, socket.socket):
                    each.close()


def test_a_connection_that_is_lost_while_it_begins_is_made_again(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    """By a broker that restarts, or a load balancer: behind the start frame, and without one."""
    put(store, "a", [b"body"])
    other.queue("b")
    host, _, port = other.listen("127.0.0.1:0").address.rpartition(":")
    with socket.create_connection((host, int(port))) as end:
        end.sendall(b"AMQP\0\0\x09\x01")
        start = end.recv(1 << 16)
    assert start[:1] == b"\x01"
    connections = 0

    def serve(end: socket.socket) -> None:
        nonlocal connections
        connections += 1
        with end, suppress(OSError):
            end.recv(8)
            if connections % 2:
                end.sendall(start)
                end.recv(1 << 16)

    told: list[Shovelled] = []
    with (
        answering(serve) as address,
        working(at(store, "a"), f"amqp://{address}?queue=b", progress=told.append) as future,
    ):
        wait_until(lambda: connections >= 4, 60)
        assert not future.done()
    assert future.result(30).moved == 0


def test_a_shovel_stops_soon_where_nobody_answers(store: pyqstore.Store) -> None:
    """A host that drops packets looks like one that is silent."""
    put(store, "a", [b"body"])
    stop, has_come = threading.Event(), threading.Event()

    def serve(end: socket.socket) -> socket.socket:
        has_come.set()
        return end

    with (
        answering(serve) as address,
        working(at(store, "a"), f"amqp://{address}?queue=b", stop=stop) as future,
    ):
        assert has_come.wait(30)
        began = time.monotonic()
        stop.set()
        future.result(30)
    assert time.monotonic() - began < 10


def test_a_shovel_stops_soon_when_its_target_takes_nothing(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    """Without a processor that is busy until then."""
    put(store, "a", [b"body"])
    other.queue("b", max_length=1, overflow="reject-publish").put(b"first")
    told: list[Shovelled] = []
    stop = threading.Event()
    with working(at(store, "a"), at(other, "b"), stop=stop, progress=told.append) as future:
        wait_until(lambda: bool(told) and "full" in str(told[-1].error))
        began = time.process_time()
        stop.set()
        future.result(30)
    assert time.process_time() - began < 5


def test_a_target_that_has_nothing_to_take_is_kept(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    """By heartbeats: the listener closes a connection that is silent for two seconds."""
    store.queue("a")
    other.queue("b")
    told: list[Shovelled] = []
    with working(at(store, "a"), f"{broker}?queue=b&heartbeat=1", progress=told.append) as future:
        wait_until(lambda: bool(told) and told[-1].seconds > 8, 60)
        put(store, "a", [b"body"])
        wait_until(lambda: len(other.queue("b")) == 1)
    assert (future.result(30).connected, future.result().error) == (0, None)


# Large messages.


def test_a_source_reads_no_more_than_it_can_hold(other: pyqstore.Store, broker: str) -> None:
    """However long it is tended: the rest waits at the broker."""
    put(other, "a", [b"x" * MIB] * 100)
    source = AmqpSource(amqp_place(f"{broker}?queue=a", is_target=False), 5000)
    try:
        source.open(None)
        until = time.monotonic() + 30
        while source.held < 16 * MIB:
            assert time.monotonic() < until
            source.tend(0.01)
        for _ in range(1000):
            source.tend(0.001)
        assert source.held < 18 * MIB
        count = 0
        while count < 100:
            batch = source.read(1000, 4 * MIB, 30)
            assert batch is not None
            assert source.held < 18 * MIB
            assert batch.size <= 5 * MIB
            source.settle(batch)
            count += len(batch.items)
        assert source.held == 0
    finally:
        source.close()


def test_batches_are_small_where_properties_are_large(other: pyqstore.Store, broker: str) -> None:
    other.queue("a")
    with other.channel() as channel:
        for _ in range(40):
            properties = Properties(delivery_mode=2, headers={"large": "x" * 100_000})
            channel.basic_publish("", "a", b"", properties)
    sources: tuple[Source, ...] = (
        AmqpSource(amqp_place(f"{broker}?queue=a", is_target=False), 1000),
        StoreSource(
            other, "a", shovel="s", start="first", dead=None, shown="", ahead=1000,
            notes_position=False,
        ),
    )  # fmt: skip
    for source in sources:
        try:
            source.open(None)
            until = time.monotonic() + 30
            while isinstance(source, AmqpSource) and source.held < 3 * MIB:
                assert time.monotonic() < until
                source.tend(0.01)
            left = 40
            while left > 0:
                batch = source.read(1000, MIB, 30)
                assert batch is not None
                assert len(batch.items) <= 11
                left -= len(batch.items)
        finally:
            source.close()


def test_what_waits_at_the_broker_comes_when_the_target_takes_again(
    store: pyqstore.Store, other: pyqstore.Store, broker: str
) -> None:
    sizes = [b"%d" % number + b"x" * MIB for number in range(40)]
    put(other, "a", sizes)
    target = store.queue("b", max_length=1, overflow="reject-publish")
    target.put(b"first")
    told: list[Shovelled] = []
    with working(f"{broker}?queue=a", at(store, "b"), progress=told.append) as future:
        wait_until(lambda: bool(told) and "full" in str(told[-1].error))
        with store.channel() as channel:
            channel.queue_delete("b")
        store.queue("b")
        wait_until(lambda: len(store.queue("b")) == 40, 60)
    assert future.result(30).moved == 40
    assert bodies(store, "b") == sizes


# Headers of quorum queues.


def test_counts_of_a_quorum_queue_are_taken_out_of_properties() -> None:
    names = (b"x-delivery-count", b"x-acquired-count")
    plain = Properties(content_type="a", headers={"b": 1, "c": {"x-delivery-count": 2}}, type="t")
    counted = plain.replace(headers={**plain.headers, "x-delivery-count": 3, "x-acquired-count": 4})
    assert without_headers(counted.encoded, names) == plain.encoded
    assert without_headers(plain.encoded, names) == plain.encoded
    bare = Properties(type="t")
    counted = bare.replace(headers={"x-delivery-count": 3})
    assert without_headers(counted.encoded, names) == bare.encoded
    assert without_headers(Properties(headers={"x-acquired-count": 1}).encoded, names) == b""
    for length in range(2, len(counted.encoded)):  # what is cut off stays
        without_headers(counted.encoded[:length], names)


def test_the_order_of_headers_makes_no_other_message() -> None:
    """RabbitMQ sorts them when a message of a quorum queue comes again."""

    def digest(headers: dict[str, Any], place: bytes = b"") -> bytes:
        blob = Properties(headers=headers, type="t").encoded
        return id_of(Item(b"body", blob, "x", "key", False, 1, place))

    one, another = {"a": 1, "b": "x", "c": [1]}, {"c": [1], "b": "x", "a": 1}
    assert digest(one) == digest(another)
    assert len({digest(each) for each in (one, {"a": 1}, {"a": 2}, {"b": 1}, {})}) == 5
    assert digest(one) != digest(one, b"place")


def test_properties_that_cannot_be_read_do_not_end_a_source(
    other: pyqstore.Store, broker: str
) -> None:
    """They may look like those of a stream."""
    other.queue("a")
    source = AmqpSource(amqp_place(f"{broker}?queue=a", is_target=False), 10)
    damaged = b"\x20\0\0\0\0\x20\x0fx-stream-offset?\x10x-delivery-count"

    class Method:
        exchange, routing_key, redelivered, delivery_tag = "", "a", False, 1

    class Damaged:
        encoded = damaged

    try:
        source.open(None)
        source._came(source._link.channel, Method, Damaged, b"body")
        batch = source.read(1, 1, 0)
        assert batch is not None
        assert batch.items[0].properties == damaged
    finally:
        source.close()
