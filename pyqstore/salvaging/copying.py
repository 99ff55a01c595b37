"""Copying a store that no process has open: the original is read and never written to.

Blocks of files are shared where the file system can (``FICLONE``), holes stay holes, and what the
disk cannot read is zeros in the copy: a checksum finds them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk import sync
from ..errors import StoreFull, StoreLocked, StoreNotFound

__all__ = ["Copied", "Unread", "copy_store", "held", "sync_directories"]

Report = Callable[[int, int], object]

_FICLONE = 0x40049409
_PART_BYTES = 1 << 20
_PAGE_BYTES = 4096
_ROOM_BYTES = 16 << 20  # what opening the copy writes: a journal file, a checkpoint, RESERVE
# Of no meaning to the copy: the owner's number, what is half written, what ends with a process,
# space in reserve, and what other processes asked of the original.
_LEFT_OUT = frozenset({"LOCK", "MANIFEST.tmp", "RESERVE", "users.json.lock", "users.json.tmp"})
_EMPTIED = frozenset({"transient", "inbox"})


class Unread(NamedTuple):
    """A place that the disk could not read."""

    path: str
    """The file, relative to the store."""
    offset: int
    bytes: int


class Copied(NamedTuple):
    """What a copy could not take."""

    unread: list[Unread]
    passed_over: list[str]
    """What is no regular file, and no directory."""


class _Found(NamedTuple):
    directories: list[str]
    files: list[str]
    passed_over: list[str]
    bytes: int


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keeps others from opening the store, but to read it.  StoreLocked: somebody has it open;
    StoreNotFound: there is no directory."""
    with contextlib.ExitStack() as stack:
        try:
            _hold(stack, directory, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreNotFound(f"{directory}: no such directory") from None
        except BlockingIOError:
            raise _locked(directory) from None
        try:
            _hold(stack, directory / "LOCK", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except BlockingIOError:
            raise _locked(directory) from None
        except OSError:
            pass  # the directory's is the one that counts
        yield


def _hold(stack: contextlib.ExitStack, path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _locked(directory: Path) -> StoreLocked:
    pid = None
    with contextlib.suppress(OSError, ValueError):
        pid = int((directory / "LOCK").read_text())
    error = StoreLocked(
        f"{directory} is open in {f'process {pid}' if pid else 'another process'}: close it first,"
        " or go back to a snapshot of it"
    )
    error.pid = pid
    return error


def copy_store(source: Path, target: Path, report: Report) -> Copied:
    """Copy the files of the store in ``source``, which is held, to the directory ``target``, which
    is empty.  They are durable when it returns; their names are not.  StoreFull, OSError."""
    found = _look_through(source)
    for name in found.directories:
        (target / name).mkdir(mode=0o700)
    unread: list[Unread] = []
    done = 0
    for index, name in enumerate(found.files):
        with _opened(source / name) as original, _made(target / name) as copy:
            if not _shared(original, copy):
                if index == 0:
                    _check_space(target, found.bytes)
                for offset, count in _copy(original, copy):
                    unread.append(Unread(name, offset, count))
            os.fsync(copy)
            done += os.fstat(original).st_blocks * 512
        report(done, max(done, found.bytes))
    return Copied(unread, found.passed_over)


def sync_directories(root: Path) -> None:
    """Make the names in a tree durable."""
    for folder, _, _ in os.walk(root):
        sync(folder)


def _look_through(source: Path) -> _Found:
    directories: list[str] = []
    files: list[str] = []
    passed_over: list[str] = []
    blocks = 0
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        if folder in _EMPTIED:
            continue
        for entry in sorted(os.scandir(source / folder), key=lambda entry: entry.name):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if name in _LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(name)
                waiting.append(name)
            elif entry.is_file(follow_symlinks=False):
                files.append(name)
                blocks += entry.stat(follow_symlinks=False).st_blocks
            else:
                passed_over.append(name)
    return _Found(directories, files, passed_over, blocks * 512)


def _check_space(target: Path, count: int) -> None:
    told = os.statvfs(target)
    free = told.f_bavail * told.f_frsize
    if free < count + _ROOM_BYTES:
        raise StoreFull(
            f"{target.parent}: the copy needs {count + _ROOM_BYTES} bytes, and {free} are free;"
            " make room, or name a place on another disk"
        )


# ---- one file ----


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file any more", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _made(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shared(original: int, copy: int) -> bool:
    """Whether the copy has the original's blocks now, which either may go on to write."""
    try:
        fcntl.ioctl(copy, _FICLONE, original)
    except OSError:
        return False
    return True


def _copy(original: int, copy: int) -> Iterator[tuple[int, int]]:
    """Copies, and tells the offset and length of what cannot be read."""
    size = os.fstat(original).st_size
    for begin, end in _extents(original, size):
        offset = begin
        while offset < end:
            count = min(_PART_BYTES, end - offset)
            part = _read(original, count, offset)
            if part is None and count > _PAGE_BYTES:
                for page in range(offset, offset + count, _PAGE_BYTES):
                    length = min(_PAGE_BYTES, offset + count - page)
                    part = _read(original, length, page)
                    if part is None:
                        yield page, length
                    else:
                        _write(copy, part, page)
                offset += count
            elif part is None:
                yield offset, count
                offset += count
            elif part:
                _write(copy, part, offset)
                offset += len(part)
            else:
                break  # it became shorter
    os.ftruncate(copy, size)


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """What is no hole."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            yield end, size  # the file system does not tell
            return
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end


def _read(descriptor: int, count: int, offset: int) -> bytes | None:
    try:
        return os.pread(descriptor, count, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def _write(descriptor: int, data: bytes, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)
