"""Looking into a store needs nothing to be written, and works where nothing can be."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT

COMMANDS = (["verify"], ["inspect"], ["stats"], ["dump", "q"])


def fill(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"small", PERSISTENT)
        channel.basic_publish("", "q", b"x" * 9000, PERSISTENT)
        store.checkpoint()
        channel.basic_publish("", "q", b"behind the checkpoint", PERSISTENT)
        store.sync()


def seen(path: Path) -> dict[str, tuple[int, int, int, bytes | None]]:
    """All that is there, with modes and times of change."""
    found = {}
    for file in [path, *sorted(path.rglob("*"))]:
        stat = file.stat()
        content = file.read_bytes() if file.is_file() else None
        found[str(file)] = (stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns, content)
    return found


def look(path: Path) -> None:
    for command, *rest in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "pyqstore", command, str(path), *rest],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        if command == "dump":
            bodies = [json.loads(line)["body"] for line in done.stdout.splitlines()]
            assert bodies == ["small", "x" * 9000, "behind the checkpoint"]


@contextmanager
def mounted(directory: Path) -> Iterator[None]:
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("lock", [True, False])
def test_a_store_on_a_read_only_mount_can_be_looked_into(tmp_path: Path, lock: bool) -> None:
    disk = tmp_path / "disk"
    with mounted(disk):
        path = disk / "store"
        fill(path)
        if not lock:
            (path / "LOCK").unlink()
        before = seen(path)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (path / "try").touch()
        look(path)
        assert seen(path) == before
        with pytest.raises(pyqstore.StoreError):  # it says so, and does not crash
            pyqstore.open(path)


@pytest.mark.parametrize("lock", [True, False])
def test_a_store_without_write_permission_can_be_looked_into(path: Path, lock: bool) -> None:
    fill(path)
    if not lock:
        (path / "LOCK").unlink()
    everything = [path, *path.rglob("*")]
    for file in everything:
        file.chmod(0o500 if file.is_dir() else 0o400)
    before = seen(path)
    try:
        look(path)
        assert seen(path) == before
    finally:
        for file in everything:
            file.chmod(0o700 if file.is_dir() else 0o600)
