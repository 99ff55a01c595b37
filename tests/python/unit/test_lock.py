"""One owner for a directory, and none for one that is gone."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, bodies

OWNER = """
import sys
import pyqstore

store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.confirm_select()
print("open", flush=True)
for line in sys.stdin:
    channel.basic_publish("", "q", line.strip(), pyqstore.Properties(delivery_mode=2))
    print(channel.wait_for_confirms(), flush=True)
store.close()
"""
FORKED = """
import os
import sys
import time
import pyqstore

store = pyqstore.open(sys.argv[1])
child = os.fork()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


@contextmanager
def process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def tell(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdin is not None
    running.stdin.write(text + "\n")
    running.stdin.flush()


def open_soon(path: Path) -> pyqstore.Store:
    """A process that was killed has its descriptors for a moment still."""
    end = time.monotonic() + 20
    while True:
        try:
            return pyqstore.open(path)
        except pyqstore.StoreLocked:
            assert time.monotonic() < end
            time.sleep(0.005)


def replace_lock(path: Path) -> None:
    (path / "LOCK").unlink()
    (path / "LOCK").write_text("1\n")


@pytest.mark.parametrize("harm", [lambda path: (path / "LOCK").unlink(), replace_lock])
def test_removing_lock_lets_no_second_owner_in(path: Path, harm: Callable[[Path], None]) -> None:
    with process(OWNER, path) as owner:
        assert said(owner) == "open"
        tell(owner, "a")
        assert said(owner) == "True"
        harm(path)
        with pytest.raises(pyqstore.StoreLocked) as raised:
            pyqstore.open(path)
        # The kernel names the owner; not where the file system has no device of its own.
        assert raised.value.pid in (owner.pid, None, 1)
        with pytest.raises(pyqstore.StoreLocked):
            pyqstore.verify(path)
        tell(owner, "b")  # the owner has lost nothing
        assert said(owner) == "True"
        owner.communicate()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "q") == [b"a", b"b"]


def test_one_process_cannot_open_a_store_twice_by_another_way(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    with pyqstore.open(path):
        (path / "LOCK").unlink()
        link.symlink_to(path)
        for way in (path, link, path / "." / ".." / path.name):
            with pytest.raises(pyqstore.StoreLocked) as raised:
                pyqstore.open(way)
            assert raised.value.pid in (os.getpid(), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_bind_mount_is_no_other_store(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    with pyqstore.open(path):
        if subprocess.run(["mount", "--bind", path, other], check=False).returncode != 0:
            pytest.skip("mounting is not allowed here")
        try:
            (path / "LOCK").unlink()
            with pytest.raises(pyqstore.StoreLocked):
                pyqstore.open(other)
        finally:
            subprocess.run(["umount", other], check=True)


def remove(path: Path) -> None:
    """Whatever the store makes meanwhile: files in advance, for one."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


def remove_and_make(path: Path) -> None:
    remove(path)
    pyqstore.open(path).close()


def remove_contents(path: Path) -> None:
    while any(path.iterdir()):
        subprocess.run(f"rm -rf {path}/*", shell=True, check=False)


def move_away(path: Path) -> None:
    path.rename(path.with_name("away"))


def move_away_and_make(path: Path) -> None:
    path.rename(path.with_name("away"))
    pyqstore.open(path).close()


@pytest.mark.parametrize("sync", ["fdatasync", "none"])
@pytest.mark.parametrize(
    "harm", [remove, remove_and_make, remove_contents, move_away, move_away_and_make]
)
def test_a_store_whose_directory_is_gone_confirms_nothing(
    path: Path, harm: Callable[[Path], None], sync: str
) -> None:
    store = pyqstore.open(path, sync=sync)
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_select()
    channel.basic_publish("", "q", b"before", PERSISTENT)
    assert channel.wait_for_confirms() is True
    nacked: list[int] = []
    acked: list[int] = []
    channel.add_confirm_listener(
        lambda number, multiple: acked.append(number),
        lambda number, multiple: nacked.append(number),
    )
    harm(path)
    channel.basic_publish("", "q", b"behind", PERSISTENT)
    with pytest.raises(pyqstore.StoreFailed, match=r"removed|moved away"):
        store.sync()
    channel.process_events()
    assert (acked, nacked) == ([], [2])
    with pytest.raises(pyqstore.StoreFailed):
        store.close()
    assert store.closed


def test_a_store_that_was_moved_with_its_parent_goes_on(tmp_path: Path) -> None:
    over = tmp_path / "over"
    over.mkdir()
    with pyqstore.open(over / "store") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        over.rename(tmp_path / "moved")
        channel.basic_publish("", "q", b"x", PERSISTENT)
        assert channel.wait_for_confirms() is True
    with pyqstore.open(tmp_path / "moved" / "store", create=False) as store:
        assert store.queues() == ["q"]


def test_a_forked_child_does_not_keep_the_lock_of_an_owner_that_died(path: Path) -> None:
    with process(FORKED, path) as owner:
        child = int(said(owner))
        try:
            owner.kill()
            owner.wait()
            os.kill(child, 0)  # it lives
            open_soon(path).close()
        finally:
            os.kill(child, signal.SIGKILL)
