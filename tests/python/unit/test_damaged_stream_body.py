"""A stored body that is damaged before a stream writes it into a block costs its message alone."""

from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore

from ..support import get

LARGE = 5000
FROM_STREAM = {"x-stream-source": "events", "x-stream-offset": "first"}


def spoil(path: Path, what: bytes) -> None:
    """Changes a byte of the body that begins with what."""
    for file in (path / "messages").glob("*.msg"):
        with file.open("r+b") as opened:
            data = opened.read(1 << 20)
            at = data.find(what)
            if at >= 0:
                opened.seek(at + LARGE // 2)
                opened.write(b"!")
                return
    raise AssertionError(f"no message file has {what!r}")


def test_one_damaged_body_of_a_stream_stopped_checkpoints_and_publishing(path: Path) -> None:
    with pyqstore.open(path, memory_budget="8MiB") as store:
        stream = store.stream("events")
        for i in range(3):
            stream.publish(b"%d" % i + b"y" * LARGE)
        spoil(path, b"1yyy")
        for _ in range(200):
            stream.publish_batch(pa.table({"body": [b"x" * 100] * 1000}))
        store.checkpoint()
        assert stream.status().flushed == 200_003
    with pyqstore.open(path) as store:
        stream = store.stream("events")
        with pytest.raises(pyqstore.StoreCorrupt, match=r"offset 1 of stream \d+ is lost"):
            stream.read(1).read_all()
        assert stream.read(0, 1).read_all()["body"].to_pylist() == [b"0" + b"y" * LARGE]
        rest = stream.read(2).read_all()
        assert rest["body"][0].as_py() == b"2" + b"y" * LARGE
        assert rest["offset"].to_pylist() == list(range(2, 200_003))
    found = pyqstore.verify(path)
    assert [place.path.split("/")[0] for place in found.damage] == ["streams"]


def test_one_damaged_body_of_a_stream_kept_a_work_queue_from_the_others(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        stream = store.stream("events")
        channel.queue_declare("work", durable=True, arguments=FROM_STREAM)
        for i in range(3):
            stream.publish(b"%d" % i + b"y" * LARGE)
        spoil(path, b"1yyy")
        found = get(channel, "work")
        assert found.body[:2] == b"0y"
        with pytest.raises(pyqstore.StoreCorrupt, match=r"offset 1 of stream \d+ is lost"):
            channel.basic_get("work")
        found = get(channel, "work")
        assert found.body[:2] == b"2y"
