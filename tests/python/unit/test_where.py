"""Where a store is made: in memory, in an empty directory, and nowhere else."""

import os
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, bodies

# In memory.


def test_store_in_memory_makes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pyqstore.open(":memory:", memory_budget="1MiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(500):
            channel.basic_publish("", "q", b"%5000d" % number, PERSISTENT)
        assert channel.wait_for_confirms(60)
        store.checkpoint()
        assert store.path == ":memory:"
        assert (store.stats()["filesystem"], store.stats()["filesystem_kind"]) == (
            "memory",
            "volatile",
        )
        assert [int(body) for body in bodies(channel, "q")] == list(range(500))
    assert os.listdir() == []


def test_stores_in_memory_are_apart_and_end_when_they_are_closed() -> None:
    with pyqstore.open(":memory:") as one, pyqstore.open(":memory:") as other:
        channel = one.channel()
        channel.queue_declare("q", durable=True)
        assert (one.queues(), other.queues()) == (["q"], [])
    channel.close()  # which keeps the memory until now
    with pyqstore.open(":memory:") as store:
        assert store.queues() == []


def test_there_is_no_store_in_memory_to_be_found() -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(pyqstore.StoreNotFound):
            pyqstore.open(":memory:", **options)  # type: ignore[arg-type]


def test_messages_in_memory_expire_by_the_clock() -> None:
    with pyqstore.open(":memory:") as store, store.channel() as channel:
        channel.queue_declare("q", arguments={"x-message-ttl": 50})
        channel.basic_publish("", "q", b"")
        while store.queue_status("q")["messages_ready"]:
            pass
        assert store.stats()["messages_expired"] == 1


async def test_asynchronous_store_in_memory() -> None:
    async with aio.open(":memory:") as store, await store.channel() as channel:
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        await channel.basic_publish("", "q", b"x" * 10_000, PERSISTENT)
        message = await channel.basic_get("q")
        assert message is not None
        assert len(message.body) == 10_000


# In a directory.


def test_a_store_was_made_among_other_things(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "notes.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(
            pyqstore.StoreNotFound, match=r"other things in it, such as 'notes.txt'"
        ):
            pyqstore.open(home)
    assert [file.name for file in home.iterdir()] == ["notes.txt"]
    (home / "notes.txt").unlink()
    (home / "lost+found").mkdir()
    with pyqstore.open(home) as store:
        assert store.queues() == []
    (home / "notes.txt").write_text("mine")
    with pyqstore.open(home) as store:  # what came later harms nobody
        assert store.queues() == []


def test_what_a_creation_left_that_was_cut_off_is_no_other_thing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    for name in ("journal", "messages", "index", "transient", "checkpoint"):
        (path / name).mkdir(mode=0o700)
    for name in ("LOCK", "MANIFEST.tmp"):
        (path / name).touch(0o600)
    with pyqstore.open(path) as store:
        assert store.queues() == []


def test_lost_manifest_is_told_of_as_before(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
    (path / "MANIFEST").unlink()
    with pytest.raises(pyqstore.StoreCorrupt, match="the directory holds a store"):
        pyqstore.open(path)
