"""Making a store of a backup."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from .. import store as _store
from ..disk import sync
from ..findings import Verification
from .keeping import Backup, Entry, backups, object_name, read
from .target import Target

__all__ = ["Restored", "restore"]

_MODE = 0o700
_BLOCK_BYTES = 64 << 10
_FOLDERS = ("journal", "messages", "index", "transient", "checkpoint", "streams")
_MANIFEST = "MANIFEST"


class Restored(NamedTuple):
    """A store that was made of a backup."""

    backup: Backup
    verification: Verification


def restore(
    target: Target,
    directory: str | os.PathLike[str],
    name: str | None = None,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Restored:
    """Make a store of a backup, the newest if ``name`` is None, in a directory that is not there
    yet or is empty.  Each file's checksum is compared before the directory has its name; and it is
    durable when this returns.  What was damaged in the store when it was backed up is so still,
    and told.  ``progress`` is told bytes.

    FileExistsError: the directory has something in it; FileNotFoundError: there is no such backup,
    or no directory for the new one; ValueError: the backup is damaged, and where; OSError.
    """
    place = Path(os.path.abspath(directory))
    if os.path.lexists(place) and (
        place.is_symlink() or not place.is_dir() or any(place.iterdir())
    ):
        raise FileExistsError(
            errno.EEXIST, "a store is restored to a new or an empty directory; this is there", place
        )
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(place.parent))
    names = backups(target)
    if not names:
        raise FileNotFoundError(f"{target.place}: there is no backup")
    backup = read(target, names[-1] if name is None else name)
    making = place.parent / f".{place.name}.{secrets.token_hex(8)}.making"
    making.mkdir(_MODE)
    try:
        _fetch(target, backup, making, progress)
        found = _store.verify(making)
        making.rename(place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    sync(place.parent)
    return Restored(backup, found)


def _fetch(
    target: Target, backup: Backup, making: Path, progress: Callable[[int, int], object]
) -> None:
    """MANIFEST comes last: what has it is a store."""
    for folder in _FOLDERS:
        (making / folder).mkdir(_MODE)
    done = 0
    for entry in sorted(backup.files, key=lambda each: each.name == _MANIFEST):
        if entry.name == _MANIFEST:
            for folder in _FOLDERS:
                sync(making / folder)
        _fetch_file(target, entry, making / entry.name)
        done += entry.size
        progress(done, backup.size)
    sync(making)


def _fetch_file(target: Target, entry: Entry, path: Path) -> None:
    """ValueError: its content is not what it was."""
    digest = hashlib.sha256()
    size = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        for block in _blocks(target, entry):
            digest.update(block)
            size += len(block)
            if size > entry.size:
                break
            if any(block):
                file.write(block)
            else:  # a hole, as it was
                file.seek(len(block), io.SEEK_CUR)
        file.truncate(size)
        file.flush()
        os.fsync(fd)
    if size != entry.size or digest.hexdigest() != entry.sha256:
        raise _damaged(target, entry)


def _damaged(target: Target, entry: Entry) -> ValueError:
    return ValueError(
        f"{target.place}: {object_name(entry.sha256)} is damaged: it is not what {entry.name} was"
    )


def _blocks(target: Target, entry: Entry) -> Iterator[bytes]:
    parts = _Parts(target.parts(object_name(entry.sha256)))
    with pa.CompressedInputStream(pa.PythonFile(parts, mode="r"), "zstd") as stream:
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (pa.ArrowException, OSError) as error:
                if parts.failed:
                    raise
                raise _damaged(target, entry) from error
            if not block:
                return
            yield block


class _Parts(io.RawIOBase):
    """A file that is read as its parts come; ``failed``: they did not."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")
        self.failed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            try:
                self._rest = memoryview(next(self._parts, b""))
            except OSError:
                self.failed = True
                raise
        given = bytes(self._rest[: len(self._rest) if size < 0 else size])
        self._rest = self._rest[len(given) :]
        return given
