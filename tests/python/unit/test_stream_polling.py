"""Consumers of streams when a stream is dropped, deleted or not theirs, and when they go."""

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import get

pytestmark = pytest.mark.faces("sync", "aio")

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


@pytest.mark.faces("sync")
def test_the_error_names_the_stream_whose_offset_was_dropped(passed: pyqstore.Store) -> None:
    with passed.stream_consumer(["a", "b"], group="g") as consumer:
        first, following = passed.stream("a").first, passed.stream("a").next
        for verb in (consumer.poll, lambda: consumer.position("a"), lambda: consumer.seek("a", 0)):
            with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'") as caught:
                verb()
            error = caught.value
            for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
                assert (each.stream, each.first, each.next) == ("a", first, following)
    with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'"):
        passed.stream("a").read(0)


def test_other_members_get_their_share_of_streams_whose_offsets_were_dropped(
    passed: pyqstore.Store,
) -> None:
    """Whoever has the stream is told at each of its turns, until somebody seeks."""
    with (
        passed.stream_consumer(["a", "b"], group="g") as first,
        pytest.raises(pyqstore.OffsetOutOfRange),
    ):
        first.poll()
    with passed.stream_consumer(["a", "b"], group="g") as first:
        with pytest.raises(pyqstore.OffsetOutOfRange):
            first.poll()
        with passed.stream_consumer(["a", "b"], group="g") as second:
            found: dict[str, list[int]] = {"a": [], "b": []}
            for consumer in [first, second] * 4:
                try:
                    batch = consumer.poll(1)
                except pyqstore.OffsetOutOfRange as error:
                    found[error.stream].append(-1)
                else:
                    if len(batch) > 0:
                        found[batch["stream"][0].as_py()] += batch["offset"].to_pylist()
            assert [len(consumer.assignment) for consumer in (first, second)] == [1, 1]
            assert set(found["a"]) == {-1}
            assert len(found["a"]) >= 3
            assert found["b"] == list(range(len(found["b"])))
            assert len(found["b"]) >= 3
            has_it = first if first.assignment == ["a"] else second
            has_it.seek("a", "first")
            assert polled(has_it, 5) == ("a", 5)


def test_a_stream_that_retention_passed_while_it_is_read_raises_until_it_is_sought(
    store: pyqstore.Store,
) -> None:
    store.stream("a", max_messages=100, segment_bytes=20_000).publish_batch(rows(300, 500))
    store.stream("b").publish_batch(rows(10))
    with store.stream_consumer(["a", "b"], group="g") as consumer:
        assert {polled(consumer, 5), polled(consumer, 5)} == {("a", 5), ("b", 5)}
        first = drop_rows(store, "a")
        for number in range(3):
            with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'"):
                consumer.poll(1)
            assert consumer.poll(1)["offset"].to_pylist() == [5 + number]
        consumer.seek("a", "first")
        consumer.pause("b")
        assert consumer.poll(1)["offset"].to_pylist() == [first]


def test_a_reader_that_retention_passed_raises_again_and_does_not_look_like_the_end(
    store: pyqstore.Store,
) -> None:
    stream = store.stream("a", max_messages=100, segment_bytes=20_000)
    stream.publish_batch(rows(300, 500))
    batches = iter(stream.read(0))
    drop_rows(store, "a")
    for _ in range(3):
        with pytest.raises(pyqstore.OffsetOutOfRange):
            next(batches)


def test_a_reset_returns_rows_that_are_there_at_timeout_zero(store: pyqstore.Store) -> None:
    store.stream("a", max_messages=100, segment_bytes=20_000).publish_batch(rows(300, 500))
    with store.stream_consumer("a", group="g", reset="first") as consumer:
        assert len(consumer.poll(1)) == 1
        first = drop_rows(store, "a")
        assert consumer.poll(10)["offset"].to_pylist() == list(range(first, first + 10))


def test_a_deleted_stream_is_told_once_and_left_out(store: pyqstore.Store) -> None:
    for name in "ad":
        store.stream(name).publish_batch(rows(100))
    with store.stream_consumer(["a", "d"], group="g") as consumer, store.channel() as channel:
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


def test_a_position_in_a_stream_that_was_declared_again_is_not_committed(
    store: pyqstore.Store,
) -> None:
    for name in "ad":
        store.stream(name).publish_batch(rows(100))
    with store.stream_consumer(["a", "d"], group="g") as consumer, store.channel() as channel:
        assert [polled(consumer, 2)[0] for _ in range(2)] == ["a", "d"]
        store.stream("d").delete()
        store.stream("d").publish_batch(rows(3))
        for _ in range(2):
            with pytest.raises(pyqstore.NotFound, match="'d' was deleted and declared again"):
                consumer.commit()
        channel.queue_declare("q")

        def commit() -> None:
            with channel.transaction() as tx:
                tx.publish("", "q", b"")
                tx.commit_offsets(consumer)

        with pytest.raises(pyqstore.NotFound, match="'d' was deleted and declared again"):
            commit()
        assert store.queue_status("q").messages_ready == 0
        assert (consumer.committed("a"), consumer.committed("d")) == (None, None)
        assert polled(consumer, 2) == ("a", 2)
        with pytest.raises(pyqstore.NotFound, match="'d' was deleted"):
            consumer.poll(2)
        consumer.commit()
        assert (consumer.committed("a"), consumer.committed("d")) == (4, None)
    with store.stream_consumer("d", group="g") as consumer:
        assert polled(consumer) == ("d", 3)


def test_a_stream_that_is_declared_again_in_the_midst_of_a_commit_is_not_moved(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets are noted by the names of streams: between the check and that it is another one."""
    store.stream("d").publish_batch(rows(100))
    note = pyqstore.Channel._commit_offset

    def late(channel: Any, *arguments: Any) -> None:
        store.stream("d").delete()
        store.stream("d").publish_batch(rows(3))
        note(channel, *arguments)

    with store.stream_consumer("d", group="g") as consumer:
        polled(consumer, 2)
        monkeypatch.setattr(pyqstore.Channel, "_commit_offset", late)
        with pytest.raises(pyqstore.NotFound, match="declared again"):
            consumer.commit()
        assert consumer.committed("d") is None


def test_a_transaction_whose_refused_offsets_were_passed_over_is_not_committed(
    store: pyqstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.stream("d").publish_batch(rows(100))
    queue = store.queue("q")
    note = pyqstore.Channel._commit_offset

    def late(channel: Any, *arguments: Any) -> None:
        store.stream("d").delete()
        store.stream("d").publish_batch(rows(3))
        note(channel, *arguments)

    def passing_over(consumer: Consumer) -> None:
        with store.channel() as channel, channel.transaction() as tx:
            tx.publish("", "q", b"")
            with pytest.raises(pyqstore.NotFound):
                tx.commit_offsets(consumer)

    with store.stream_consumer("d", group="g") as consumer:
        polled(consumer, 2)
        monkeypatch.setattr(pyqstore.Channel, "_commit_offset", late)
        with pytest.raises(pyqstore.NotFound):
            passing_over(consumer)
        assert (consumer.committed("d"), len(queue)) == (None, 0)


def test_a_consumer_that_lost_a_stream_does_not_move_it_at_the_end_of_a_transaction(
    store: pyqstore.Store,
) -> None:
    for name in "ab":
        store.stream(name).publish_batch(rows(10))
    queue = store.queue("q")

    def losing(first: Consumer) -> None:
        with store.channel() as channel, channel.transaction() as tx:
            tx.publish("", "q", b"")
            tx.commit_offsets(first)
            with store.stream_consumer(["a", "b"], group="g") as second:
                first.poll()
                assert polled(second, 3)[1] == 3
                second.commit()

    with store.stream_consumer(["a", "b"], group="g") as first:
        assert [polled(first, 2)[1] for _ in range(2)] == [2, 2]
        with pytest.raises(ValueError, match="stream 'b' went to another consumer of group 'g'"):
            losing(first)
        assert (first.committed("a"), first.committed("b"), len(queue)) == (None, 3, 0)


def test_a_consumer_that_was_closed_before_its_transaction_ended_moves_what_nobody_took(
    store: pyqstore.Store,
) -> None:
    store.stream("b").publish_batch(rows(10))

    def commit(*, is_taken: bool) -> None:
        with store.channel() as channel, channel.transaction() as tx:
            with store.stream_consumer("b", group="g") as consumer:
                polled(consumer, 2)
                tx.commit_offsets(consumer)
            if is_taken:
                store.stream_consumer("b", group="g").close()

    with pytest.raises(ValueError, match="went to another consumer"):
        commit(is_taken=True)
    with store.stream_consumer("b", group="g") as consumer:
        assert consumer.committed("b") is None
    commit(is_taken=False)
    with store.stream_consumer("b", group="g") as consumer:
        assert consumer.committed("b") == 2


def test_a_group_does_not_go_on_behind_the_end_of_a_stream(store: pyqstore.Store) -> None:
    stream = store.stream("a")
    stream.publish_batch(rows(5))
    with store.stream_consumer("a", group="g") as consumer:
        for offset in (6, 2**64 - 2):
            with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'"):
                consumer.seek("a", offset)
        assert consumer.position("a") == 0
        consumer.seek("a", 5)
        consumer.commit()
        assert consumer.committed("a") == 5
    with store.stream_consumer("a", group="other", start=7) as consumer:
        assert len(consumer.poll()) == 0
        with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'"):
            consumer.commit()
        assert consumer.committed("a") is None
        stream.publish_batch(rows(5))
        assert consumer.poll()["offset"].to_pylist() == [7, 8, 9]


def test_a_group_that_is_behind_the_end_of_a_stream_is_told_until_it_is_sought(
    store: pyqstore.Store,
) -> None:
    """As a version before this one could leave it."""
    store.stream("a").publish_batch(rows(5))
    with store.channel() as channel:
        channel._commit_offset("a", "g", 1000)
    with store.stream_consumer("a", group="g") as consumer:
        for _ in range(3):
            with pytest.raises(pyqstore.OffsetOutOfRange, match="stream 'a'"):
                consumer.poll()
        consumer.seek("a", "first")
        assert polled(consumer) == ("a", 5)
    with store.stream_consumer("a", group="g", reset="first") as consumer:
        assert polled(consumer) == ("a", 5)


def test_each_consumer_of_a_group_is_told_of_a_deleted_stream_itself(store: pyqstore.Store) -> None:
    store.stream("d")
    with (
        store.stream_consumer("d", group="g") as first,
        store.stream_consumer("d", group="g") as second,
    ):
        assert (len(first.poll()), len(second.poll())) == (0, 0)
        store.stream("d").delete()
        for consumer in (first, second):
            for _ in range(3):  # nothing is left that may ever come
                with pytest.raises(pyqstore.NotFound, match="'d'"):
                    consumer.poll()


@pytest.mark.faces("sync")
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
    with (
        store.stream_consumer("a", group="g") as consumer,
        pytest.raises(ValueError, match="offset"),
    ):
        consumer.seek("a", 2**64 - 1)


# In transactions.


@pytest.fixture
def two(store: pyqstore.Store, other: pyqstore.Store, in_face: Callable[..., Any]) -> Any:
    for each in (store, other):
        each.stream("b").publish_batch(rows(50))
    return store, in_face(other)


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
        foreign = get(other, "q")
        for message in (foreign, *queue.peek()):
            with pytest.raises(ValueError, match="channel"), channel.transaction() as tx:
                tx.ack(message)
        assert store.queue_status("q").messages_unacked == 2
