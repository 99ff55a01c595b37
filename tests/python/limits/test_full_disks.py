"""Stores that fill a real file system: emptied in every way, they take messages again.

Small file systems are mounted by root: a tmpfs, and an ext4 on a loop device.  Everybody can limit
the length of files.  What is left in a queue is checked by count and by checksum.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

import pyqstore

from ..support import wait_until
from .filling import fill, publish_one, take

SMALL = {"journal_file_bytes": 65536, "message_file_bytes": 65536}
MIB = 1 << 20
unmountable: set[str] = set()  # kinds of file systems that could not be mounted: not tried again


def mount(kind: str, mib: int, at: Path) -> bool:
    """Mount a new file system of that size; False where that is not possible."""
    if os.geteuid() != 0:
        return False
    if kind == "tmpfs":
        return run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(at))
    image = at.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(mib * MIB)
    return run("mkfs.ext4", "-q", str(image)) and run("mount", "-o", "loop", str(image), str(at))


def run(*command: str) -> bool:
    """Run a tool; False where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:  # another one's file system may hang in the kernel
        return False


@pytest.fixture(params=["tmpfs-24", "ext4-32"])
def small_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory on a file system of its own."""
    kind, mib = request.param.split("-")
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory) / "disk"
        at.mkdir()
        if kind in unmountable or not mount(kind, int(mib), at):
            unmountable.add(kind)
            missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
            missing(f"mounting a small {kind} takes root, mount, mkfs and a loop device")
        try:
            yield at
        finally:
            subprocess.run(["umount", str(at)], check=True)


def drain_by_acks(store: pyqstore.Store, count: int) -> None:
    with store.channel() as channel:
        take(channel, 0, count)
        assert channel.basic_get("q") is None


def drain_by_purge(store: pyqstore.Store, count: int) -> None:
    with store.channel() as channel:
        assert channel.queue_purge("q") == count


def drain_by_deletion(store: pyqstore.Store, count: int) -> None:
    with store.channel() as channel:
        assert channel.queue_delete("q") == count
        channel.queue_declare("q", durable=True)


def drain_after_checkpoint(store: pyqstore.Store, count: int) -> None:
    store.checkpoint()
    drain_by_acks(store, count)


DRAINS = [drain_by_acks, drain_by_purge, drain_by_deletion, drain_after_checkpoint]


def publish_again(store: pyqstore.Store, count: int) -> None:
    """As many as that; what was just settled needs a moment to become space."""
    channel = store.channel()
    for number in range(count):
        wait_until(lambda number=number: publish_one(channel, number))  # type: ignore[misc]
    store.sync()
    take(channel, 0, count)
    channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SMALL], ids=["defaults", "small"])
@pytest.mark.parametrize("drain", DRAINS, ids=lambda drain: drain.__name__)
def test_full_store_is_emptied_and_takes_messages_again(
    small_disk: Path, options: dict[str, int], drain: Callable[[pyqstore.Store, int], None]
) -> None:
    with pyqstore.open(small_disk / "store", **options) as store:
        count = fill(store)
        assert count > 5000
        drain(store, count)
        publish_again(store, count // 3)
        assert not store.stats()["failed"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SMALL], ids=["defaults", "small"])
def test_full_store_is_closed_opened_and_emptied(small_disk: Path, options: dict[str, int]) -> None:
    with pyqstore.open(small_disk / "store", **options) as store:
        count = fill(store)
    with pyqstore.open(small_disk / "store", **options) as store:
        drain_by_acks(store, count)
        publish_again(store, count // 3)


@pytest.mark.slow
def test_a_client_hears_that_the_disk_is_full_and_goes_on_when_it_is_not(small_disk: Path) -> None:
    with pyqstore.open(small_disk / "store", **SMALL) as store:
        host, _, port = store.listen("127.0.0.1:0").address.rpartition(":")
        parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        heard: list[str] = []
        connection.add_on_connection_blocked_callback(lambda *_: heard.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("client", durable=True)
        channel.basic_publish("", "client", b"x", pika.BasicProperties(delivery_mode=2))
        count = fill(store)

        def hears(word: str) -> bool:
            connection.process_data_events(time_limit=0.05)
            return word in heard

        wait_until(lambda: hears("blocked"))
        drain_by_acks(store, count)
        store.checkpoint()
        wait_until(lambda: hears("unblocked"))
        channel.confirm_delivery()
        channel.basic_publish("", "client", b"y", pika.BasicProperties(delivery_mode=2))
        connection.close()
        assert store.queue_status("client")["messages_ready"] == 2


FILL_AND_DIE = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import filling, pyqstore
print(filling.fill(pyqstore.open(sys.argv[1])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_beside(program: str, store_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that knows the store and the folder of this file."""
    return subprocess.run(
        [sys.executable, "-c", program, str(store_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_full_store_is_killed_opened_and_emptied(small_disk: Path) -> None:
    store_path = small_disk / "store"
    filled = run_beside(FILL_AND_DIE, store_path)
    assert filled.returncode == -signal.SIGKILL, filled.stderr
    count = int(filled.stdout)
    # Somebody else takes the rest: what the store kept for itself is all that it has.
    with (small_disk / "others").open("wb", buffering=0) as others:
        for step in (MIB, 4096, 512):
            try:
                while True:
                    others.write(b"\1" * step)
            except OSError:
                pass
        with pyqstore.open(store_path) as store:
            drain_by_acks(store, count)
            os.unlink(others.name)
            others.truncate(0)
            publish_again(store, count // 3)


def test_memory_is_used_up_on_a_full_disk_publishers_are_told_and_go_on_later(
    small_disk: Path,
) -> None:
    with pyqstore.open(small_disk / "store", memory_budget=MIB, **SMALL) as store:
        count = fill(store)
        with store.channel() as channel:
            take(channel, 0, count)
        publish_again(store, count // 3)


FILE_LIMIT = """
import resource, sys
sys.path.insert(0, sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
import filling, pyqstore
with pyqstore.open(sys.argv[1]) as store:
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    for number in range(30000):
        assert filling.publish_one(channel, number), number
    store.sync()
    filling.take(channel, 0, 30000)
    store.sync()
    store.checkpoint()
    assert not store.stats()["failed"]
print("done")
"""


def test_files_must_not_grow_long_and_the_store_makes_shorter_ones(tmp_path: Path) -> None:
    limited = run_beside(FILE_LIMIT, tmp_path / "store")
    assert limited.stdout == "done\n", limited.stderr
