"""Equal messages of a broker: which may be taken for others, and when that ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pyqstore
from pyqstore import Shovelled, shovel
from pyqstore.shovelling import amqp_source
from pyqstore.shovelling.amqp_source import AmqpSource
from pyqstore.shovelling.ends import Batch
from pyqstore.shovelling.notes import Notes
from pyqstore.shovelling.store_target import StoreTarget

from ..proxy import Proxy
from ..shovelling import IDLE, at, put, working
from ..support import wait_until

TICKS = [b"tick"] * 1000


def put_back(store: pyqstore.Store, count: int) -> None:
    """So many that no shovel has had, marked as redelivered."""
    put(store, "a", TICKS[:count])
    with store.channel() as channel:
        assert channel.get_batch("a", count).num_rows == count


def doubts(store: pyqstore.Store, name: str) -> int:
    """As the next process reads them."""
    notes = Notes(store, name)
    notes.read()
    return notes.doubtful().total()


def held_back(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A shovel opens no source until what this returns is called."""
    is_held = True
    open_ = AmqpSource.open

    def waits(self: AmqpSource, position: int | None) -> None:
        if is_held:
            raise amqp_source.Later("planted")
        open_(self, position)

    patch.setattr(AmqpSource, "open", waits)

    def let_go() -> None:
        nonlocal is_held
        is_held = False

    return let_go


def test_doubts_end_while_a_shovel_works(
    store: pyqstore.Store, other: pyqstore.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is cut long after the messages were acknowledged: equal ones that come as
    redelivered are others."""
    monkeypatch.setattr(amqp_source, "_COUNT_S", 0.05)
    monkeypatch.setattr(amqp_source, "_WRITTEN_S", 0.05)
    put(other, "a", TICKS)
    target = store.queue("b")
    told: list[Shovelled] = []
    source = f"amqp://127.0.0.1:{proxy.port}?queue=a"
    with working(source, at(store, "b"), name="s", progress=told.append) as future:
        wait_until(lambda: len(target) == 1000)
        wait_until(lambda: doubts(store, "s") == 0)
        let_go = held_back(monkeypatch)
        assert proxy.cut() == 1
        wait_until(lambda: other.queue_status("a").consumers == 0)
        put_back(other, 500)
        let_go()
        wait_until(lambda: len(target) == 1500, 60)
    report = future.result(30)
    assert (report.moved, report.repeated) == (1500, 0)


def test_doubts_stay_until_the_broker_has_answered(
    store: pyqstore.Store, other: pyqstore.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements that a lost connection swallowed: what comes again is known, each time."""
    monkeypatch.setattr(amqp_source, "_COUNT_S", 0.05)
    monkeypatch.setattr(amqp_source, "_WRITTEN_S", 0.05)
    put(other, "a", TICKS)
    target = store.queue("b")
    source = f"amqp://127.0.0.1:{proxy.port}?queue=a"

    count = 0

    def swallowed(_self: AmqpSource, batch: Batch) -> None:
        nonlocal count
        count += len(batch.items)

    with monkeypatch.context() as patch, working(source, at(store, "b"), name="s") as future:
        patch.setattr(AmqpSource, "settle", swallowed)
        for cut in range(3):
            wait_until(lambda: count == 1000 * (cut + 1))  # noqa: B023
            assert len(target) == 1000
            if cut == 2:
                patch.undo()
            assert proxy.cut() == 1
        wait_until(lambda: other.queue_status("a").messages_unacked == 0, 60)
        wait_until(lambda: doubts(store, "s") == 0)
    assert future.result(30).moved == 1000
    assert len(target) == 1000


def test_a_shovel_that_ends_in_order_leaves_no_doubts(
    store: pyqstore.Store, other: pyqstore.Store, proxy: Proxy
) -> None:
    """For the next one, to which equal messages come that another consumer gave back."""
    store.queue("b")
    source = f"amqp://127.0.0.1:{proxy.port}?queue=a"
    for count in range(1, 4):
        put_back(other, 500)
        report = shovel(source, at(store, "b"), name="s", idle=IDLE)
        assert (report.moved, report.repeated) == (500, 0)
        assert doubts(store, "s") == 0
        assert len(store.queue("b")) == 500 * count


def test_notes_tell_of_others_by_how_many_are_behind(store: pyqstore.Store) -> None:
    """So that it is of no matter which the first one is that a stream still has."""
    notes = Notes(store, "s")
    with store.channel() as channel, channel.transaction():
        for number in range(5):
            notes.publish_ids(channel, [b"%016d" % number] * 2)
            assert notes.took([b"%016d" % number] * 2) == number + 1
        notes.publish_settled(channel, [2, 4], [b"%016d" % 4])
        notes.settled([2, 4], [b"%016d" % 4])
        notes.publish_ids(channel, [b"%016d" % 9])
        notes.took([b"%016d" % 9])
    left = {b"%016d" % 0: 2, b"%016d" % 2: 2, b"%016d" % 4: 1, b"%016d" % 9: 1}
    assert notes.doubtful() == left
    again = Notes(store, "s")
    again._number = 17
    again.read()
    assert again.doubtful() == left
    with store.channel() as channel, channel.transaction():
        again.publish_undo(channel)
    again.read()
    del left[b"%016d" % 9]
    assert again.doubtful() == left


def test_notes_have_a_limit(store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyqstore.shovelling.notes._IDS_MAX", 10)
    notes = Notes(store, "s")
    for number in range(20):
        notes.took([b"%016d" % number] * 3)
    assert notes.doubtful().total() == 12
    notes.settled([1, 19, 20], [])
    assert notes.doubtful() == {b"%016d" % 16: 3, b"%016d" % 17: 3}


def test_a_settled_note_waits_for_room(
    store: pyqstore.Store, other: pyqstore.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is full for a moment does not end a shovel that has nothing to move."""
    monkeypatch.setattr(amqp_source, "_COUNT_S", 0.05)
    monkeypatch.setattr(amqp_source, "_WRITTEN_S", 0.05)
    put(other, "a", TICKS)
    store.queue("b")
    tried = 0
    tell = StoreTarget._tell_settled

    def full(self: StoreTarget, channel: pyqstore.Channel) -> None:
        nonlocal tried
        if any(self._settled):
            tried += 1
            if tried < 3:
                raise pyqstore.StoreFull("planted")
        tell(self, channel)

    monkeypatch.setattr(StoreTarget, "_tell_settled", full)
    source = f"amqp://127.0.0.1:{proxy.port}?queue=a"
    with working(source, at(store, "b"), name="s") as future:
        wait_until(lambda: tried >= 3)
        wait_until(lambda: doubts(store, "s") == 0)
    assert future.result(30).moved == 1000
