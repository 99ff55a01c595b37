"""What comes again from a source, and what does not: nothing is lost, nothing is there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import pyqstore
import pyqstore.flight
from pyqstore import ShovelError, Shovelled, shovel
from pyqstore.shovelling.ends import Batch, Later, StreamOffset, pack_position, unpack_position
from pyqstore.shovelling.store_source import StoreSource
from pyqstore.shovelling.store_target import StoreTarget

from ..shovelling import IDLE, at, bodies, put, refusing, table, taken_now, working
from ..support import wait_until

TICKS = [b"tick"] * 1000


@contextmanager
def settling_nothing() -> Iterator[None]:
    """A source ends when it is to settle a batch that the target has."""

    def dies(_self: StoreSource, _batch: Batch) -> None:
        raise pyqstore.StoreFailed("it dies between the commit and the acknowledgement")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreSource, "settle", dies)
        yield


def test_places_of_messages_stay_and_are_of_one_each(path: Path) -> None:
    """Requeued, recovered, of another priority, and of another queue of the same name."""

    def places(store: pyqstore.Store) -> list[tuple[int, int]]:
        with store.channel() as channel:
            tag = channel.basic_consume("q")
            return [
                message._place
                for _ in range(4)
                if (message := channel.next_delivery(tag, 10)) is not None
            ]

    with pyqstore.open(path) as store:
        queue = store.queue("q", max_priority=5)
        for priority in (1, 1, 5, 5):
            queue.put(b"tick", priority=priority)
        first = places(store)
        assert len(set(first)) == 4
        assert places(store) == first
        with store.channel() as channel:
            assert channel.basic_get("q")._place == first[0]  # type: ignore[union-attr]
    with pyqstore.open(path) as store:
        assert places(store) == first
        with store.channel() as channel:
            channel.queue_delete("q")
        queue = store.queue("q", max_priority=5)
        for priority in (1, 1, 5, 5):
            queue.put(b"tick", priority=priority)
        assert not set(places(store)) & set(first)


def test_messages_that_never_come_again_stand_for_no_others(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    """They are purged between a commit and the acknowledgement; later ones that are equal, and
    that were delivered before, are moved."""
    put(store, "a", TICKS)
    other.queue("b")
    with settling_nothing(), pytest.raises(pyqstore.StoreFailed):
        shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert len(other.queue("b")) == 1000
    assert store.queue("a").purge() == 1000
    for marked in (True, False):
        put(store, "a", TICKS)
        if marked:
            with store.channel() as channel:
                batch = channel.get_batch("a", 1000)
                assert batch.num_rows == 1000
        report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
        assert (report.moved, report.repeated) == (1000, 0)
    assert len(other.queue("b")) == 3000


def test_messages_of_a_queue_that_was_declared_anew_are_others(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    put(store, "a", TICKS)
    other.queue("b")
    with settling_nothing(), pytest.raises(pyqstore.StoreFailed):
        shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    with store.channel() as channel:
        channel.queue_delete("a")
    put(store, "a", TICKS)
    with store.channel() as channel:
        channel.get_batch("a", 1000)
    report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (report.moved, report.repeated) == (1000, 0)


def test_messages_of_a_store_that_was_made_anew_are_others(
    tmp_path: Path, other: pyqstore.Store
) -> None:
    """In the same directory, with the same numbers of queues and messages."""
    other.queue("b")
    for number in range(2):
        with pyqstore.open(tmp_path / f"made{number}") as store:
            put(store, "a", TICKS)
            with store.channel() as channel:
                channel.get_batch("a", 1000)
        (tmp_path / f"made{number}").rename(tmp_path / "source")
        with settling_nothing(), pytest.raises(pyqstore.StoreFailed):
            shovel(f"{tmp_path}/source#a", at(other, "b"), idle=IDLE)
        (tmp_path / "source").rename(tmp_path / f"gone{number}")
    assert len(other.queue("b")) == 2000


def test_repeats_alone_are_known_the_next_time_too(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    """Killed again while a part of what comes again is not acknowledged, and again."""
    put(store, "a", TICKS)
    other.queue("b")
    for _ in range(3):
        with settling_nothing(), pytest.raises(pyqstore.StoreFailed):
            shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    with store.channel() as channel:  # another consumer has a part of them, and then gives it back
        channel.get_batch("a", 400)
        report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
        assert (report.moved, report.repeated) == (0, 600)
    put(store, "a", TICKS)
    report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (report.moved, report.repeated) == (1000, 400)
    assert len(other.queue("b")) == 2000


@pytest.mark.crash
def test_messages_that_expired_while_a_shovel_was_down_stand_for_no_others(tmp_path: Path) -> None:
    """After a crash of the store, which marks all of its messages."""
    source, target = f"{tmp_path}/one#a", f"{tmp_path}/two#b"
    with pyqstore.open(tmp_path / "one") as store:
        put(store, "a", TICKS[:50])
    with pyqstore.open(tmp_path / "two") as store:
        store.queue("b")
    process = subprocess.run([sys.executable, "-c", _KILLED_BEFORE_IT_SETTLES, source, target])
    assert process.returncode == -signal.SIGKILL
    process = subprocess.run([sys.executable, "-c", _PURGED_AND_KILLED, f"{tmp_path}/one"])
    assert process.returncode == -signal.SIGKILL
    report = shovel(source, target, idle=IDLE)
    assert (report.moved, report.repeated) == (20, 0)
    with pyqstore.open(tmp_path / "two") as store:
        assert len(store.queue("b")) == 70


_KILLED_BEFORE_IT_SETTLES = """
import os, signal, sys
import pyqstore
from pyqstore.shovelling.store_source import StoreSource

StoreSource.settle = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
pyqstore.shovel(sys.argv[1], sys.argv[2])
"""
_PURGED_AND_KILLED = """
import os, signal, sys
import pyqstore

store = pyqstore.open(sys.argv[1])
store.queue("a").purge()
store.queue("a").put_many([b"tick"] * 20)
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.crash
@pytest.mark.parametrize("durable", [True, False])
def test_transient_messages_stand_for_no_others(tmp_path: Path, durable: bool) -> None:
    """Of a store that was opened again: they are gone, and others may have their places."""
    with pyqstore.open(tmp_path / "two") as store:
        store.queue("b")
    words = [f"{tmp_path}/one", f"{tmp_path}/two", str(int(durable))]
    process = subprocess.run([sys.executable, "-c", _TRANSIENT + _KILLED, *words])
    assert process.returncode == -signal.SIGKILL
    process = subprocess.run([sys.executable, "-c", _TRANSIENT + _MOVES, *words])
    assert process.returncode == 0
    with pyqstore.open(tmp_path / "two") as store:
        assert len(store.queue("b")) == 70


_TRANSIENT = """
import os, signal, sys
import pyqstore
from pyqstore.shovelling.store_source import StoreSource

def publish(store, count):
    durable = sys.argv[3] == "1"
    with store.channel() as channel:
        channel.queue_declare("a", durable=durable)
        properties = pyqstore.Properties(delivery_mode=1 if durable else 2)
        for _ in range(count):
            channel.basic_publish("", "a", b"tick", properties)

def moved():
    return pyqstore.shovel(sys.argv[1] + "#a", sys.argv[2] + "#b", name="s", idle=0.3)
"""
_KILLED = """
StoreSource.settle = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store = pyqstore.open(sys.argv[1])
publish(store, 50)
moved()
"""
_MOVES = """
with pyqstore.open(sys.argv[1]) as store:
    publish(store, 20)
    with store.channel() as channel:
        assert channel.get_batch("a", 20).num_rows == 20
    report = moved()
assert (report.moved, report.repeated) == (20, 0), report
"""


def test_what_a_target_notes_is_durable_in_the_source(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash of the source could give its place to another message."""
    calls: list[str] = []
    sync, begin = pyqstore.Store.sync, StoreTarget.begin

    def syncs(self: pyqstore.Store) -> None:
        sync(self)
        calls.append("sync" if self is store else "other")

    def begins(self: StoreTarget, batch: Batch) -> None:
        calls.append("begin")
        begin(self, batch)

    put(store, "a", [b"body"])
    other.queue("b")
    monkeypatch.setattr(pyqstore.Store, "sync", syncs)
    monkeypatch.setattr(StoreTarget, "begin", begins)
    shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert calls == ["sync", "begin"]


@pytest.mark.parametrize("is_served", [False, True])
def test_a_stream_that_was_deleted_and_declared_again_is_not_taken_for_the_one_before(
    store: pyqstore.Store, other: pyqstore.Store, is_served: bool
) -> None:
    other.queue("b")
    with pyqstore.flight.serve(store) if is_served else nullcontext() as server:
        source = at(store, "a") if server is None else f"grpc://{server.address}#a"
        store.stream("a").publish_batch(table([b"1", b"2"]))
        before = store.stream("a").status().id
        assert shovel(source, at(other, "b"), idle=IDLE).moved == 2
        with store.channel() as channel:
            channel.queue_delete("a")
        store.stream("a").publish_batch(table([b"3", b"4", b"5"]))
        assert store.stream("a").status().id not in (before, 0)
        with pytest.raises(ShovelError, match=r"another stream.*or one that was deleted"):
            shovel(source, at(other, "b"), idle=IDLE)
        assert shovel(source, at(other, "b"), idle=IDLE, name="again").moved == 3
    assert bodies(other, "b") == [b"1", b"2", b"3", b"4", b"5"]


def test_a_stream_that_is_declared_again_while_a_shovel_reads_it_ends_the_shovel(
    store: pyqstore.Store, other: pyqstore.Store
) -> None:
    """Also where it has as many messages as the one before."""
    target = other.queue("b")
    store.stream("a").publish_batch(table([b"1", b"2"]))
    with working(at(store, "a"), at(other, "b")) as future:
        wait_until(lambda: len(target) == 2)
        with store.channel() as channel:
            channel.queue_delete("a")
            channel.queue_declare("a", durable=True, arguments={"x-queue-type": "stream"})
        store.stream("a").publish_batch(table([b"3", b"4"]))
        with pytest.raises((ShovelError, pyqstore.NotFound)):
            future.result(30)
    assert bodies(other, "b") == [b"1", b"2"]


def test_a_position_of_an_earlier_version_names_no_stream() -> None:
    place = unpack_position({"offset": 5})
    assert (place, place.stream) == (5, "")  # type: ignore[union-attr]
    assert unpack_position(pack_position(StreamOffset(7, "s"))).stream == "s"  # type: ignore[union-attr]


@pytest.mark.parametrize("is_served", [False, True])
def test_a_source_that_is_opened_again_begins_where_it_began(
    store: pyqstore.Store, other: pyqstore.Store, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the stream as it was, when nothing is noted yet."""
    take, left = StoreSource.read, 3

    def loses(self: StoreSource, *arguments: Any) -> Batch | None:
        nonlocal left
        batch = take(self, *arguments)
        if batch is not None and left > 0:
            left -= 1
            raise Later("the connection is lost")
        return batch

    monkeypatch.setattr(StoreSource, "read", loses)
    store.stream("a").publish(b"before")
    target = other.queue("b")
    with pyqstore.flight.serve(store) if is_served else nullcontext() as server:
        source = at(store, "a") if server is None else f"grpc://{server.address}#a"
        told: list[Shovelled] = []
        with working(source, at(other, "b"), start="next", progress=told.append):
            wait_until(lambda: bool(told))
            for body in (b"1", b"2"):
                store.stream("a").publish(body)
            wait_until(lambda: len(target) == 2)
    assert (bodies(other, "b"), left) == ([b"1", b"2"], 0)


@pytest.mark.parametrize("way", ["queue", "stream", "from a broker", "to a server"])
def test_a_batch_of_which_a_part_was_taken_is_not_taken_again(
    store: pyqstore.Store, other: pyqstore.Store, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target takes 300 at once at the most; it dies behind some of the parts."""
    numbers = [b"%d" % number for number in range(2000)]
    target = store.queue("b", max_length=300, overflow="reject-publish")
    if way == "stream":
        other.stream("a").publish_batch(table(numbers))
    else:
        put(other, "a", numbers)
    taken, left = StoreTarget._take, 3
    found: list[bytes] = []

    def dies(self: StoreTarget, batch: Batch, stop: int) -> None:
        nonlocal left
        if left > 0 and batch.taken > 0:
            left -= 1
            raise pyqstore.StoreFailed("planted")
        taken(self, batch, stop)

    monkeypatch.setattr(StoreTarget, "_take", dies)
    with pyqstore.flight.serve(store) if way == "to a server" else nullcontext() as server:
        to = at(store, "b") if server is None else f"grpc://{server.address}#b"
        source = at(other, "a")
        if way == "from a broker":
            source = f"amqp://guest:guest@{other.listen('127.0.0.1:0').address}?queue=a"
        while len(found) < len(numbers):
            with suppress(pyqstore.StoreFailed), working(source, to, idle=IDLE) as future:
                while not future.done() or len(target):
                    found += taken_now(target)
                future.result()
    assert (found, left) == (numbers, 0)
    assert len(target) == 0


def test_a_full_queue_of_dead_letters_does_not_make_batches_smaller(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, b"poison")
    put(store, "a", [b"poison", *[b"good"] * 999])
    other.queue("b")
    dead = other.queue("dead", max_length=1, overflow="reject-publish")
    dead.put(b"first")
    sizes = []
    taken = StoreTarget._take

    def noted(self: StoreTarget, batch: Batch, stop: int) -> None:
        sizes.append(stop - batch.taken)
        taken(self, batch, stop)

    monkeypatch.setattr(StoreTarget, "_take", noted)
    told: list[Shovelled] = []
    more: dict[str, Any] = {"dead": "dead", "tries": 2, "idle": IDLE}
    with working(at(store, "a"), at(other, "b"), progress=told.append, **more) as future:
        wait_until(lambda: bool(told) and "full" in str(told[-1].error))
        dead.purge()
        report = future.result(30)
    assert (report.moved, report.dead) == (999, 1)
    assert set(sizes) == {1000}


# A store that is full.


class _Full:
    """Raises StoreFull so many times in place of a call."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, times: int) -> None:
        self.left = times
        call = getattr(pyqstore.Channel, name)

        def full(channel: pyqstore.Channel, *arguments: Any, **named: Any) -> Any:
            if channel._store.path.endswith("store") and self.left > 0:
                self.left -= 1
                raise pyqstore.StoreFull("planted")
            return call(channel, *arguments, **named)

        patch.setattr(pyqstore.Channel, name, full)


def test_a_full_store_is_emptied(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acknowledges without a transaction, for which it has no space."""
    put(store, "a", TICKS * 3)
    other.queue("b")
    _Full(monkeypatch, "tx_commit", 1 << 30)
    report = shovel(at(store, "a"), at(other, "b"), idle=IDLE)
    assert (report.moved, report.lag) == (3000, 0)
    assert len(store.queue("a")) == 0


def test_a_full_store_holds_back_a_stream_and_does_not_end_a_shovel(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which notes its position there."""
    events = store.stream("events")
    events.publish_batch(table(TICKS))
    other.queue("b")
    broker = f"amqp://{other.listen('127.0.0.1:0').address}?queue=b"
    full = _Full(monkeypatch, "_commit_offset", 3)
    report = shovel(events, broker, idle=IDLE)
    assert (report.moved, report.error, full.left) == (1000, "planted", 0)
    assert shovel(events, broker, idle=IDLE).moved == 0


def _refusing(store: pyqstore.Store, other: pyqstore.Store) -> str:
    """Of the messages 1 to 3 in ``a`` the broker's exchange leads the second nowhere."""
    store.queue("a")
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind("a", "x", "#")
        for number in (1, 2, 3):
            channel.basic_publish("x", f"key.{number}", b"%d" % number)
    other.queue("b")
    with other.channel() as channel:
        channel.exchange_declare("y", "topic", durable=True)
        for number in (1, 3):
            channel.queue_bind("b", "y", f"key.{number}")
    return f"amqp://{other.listen('127.0.0.1:0').address}?exchange=y"


def test_a_dead_letter_waits_for_room(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = _refusing(store, other)
    store.queue("graves", max_length=1, overflow="reject-publish").put(b"in the way")
    told: list[Shovelled] = []
    with working(at(store, "a"), to, tries=1, dead="graves", progress=told.append) as future:
        wait_until(lambda: bool(told) and "full" in str(told[-1].error))
        _Full(monkeypatch, "tx_commit", 2)
        store.queue("graves").purge()
        wait_until(lambda: len(store.queue("graves")) == 1, 60)
    assert future.result(30).dead == 1
    assert bodies(store, "graves") == [b"2"]
    assert sorted(bodies(other, "b")) == [b"1", b"3"]


def test_a_full_store_is_emptied_of_what_is_durable(
    store: pyqstore.Store, other: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which it waits for without a checkpoint, for which it has no space."""
    put(store, "a", TICKS)
    other.queue("b")
    waits: list[int] = []
    wait = pyqstore.Store._wait_durable

    def full(_self: pyqstore.Store) -> None:
        raise pyqstore.StoreFull("planted")

    def waited(self: pyqstore.Store, lsn: int, timeout_ns: int) -> bool:
        waits.append(lsn)
        return wait(self, lsn, timeout_ns)

    monkeypatch.setattr(pyqstore.Store, "sync", full)
    monkeypatch.setattr(pyqstore.Store, "_wait_durable", waited)
    assert shovel(at(store, "a"), at(other, "b"), idle=IDLE).moved == 1000
    assert waits


@pytest.mark.parametrize("is_declared_again", [False, True])
def test_a_dead_letter_whose_queue_is_deleted_stays_in_the_source(
    store: pyqstore.Store,
    other: pyqstore.Store,
    monkeypatch: pytest.MonkeyPatch,
    is_declared_again: bool,
) -> None:
    """Deleted in the moment of the commit."""
    to = _refusing(store, other)
    commit = pyqstore.Channel.tx_commit

    def deletes(channel: pyqstore.Channel, **named: Any) -> Any:
        if channel._store is store:
            with store.channel() as another:
                another.queue_delete("graves")
            if is_declared_again:
                store.queue("graves")
        return commit(channel, **named)

    with monkeypatch.context() as patch:
        patch.setattr(pyqstore.Channel, "tx_commit", deletes)
        with pytest.raises(pyqstore.NotFound, match="graves"):
            shovel(at(store, "a"), to, tries=1, dead="graves")
    assert len(store.queue("a")) == 3
    report = shovel(at(store, "a"), to, tries=1, dead="graves", idle=IDLE)
    assert report.dead == 1
    assert bodies(store, "graves") == [b"2"]
