"""Looking into queues without taking anything: ``Store.browse``, and stores opened to be read."""

import hashlib
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import pyqstore
import pyqstore.aio

from ..support import PERSISTENT, get, publish_numbers


def tree(path: Path) -> dict[str, tuple[int, str]]:
    """Every file under ``path``: when it was written, and what is in it."""
    return {
        str(file.relative_to(path)): (
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in path.rglob("*")
        if file.is_file()
    }


def bodies(store: pyqstore.Store, queue: str, **arguments: int) -> list[bytes]:
    return [
        body for batch in store.browse(queue, **arguments) for body in batch["body"].to_pylist()
    ]


@pytest.mark.faces("sync", "aio")
def test_browse_shows_ready_and_unacked_and_changes_no_count(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-delivery-limit": 1})
    publish_numbers(channel, "q", 10, properties=PERSISTENT)
    message = get(channel, "q")
    for _ in range(3):
        (batch,) = store.browse("q")
        assert batch["body"].to_pylist() == [b"%d" % number for number in range(10)]
        assert batch["unacked"].to_pylist() == [True] + [False] * 9
        assert batch["redelivered"].to_pylist() == [False] * 10
        assert batch["delivery_count"].to_pylist() == [0] * 10
        assert batch["sequence"].to_pylist() == sorted(set(batch["sequence"].to_pylist()))
        assert "delivery_tag" not in batch.schema.names
    assert store.queue_status("q")["messages_ready"] == 9
    message.nack()
    again = get(channel, "q")
    assert (again.body, again.delivery_count) == (b"0", 1)
    (batch,) = store.browse("q", limit=2)
    assert batch["redelivered"].to_pylist() == [True, False]
    assert batch["delivery_count"].to_pylist() == [1, 0]


@pytest.mark.faces("sync", "aio")
def test_browse_begins_at_a_sequence_and_ends_at_a_limit(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    publish_numbers(channel, "q", 100)
    (batch,) = store.browse("q")
    sequences = batch["sequence"].to_pylist()
    assert bodies(store, "q", start=sequences[40], limit=3) == [b"40", b"41", b"42"]
    assert bodies(store, "q", limit=0) == []
    assert bodies(store, "q", start=sequences[-1] + 1) == []
    with pytest.raises(ValueError, match="negative"):
        bodies(store, "q", start=-1)
    with pytest.raises(ValueError, match="start must be at most"):
        bodies(store, "q", start=2**64)
    for number in (Decimal("NaN"), 1.5, "1"):
        with pytest.raises(TypeError):
            bodies(store, "q", start=number)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            bodies(store, "q", limit=number)  # type: ignore[arg-type]
    with pytest.raises(pyqstore.NotFound):
        bodies(store, "missing")


def test_browse_of_paged_messages_reads_them_from_the_disk(path: Path) -> None:
    sizes = [10, 3000, 5000, 40_000]
    with (
        pyqstore.open(path, memory_budget="1MiB", segment_entries=64, embed_below=4096) as store,
        store.channel() as channel,
    ):
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        expected = []
        for number in range(600):
            body = b"%06d" % number + b"x" * sizes[number % len(sizes)]
            channel.basic_publish("", "q", body, PERSISTENT)
            expected.append(body)
        assert store.queue_status("q")["messages_ready"] == 600
        get(channel, "q")
        before = store.queue_status("q")
        assert bodies(store, "q") == expected
        after = store.queue_status("q")
        for name in ("messages_ready", "messages_unacked"):
            assert after[name] == before[name]
        assert bodies(store, "q", start=300, limit=5) == expected[300:305]


def test_browse_of_priorities_goes_from_the_highest_down(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": 5})
    for number in range(30):
        properties = pyqstore.Properties(delivery_mode=2, priority=number % 3)
        channel.basic_publish("", "q", b"%d" % number, properties)
    shown = bodies(store, "q")
    assert shown == [b"%d" % n for p in (2, 1, 0) for n in range(30) if n % 3 == p]
    sequences = [s for batch in store.browse("q") for s in batch["sequence"].to_pylist()]
    assert sequences == sorted(sequences)
    assert bodies(store, "q", start=sequences[7], limit=10) == shown[7:17]
    taken = [channel.basic_get("q", auto_ack=True) for _ in range(30)]
    assert [message.body for message in taken if message is not None] == shown


def test_browse_goes_on_behind_a_damaged_message(path: Path) -> None:
    with pyqstore.open(path, embed_below=100) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(9):
            channel.basic_publish("", "q", b"%d" % number * 5000, PERSISTENT)
        channel.wait_for_confirms()
    file = next(path.glob("messages/*"))
    contents = bytearray(file.read_bytes())
    contents[contents.index(b"4" * 5000) + 77] ^= 1
    file.write_bytes(contents)
    with pyqstore.open(path) as store:
        batches = store.browse("q")
        shown = next(batches)["body"].to_pylist()
        assert [body[:1] for body in shown] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(pyqstore.StoreCorrupt) as caught:
            next(batches)
        assert str(caught.value.path).startswith("messages/")
        errors: list[pyqstore.StoreCorrupt] = []
        shown = []
        for batch in store.browse("q", damaged=errors.append):
            shown += batch["body"].to_pylist()
        assert b"".join(body[:1] for body in shown) == b"01235678"
        assert len(errors) == 1


def test_a_store_that_is_open_to_be_read_refuses_changes_and_writes_nothing(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        publish_numbers(channel, "q", 500, properties=PERSISTENT)
        channel.wait_for_confirms()
    before = tree(path)
    with pyqstore.open(path, read_only=True) as store:
        assert store.options["read_only"] is True
        assert store.queues() == ["q"]
        assert store.queue_status("q")["messages_ready"] == 500
        assert bodies(store, "q") == [b"%d" % number for number in range(500)]
        assert store.stats()["recovered_messages"] == 500
        store.sync()
        for change in (store.channel, store.connection, store.checkpoint):
            with pytest.raises(pyqstore.StoreReadOnly, match="reading only"):
                change()
        with pytest.raises(pyqstore.StoreReadOnly):
            store.set_queue_mode("q", "lazy")
    assert tree(path) == before
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.open(path / "missing", read_only=True)
    assert not (path / "missing").exists()


KILLED = """
import os, signal, sys
import pyqstore

store = pyqstore.open(sys.argv[1], memory_budget="1MiB", segment_entries=64)
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.confirm_select()
for number in range(2000):
    channel.basic_publish("", "q", b"%d" % number * 300, pyqstore.Properties(delivery_mode=2))
channel.wait_for_confirms()
for _ in range(7):
    channel.basic_ack(channel.basic_get("q").delivery_tag)
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_crashed_store_is_read_without_recovering_it(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    before = tree(path)
    for _ in range(2):
        with pyqstore.open(path, read_only=True, memory_budget="64KiB") as store:
            shown = bodies(store, "q")
            assert shown == [b"%d" % number * 300 for number in range(7, 2000)]
    assert tree(path) == before
    with pyqstore.open(path) as store:
        assert bodies(store, "q") == shown
        assert os.path.exists(path / "MANIFEST")


def test_a_store_that_is_open_to_be_read_knows_its_transactions(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        channel.basic_publish("", "q", b"1", PERSISTENT)
        channel.tx_commit(key="once")
    with pyqstore.open(path, read_only=True) as store:
        assert store.transaction_known("once")
        assert not store.transaction_known("never")


def test_browse_tells_of_a_missing_segment_and_shows_what_is_around_it(path: Path) -> None:
    with pyqstore.open(path, segment_entries=64) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        publish_numbers(channel, "q", 1000, properties=PERSISTENT)
        assert store.queue_status("q")["alpha"] == 0  # all of it has left memory
        store.checkpoint()
    names = sorted((path / "index").iterdir())
    names[8].unlink()
    with pyqstore.open(path, read_only=True) as store:
        errors: list[pyqstore.StoreCorrupt] = []
        shown = [
            int(body)
            for batch in store.browse("q", damaged=errors.append)
            for body in batch["body"].to_pylist()
        ]
        assert len(errors) == 1
        assert errors[0].path == f"index/{names[8].name}"
        assert shown == [*range(512), *range(576, 1000)]
        batches = store.browse("q")
        assert len(next(batches)) == 512
        with pytest.raises(pyqstore.StoreCorrupt):
            next(batches)


def test_browse_shows_a_stream_by_offset(path: Path) -> None:
    with pyqstore.open(path) as store:
        events = store.stream("events")
        for number in range(40):
            events.publish(b"%d" % number + b"." * (5000 if number % 10 == 3 else 0), key="k")
            if number == 20:
                store.checkpoint()  # what is before lies in a block
        (batch,) = store.browse("events")
        assert batch["sequence"].to_pylist() == list(range(40))
        assert batch["routing_key"].to_pylist() == ["k"] * 40
        assert [body.split(b".")[0] for body in batch["body"].to_pylist()] == [
            b"%d" % number for number in range(40)
        ]
        assert bodies(store, "events", start=38) == [b"38", b"39"]
        assert bodies(store, "events", start=40) == []
        assert bodies(store, "events", start=19, limit=3) == [b"19", b"20", b"21"]
        assert store.queue_status("events")["messages_ready"] == 40
    with pyqstore.open(path, read_only=True) as store:
        assert len(bodies(store, "events")) == 40
