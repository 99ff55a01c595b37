"""Work queues over a stream (``x-stream-source``): acks one by one, over one stored copy."""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import get

QUEUE_DELETE, STREAM_DECLARE = 6, 15  # types of records


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "store") as opened:
        yield opened


def fill(store: pyqstore.Store, count: int, start: int = 0) -> None:
    bodies = [f"{number}".encode() for number in range(start, start + count)]
    store.stream("events").publish_batch(pa.table({"body": bodies}))


def declare(channel: pyqstore.Channel, name: str = "work", **arguments: Any) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    named.setdefault("x-stream-source", "events")
    named.setdefault("x-stream-offset", "first")
    channel.queue_declare(name, durable=True, arguments=named)


def bodies(channel: pyqstore.Channel, queue: str = "work", limit: int = 1000) -> list[int]:
    """Gets and acks."""
    found = []
    while len(found) < limit:
        message = channel.basic_get(queue)
        if message is None:
            break
        found.append(int(message.body))
        channel.basic_ack(message.delivery_tag)
    return found


def test_each_work_queue_has_all_messages_of_the_stream(store: pyqstore.Store) -> None:
    fill(store, 10)
    with store.channel() as channel:
        declare(channel, "one")
        declare(channel, "two")
        assert store.queue_status("one")["messages_ready"] == 10
        assert bodies(channel, "one", 4) == [0, 1, 2, 3]
        fill(store, 5, start=10)
        assert store.queue_status("one")["messages_ready"] == 11
        assert bodies(channel, "two") == list(range(15))
        assert bodies(channel, "one") == list(range(4, 15))
        assert store.queue_status("one")["messages_ready"] == 0
    assert store.stream("events").status()["next"] == 15


def test_what_was_acked_stays_acked_after_a_restart(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        fill(store, 8)
        declare(channel)
        got = [channel.basic_get("work") for _ in range(6)]
        for message in got[1::2]:
            assert message is not None
            channel.basic_ack(message.delivery_tag)
    for _ in range(2):
        with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
            status = store.queue_status("work")
            assert status["messages_ready"] == 5
            first = get(channel, "work")
            assert first.redelivered
            assert first.body == b"0"
            store.checkpoint()
            channel.basic_nack(first.delivery_tag, requeue=True)
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        assert bodies(channel) == [0, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("first", [0, 1, 2, 3, 4, 5]),
        ("next", []),
        (4, [4, 5]),
        (-1, [0, 1, 2, 3, 4, 5]),
        (99, []),
        ("1h", [0, 1, 2, 3, 4, 5]),
        (datetime.now(UTC) + timedelta(days=1), []),
    ],
)
def test_a_work_queue_begins_where_it_is_told(
    store: pyqstore.Store, offset: object, expected: list[int]
) -> None:
    fill(store, 3)
    fill(store, 3, start=3)
    with store.channel() as channel:
        declare(channel, stream_offset=offset)
        fill(store, 1, start=6)
        assert bodies(channel) == [*expected, 6]


def test_requeued_messages_come_back_in_their_place_and_are_counted(store: pyqstore.Store) -> None:
    fill(store, 4)
    with store.channel() as channel:
        declare(channel)
        first, second = channel.basic_get("work"), channel.basic_get("work")
        assert first is not None
        assert second is not None
        channel.basic_nack(first.delivery_tag, requeue=True)
        again = get(channel, "work")
        assert again.body == b"0"
        assert again.redelivered
        assert again.delivery_count == 1
        channel.basic_ack(again.delivery_tag)
        channel.basic_ack(second.delivery_tag)
        assert bodies(channel) == [2, 3]


def test_rejected_messages_are_dead_lettered(store: pyqstore.Store) -> None:
    fill(store, 3)
    with store.channel() as channel:
        channel.queue_declare("dead", durable=True)
        declare(channel, dead_letter_exchange="", dead_letter_routing_key="dead")
        message = get(channel, "work")
        channel.basic_reject(message.delivery_tag, requeue=False)
        dead = get(channel, "dead")
        assert dead.body == b"0"
        assert dead.properties.headers["x-death"][0]["queue"] == "work"
        assert bodies(channel) == [1, 2]
    assert store.stream("events").read("first").read_all().num_rows == 3


def test_a_delivery_limit_holds_over_a_stream(store: pyqstore.Store) -> None:
    fill(store, 2)
    with store.channel() as channel:
        channel.queue_declare("dead", durable=True)
        declare(channel, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
        for _ in range(3):
            message = get(channel, "work")
            assert message.body == b"0"
            channel.basic_nack(message.delivery_tag, requeue=True)
        assert bodies(channel) == [1]
        dead = get(channel, "dead")
        assert dead.body == b"0"


def test_consumers_share_a_stream_with_prefetch(store: pyqstore.Store) -> None:
    fill(store, 6)
    with store.channel() as one, store.channel() as two:
        declare(one)
        one.basic_qos(prefetch_count=2)
        two.basic_qos(prefetch_count=2)
        mine = one.consume("work", inactivity_timeout=60)
        other = two.consume("work", inactivity_timeout=60)
        got = [next(mine), next(mine), next(other), next(other)]
        assert sorted(int(message.body) for message in got if message) == [0, 1, 2, 3]


def test_a_batch_is_got_and_acked_at_once(store: pyqstore.Store) -> None:
    fill(store, 1000)
    with store.channel() as channel:
        declare(channel)
        batch = channel.get_batch("work", 600)
        assert batch is not None
        assert batch.num_rows == 600
        assert batch["body"].to_pylist()[:2] == [b"0", b"1"]
        channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
        rest = channel.get_batch("work", 1000)
        assert rest is not None
        assert rest["body"].to_pylist()[0] == b"600"
        channel.basic_ack(rest["delivery_tag"][-1].as_py(), multiple=True)
        assert store.queue_status("work")["messages_ready"] == 0


def give_up(channel: pyqstore.Channel, tag: int) -> None:
    with channel.transaction() as tx:
        tx.publish("", "out", b"made of it")
        tx.ack(tag)
        raise RuntimeError("no")


def test_acks_and_publishes_are_one_transaction(store: pyqstore.Store) -> None:
    fill(store, 3)
    with store.channel() as channel:
        declare(channel)
        channel.queue_declare("out", durable=True)
    with store.channel() as channel:
        message = get(channel, "work")
        with pytest.raises(RuntimeError, match="no"):
            give_up(channel, message.delivery_tag)
        assert store.queue_status("out")["messages_ready"] == 0
        with channel.transaction(key="once") as tx:
            tx.publish("", "out", b"made of it")
            tx.ack(message.delivery_tag)
        assert store.queue_status("out")["messages_ready"] == 1
        assert store.queue_status("work")["messages_unacked"] == 0


def test_purge_passes_all_that_is_there_and_nothing_later(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        fill(store, 100)
        declare(channel)
        held = get(channel, "work")
        assert channel.queue_purge("work") == 99
        fill(store, 2, start=100)
        channel.basic_nack(held.delivery_tag, requeue=True)
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        assert bodies(channel) == [0, 100, 101]


def fill_segments(store: pyqstore.Store) -> None:
    """More than retention keeps, with a checkpoint behind each piece."""
    store.stream("events", max_length_bytes=300_000, segment_bytes=65_536)
    for start in range(0, 10_000, 500):
        numbers = [f"{number:0100}".encode() for number in range(start, start + 500)]
        store.stream("events").publish_batch(pa.table({"body": numbers}))
        store.checkpoint()


def test_retention_passes_a_work_queue_and_says_so(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        store.stream("events", max_length_bytes=300_000, segment_bytes=65_536)
        declare(channel)
        fill_segments(store)
        first = store.stream("events").first
        assert first > 0
        status = store.queue_status("work")
        assert status["messages_passed"] == first
        assert status["messages_ready"] == 10_000 - first
        assert bodies(channel, limit=100) == list(range(first, first + 100))
    with pyqstore.open(tmp_path / "store") as store:
        assert store.queue_status("work")["messages_passed"] == first


def test_retention_waits_for_a_pinned_work_queue(store: pyqstore.Store) -> None:
    store.stream("events", max_length_bytes=300_000, segment_bytes=65_536)
    with store.channel() as channel:
        declare(channel, stream_pin=True)
        fill_segments(store)
        assert store.stream("events").first == 0
        assert bodies(channel, limit=20_000) == list(range(10_000))
        store.sync()
        store.checkpoint()
        assert store.stream("events").first > 0
        assert store.queue_status("work")["messages_passed"] == 0


def test_browse_shows_a_work_queue_and_takes_nothing(store: pyqstore.Store) -> None:
    fill(store, 10)
    with store.channel() as channel:
        declare(channel)
        assert bodies(channel, limit=2) == [0, 1]
        get(channel, "work")
        shown = pa.Table.from_batches(list(store.browse("work")))
        assert shown["sequence"].to_pylist() == list(range(2, 10))
        assert shown["unacked"].to_pylist() == [True] + [False] * 7
        assert store.queue_status("work")["messages_ready"] == 7


def refused(store: pyqstore.Store, **arguments: Any) -> str:
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed) as caught:
        declare(channel, **arguments)
    return str(caught.value)


def test_what_a_work_queue_cannot_be_is_refused(store: pyqstore.Store) -> None:
    fill(store, 1)
    with store.channel() as channel:
        channel.queue_declare("classic", durable=True)
    assert "there is no such stream" in refused(store, stream_source="nobody")
    assert "is no stream" in refused(store, stream_source="classic")
    assert "the name of a stream" in refused(store, stream_source=7)
    assert "x-message-ttl" in refused(store, message_ttl=5)
    assert "x-max-length" in refused(store, max_length=5)
    assert "x-max-priority" in refused(store, max_priority=5)
    assert "x-queue-mode" in refused(store, queue_mode="lazy")
    assert "x-stream-pin" in refused(store, stream_pin="yes")
    assert "x-stream-offset" in refused(store, stream_offset="yesterday")
    assert "a stream reads no other" in refused(store, queue_type="stream")
    for flags in ({"durable": False}, {"exclusive": True}, {"durable": True, "auto_delete": True}):
        with (
            store.channel() as channel,
            pytest.raises(pyqstore.PreconditionFailed, match="invalid"),
        ):
            channel.queue_declare("w", arguments={"x-stream-source": "events"}, **flags)


def test_nothing_is_published_or_bound_to_a_work_queue(store: pyqstore.Store) -> None:
    fill(store, 1)
    with store.channel() as channel:
        declare(channel)
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed, match="takes no"):
        channel.basic_publish("", "work", b"x")
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed, match="takes no"):
        channel.publish_batch(pa.table({"body": [b"x"]}), routing_key="work")
    with store.channel() as channel:
        channel.exchange_declare("x", "fanout", durable=True)
        with pytest.raises(pyqstore.PreconditionFailed, match="takes no"):
            channel.queue_bind("work", "x")
    assert store.queue_status("work")["messages_ready"] == 1


def test_a_stream_with_work_queues_is_not_deleted(store: pyqstore.Store) -> None:
    fill(store, 3)
    with store.channel() as channel:
        declare(channel)
        with pytest.raises(pyqstore.PreconditionFailed, match="x-stream-source of queue 'work'"):
            channel.queue_delete("events")
    with store.channel() as channel:
        assert channel.queue_delete("work") == 3
        channel.queue_delete("events")
    assert store.queues() == []


def test_a_work_queue_declared_again_is_the_same_and_another_one_is_refused(
    store: pyqstore.Store,
) -> None:
    fill(store, 3)
    with store.channel() as channel:
        declare(channel)
        assert bodies(channel, limit=1) == [0]
        declare(channel)
        assert store.queue_status("work")["messages_ready"] == 2
    with (
        store.channel() as channel,
        pytest.raises(pyqstore.PreconditionFailed, match="inequivalent"),
    ):
        declare(channel, stream_offset="next")


def test_bodies_that_a_queue_shares_with_the_stream_come_whole(tmp_path: Path) -> None:
    large = b"x" * 200_000
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        store.stream("events")
        channel.queue_declare("both", durable=True)
        channel.exchange_declare("x", "fanout", durable=True)
        for queue in ("both", "events"):
            channel.queue_bind(queue, "x")
        declare(channel)
        channel.confirm_select()
        for number in range(3):
            channel.basic_publish("x", "", large + b"%d" % number)
        assert channel.wait_for_confirms(60)
        for number in range(3):
            message = get(channel, "work")
            assert message.body == large + b"%d" % number
            channel.basic_ack(message.delivery_tag)
        assert channel.queue_purge("both") == 3


def test_a_backlog_takes_no_memory_for_what_was_not_read(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store", memory_budget=16 << 20) as store:
        rows = 200_000
        for start in range(0, rows, 50_000):
            fill(store, 50_000, start=start)
        store.checkpoint()
        with store.channel() as channel:
            for number in range(50):
                declare(channel, f"work {number}")
            batch = channel.get_batch("work 0", 1000)
            assert batch is not None
            before = store.checkpoint()
            assert before is None
            assert store.queue_status("work 49")["messages_ready"] == rows
            assert store.queue_status("work 49")["ram_bytes"] == 0


def in_a_process_that_dies(work: Callable[[], pyqstore.Store]) -> None:
    """With the store that it returns open."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            opened = work()
            os._exit(7 if opened else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def spoil_commit(path: Path, record_type: int) -> None:
    """The first commit of the journal that begins with a record of this type."""
    journal = min((path / "journal").glob("*.jnl"))
    data = bytearray(journal.read_bytes())
    for at in range(3 * 4096, len(data), 4096):
        if data[at : at + 4] == b"QSJB" and data[at + 64 + 4] == record_type:
            data[at + 64 + 8] ^= 1
            journal.write_bytes(data)
            return
    raise AssertionError


@pytest.mark.parametrize("record_type", [QUEUE_DELETE, STREAM_DECLARE])
def test_salvage_opens_what_has_lost_the_stream_of_a_work_queue(
    tmp_path: Path, record_type: int
) -> None:
    path = tmp_path / "store"

    def work() -> pyqstore.Store:
        store = pyqstore.open(path)
        store.stream("events")
        channel = store.channel()
        declare(channel)
        fill(store, 3)
        assert bodies(channel, limit=1) == [0]
        store.sync()
        if record_type == QUEUE_DELETE:
            channel.queue_delete("work")
            store.sync()
            channel.queue_delete("events")
        store.sync()
        return store

    in_a_process_that_dies(work)
    spoil_commit(path, record_type)
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.open(path)
    with pyqstore.open(path, recovery="salvage") as store, store.channel() as channel:
        assert "work" in store.queues()
        assert store.queue_status("work")["messages_ready"] == 0
        assert channel.basic_get("work") is None
        store.checkpoint()
    assert not pyqstore.verify(path).damage
    with pyqstore.open(path) as store, store.channel() as channel:
        assert channel.basic_get("work") is None
        store.checkpoint()
        channel.queue_delete("work")
        fill(store, 2)
        declare(channel)
        assert bodies(channel) == [0, 1]


def test_dead_letters_never_go_into_a_work_queue(store: pyqstore.Store) -> None:
    fill(store, 1)
    with store.channel() as channel:
        declare(channel)
        channel.queue_declare(
            "q",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
        )
        channel.basic_publish("", "q", b"x")
        message = get(channel, "q")
        message.reject(requeue=False)
        assert bodies(channel) == [0]
        status = store.queue_status("q")
        assert (status["messages_ready"], status["messages_unacked"]) == (0, 0)


def test_verify_and_dump_know_work_queues(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pyqstore.open(path) as store, store.channel() as channel:
        fill(store, 50)
        declare(channel, delivery_limit=9)
        assert bodies(channel, limit=5) == [0, 1, 2, 3, 4]
        message = get(channel, "work")
        message.nack(requeue=True)
    assert not pyqstore.verify(path).damage
    with pyqstore.open(path, read_only=True) as store:
        shown = pa.Table.from_batches(list(store.browse("work")))
        assert shown["body"].to_pylist() == [b"%d" % number for number in range(5, 50)]
        assert shown["delivery_count"].to_pylist()[:2] == [1, 0]
        assert store.queue_status("work")["messages_ready"] == 45
