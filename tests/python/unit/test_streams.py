"""Streams: publishing, reading from everywhere, retention, consumers and their groups."""

import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

pytestmark = pytest.mark.faces("sync", "aio")


def rows(count: int, first: int = 0, size: int = 0) -> pa.Table:
    bodies = [b"%d" % i + b"." * size for i in range(first, first + count)]
    return pa.table({"body": pa.array(bodies, pa.binary())})


def read(stream: pyqstore.Stream, *arguments: object, **named: object) -> list[bytes]:
    batches = stream.read(*arguments, **named)  # type: ignore[arg-type]
    return [body for batch in batches for body in batch["body"].to_pylist()]


def test_many_small_streams_make_no_files_at_a_checkpoint(path: Path) -> None:
    """They share the checkpoint's own, as small queues do, also after the store was opened anew."""
    count, options = 400, {"checkpoint_bytes": "64MiB"}  # carries 4 MiB, and what is below 16 KiB
    with pyqstore.open(path, sync="none", **options) as store:
        for number in range(count):
            store.stream(f"s{number}").publish_batch(rows(100, size=120))
        store.checkpoint()
        assert list((path / "streams").iterdir()) == []
    with pyqstore.open(path, sync="none", **options) as store:
        store.checkpoint()
        assert list((path / "streams").iterdir()) == []
        assert len(read(store.stream(f"s{count - 1}"))) == 100


def test_messages_stay_and_have_offsets_and_times(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert (stream.first, stream.next, len(stream)) == (0, 0, 0)
    stream.publish(b"zero")
    stream.publish_batch(rows(3, 1))
    assert (stream.first, stream.next, len(stream)) == (0, 4, 4)
    for _ in range(2):  # reading takes nothing away
        table = pa.Table.from_batches(stream.read())
        assert table["offset"].to_pylist() == [0, 1, 2, 3]
        assert table["offset"].type == pa.uint64()
        assert table["body"].to_pylist() == [b"zero", b"1", b"2", b"3"]
        times = table["timestamp"].to_pylist()
        assert times == sorted(times)
        assert before <= times[0].astimezone(UTC) <= datetime.now(UTC) + timedelta(seconds=1)


def test_reading_begins_and_ends_where_it_is_asked_to(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish_batch(rows(1000))
    assert read(stream, 990) == [b"%d" % i for i in range(990, 1000)]
    assert read(stream, 10, 12) == [b"10", b"11"]
    assert read(stream, "next") == []
    assert read(stream, "last")[-1] == b"999"
    assert read(stream, "first", 1) == [b"0"]
    assert read(stream, timedelta(hours=1)) == [b"%d" % i for i in range(1000)]
    assert read(stream, datetime.now(UTC) + timedelta(hours=1)) == []
    assert read(stream, 5000) == []  # not there yet
    time.sleep(0.01)
    middle = datetime.now(UTC)
    time.sleep(0.01)
    stream.publish_batch(rows(10, 1000))
    assert stream.offset_at(middle) == 1000
    assert stream.offset_at(datetime(1990, 1, 1, tzinfo=UTC)) == 0
    assert read(stream, middle)[0] == b"1000"
    assert read(stream, "first", middle)[-1] == b"999"


@pytest.mark.faces("sync")
def test_what_makes_no_sense_is_refused(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    with pytest.raises(ValueError, match="'begin'"):
        stream.read("begin")
    with pytest.raises(TypeError):
        stream.read(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1"):
        stream.read(-1)
    with pytest.raises(ValueError, match="nonsense"):
        stream.read(columns=["nonsense"])
    with pytest.raises(TypeError):
        stream.read(columns="body")
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
    with pytest.raises(pyqstore.PreconditionFailed):
        store.stream("q")
    with pytest.raises(pyqstore.PreconditionFailed):
        store.stream("events", max_messages=5)


def test_columns_and_keys_select_exactly(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    keys = ["eu.de", "us.ny", "eu.fr"]
    table = rows(3000).append_column("routing_key", pa.array([keys[i % 3] for i in range(3000)]))
    stream.publish_batch(table)
    stream.publish(b"one", key="eu.de")
    assert len(read(stream, routing_keys=["eu.#"])) == 2001
    assert len(read(stream, routing_keys=["*.ny"])) == 1000
    assert read(stream, routing_keys=["nowhere"]) == []
    reader = stream.read(columns=["offset", "routing_key"], routing_keys=["us.ny"])
    result = pa.Table.from_batches(reader)
    assert result.column_names == ["offset", "routing_key"]
    assert result["offset"].to_pylist() == list(range(1, 3000, 3))
    assert set(result["routing_key"].to_pylist()) == {"us.ny"}


def test_headers_and_properties_come_back(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish("text", headers={"trace": "a-1"})
    row = pa.Table.from_batches(stream.read()).to_pylist()[0]
    assert row["body"] == b"text"
    assert dict(row["headers"]) == {"trace": "a-1"}
    assert row["content_type"] == "text/plain"


def test_a_reader_that_follows_gets_what_is_published_later(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish(b"0")
    got: list[bytes] = []

    def follow() -> None:
        for batch in stream.read("first", stop=100, follow=True):
            got.extend(batch["body"].to_pylist())

    thread = threading.Thread(target=follow)
    thread.start()
    for i in range(1, 100):
        stream.publish(b"%d" % i)
    thread.join(30)
    assert not thread.is_alive()
    assert got == [b"%d" % i for i in range(100)]


def test_everything_is_there_after_reopening(path: Path) -> None:
    with pyqstore.open(path) as store:
        stream = store.stream("events", max_age="7D")
        stream.publish_batch(rows(2000, size=100))
        store.checkpoint()
        stream.publish_batch(rows(500, 2000, size=10_000))  # bodies of the message store
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        assert (stream.first, stream.next) == (0, 2500)
        bodies = read(stream)
        assert [int(body.rstrip(b".")) for body in bodies] == list(range(2500))
        stream.publish(b"2500")
        store.checkpoint()
    with pyqstore.open(path) as store:
        assert read(store.stream("events"), 2499)[1] == b"2500"


def test_transient_messages_are_kept_too(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        store.stream("events")
        channel.basic_publish("", "events", b"x", pyqstore.Properties(delivery_mode=1))
        store.sync()
    with pyqstore.open(path) as store:
        assert read(store.stream("events")) == [b"x"]


def test_retention_drops_whole_segments_from_the_front(path: Path) -> None:
    with pyqstore.open(path) as store:
        stream = store.stream("events", max_length_bytes=300_000, segment_bytes=65_536)
        for i in range(0, 10_000, 500):
            stream.publish_batch(rows(500, i, size=100))
            store.checkpoint()
        assert stream.next == 10_000
        first = stream.first
        assert 0 < first < 9_000
        assert read(stream, first)[0].startswith(b"%d" % first)
        with pytest.raises(pyqstore.OffsetOutOfRange) as caught:
            stream.read(0)
        assert (caught.value.first, caught.value.next) == (first, 10_000)
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        assert (stream.first, stream.next) == (first, 10_000)


def test_a_consumer_goes_on_behind_what_it_committed(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.stream("events").publish_batch(rows(100))
        with store.stream_consumer(["events"], group="billing") as consumer:
            assert consumer.assignment == [] or consumer.assignment == ["events"]
            batch = consumer.poll(max_rows=40, timeout=30)
            assert batch["offset"].to_pylist() == list(range(40))
            assert consumer.lag() == {"events": 60}
            consumer.commit()
            assert consumer.committed("events") == 40
            consumer.poll(max_rows=10, timeout=30)  # and never committed
    with pyqstore.open(path) as store:
        with store.stream_consumer("events", group="billing") as consumer:
            assert consumer.poll(timeout=30)["offset"].to_pylist()[0] == 40
            assert len(consumer.poll()) == 0
            consumer.seek("events", 90)
            assert len(consumer.poll(timeout=30)) == 10
        with store.stream_consumer("events", group="other") as consumer:
            assert consumer.poll(timeout=30)["offset"].to_pylist()[0] == 0


def test_a_consumer_without_any_routing_key_is_refused_and_not_given_everything(
    store: pyqstore.Store,
) -> None:
    store.stream("events").publish_batch(rows(10))
    with pytest.raises(ValueError, match="routing_keys: nothing would ever come; name the keys"):
        store.stream_consumer("events", group="billing", routing_keys=[])
    with pytest.raises(TypeError, match="routing_keys must be a sequence of str"):
        store.stream_consumer("events", group="billing", routing_keys="events")
    assert list(store.stream("events").read(routing_keys=[])) == []
    with store.stream_consumer("events", group="billing", routing_keys=["#"]) as consumer:
        assert len(consumer.poll(timeout=30)) == 10


def test_read_process_write_happens_once(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        store.stream("in").publish_batch(rows(100))
        out = store.stream("out")
        consumer = store.stream_consumer("in", group="copy")
        batch = consumer.poll(timeout=30)
        broken = channel.transaction()

        def fail() -> None:
            with broken as tx:
                tx.publish_batch(batch.select(["body"]), "", "out")
                tx.commit_offsets(consumer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert (out.next, consumer.committed("in")) == (0, None)
        with channel.transaction(key="b-1") as tx:
            tx.publish_batch(batch.select(["body"]), "", "out")
            tx.commit_offsets(consumer)
        assert tx.committed
        assert (out.next, consumer.committed("in")) == (100, 100)
        consumer.close()
    with pyqstore.open(path) as store, store.stream_consumer("in", group="copy") as consumer:
        assert len(consumer.poll(timeout=0.2)) == 0


def test_a_group_divides_its_streams(store: pyqstore.Store) -> None:
    names = [f"s{i}" for i in range(4)]
    for name in names:
        store.stream(name).publish_batch(rows(10))
    told: list[tuple[str, list[str]]] = []
    first = store.stream_consumer(
        names,
        group="g",
        instance="a",
        on_assign=lambda streams: told.append(("assigned", streams)),
        on_revoke=lambda streams: told.append(("revoked", streams)),
    )
    seen = 0
    while seen < 40:
        batch = first.poll(timeout=30)
        assert set(batch["stream"].to_pylist()) <= set(names)
        seen += len(batch)
    first.commit()
    second = store.stream_consumer(names, group="g", instance="b")
    assert len(second.poll()) == 0  # the first one has not given anything up
    assert len(first.poll()) == 0
    second.poll()
    assert first.assignment == ["s0", "s1"]
    assert second.assignment == ["s2", "s3"]
    assert told == [("assigned", names), ("revoked", ["s2", "s3"])]
    store.stream("s3").publish(b"new")
    assert second.poll(timeout=30)["body"].to_pylist() == [b"new"]
    second.close()
    first.poll()
    assert first.assignment == names


def test_an_exchange_stands_for_the_streams_behind_it(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.exchange_declare("all", "x-consistent-hash", durable=True)
        for i in range(3):
            store.stream(f"all-{i}")
            channel.queue_bind(f"all-{i}", "all", "1")
        keys = pa.array([f"customer-{i % 50}" for i in range(1000)])
        channel.confirm_select()
        channel.publish_batch(rows(1000).append_column("routing_key", keys), "all").wait()
    with store.stream_consumer("all", group="g") as consumer:
        where: dict[str, set[str]] = {}
        seen = 0
        while seen < 1000:
            batch = consumer.poll(timeout=30)
            assert len(batch) > 0
            seen += len(batch)
            for key, stream in zip(
                batch["routing_key"].to_pylist(), batch["stream"].to_pylist(), strict=True
            ):
                where.setdefault(key, set()).add(stream)
        assert all(len(streams) == 1 for streams in where.values())
        assert len(set().union(*where.values())) == 3


def test_a_paused_stream_is_passed_over(store: pyqstore.Store) -> None:
    for name in "ab":
        store.stream(name).publish(name)
    with store.stream_consumer(["a", "b"], group="g") as consumer:
        consumer.poll(max_rows=1)
        consumer.seek("a", 0)
        consumer.seek("b", 0)
        consumer.pause("a")
        assert consumer.poll(timeout=30)["body"].to_pylist() == [b"b"]
        assert len(consumer.poll()) == 0
        consumer.resume()
        assert consumer.poll(timeout=30)["body"].to_pylist() == [b"a"]


def test_the_rate_of_a_stream_that_was_opened_again_is_not_negative(path: Path) -> None:
    with pyqstore.open(path) as store:
        store.stream("events").publish_batch(rows(300))
    with pyqstore.open(path) as store:
        store.stream("events").publish(b"one")
        for _ in range(3):
            assert store.queue_status("events").ingress_rate >= 0
            time.sleep(0.1)


def test_a_poll_with_keys_ends_in_time_while_other_keys_are_published(
    store: pyqstore.Store,
) -> None:
    stream = store.stream("events")
    done = threading.Event()

    def publish() -> None:
        while not done.is_set():
            stream.publish_batch(pa.table({"body": [b"x"], "routing_key": ["us.nyc"]})).wait()

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        with store.stream_consumer("events", group="g", routing_keys=["eu.#"]) as consumer:
            assert len(consumer.poll(timeout=0.3)) == 0
    finally:
        done.set()
        publisher.join()


@pytest.mark.parametrize("keys", [False, True])
def test_last_was_one_message_until_what_was_published_together_was_in_a_file(
    store: pyqstore.Store, keys: bool
) -> None:
    stream = store.stream("events")
    stream.publish(b"one")
    together = {"body": [b"x"] * 1000}
    if keys:
        together["routing_key"] = [f"key{i % 7}" for i in range(1000)]
    stream.publish_batch(pa.table(together))
    last = pa.Table.from_batches(stream.read("last"))
    assert last["offset"].to_pylist() == list(range(1, 1001))
    with store.channel() as channel:
        arguments = {"x-stream-source": "events", "x-stream-offset": "last"}
        channel.queue_declare("work", durable=True, arguments=arguments)
        assert len(store.queue("work")) == 1000
        channel.basic_qos(prefetch_count=1)
        for message in channel.consume("events", arguments={"x-stream-offset": "last"}):
            assert message.properties.headers["x-stream-offset"] == 1
            break


def test_a_large_batch_is_on_the_disk_once(path: Path) -> None:
    """What is confirmed is in the stream's file, and the journal does not have it."""
    batch = rows(2000, size=100)
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        stream.publish(b"before")
        for _ in range(3):
            stream.publish_batch(batch)
        stream.publish(b"between")
        stream.publish_batch(batch)
        store.sync()
        journal = b"".join(file.read_bytes() for file in sorted((path / "journal").iterdir()))
        files = b"".join(file.read_bytes() for file in sorted((path / "streams").iterdir()))
        assert b"before" in journal
        assert b"1999" + b"." * 100 not in journal
        assert files.count(b"1999" + b"." * 100) == 4
        expected = read(stream)
    bodies = batch["body"].to_pylist()
    assert expected == [b"before", *bodies * 3, b"between", *bodies]
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        assert read(stream) == expected
        stream.publish_batch(batch)
        assert read(stream) == [*expected, *bodies]
    assert pyqstore.verify(path).damages == 0


def test_large_batches_of_several_threads_are_whole_and_in_order(store: pyqstore.Store) -> None:
    def publish(name: int) -> None:
        with store.channel() as channel:
            for batch in range(20):
                bodies = [b"%d %d %d" % (name, batch, row) + b"." * 300 for row in range(300)]
                table = pa.table({"body": pa.array(bodies, pa.binary())})
                channel.publish_batch(table, routing_key="events")
                channel.basic_publish("", "events", b"%d %d small" % (name, batch))

    stream = store.stream("events")
    threads = [threading.Thread(target=publish, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = pa.Table.from_batches(stream.read())
    assert table["offset"].to_pylist() == list(range(3 * 20 * 301))
    times = table["timestamp"].to_pylist()
    assert times == sorted(times)
    for name in range(3):
        mine = [body for body in table["body"].to_pylist() if body.startswith(b"%d " % name)]
        wanted = []
        for batch in range(20):
            wanted += [b"%d %d %d" % (name, batch, row) + b"." * 300 for row in range(300)]
            wanted.append(b"%d %d small" % (name, batch))
        assert mine == wanted


def flip_first_block(path: Path) -> None:
    """One bit of the rows in the first block of the one segment."""
    (file,) = (path / "streams").iterdir()
    data = bytearray(file.read_bytes())
    data[4096 + 512] ^= 1
    file.write_bytes(data)


def test_verify_passed_over_blocks_before_those_that_the_journal_names(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        stream.publish(b"x" * 3000)
        stream.publish_batch(rows(2000, size=100))
        stream.publish_batch(rows(2000, size=100))
        store.sync()
        stream.publish(b"what was before is durable")
        store.sync()
        shutil.copytree(path, copy)
    assert pyqstore.verify(copy).damages == 0
    flip_first_block(copy)
    assert pyqstore.verify(copy).damages == 1


def test_salvage_did_not_count_a_batch_whose_blocks_are_gone(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        stream.publish_batch(rows(2000, size=100))
        store.sync()
        stream.publish(b"last")
        store.sync()
        shutil.copytree(path, copy)
    flip_first_block(copy)
    with pyqstore.open(copy, recovery="salvage", read_only=True) as store:
        assert store.recovery_report.lost_ranges == 1
        assert read(store.stream("events"), "last")[-1] == b"last"
