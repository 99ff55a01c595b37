"""What survives a clean close: persistent messages of durable queues, in order; nothing else."""

import shutil
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, bodies, get, publish_numbers

TRANSIENT = pyqstore.Properties(delivery_mode=1)


def test_persistent_messages_survive_and_transient_ones_do_not(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.queue_declare("t")
        for number in range(10):
            channel.basic_publish("", "q", b"%d" % number, PERSISTENT if number % 2 else TRANSIENT)
        channel.basic_publish("", "q", b"no mode")
        channel.basic_publish("", "t", b"x", PERSISTENT)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "q") == [b"1", b"3", b"5", b"7", b"9"]
        assert store.queues() == ["q"]


def test_acknowledged_messages_do_not_come_back_and_others_are_redelivered(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish_numbers(channel, "q", 6, properties=PERSISTENT)
        messages = [channel.basic_get("q") for _ in range(4)]
        channel.basic_ack(2, multiple=True)
        assert messages[3] is not None
        messages[3].reject(requeue=False)
    with pyqstore.open(path) as store, store.channel() as channel:
        found = []
        while (message := channel.basic_get("q")) is not None:
            found.append((message.body, message.redelivered))
    assert [body for body, _ in found] == [b"2", b"4", b"5"]
    assert found[0] == (b"2", True)


def test_a_delivery_before_a_crash_is_known_after_an_orderly_close(path: Path) -> None:
    """The session that crashed has no record behind its checkpoint: the next takes its place."""
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"delivered", PERSISTENT)
    killed = path.with_name("killed")
    with pyqstore.open(path, checkpoint_interval=None) as store, store.channel() as channel:
        store.checkpoint()
        assert channel.basic_get("q") is not None
        shutil.copytree(path, killed)
    pyqstore.open(killed).close()
    with pyqstore.open(killed) as store, store.channel() as channel:
        message = channel.basic_get("q")
        assert message is not None
        assert message.redelivered


@pytest.mark.parametrize("embed_below", [0, 100, 4096, 1 << 20])
def test_bodies_of_all_sizes_survive(path: Path, embed_below: int) -> None:
    sizes = [0, 1, 99, 100, 101, 4000, 4095, 4096, 4097, 65536, 300_000]
    with (
        pyqstore.open(path, embed_below=embed_below, journal_file_bytes="1MiB") as store,
        store.channel() as channel,
    ):
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("e", "fanout", durable=True)
        channel.queue_declare("r", durable=True)
        channel.queue_bind("q", "e")
        channel.queue_bind("r", "e")
        channel.confirm_select()
        for size in sizes:
            channel.basic_publish("e", "", bytes([size % 251]) * size, PERSISTENT)
        assert channel.wait_for_confirms(30)
    for _ in range(2):
        with pyqstore.open(path, embed_below=embed_below) as store, store.channel() as channel:
            for queue in ("q", "r"):
                for size in sizes:
                    message = get(channel, queue)
                    assert message.body == bytes([size % 251]) * size
                assert channel.basic_get(queue) is None


def test_properties_survive(path: Path) -> None:
    properties = pyqstore.Properties(
        delivery_mode=2, headers={"k": [1, {"n": None}]}, message_id="m", timestamp=7
    )
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"small", properties)
        channel.basic_publish("", "q", b"x" * 10_000, properties)
    with pyqstore.open(path) as store, store.channel() as channel:
        for _ in range(2):
            message = get(channel, "q")
            assert message.properties == properties
            assert message.routing_key == "q"


def test_purge_and_delete_survive(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        for queue in ("purged", "deleted"):
            channel.queue_declare(queue, durable=True)
            for _ in range(5):
                channel.basic_publish("", queue, b"x", PERSISTENT)
        channel.queue_purge("purged")
        channel.queue_delete("deleted")
        channel.basic_publish("", "purged", b"new", PERSISTENT)
        channel.queue_declare("deleted", durable=True)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "purged") == [b"new"]
        assert bodies(channel, "deleted") == []


def test_many_journal_files_are_replayed_in_order(path: Path) -> None:
    with pyqstore.open(path, journal_file_bytes="64KiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(5000):
            channel.basic_publish("", "q", b"%06d" % number * 10, PERSISTENT)
        assert channel.wait_for_confirms(30)
    with pyqstore.open(path, journal_file_bytes="64KiB") as store, store.channel() as channel:
        assert store.recovery_report.messages == 5000
        assert bodies(channel, "q") == [b"%06d" % number * 10 for number in range(5000)]


def test_uncommitted_transaction_leaves_nothing(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        channel.basic_publish("", "q", b"x", PERSISTENT)
    with pyqstore.open(path) as store:
        assert store.queue_status("q")["messages_ready"] == 0


def test_salvage_opens_what_is_whole_behind_damage(path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(30):  # each in a commit of its own
            channel.basic_publish("", "q", b"%d" % number, pyqstore.Properties(delivery_mode=2))
            assert channel.wait_for_confirms(10)
    journal = path / "journal" / "0000000001.jnl"
    contents = bytearray(journal.read_bytes())
    contents[4096 * 17 + 100] ^= 0xFF  # blocks begin at multiples of 4096
    journal.write_bytes(contents)
    with pytest.raises(pyqstore.StoreCorrupt) as caught:
        pyqstore.open(path)
    assert caught.value.path == f"journal/{journal.name}"
    assert caught.value.offset == 4096 * 17
    with pyqstore.open(path, recovery="salvage") as store, store.channel() as channel:
        bodies = channel.get_batch("q")["body"].to_pylist()
        assert store.recovery_report.lost_ranges == 1
        assert store.recovery_report.lost_bytes > 0
    assert len(bodies) == 29
    assert bodies == sorted(bodies, key=int)


def test_salvage_reads_a_journal_file_whose_header_is_damaged(path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(10):
            channel.basic_publish("", "q", b"%d" % number, pyqstore.Properties(delivery_mode=2))
            assert channel.wait_for_confirms(10)
    journal = path / "journal" / "0000000001.jnl"
    contents = bytearray(journal.read_bytes())
    contents[20] ^= 0xFF
    journal.write_bytes(contents)
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.open(path)
    with pyqstore.open(path, recovery="salvage") as store, store.channel() as channel:
        assert channel.get_batch("q").num_rows == 10
    assert journal.read_bytes() == bytes(contents)
    with pytest.raises(pyqstore.StoreCorrupt):  # salvage mends nothing, and forgets nothing
        pyqstore.open(path)
