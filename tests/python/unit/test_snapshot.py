"""Snapshots of stores that are at work: each is opened, verified, and compared with what was
durable before it was asked for.  Processes that make one are killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, wait_until

SHARED = Path("/dev/shm")
SMALL: pyqstore.StoreOptions = {
    "segment_entries": 64,
    "journal_file_bytes": "64KiB",
    "message_file_bytes": "256KiB",
    "memory_budget": "1MiB",
    "checkpoint_bytes": "256KiB",
}


def bodies_of(store: pyqstore.Store, queue: str) -> list[bytes]:
    return [body for batch in store.browse(queue) for body in batch["body"].to_pylist()]


def numbers_of(store: pyqstore.Store, queue: str) -> list[int]:
    return [int(body.split(b" ")[0]) for body in bodies_of(store, queue)]


def is_whole(copy: Path) -> bool:
    found = pyqstore.verify(copy)
    assert found.damage == ()
    return found.damages == 0


def fill(store: pyqstore.Store) -> None:
    events = store.stream("events", segment_bytes=4096)
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for number in range(300):
            channel.basic_publish("", "q", b"%d %s" % (number, b"x" * (number * 40)), PERSISTENT)
        assert channel.wait_for_confirms(timeout=60)
    for number in range(60):
        events.publish(b"%d %s" % (number, os.urandom(3000).hex().encode()))
        if number % 10 == 9:
            store.checkpoint()  # which flushes


def test_snapshot_is_a_store_with_everything(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with pyqstore.open(path, **SMALL) as store:
        fill(store)
        copied = store.snapshot(copy)
        assert copied.files >= 5
        assert is_whole(copy)
        with pyqstore.open(copy) as other:
            for queue in ("q", "events"):
                assert bodies_of(other, queue) == bodies_of(store, queue)
            other.queue("q").put(b"300")
            other.queue("q").purge()
            other.stream("events").publish(b"60")
        assert numbers_of(store, "q") == list(range(300))  # each goes its own way
        assert numbers_of(store, "events") == list(range(60))
        store.checkpoint()
    assert is_whole(path)
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_sealed_files_of_streams_are_linked_and_survive_the_source(
    path: Path, tmp_path: Path
) -> None:
    copy, second = tmp_path / "copy", tmp_path / "second"
    with pyqstore.open(path, **SMALL) as store:
        fill(store)
        store.checkpoint()
        expected = bodies_of(store, "events")
        assert store.snapshot(copy).linked > 0
        assert any(file.stat().st_nlink == 2 for file in (copy / "streams").iterdir())
    with pyqstore.open(path) as store:  # whose files have two names
        assert bodies_of(store, "events") == expected
        store.stream("events").publish(b"60")
        store.snapshot(second)
        with store.channel() as channel:
            channel.queue_delete("events")
    shutil.rmtree(path)
    for place in (copy, second):
        assert is_whole(place)
        with pyqstore.open(place) as other:
            assert bodies_of(other, "events")[: len(expected)] == expected


def test_full_message_files_are_linked_and_what_becomes_of_them_stays_with_each_store(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    bodies = [b"%d " % number + os.urandom(50_000) for number in range(40)]
    with pyqstore.open(path, **SMALL) as store:
        queue = store.queue("q")
        for body in bodies[:-1]:
            queue.put(body)
    with pyqstore.open(path, **SMALL) as store:  # whose message files grow no more
        queue = store.queue("q")
        queue.put(bodies[-1])
        assert len(os.listdir(path / "messages")) > store.snapshot(copy).linked >= 8
        shared = [each for each in (copy / "messages").iterdir() if each.stat().st_nlink == 2]
        assert len(shared) >= 8
        assert (path / "messages").joinpath(max(os.listdir(copy / "messages"))) not in shared
        for _ in range(30):
            queue.get(timeout=0).ack()
        store.checkpoint()
        assert bodies_of(store, "q") == bodies[30:]
    assert is_whole(path)
    assert is_whole(copy)
    with pyqstore.open(copy) as other:
        assert bodies_of(other, "q") == bodies
        other.queue("q").purge()
        other.checkpoint()
    with pyqstore.open(path) as store:
        assert bodies_of(store, "q") == bodies[30:]


def test_snapshots_of_a_store_at_work_are_whole(path: Path, tmp_path: Path) -> None:
    durable = {"q": -1, "events": -1}
    stop = threading.Event()
    failures: list[Exception] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    def publish() -> None:
        queue, number = store.queue("q"), 0
        while not stop.is_set():
            queue.put(b"%d %s" % (number, b"x" * (number * 37 % 9000)))
            durable["q"] = number
            number += 1

    def append() -> None:
        events, number = store.stream("events", segment_bytes=4096), 0
        while not stop.is_set():
            events.publish(b"%d %s" % (number, b"y" * (number * 91 % 5000)))
            durable["events"] = number
            number += 1

    def consume() -> None:
        with store.channel() as channel:
            channel.queue_declare("other", durable=True)
            while not stop.is_set():
                channel.basic_publish("", "other", b"z" * 5000, PERSISTENT)
                message = channel.basic_get("other")
                if message is not None:
                    message.ack()

    with pyqstore.open(path, **SMALL) as store:
        threads = [
            threading.Thread(target=guarded, args=(each,)) for each in (publish, append, consume)
        ]
        for thread in threads:
            thread.start()
        for number in range(6):
            time.sleep(0.2)
            before = dict(durable)
            copy = tmp_path / f"copy-{number}"
            store.snapshot(copy)
            assert is_whole(copy)
            with pyqstore.open(copy) as other:
                assert other.recovery_report.lost_messages == 0
                for name, last in before.items():
                    if last >= 0:
                        found = numbers_of(other, name)
                        assert found == list(range(len(found)))
                        assert len(found) > last
            shutil.rmtree(copy)
        wait_until(lambda: durable["q"] > 0 or not all(thread.is_alive() for thread in threads))
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert durable["q"] > 0
    assert is_whole(path)


def test_snapshot_is_refused_where_something_is(path: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pyqstore.open(path) as store:
        for name in ("full", "file"):
            with pytest.raises(FileExistsError):
                store.snapshot(tmp_path / name)
        with pytest.raises(FileExistsError):
            store.snapshot(path)
        (tmp_path / "alias").symlink_to(path)
        for inside in (path / "copy", path / "journal" / "copy", tmp_path / "alias" / "copy"):
            with pytest.raises(ValueError, match="cannot lie in the store"):
                store.snapshot(inside)
        with pytest.raises(FileNotFoundError):
            store.snapshot(tmp_path / "nothing" / "copy")
        store.snapshot(tmp_path / "empty")
        store.queue("goes on").put(b"1")
    assert is_whole(tmp_path / "empty")
    with pyqstore.open(path, read_only=True) as store, pytest.raises(pyqstore.StoreReadOnly):
        store.snapshot(tmp_path / "another")
    assert not (tmp_path / "another").exists()
    with pyqstore.open(":memory:") as store, pytest.raises(ValueError, match="in memory"):
        store.snapshot(tmp_path / "memory")


async def test_snapshot_is_made_in_a_thread_for_asyncio(path: Path, tmp_path: Path) -> None:
    async with await aio.open(path) as store:
        await store.queue("q")
        copied = await store.snapshot(tmp_path / "copy")
        assert copied.files > 0
    with pyqstore.open(tmp_path / "copy") as store:
        assert store.queues() == ["q"]


def test_snapshot_to_no_directory_names_it(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path) as store, pytest.raises(FileNotFoundError, match="none'"):
        store.snapshot(tmp_path / "none" / "copy")


def test_snapshot_that_cannot_have_its_name_leaves_nothing_and_the_store_goes_on(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with pyqstore.open(path, **SMALL) as store:
        fill(store)
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", fail)
            with pytest.raises(OSError, match="No space"):
                store.snapshot(tmp_path / "copy")
        with monkeypatch.context() as patched:
            patched.setattr(os.path, "ismount", lambda _: True)
            (tmp_path / "copy").mkdir()
            with pytest.raises(FileExistsError, match="mount point"):
                store.snapshot(tmp_path / "copy")
        assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", path.name]
        store.queue("q").put(b"300 x")
        store.checkpoint()
        store.snapshot(tmp_path / "copy")
    assert is_whole(tmp_path / "copy")


def test_snapshot_that_is_interrupted_leaves_nothing_and_the_store_goes_on(
    path: Path, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_arguments: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pyqstore.open(path, **SMALL) as store:
            fill(store)
            for number in range(1, 8):
                copy = tmp_path / f"copy-{number}"
                with contextlib.suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, 0.001 * number)
                    store.snapshot(copy)
                    time.sleep(60)
                assert not copy.exists() or is_whole(copy)
                assert not list(tmp_path.glob(".*"))
                store.queue("q").put(b"%d x" % (299 + number))
            assert numbers_of(store, "q") == list(range(307))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert is_whole(path)


def test_snapshot_has_messages_and_users_and_nothing_else(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, **SMALL) as store:
        fill(store)
        (path / "users.json").write_text("{}")
        for name in ("compat.json", "users.json.lock", "messages/notes.txt"):
            (path / name).write_text("mine")
        copied = store.snapshot(tmp_path / "copy")
    copy = tmp_path / "copy"
    files = {str(each.relative_to(copy)) for each in copy.rglob("*") if each.is_file()}
    assert {name for name in files if "/" not in name} == {"MANIFEST", "users.json"}
    assert {Path(name).suffix for name in files if "/" in name} <= {
        ".jnl", ".msg", ".seg", ".ckp", ".key", ".str"
    }  # fmt: skip
    assert len(files) == copied.files
    assert (copy / "users.json").read_text() == "{}"
    assert all(each.stat().st_mode & 0o077 == 0 for each in (copy, *copy.rglob("*")))
    assert len(list((copy / "checkpoint").glob("*.ckp"))) == 1


def test_snapshot_in_a_child_of_fork_is_refused_and_leaves_nothing(
    path: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(path), str(tmp_path / "copy")], timeout=120
    )
    assert done.returncode == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


FORKED = """
import os, sys, warnings, pyqstore
warnings.simplefilter("ignore")
store = pyqstore.open(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        store.snapshot(sys.argv[2])
    except pyqstore.ForkedStore:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
store.close()
"""


def test_snapshot_lies_on_another_file_system(path: Path) -> None:
    if not SHARED.is_dir() or SHARED.stat().st_dev == path.parent.stat().st_dev:
        pytest.skip("there is no other file system")
    place = Path(tempfile.mkdtemp(dir=SHARED))
    try:
        with pyqstore.open(path, **SMALL) as store:
            fill(store)
            store.checkpoint()
            assert store.snapshot(place).linked == 0
            expected = bodies_of(store, "events")
        assert is_whole(place)
        with pyqstore.open(place) as other:
            assert bodies_of(other, "events") == expected
    finally:
        shutil.rmtree(place)


def test_what_ends_like_a_sealed_file_is_copied(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, **SMALL) as store:
        for number in range(20):  # too much for a checkpoint, which carries what is little
            store.stream("events").publish(b"%d %s" % (number, os.urandom(50_000)))
        store.checkpoint()
        (file,) = (path / "streams").iterdir()
        with open(file, "ab") as end:
            end.write(b"QSBF")
        assert store.snapshot(tmp_path / "copy").linked == 0
        store.stream("events").publish(b"20 y")
        store.checkpoint()
        assert numbers_of(store, "events") == list(range(21))
    with pyqstore.open(tmp_path / "copy") as other:
        assert numbers_of(other, "events") == list(range(20))


@pytest.mark.parametrize("delay_ms", [1, 3, 6, 12, 25])
def test_store_that_is_closed_by_a_signal_meanwhile_is_copied_or_not(
    path: Path, tmp_path: Path, delay_ms: int
) -> None:
    """The handler runs in the thread that called, and waits there for the copy.  Garbage that the
    collector may find in any thread waits for whoever closes its store."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(path), str(tmp_path / "copy"), str(delay_ms)],
        timeout=120,
    )
    assert done.returncode == 0
    assert is_whole(path)
    assert not (tmp_path / "copy").exists() or is_whole(tmp_path / "copy")
    assert not list(tmp_path.glob(".*"))


CLOSED = """
import gc, signal, sys, time, warnings, pyqstore
warnings.simplefilter("ignore")
store = pyqstore.open(sys.argv[1])
for number in range(20):
    store.queue("q").put(b"1" * 1_000_000)
signal.signal(signal.SIGALRM, lambda *_: store.close())
gc.disable()
for number in range(5):
    channel = store.channel()
    channel.itself = channel
del channel
gc.set_threshold(1)
gc.enable()
signal.setitimer(signal.ITIMER_REAL, int(sys.argv[3]) / 1000)
try:
    store.snapshot(sys.argv[2])
except pyqstore.StoreClosed:
    pass
while not store.closed:
    time.sleep(0.01)
"""

KILLED = """
import os, signal, sys, pyqstore
delay, at_rename = float(sys.argv[3]), sys.argv[3] == "0"
store = pyqstore.open(sys.argv[1])
store.queue("q").put(b"300 x")
if at_rename:
    os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    signal.setitimer(signal.ITIMER_REAL, delay)
store.snapshot(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.crash
def test_snapshot_that_is_killed_is_whole_or_not_there(path: Path, tmp_path: Path) -> None:
    with pyqstore.open(path, **SMALL) as store:
        fill(store)
    for number, delay in enumerate((0.0005, 0.002, 0.004, 0.008, 0.015, 0.03, 0, 60)):
        copy = tmp_path / f"copy-{number}"
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(copy), str(delay)], timeout=120
        )
        assert done.returncode in (-signal.SIGKILL, -signal.SIGALRM)
        assert is_whole(path)
        for left in tmp_path.glob(".*.making"):  # no store, or a whole one
            try:
                pyqstore.open(left, create=False).close()
                assert is_whole(left)
            except (pyqstore.StoreNotFound, pyqstore.StoreCorrupt):
                assert delay != 0
                assert not (left / "MANIFEST").exists()
            shutil.rmtree(left)
        if copy.exists():
            assert is_whole(copy)
            with pyqstore.open(copy, read_only=True) as other:
                assert numbers_of(other, "q")[:301] == [*range(300), 300]
    assert copy.exists()


LINKING = """
import os, signal, sys, threading, time, pyqstore
from pathlib import Path
store = pyqstore.open(sys.argv[1], checkpoint_interval=None, memory_budget=16 << 20)
segments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1 << 20}
with store.channel() as channel:
    channel.queue_declare("s", durable=True, arguments=segments)
    def publish(count):
        for number in range(count):
            channel.basic_publish("", "s", os.urandom(3000), pyqstore.Properties(delivery_mode=2))
    publish(150)
    store.sync()
    store.checkpoint()  # names the first file as one that grows
    publish(15_000)  # and the pager seals it
    store.sync()
first = min(Path(sys.argv[1], "streams").iterdir())
threading.Thread(target=store.snapshot, args=(sys.argv[2],)).start()
while first.stat().st_nlink < 2:
    time.sleep(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.crash
def test_stream_whose_file_a_killed_snapshot_had_linked_goes_on(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LINKING, str(path), str(tmp_path / "copy")]
    assert subprocess.run(command, timeout=240).returncode == -signal.SIGKILL
    with pyqstore.open(path) as store:
        assert store.queue_status("s").next == 15_150
        store.checkpoint()
        store.stream("s").publish(b"one more")
        store.checkpoint()
    assert pyqstore.verify(path).damages == 0
