"""Consumers of streams when a stream is dropped, deleted or not theirs, and when they go."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio

Consumer = pyqstore.StreamConsumer


def rows(count: int, size: int = 1) -> pa.Table:
    return pa.table({"body": [b"x" * size] * count})


def polled(consumer: Consumer, rows_max: int = 100) -> tuple[str, int]:
    """The stream and the number of rows of the next batch."""
    batch = consumer.poll(rows_max, timeout=10)
    return batch["stream"][0].as_py(), len(batch)


def drop_rows(store: pyqstore.Store, name: str) -> int:
    """Publish until retention drops what is there now; the first offset that is kept then."""
    stream = store.stream(name)
    last = stream.next
    while stream.first < last:
        stream.publish_batch(rows(300, 500))
        store.checkpoint()
    return stream.first


@pytest.fixture
def passed(store: pyqstore.Store) -> pyqstore.Store:
    """Retention has passed where group "g" goes on in stream "a"."""
    store.stream("a", max_messages=100, segment_bytes=20_000).publish_batch(rows(300, 500))
    store.stream("b").publish_batch(rows(10))
    with store.stream_consumer("a", group="g") as consumer:
        polled(consumer, 5)
        consumer.commit()
    drop_rows(store, "a")
    return store


def test_a_dropped_offset_at_the_first_poll_leaves_the_other_streams_and_seek(
    passed: pyqstore.Store,
) -> None:
    with passed.stream_consumer(["a", "b"], group="g") as consumer:
        with pytest.raises(pyqstore.OffsetOutOfRange):
            consumer.poll(5)
        assert polled(consumer, 5) == ("b", 5)
        assert consumer.assignment == ["a", "b"]
        kept = len(passed.stream("a"))
        assert consumer.lag() == {"a": kept, "b": 5}
        with pytest.raises(pyqstore.OffsetOutOfRange):  # until somebody does something about it
            consumer.poll(5)
        assert polled(consumer, 5) == ("b", 5)
        consumer.seek("a", "first")
        assert polled(consumer, 5) == ("a", 5)
        assert consumer.lag() == {"a": kept - 5, "b": 0}
        consumer.commit()
        assert consumer.committed("a") == passed.stream("a").first + 5


def test_a_dropped_offset_can_be_sought_or_paused_before_any_poll(passed: pyqstore.Store) -> None:
    with passed.stream_consumer(["a", "b"], group="g") as consumer:
        with pytest.raises(pyqstore.OffsetOutOfRange):
            consumer.position("a")
        consumer.pause("a")
        assert polled(consumer) == ("b", 10)
        assert len(consumer.poll()) == 0
        consumer.resume("a")
        consumer.seek("a", "first")
        assert polled(consumer)[0] == "a"

    def seek(streams: list[str]) -> None:
        for name in streams:
            consumer.seek(name, "first")

    with passed.stream_consumer(["a", "b"], group="g", on_assign=seek) as consumer:
        assert polled(consumer)[0] == "a"


def test_a_reset_returns_rows_that_are_there_at_timeout_zero(store: pyqstore.Store) -> None:
    store.stream("a", max_messages=100, segment_bytes=20_000).publish_batch(rows(300, 500))
    with store.stream_consumer("a", group="g", reset="first") as consumer:
        assert len(consumer.poll(1)) == 1
        first = drop_rows(store, "a")
        assert consumer.poll(10)["offset"].to_pylist() == list(range(first, first + 10))


def test_a_deleted_stream_is_told_once_and_left_out(store: pyqstore.Store) -> None:
    for name in "ad":
        store.stream(name).publish_batch(rows(100))
    with (
        store.stream_consumer(["a", "d"], group="g") as consumer,
        store.channel() as channel,
    ):
        assert [polled(consumer, 5)[0] for _ in range(2)] == ["a", "d"]
        store.stream("d").delete()
        assert consumer.lag() == {"a": 95}
        consumer.commit()  # before a poll told of it
        assert consumer.committed("a") == 5
        assert polled(consumer, 5) == ("a", 5)
        with pytest.raises(pyqstore.NotFound, match="'d' was deleted"):
            consumer.poll(5)
        assert consumer.assignment == ["a"]
        for _ in range(3):
            assert polled(consumer, 5) == ("a", 5)
        with channel.transaction() as tx:
            tx.commit_offsets(consumer)
        assert consumer.committed("a") == store.stream("a").next - consumer.lag()["a"]
        with pytest.raises(ValueError, match="'d' is not assigned"):
            consumer.seek("d", 0)


def test_offsets_of_a_deleted_stream_are_not_those_of_another_with_its_name(
    store: pyqstore.Store,
) -> None:
    store.stream("d").publish_batch(rows(100))
    with store.stream_consumer("d", group="g") as consumer:
        polled(consumer)
        store.stream("d").delete()
        store.stream("d").publish_batch(rows(3))
        consumer.commit()
        assert consumer.committed("d") is None
    with store.stream_consumer("d", group="g") as consumer:
        assert polled(consumer) == ("d", 3)


def test_each_consumer_of_a_group_is_told_of_a_deleted_stream_itself(
    store: pyqstore.Store,
) -> None:
    store.stream("d")
    with (
        store.stream_consumer("d", group="g") as first,
        store.stream_consumer("d", group="g") as second,
    ):
        assert (len(first.poll()), len(second.poll())) == (0, 0)
        store.stream("d").delete()
        for consumer in (first, second):
            with pytest.raises(pyqstore.NotFound):
                consumer.poll()
            assert len(consumer.poll()) == 0


def test_a_consumer_that_is_collected_in_a_call_of_its_group_blocks_nobody(
    store: pyqstore.Store,
) -> None:
    store.stream("a").publish(b"one")

    def left() -> None:
        """In a circle, as with a listener that commits: only the collector frees it."""
        circle: list[Consumer] = []
        circle.append(store.stream_consumer("a", "g", on_revoke=lambda _: circle[0].commit()))
        circle[0].poll()

    def collect() -> None:
        with store.stream_consumer("a", group="g") as consumer:
            with consumer._group._mutex:
                gc.collect()
            assert polled(consumer) == ("a", 1)

    left()
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_a_collected_consumers_streams_and_name_are_free(store: pyqstore.Store) -> None:
    store.stream("a").publish(b"one")
    gone = store.stream_consumer("a", group="g", instance="x")
    assert polled(gone) == ("a", 1)
    with store.stream_consumer("a", group="g") as other:
        assert other.assignment == []
        del gone
        gc.collect()
        assert polled(other) == ("a", 1)
        with store.stream_consumer("a", group="g", instance="x") as again:
            assert again.instance == "x"


def test_a_constructor_that_raises_leaves_no_exception_that_is_ignored(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", ignored.append)
    store.stream("a")
    for arguments in ({"group": ""}, {"group": "g", "start": "bogus"}):
        with pytest.raises(ValueError):
            store.stream_consumer("a", **arguments)
    gc.collect()
    assert ignored == []


def test_an_exchange_without_bindings_is_refused_at_once(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.exchange_declare("empty", "fanout", durable=True)
    with pytest.raises(ValueError, match="no stream is bound to exchange 'empty'"):
        store.stream_consumer("empty", group="g")


def test_bad_options_of_a_consumer_are_refused_by_its_constructor(store: pyqstore.Store) -> None:
    store.stream("a")
    for name, value in (("reset", "bogus"), ("columns", ["nope"]), ("start", "bogus")):
        with pytest.raises(ValueError, match=r"bogus|nope"):
            store.stream_consumer("a", group="g", **{name: value})  # type: ignore[arg-type]
    with store.stream_consumer("a", group="g") as consumer:
        for count in (0, -1, 2**70):
            with pytest.raises(ValueError, match="max_rows"):
                consumer.poll(count)
        with pytest.raises(TypeError, match="max_rows"):
            consumer.poll(1.5)  # type: ignore[arg-type]


def test_an_offset_that_no_commit_takes_is_refused_by_seek(store: pyqstore.Store) -> None:
    store.stream("a")
    with store.stream_consumer("a", group="g") as consumer:
        with pytest.raises(ValueError, match="offset"):
            consumer.seek("a", 2**64 - 1)
        consumer.seek("a", 2**64 - 2)
        consumer.commit()
        assert consumer.committed("a") == 2**64 - 2


# In transactions.


@pytest.fixture
def two(tmp_path: Path) -> Any:
    with pyqstore.open(tmp_path / "one.qs") as one, pyqstore.open(tmp_path / "two.qs") as two:
        for store in (one, two):
            store.stream("b").publish_batch(rows(50))
        yield one, two


def test_another_stores_consumer_does_not_move_this_stores_cursor(two: Any) -> None:
    one, other = two
    with (
        one.stream_consumer("b", group="g") as consumer,
        other.stream_consumer("b", group="g") as foreign,
        one.channel() as channel,
    ):
        consumer.poll(10)
        consumer.commit()
        foreign.poll(3)
        with pytest.raises(ValueError, match="another store"), channel.transaction() as tx:
            tx.commit_offsets(foreign)
        assert (consumer.committed("b"), foreign.committed("b")) == (10, None)


def test_a_closed_consumers_offsets_are_not_committed(store: pyqstore.Store) -> None:
    store.stream("b").publish_batch(rows(5))
    with store.stream_consumer("b", group="g") as consumer:
        polled(consumer)
    with (
        store.channel() as channel,
        pytest.raises(ValueError, match="closed"),
        channel.transaction() as tx,
    ):
        tx.commit_offsets(consumer)
    with store.stream_consumer("b", group="g") as consumer:
        assert consumer.committed("b") is None


def test_a_message_of_another_channel_acknowledges_nothing_of_this_one(
    store: pyqstore.Store,
) -> None:
    queue = store.queue("q")
    queue.put_many([b"one", b"two"])
    with store.channel() as channel, store.channel() as other:
        assert channel.basic_get("q") is not None
        foreign = other.basic_get("q")
        assert foreign is not None
        for message in (foreign, *queue.peek()):
            with pytest.raises(ValueError, match="channel"), channel.transaction() as tx:
                tx.ack(message)
        assert store.queue_status("q").messages_unacked == 2


def test_the_same_transactions_for_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "1") as one, aio.open(tmp_path / "2") as other:
            for store in (one, other):
                await (await store.stream("b")).publish_batch(rows(50))
            queue = await one.queue("q")
            await queue.put_many([b"one", b"two"])
            async with (
                await other.stream_consumer("b", group="g") as foreign,
                await one.stream_consumer("b", group="g") as consumer,
                await one.channel() as channel,
                await one.channel() as another,
            ):
                await foreign.poll(3)
                with pytest.raises(ValueError, match="another store"):
                    async with channel.transaction() as tx:
                        await tx.commit_offsets(foreign)
                assert await consumer.committed("b") is None
                own, message = await channel.basic_get("q"), await another.basic_get("q")
                assert own is not None
                assert message is not None
                with pytest.raises(ValueError, match="channel"):
                    async with channel.transaction() as tx:
                        await tx.ack(message)
                assert (await one.queue_status("q")).messages_unacked == 2
                await consumer.poll(3)
                async with channel.transaction() as tx:
                    await tx.ack(own)
                    await tx.commit_offsets(consumer)
                assert await consumer.committed("b") == 3
                assert (await one.queue_status("q")).messages_unacked == 1

    asyncio.run(main())
