"""Staged files that a store adopts: which rows its streams and queues get, and once."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..adopting import STREAM, bodies, declare, drained, named, rows, write


def test_a_stream_gets_the_files_themselves(stage: Path, tmp_path: Path) -> None:
    for number in range(3):
        write(stage / f"{number}.qsb", 5000 * number, 5000, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
        assert store.adopt(stage, "key") == pyqstore.Adoption(True, 15_000, 0, 3, 3)
        assert store.transaction_known("key")
        assert bodies(store, "log") == named(15_000)
        assert store.stats().messages_published == 15_000
        assert store.stats().bytes_journalled < 65_536
    linked = {os.stat(stage / f"{number}.qsb").st_ino for number in range(3)}
    assert linked == {entry.inode() for entry in os.scandir(tmp_path / "store" / "streams")}
    for number in range(3):
        os.unlink(stage / f"{number}.qsb")
    assert pyqstore.verify(tmp_path / "store").damages == 0
    with pyqstore.open(tmp_path / "store") as store:
        assert bodies(store, "log") == named(15_000)
        assert store.adopt(stage, "key") == pyqstore.Adoption(False, 0, 0, 0, 0)
        store.checkpoint()
    assert pyqstore.verify(tmp_path / "store").damages == 0
    with pyqstore.open(tmp_path / "store") as store:
        assert bodies(store, "log") == named(15_000)


def test_adopted_rows_lie_between_published_ones(stage: Path, tmp_path: Path) -> None:
    write(stage / "0.qsb", 3, 4000, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
        log = store.stream("log")
        log.publish_batch(rows(0, 3))
        store.sync()
        assert store.adopt([stage / "0.qsb"], "key").linked == 1
        log.publish_batch(rows(4003, 3))
        store.sync()
        assert bodies(store, "log") == named(4006)
        assert bodies(store, "log", start=2, stop=5) == named(3, 2)
        read = log.read(columns=["offset", "timestamp", "routing_key"]).read_all()
        assert read["offset"].to_pylist() == list(range(4006))
        times = read["timestamp"].to_pylist()
        assert times == sorted(times)
        assert len(set(times[3:4003])) == 1
        assert log.offset_at(times[3]) == 3
        assert len(bodies(store, "log", routing_keys=["k1"])) == len(range(1, 4006, 7))
    for _ in range(2):
        with pyqstore.open(tmp_path / "store") as store:
            assert bodies(store, "log") == named(4006)
            assert bodies(store, "log", start="last")[-1] == b"body 4005"
            store.checkpoint()
    with pyqstore.open(tmp_path / "store") as store:
        write(stage / "1.qsb", 4006, 100, exchange="e")
        assert store.adopt([stage / "1.qsb"], "another").linked == 1
        assert bodies(store, "log", start="last") == named(100, 4006)
        assert bodies(store, "log") == named(4106)
    assert pyqstore.verify(tmp_path / "store").damages == 0


def test_work_queues_and_consumers_of_the_stream_get_adopted_rows(
    stage: Path, store: pyqstore.Store
) -> None:
    declare(store, "log", STREAM)
    with store.channel() as channel:
        channel.queue_declare("work", durable=True, arguments={"x-stream-source": "log"})
        write(stage / "0.qsb", 0, 2000, exchange="e")
        store.adopt(stage, "key")
        assert channel.queue_declare("work", passive=True).message_count == 2000
    assert drained(store, "work") == named(2000)


def test_a_reader_that_waits_gets_adopted_rows(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 2000, exchange="e")
    found: list[bytes] = []
    reader = store.stream("log").read("next", columns=["body"], follow=True)

    def read() -> None:
        for batch in reader:
            found.extend(batch["body"].to_pylist())
            if len(found) >= 2000:
                return

    thread = threading.Thread(target=read)
    thread.start()
    store.adopt(stage, "key")
    thread.join(60)
    assert found == named(2000)


def test_queues_get_the_rows_in_one_transaction(stage: Path, tmp_path: Path) -> None:
    for number in range(2):
        write(stage / f"{number}.qsb", 3000 * number, 3000, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "all")
        with store.channel() as channel:
            channel.queue_declare("one", durable=True)
            channel.queue_bind("one", "e", "k1")
        assert store.adopt(stage, "key") == pyqstore.Adoption(True, 6000, 0, 2, 0)
        assert store.adopt(stage, "key") == pyqstore.Adoption(False, 0, 0, 0, 0)
    with pyqstore.open(tmp_path / "store") as store:
        assert drained(store, "all") == named(6000)
        assert drained(store, "one") == named(6000)[1::7]


def test_a_stream_beside_a_queue_is_published_to(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    declare(store, "all")
    write(stage / "0.qsb", 0, 3000, exchange="e")
    assert store.adopt(stage, "key") == pyqstore.Adoption(True, 3000, 0, 1, 0)
    assert bodies(store, "log") == drained(store, "all") == named(3000)


def test_headers_decide_row_by_row(stage: Path, store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.exchange_declare("h", "headers", durable=True)
        channel.queue_declare("red", durable=True)
        channel.queue_bind("red", "h", "", arguments={"colour": "red"})
    batch = pa.record_batch(
        {
            "body": named(4),
            "headers": pa.array(
                [[("colour", colour)] for colour in ("red", "blue", "red", "red")],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )
    with pyqstore.StagedWriter(stage / "0.qsb", exchange="h") as writer:
        writer.write_batch(batch)
    with pytest.raises(pyqstore.Unroutable, match="1 of 4") as caught:
        store.adopt(stage, "key")
    assert caught.value.count == 1
    assert not store.transaction_known("key")
    assert store.adopt(stage, "key", mandatory=False) == pyqstore.Adoption(True, 4, 1, 1, 0)
    assert drained(store, "red") == [b"body 0", b"body 2", b"body 3"]


def test_unroutable_rows_are_found_before_anything_changes(
    stage: Path, store: pyqstore.Store
) -> None:
    with store.channel() as channel:
        channel.exchange_declare("e", "direct", durable=True)
        channel.queue_declare("log", durable=True, arguments=STREAM)
        channel.queue_bind("log", "e", "k1")
    write(stage / "0.qsb", 0, 70, exchange="e")
    with pytest.raises(pyqstore.Unroutable, match=r"60 of 70 .*'e', routing key 'k0'") as caught:
        store.adopt(stage, "key")
    assert caught.value.count == 60
    assert pickle.loads(pickle.dumps(caught.value)).count == 60
    assert bodies(store, "log") == []
    assert not store.transaction_known("key")
    assert store.adopt(stage, "key", mandatory=False) == pyqstore.Adoption(True, 70, 60, 1, 0)
    assert bodies(store, "log") == named(70)[1::7]


def test_what_cannot_be_adopted_changes_nothing(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 70, exchange="e")
    write(stage / "1.qsb", 0, 70, exchange="missing")
    with pytest.raises(pyqstore.NotFound, match="missing"):
        store.adopt(stage, "key")
    with pytest.raises(FileNotFoundError, match=r"2\.qsb"):
        store.adopt([stage / "0.qsb", stage / "2.qsb"], "key")
    with pytest.raises(FileNotFoundError):
        store.adopt(stage / "missing", "key")
    with pytest.raises(ValueError, match="key"):
        store.adopt(stage, "")
    with pytest.raises(ValueError, match="key"):
        store.adopt([stage / "0.qsb"], "k" * 2000)
    with pytest.raises(TypeError):
        store.adopt([stage / "0.qsb"], None)  # type: ignore[arg-type]
    assert bodies(store, "log") == []
    assert store.adopt([stage / "0.qsb"], "key").committed
    assert bodies(store, "log") == named(70)


def test_no_files_are_a_transaction_too(stage: Path, store: pyqstore.Store) -> None:
    assert store.adopt(stage, "key") == pyqstore.Adoption(True, 0, 0, 0, 0)
    assert store.adopt([], "key") == pyqstore.Adoption(False, 0, 0, 0, 0)


def test_a_key_of_a_transaction_counts(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 500, exchange="e")
    with store.channel() as channel:
        channel.tx_select()
        channel.tx_commit(key="key")
    assert not store.adopt(stage, "key").committed
    assert store.adopt(stage, "another").committed
    with store.channel() as channel:
        channel.tx_select()
        assert not channel.tx_commit(key="another")


def test_properties_beyond_what_the_store_takes_are_refused_of_linked_files_too(
    stage: Path, tmp_path: Path
) -> None:
    properties = pyqstore.Properties(headers={"a": "x" * 5000})
    for name, given in (("0.qsb", properties), ("1.qsb", None)):
        batch = rows(0, 10)
        if given is None:
            headers = pa.array(
                [None] * 9 + [[("a", "x" * 5000)]], pa.map_(pa.string(), pa.string())
            )
            batch = batch.append_column("headers", headers)
        with pyqstore.StagedWriter(stage / name, exchange="e", properties=given) as writer:
            writer.write_batch(batch)
    with pyqstore.open(tmp_path / "store", body_bytes_max=1000) as store:
        declare(store, "log", STREAM)
        for name in ("0.qsb", "1.qsb"):
            with pytest.raises(ValueError, match="properties of 50"):
                store.adopt([stage / name], "key")
        assert bodies(store, "log") == []
    with pyqstore.open(tmp_path / "other") as store:
        declare(store, "log", STREAM)
        assert store.adopt(stage, "key").linked == 2


def test_a_writer_without_rows_is_no_file_to_adopt(stage: Path, store: pyqstore.Store) -> None:
    declare(store, "log", STREAM)
    write(stage / "0.qsb", 0, 10, exchange="e")
    with pyqstore.StagedWriter(stage / "1.qsb") as writer:
        pass
    assert store.adopt([stage / "0.qsb", writer.result.path], "key").files == 1


def test_a_store_that_was_opened_for_reading_adopts_nothing(stage: Path, tmp_path: Path) -> None:
    write(stage / "0.qsb", 0, 10, exchange="e")
    with pyqstore.open(tmp_path / "store") as store:
        declare(store, "log", STREAM)
    with (
        pyqstore.open(tmp_path / "store", read_only=True) as store,
        pytest.raises(pyqstore.StoreReadOnly),
    ):
        store.adopt(stage, "key")
