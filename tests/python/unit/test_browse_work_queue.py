"""Looking into a work queue while its stream grows."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

SEGMENT = 16384  # messages


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(tmp_path / "store") as opened, opened.channel() as channel:
        opened.stream("events")
        arguments = {"x-stream-source": "events", "x-stream-offset": "first"}
        channel.queue_declare("work", durable=True, arguments=arguments)
        yield opened


def fill(store: pyqstore.Store, count: int, size: int = 10) -> None:
    """A body of 5000 bytes is kept beside the journal, and is in a file before it is shown."""
    bodies = [b"%0*d" % (size, number) for number in range(count)]
    store.stream("events").publish_batch(pa.table({"body": bodies}))


def shown(store: pyqstore.Store, start: int = 0, limit: int | None = None) -> list[int]:
    return [
        sequence
        for batch in store.browse("work", start, limit)
        for sequence in batch["sequence"].to_pylist()
    ]


@pytest.mark.parametrize("size", [10, 5000])
def test_browse_shows_what_came_after_the_last_browse(store: pyqstore.Store, size: int) -> None:
    for count in range(1, 5):
        fill(store, 1, size)
        assert shown(store) == list(range(count))
        assert shown(store) == list(range(count))
        assert store.queue_status("work")["messages_ready"] == count


def test_peek_shows_what_came_after_the_last_browse(store: pyqstore.Store) -> None:
    for count in range(1, 5):
        fill(store, 1)
        tags = [message.delivery_tag for message in store.queue("work").peek(100)]
        assert tags == list(range(count))


def test_browse_from_a_start_shows_what_was_not_read_yet(store: pyqstore.Store) -> None:
    fill(store, 1)
    assert shown(store) == [0]
    fill(store, 5)
    assert shown(store, start=3) == [3, 4, 5]
    assert shown(store, start=6) == []
    fill(store, 2)
    assert shown(store, start=7) == [7]
    assert shown(store, start=2, limit=3) == [2, 3, 4]
    assert shown(store) == list(range(8))
    assert store.queue_status("work")["messages_ready"] == 8


@pytest.mark.parametrize("acked", [[0], [1], [0, 1], [2], [0, 1, 2]])
def test_browse_shows_what_came_behind_acked_messages(
    store: pyqstore.Store, acked: list[int]
) -> None:
    fill(store, 3)
    with store.channel() as channel:
        got = [channel.basic_get("work") for _ in range(3)]
        for number, message in enumerate(got):
            assert message is not None
            if number in acked:
                channel.basic_ack(message.delivery_tag)
        fill(store, 4)
        left = [number for number in range(7) if number not in acked]
        assert shown(store) == left
        assert shown(store, start=4) == [4, 5, 6]
        assert shown(store, limit=1) == left[:1]
    assert shown(store) == left


@pytest.mark.parametrize("before", [SEGMENT - 2, SEGMENT - 1, SEGMENT, SEGMENT + 1])
def test_browse_shows_what_came_at_the_border_of_a_segment(
    store: pyqstore.Store, before: int
) -> None:
    fill(store, before)
    assert len(shown(store)) == before
    fill(store, 3)
    assert shown(store, start=before - 1) == list(range(before - 1, before + 3))
    fill(store, SEGMENT)
    assert shown(store, start=before + 2) == list(range(before + 2, before + 3 + SEGMENT))
    assert shown(store) == list(range(before + 3 + SEGMENT))
