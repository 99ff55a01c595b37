"""Files and directories of a store that are removed, replaced or put back while it is open."""

import shutil
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, get, wait_until

COUNT = 200
LAZY = {"x-queue-mode": "lazy"}


def publish(channel: pyqstore.Channel, first: int, end: int) -> None:
    for number in range(first, end):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    assert channel.wait_for_confirms(60)


def start(store: pyqstore.Store) -> pyqstore.Channel:
    """A lazy queue with messages that are in a segment file and in the journal."""
    channel = store.channel()
    channel.confirm_select()
    channel.queue_declare("q", durable=True, arguments=LAZY)
    channel.queue_declare("other", durable=True)
    publish(channel, 0, COUNT)
    store.queue_status("q")  # waits until they are in segments
    return channel


def take(channel: pyqstore.Channel, queue: str = "q") -> list[bytes]:
    bodies = []
    while (message := channel.basic_get(queue)) is not None:
        bodies.append(message.body)
    return bodies


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def check_others_are_served(channel: pyqstore.Channel) -> None:
    channel.basic_publish("", "other", b"served", PERSISTENT)
    assert channel.wait_for_confirms(60)
    message = get(channel, "other")
    assert message.body == b"served"
    channel.basic_ack(message.delivery_tag)


def test_checkpoint_gave_back_the_journal_of_messages_in_a_removed_index(path: Path) -> None:
    with pyqstore.open(path) as store:
        channel = start(store)
        shutil.rmtree(path / "index")
        for _ in range(2):
            with pytest.raises(pyqstore.StoreCorrupt, match="index"):
                store.checkpoint()
        check_others_are_served(channel)
        assert not store.stats()["failed"]
    with pytest.raises(pyqstore.StoreCorrupt, match="directory is missing"):
        pyqstore.open(path)
    (path / "index").mkdir(mode=0o700)
    with pyqstore.open(path) as store, store.channel() as channel:
        assert take(channel) == numbers(0, COUNT)
        store.checkpoint()


def test_checkpoint_counted_in_an_index_that_the_next_open_does_not_find(path: Path) -> None:
    with pyqstore.open(path) as store:
        channel = start(store)
        (path / "index").rename(path / "moved")
        (path / "index").mkdir(mode=0o700)
        with pytest.raises(pyqstore.StoreCorrupt, match="replaced") as caught:
            store.checkpoint()
        assert caught.value.path == "index"
        check_others_are_served(channel)
        (path / "index").rmdir()
        (path / "moved").rename(path / "index")
        store.checkpoint()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert take(channel) == numbers(0, COUNT)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_checkpoint_counted_in_a_directory_that_is_not_there(path: Path, how: str) -> None:
    with pyqstore.open(path) as store:
        channel = start(store)
        store.checkpoint()
        kept = path.with_name("kept")
        shutil.copytree(path / "checkpoint", kept)
        shutil.rmtree(path / "checkpoint")
        if how == "replaced":
            shutil.copytree(kept, path / "checkpoint")
        publish(channel, COUNT, 2 * COUNT)
        with pytest.raises(pyqstore.StoreCorrupt, match="checkpoint"):
            store.checkpoint()
        check_others_are_served(channel)
    if how == "removed":
        shutil.copytree(kept, path / "checkpoint")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert take(channel) == numbers(0, 2 * COUNT)


def test_segment_that_is_put_back_has_its_messages_again(path: Path) -> None:
    with pyqstore.open(path) as store:
        channel = start(store)
        store.checkpoint()
        (file,) = path.glob("index/*.seg")
        file.rename(path / "away")
        publish(channel, COUNT, 2 * COUNT)
        store.queue_status("q")
        store.checkpoint()
        check_others_are_served(channel)
        assert len(list(path.glob("index/*.seg"))) == 1
        (path / "away").rename(file)
        assert take(channel) == numbers(0, 2 * COUNT)
    assert pyqstore.verify(path).damages == 0
    with pyqstore.open(path) as store, store.channel() as channel:
        assert take(channel) == numbers(0, 2 * COUNT)
        file.unlink()
    assert pyqstore.verify(path).damages > 0
    with pyqstore.open(path) as store, store.channel() as channel:
        for _ in range(COUNT):
            with pytest.raises(pyqstore.StoreCorrupt, match=file.name):
                channel.basic_get("q")
        assert take(channel) == numbers(COUNT, 2 * COUNT)


def publish_for_ever(channel: pyqstore.Channel) -> None:
    while True:
        channel.basic_publish("", "other", bytes(4000), PERSISTENT)
        assert channel.wait_for_confirms(60)
        assert channel.queue_declare("other", passive=True).message_count < 5000


def publish_large(store: pyqstore.Store, channel: pyqstore.Channel) -> None:
    channel.basic_publish("", "q", bytes(20000), PERSISTENT)
    store.sync()


def test_publishers_went_on_without_bound_while_no_checkpoint_could_be_made(path: Path) -> None:
    options = {"checkpoint_bytes": 1 << 20, "journal_file_bytes": 1 << 16}
    with pyqstore.open(path, **options) as store:
        channel = start(store)
        channel.basic_publish("", "other", b"to be acked", PERSISTENT)
        (file,) = path.glob("index/*.seg")
        file.unlink()
        with pytest.raises(pyqstore.StoreCorrupt, match="put the file back") as caught:
            publish_for_ever(channel)
        assert caught.value.path == f"index/{file.name}"
        assert sum(f.stat().st_size for f in path.glob("journal/*.jnl")) < 16 << 20
        message = get(channel, "other")
        channel.basic_ack(message.delivery_tag)
        store.sync()
        assert channel.queue_purge("q") == COUNT
        store.checkpoint()
        channel.basic_publish("", "other", b"goes on", PERSISTENT)
        assert channel.wait_for_confirms(60)


def test_body_was_confirmed_in_a_message_file_that_was_removed(path: Path) -> None:
    store = pyqstore.open(path)
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    channel.basic_publish("", "q", bytes(20000), PERSISTENT)
    assert channel.wait_for_confirms(60)
    wait_until(lambda: len(list(path.glob("messages/*.msg"))) > 0)
    shutil.rmtree(path / "messages")
    with pytest.raises(pyqstore.StoreError):
        publish_large(store, channel)
    assert store.stats()["failed"]
    with pytest.raises(pyqstore.StoreFailed, match="removed"):
        store.sync()
    with pytest.raises(pyqstore.StoreFailed):
        store.close()
