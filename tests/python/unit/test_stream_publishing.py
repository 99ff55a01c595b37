"""Publishing to streams that were deleted, names, times and limits that make no sense."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

pytestmark = pytest.mark.faces("sync", "aio")

BATCH = pa.table({"body": [b"x"] * 5})


def test_a_batch_to_a_deleted_stream_is_not_lost_silently(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish(b"one")
    store.stream("events").delete()
    with pytest.raises(pyqstore.MessageReturned, match="5 mandatory messages"):
        stream.publish_batch(BATCH)
    store.stream("events")
    stream.publish_batch(BATCH)
    assert len(stream) == 5


@pytest.mark.parametrize(
    "publish",
    [
        lambda stream: stream.publish(b"x", key="k"),
        lambda stream: stream.publish_batch(BATCH, routing_key="k"),
    ],
)
def test_keyed_publishes_go_on_after_delete_and_declare(
    store: pyqstore.Store, publish: Callable[[pyqstore.Stream], object]
) -> None:
    stream = store.stream("events")
    publish(stream)
    store.stream("events").delete()
    exchanges = set(store.exchanges())
    for _ in range(2):
        with pytest.raises(pyqstore.MessageReturned):
            publish(stream)
    assert set(store.exchanges()) == exchanges  # none is left behind
    store.stream("events")
    for _ in range(2):
        publish(stream)
    assert set(pa.Table.from_batches(stream.read())["routing_key"].to_pylist()) == {"k"}


def test_a_keyed_put_to_a_deleted_queue_is_returned(store: pyqstore.Store) -> None:
    queue = store.queue("q")
    exchanges = set(store.exchanges())
    queue.put(b"x", key="k")
    queue.delete()
    with pytest.raises(pyqstore.MessageReturned):
        queue.put(b"x", key="k")
    assert set(store.exchanges()) == exchanges


def test_delete_says_how_many_messages_there_were(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish_batch(BATCH)
    assert stream.delete() == 5
    assert stream.delete() == 0


def test_a_name_that_is_none_is_not_called_a_queue(store: pyqstore.Store) -> None:
    with pytest.raises(ValueError, match="256 bytes: 255 at most"):
        store.stream("x" * 256)
    with pytest.raises(ValueError, match="NUL at character 1"):
        store.stream("a\0b")
    store.queue("q")
    with pytest.raises(pyqstore.PreconditionFailed, match="'q' is there and is no stream"):
        store.stream("q")


def test_a_queue_of_a_stream_is_refused_at_once(store: pyqstore.Store) -> None:
    store.stream("events")
    with pytest.raises(pyqstore.PreconditionFailed, match=r"is a stream: .* store\.stream"):
        store.queue("events")


@pytest.mark.faces("sync")
def test_an_unknown_column_is_told_with_all_that_there_are(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    with pytest.raises(ValueError, match="no column 'nope'") as caught:
        stream.read(columns=["nope"])
    names = str(caught.value).partition("there are ")[2].split(", ")
    assert names == stream.read().schema.names


FAR = timezone(timedelta(hours=23))
PAST = [timedelta.max, datetime.min, datetime.min.replace(tzinfo=FAR)]
FUTURE = [timedelta.min, datetime.max, datetime.max.replace(tzinfo=timezone(-timedelta(hours=23)))]


def count(reader: Iterable[pa.RecordBatch]) -> int:
    return sum(map(len, reader))


def test_times_that_no_clock_has_are_before_or_behind_all(store: pyqstore.Store) -> None:
    stream = store.stream("events")
    stream.publish_batch(BATCH)
    for when in PAST:
        assert stream.offset_at(when) == 0
        assert count(stream.read(when, datetime.now(UTC) + timedelta(days=1))) == 5
        assert count(stream.read("first", when)) == 0
    for when in FUTURE:
        assert stream.offset_at(when) == 5
        assert count(stream.read(when)) == 0


@pytest.mark.parametrize("max_age", [float("inf"), float("nan"), -1, timedelta(seconds=-1)])
def test_an_age_without_an_end_is_refused_by_name(store: pyqstore.Store, max_age: Any) -> None:
    with pytest.raises(ValueError, match="max_age"):
        store.stream("events", max_age=max_age)


def test_a_forgotten_group_begins_anew(path: Path) -> None:
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        stream.publish_batch(BATCH)
        for group in ("billing", "audit"):
            with store.stream_consumer("events", group=group) as consumer:
                consumer.poll(3)
                consumer.commit()
        stream.forget_group("billing")
        stream.forget_group("nobody")
        assert stream.status().cursors == 1
    with pyqstore.open(path) as store:
        for group, count in (("billing", 5), ("audit", 2)):
            with store.stream_consumer("events", group=group) as consumer:
                assert len(consumer.poll()) == count
        stream = store.stream("events")
        with pytest.raises(ValueError, match="group"):
            stream.forget_group("")
        stream.delete()
        with pytest.raises(pyqstore.NotFound):
            stream.forget_group("audit")


def test_a_dict_that_holds_itself_is_refused_and_ends_no_process(store: pyqstore.Store) -> None:
    endless: dict[str, object] = {}
    endless["body"] = [endless]
    stream = store.stream("s")
    with pytest.raises(TypeError, match="dict"):
        stream.publish_batch(endless)
    assert len(stream) == 0
