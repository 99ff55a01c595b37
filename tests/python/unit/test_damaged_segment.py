"""One damaged unit costs what it holds: segments of a queue, and its declaration."""

from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, get, publish_numbers

COUNT = 1000
ENTRIES = 64


@pytest.fixture
def segmented(path: Path) -> Path:
    """A thousand messages in sixteen segments."""
    with pyqstore.open(path, segment_entries=ENTRIES) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        publish_numbers(channel, "q", COUNT, properties=PERSISTENT)
        store.queue_status("q")  # waits until they are in segments
        store.checkpoint()
    assert len(list(path.glob("index/*.seg"))) == 16
    return path


def damage(path: Path, how: str) -> None:
    file = sorted(path.glob("index/*.seg"))[7]
    if how == "header":
        contents = bytearray(file.read_bytes())
        contents[64] ^= 1
        file.write_bytes(contents)
    elif how == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()


WHOLE = [b"%d" % number for number in range(COUNT) if number // ENTRIES != 7]


@pytest.mark.parametrize("how", ["header", "empty", "missing"])
def test_damaged_segment_took_everything_behind_it(segmented: Path, how: str) -> None:
    damage(segmented, how)
    assert pyqstore.verify(segmented).damages == 1
    with pyqstore.open(segmented) as store:
        for _ in range(2):  # told once in each channel
            with store.channel() as channel:
                bodies = []
                refusals = []
                while True:
                    try:
                        message = channel.basic_get("q")
                    except pyqstore.StoreCorrupt as error:
                        refusals.append(error)
                        continue
                    if message is None:
                        break
                    bodies.append(message.body)
                assert bodies == WHOLE
                (error,) = refusals
                assert "64 messages cannot be delivered" in str(error)
                assert error.path is not None
                assert error.path.startswith("index/")
        assert store.queue_status("q")["messages_ready"] == COUNT


@pytest.mark.parametrize("batch", [False, True])
def test_damaged_message_named_the_file_of_another_level_in_a_queue_with_priorities(
    path: Path, batch: bool
) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare(
            "q", durable=True, arguments={"x-queue-mode": "lazy", "x-max-priority": 5}
        )
        for priority in (0, 3, 5):
            properties = pyqstore.Properties(priority=priority, delivery_mode=2)
            channel.basic_publish("", "q", b"of priority %d" % priority, properties)
        store.queue_status("q")  # waits until they are in segments
        store.checkpoint()
    (file,) = path.glob("index/03*.seg")  # a level is the highest byte of the id in the name
    contents = bytearray(file.read_bytes())
    contents[contents.index(b"of priority 3")] ^= 1
    file.write_bytes(contents)
    with pyqstore.open(path) as store, store.channel() as channel:
        message = get(channel, "q")
        assert message.body == b"of priority 5"
        with pytest.raises(pyqstore.StoreCorrupt, match="the message in slot 0 is damaged") as info:
            channel.get_batch("q") if batch else channel.basic_get("q")
        assert info.value.path == f"index/{file.name}"
        message = get(channel, "q")
        assert message.body == b"of priority 0"


@pytest.mark.parametrize("how", ["header", "empty", "missing"])
def test_salvage_stopped_at_a_damaged_segment(segmented: Path, how: str) -> None:
    damage(segmented, how)
    with pyqstore.open(segmented, recovery="salvage") as store, store.channel() as channel:
        report = store.recovery_report
        assert (report.lost_segments, report.lost_messages) == (1, ENTRIES)
        bodies: list[bytes] = []
        while len(batch := channel.get_batch("q")) > 0:
            bodies += batch["body"].to_pylist()
        assert bodies == WHOLE


def test_salvage_lost_the_messages_of_a_queue_whose_declaration_was_damaged(path: Path) -> None:
    with pyqstore.open(path, checkpoint_bytes=0) as store, store.channel() as channel:
        channel.queue_declare("the lost one", durable=True)
        channel.queue_declare("other", durable=True)
        channel.confirm_select()
        publish_numbers(channel, "the lost one", 2000, properties=PERSISTENT)
        assert channel.wait_for_confirms(30)
    (journal,) = path.glob("journal/*1.jnl")
    contents = bytearray(journal.read_bytes())
    contents[contents.index(b"the lost one")] ^= 1  # its declaration is the first to name it
    journal.write_bytes(contents)
    with pytest.raises(pyqstore.StoreCorrupt):
        pyqstore.open(path)
    with pyqstore.open(path, recovery="salvage") as store, store.channel() as channel:
        report = store.recovery_report
        assert report.recovered_queues == 1
        assert report.queues == {"other": 0, "recovered.1": 2000}
        assert store.queue_status("recovered.1")["durable"]
        assert channel.get_batch("recovered.1")["body"].to_pylist() == [
            b"%d" % number for number in range(2000)
        ]


def test_queue_grew_beyond_its_limit_behind_a_damaged_segment(path: Path) -> None:
    arguments = {"x-queue-mode": "lazy", "x-max-length": 500}
    with pyqstore.open(path, segment_entries=ENTRIES) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments=arguments)
        publish_numbers(channel, "q", COUNT, properties=PERSISTENT)
        store.queue_status("q")  # waits until they are in segments
        store.checkpoint()
    (file,) = path.glob("index/*-000000000008-*.seg")  # the first one that is whole
    file.unlink()
    with pyqstore.open(path) as store, store.channel() as channel:
        publish_numbers(channel, "q", 200, COUNT, properties=PERSISTENT)
        assert store.queue_status("q")["messages_ready"] == 500 + ENTRIES
        with pytest.raises(pyqstore.StoreCorrupt, match="64 messages cannot be delivered"):
            channel.basic_get("q")
        for number in range(COUNT + 200 - 500, COUNT + 200):
            message = get(channel, "q")
            assert message.body == b"%d" % number
        assert channel.basic_get("q") is None


LAST = 768  # the first message of the last segment, to which messages would be added


@pytest.fixture
def last_segment(path: Path) -> Path:
    """The last of four segments of a queue, whose checkpoint ends in its middle."""
    with pyqstore.open(path, segment_entries=256) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        channel.queue_declare("other", durable=True)
        channel.basic_publish("", "other", b"whole", PERSISTENT)
        publish_numbers(channel, "q", 800, properties=PERSISTENT)
        store.queue_status("q")
        store.checkpoint()
    return sorted(path.glob("index/*.seg"))[-1]


def bodies_of(store: pyqstore.Store) -> tuple[list[bytes], list[pyqstore.StoreCorrupt]]:
    bodies = []
    refusals = []
    with store.channel() as channel:
        while True:
            try:
                message = channel.basic_get("q")
            except pyqstore.StoreCorrupt as error:
                refusals.append(error)
                continue
            if message is None:
                return bodies, refusals
            bodies.append(message.body)


def test_damaged_last_segment_refused_the_whole_store(path: Path, last_segment: Path) -> None:
    contents = last_segment.read_bytes()
    last_segment.unlink()
    assert pyqstore.verify(path).damages == 1
    for opening in range(3):
        with pyqstore.open(path) as store, store.channel() as channel:
            message = get(channel, "other")
            assert message.body == b"whole"
            channel.basic_publish("", "q", b"new %d" % opening, PERSISTENT)
            bodies, (refusal,) = bodies_of(store)
            expected = [b"%d" % number for number in range(LAST)]
            assert bodies == expected + [b"new %d" % each for each in range(opening + 1)]
            assert "32 messages cannot be delivered" in str(refusal)
            assert refusal.path == f"index/{last_segment.name}"
        assert pyqstore.verify(path).damages == 1
    last_segment.write_bytes(contents)  # from a backup
    assert pyqstore.verify(path).damages == 0
    with pyqstore.open(path) as store:
        bodies, refusals = bodies_of(store)
        assert refusals == []
        assert bodies == [b"%d" % each for each in range(800)] + [b"new 0", b"new 1", b"new 2"]
