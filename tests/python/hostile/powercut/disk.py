"""A recorded disk (blockrec.c), its log, and the disks that power cuts leave."""

from __future__ import annotations

import os
import random
import shlex
import struct
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("blockrec.c")
_HEADER = struct.Struct("=QQQ")
_FLUSH = 2
_SECTOR = 512
_SECONDS = 60.0
_PART = 2**20


@dataclass(frozen=True)
class FileSystem:
    """How to make one, and how to mount it."""

    name: str
    disk_bytes: int
    make: tuple[str, ...]
    mount_options: str


FILE_SYSTEMS = {
    "ext4": FileSystem(
        "ext4",
        256 * 2**20,
        ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
        "loop",
    ),
    "xfs": FileSystem("xfs", 320 * 2**20, ("mkfs.xfs", "-q", "-f", "-K"), "loop,nouuid"),
}


def build_recorder(folder: Path) -> Path:
    """Compile blockrec.c.  Raises CalledProcessError, with what the compiler said."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    )
    program = folder / "blockrec"
    command = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", str(_SOURCE), "-o", str(program)]
    subprocess.run([*command, *shlex.split(flags.stdout)], check=True)
    return program


def mount(kind: FileSystem, disk: Path, at: Path) -> None:
    """Raises CalledProcessError, with what mount said in ``stderr``."""
    command = ["mount", "-t", kind.name, "-o", kind.mount_options, str(disk), str(at)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def unmount(at: Path) -> None:
    subprocess.run(["umount", str(at)], check=True, capture_output=True, text=True)


class Recorder:
    """A disk that is recorded from now on, in a folder of its own."""

    def __init__(self, program: Path, folder: Path, disk_bytes: int, outside: int) -> None:
        """``outside``: a descriptor of the mount namespace that the recorder is to live in."""
        self._folder = folder / "recorder"
        self._folder.mkdir()
        self.log = folder / "log"
        self._process = subprocess.Popen(
            [str(program), str(self._folder), str(disk_bytes), str(self.log), str(outside)],
            pass_fds=(outside,),
        )
        end = time.monotonic() + _SECONDS
        while not self.position_file.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the recorder does not start; is /dev/fuse there?")
            time.sleep(0.005)

    @property
    def disk(self) -> Path:
        return self._folder / "disk"

    @property
    def position_file(self) -> Path:
        return self._folder / "position"

    @property
    def position(self) -> int:
        """How many entries the log has."""
        return int(self.position_file.read_bytes())

    def end(self) -> None:
        unmount(self._folder)
        self._process.wait()
        self._folder.rmdir()


class Image:
    """A disk in a sparse file."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, size)
        self._size = size

    def close(self) -> None:
        os.close(self._descriptor)
        self.path.unlink()

    def write(self, offset: int, data: memoryview) -> None:
        """Zeros make no blocks where there are none."""
        if data.tobytes() != bytes(len(data)) or self._has_bytes(offset, len(data)):
            written = os.pwrite(self._descriptor, data, offset)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes were written to {self.path}")

    def _has_bytes(self, offset: int, length: int) -> bool:
        return os.pread(self._descriptor, length, offset) != bytes(length)

    def copy(self, path: Path) -> Image:
        other = Image(path, self._size)
        for begin, end in self._parts():
            while begin < end:
                begin += os.copy_file_range(
                    self._descriptor, other._descriptor, end - begin, begin, begin
                )
        return other

    def save(self, path: Path) -> None:
        """A sparse copy in another file system."""
        with path.open("wb") as file:
            for begin, end in self._parts():
                for at in range(begin, end, _PART):
                    file.seek(at)
                    file.write(os.pread(self._descriptor, min(_PART, end - at), at))
            file.truncate(self._size)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Where something was written."""
        end = 0
        while end < self._size:
            try:
                begin = os.lseek(self._descriptor, end, os.SEEK_DATA)
            except OSError:  # nothing but a hole
                return
            end = os.lseek(self._descriptor, begin, os.SEEK_HOLE)
            yield begin, end


class Log:
    """What a recorder wrote down."""

    def __init__(self, path: Path) -> None:
        content = memoryview(path.read_bytes())
        self._entries: list[tuple[int, memoryview]] = []
        self.flushes: list[int] = []
        at = 0
        while at < len(content):
            kind, offset, length = _HEADER.unpack_from(content, at)
            at += _HEADER.size
            if kind == _FLUSH:
                self.flushes.append(len(self._entries))
            self._entries.append((offset, content[at : at + length]))
            at += length

    def __len__(self) -> int:
        return len(self._entries)

    def flush_before(self, position: int) -> int:
        """The entry of the last flush that was done at ``position``; 0: none was."""
        place = bisect_left(self.flushes, position)
        return self.flushes[place - 1] if place else 0

    def apply(self, image: Image, begin: int, end: int) -> None:
        """Everything that was written in ``[begin, end)``."""
        for offset, data in self._entries[begin:end]:
            if data:
                image.write(offset, data)

    def apply_some(self, image: Image, begin: int, end: int, chance: random.Random) -> str:
        """Of what was written in ``[begin, end)`` what a cut may leave; says what."""
        how = chance.choice(("nothing", "everything", "some writes", "some sectors", "mixed"))
        for offset, data in self._entries[begin:end]:
            if not data or how == "nothing":
                continue
            fate = how if how != "mixed" else chance.choice(("everything", "some sectors", "none"))
            if fate == "everything" or (fate == "some writes" and chance.random() < 0.5):
                image.write(offset, data)
            elif fate == "some sectors":
                for at in range(0, len(data), _SECTOR):
                    if chance.random() < 0.5:
                        image.write(offset + at, data[at : at + _SECTOR])
        return how
