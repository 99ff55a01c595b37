"""queue_status() counts each ready message in the one of q1 to q4 and delta in which it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pyqstore

from ..support import declare, publish

A, B = b"a", b"b" * 500  # a body in memory, and one that is in the message store at once


@pytest.fixture
def store(path: Path) -> Iterator[pyqstore.Store]:
    with pyqstore.open(path, embed_below=200, segment_entries=64) as store:
        yield store


def parts(store: pyqstore.Store, queue: str) -> tuple[int, ...]:
    status = store.queue_status(queue)
    return tuple(status[name] for name in ("q4", "q3", "delta_len", "q2", "q1"))


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([A, A, B, A, B, A], (2, 2, 0, 0, 2)),
        ([A] * 100 + [B] * 100, (100, 100, 0, 0, 0)),
        ([B] * 100 + [A] * 100, (0, 100, 0, 0, 100)),
        ([A] * 64 + [B] + [A] * 64, (64, 1, 0, 0, 64)),
        ([A, B] * 100, (1, 100, 0, 0, 99)),
    ],
)
@pytest.mark.parametrize("arguments", [{}, {"max_priority": 3}])
def test_messages_in_memory_counted_behind_those_that_they_were_in_front_of(
    store: pyqstore.Store, arguments: dict[str, int], bodies: list[bytes], expected: tuple[int, ...]
) -> None:
    with store.channel() as channel:
        declare(channel, "q", **arguments)
        publish(channel, "q", *bodies)
        assert parts(store, "q") == expected


def test_taken_messages_stayed_in_the_part_that_they_had_left(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        declare(channel, "q")
        publish(channel, "q", A, A, B, A, B, A)
        counted = [parts(store, "q")]
        while channel.basic_get("q"):
            counted.append(parts(store, "q"))
    assert counted == [
        (2, 2, 0, 0, 2),
        (1, 2, 0, 0, 2),
        (0, 2, 0, 0, 2),
        (1, 1, 0, 0, 1),
        (0, 1, 0, 0, 1),
        (1, 0, 0, 0, 0),
        (0, 0, 0, 0, 0),
    ]


def test_messages_that_cannot_be_read_were_unacked_and_in_delta(path: Path) -> None:
    with pyqstore.open(path, segment_entries=64) as store, store.channel() as channel:
        declare(channel, "q", queue_mode="lazy")
        publish(channel, "q", *[A] * 300)
        store.queue_status("q")  # waits until they are in segments
        store.checkpoint()
    sorted(path.glob("index/*.seg"))[2].unlink()
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.get_batch("q", 2 * 64, auto_ack=True)
        with pytest.raises(pyqstore.StoreCorrupt, match="64 messages cannot be delivered"):
            channel.basic_get("q", auto_ack=True)
        status = store.queue_status("q")
        assert status["messages_unacked"] == status["delta"] - status["delta_len"] == 64
        assert sum(parts(store, "q")) == status["messages_ready"]
