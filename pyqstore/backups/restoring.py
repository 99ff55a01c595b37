"""Making a store of a backup."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from .. import store as _store
from ..disk import sync
from ..findings import Verification
from .keeping import FILES, Backup, Entry, backups, object_name, read
from .target import Target

__all__ = ["Making", "Restored", "fetch", "in_rounds", "restore"]

_MODE = 0o700
_BLOCK_BYTES = 1 << 20
_WHOLE_BYTES = 64 << 20  # a file of that many is fetched at once, and others as they come
_HOLE_BYTES = 64 << 10
_ZEROS = bytes(_HOLE_BYTES)
_FOLDERS = ("journal", "messages", "index", "transient", "checkpoint", "streams")
_MANIFEST = "MANIFEST"
_AT_ONCE = 4  # files that are fetched


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
    making = Making(directory)
    names = backups(target)
    if not names:
        raise FileNotFoundError(f"{target.place}: there is no backup")
    backup = read(target, names[-1] if name is None else name)
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress(done, backup.size)

    with making as folder:
        for files in in_rounds(backup.files):
            fetch(target, files, folder, count)
        found = making.name_it()
    return Restored(backup, found)


class Making:
    """A directory that becomes a store: as a context it is there under another name, and goes
    unless it was given its own."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """FileExistsError, FileNotFoundError: no store can be made there."""
        place = Path(os.path.abspath(directory))
        if os.path.lexists(place) and (
            place.is_symlink() or not place.is_dir() or any(place.iterdir())
        ):
            raise FileExistsError(
                errno.EEXIST,
                "a store is restored to a new or an empty directory; this is there",
                str(place),
            )
        if not place.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(place.parent))
        self._place = place
        self._making = place.parent / f".{place.name}.{secrets.token_hex(8)}.making"

    def __enter__(self) -> Path:
        self._making.mkdir(_MODE)
        for folder in _FOLDERS:
            (self._making / folder).mkdir(_MODE)
        return self._making

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._making, ignore_errors=True)

    def name_it(
        self, check: Callable[[Verification], object] = lambda _verified: None
    ) -> Verification:
        """All is in it and durable, MANIFEST among it: it is looked at, and is there then, if
        ``check`` does not raise."""
        for folder in _FOLDERS:
            sync(self._making / folder)
        sync(self._making)
        found = _store.verify(self._making)
        check(found)
        self._making.rename(self._place)
        sync(self._place.parent)
        return found


def in_rounds(files: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """MANIFEST comes last: what has it is a store."""
    rounds: tuple[list[Entry], list[Entry]] = [], []
    for each in files:
        rounds[each.name == _MANIFEST].append(each)
    return rounds


def fetch(
    target: Target,
    files: Iterable[Entry],
    making: Path,
    fetched: Callable[[int], object],
    kept: str = FILES,
) -> None:
    """Some at a time; ``fetched`` is told the bytes of each.  ValueError: a file is damaged."""
    with ThreadPoolExecutor(_AT_ONCE, "pyqstore-restore") as pool:
        running = {
            pool.submit(_fetch_file, target, each, making / each.name, kept): each.size
            for each in files
        }
        try:
            for each in as_completed(running):
                each.result()
                fetched(running[each])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fetch_file(target: Target, entry: Entry, path: Path, kept: str) -> None:
    """ValueError: its content is not what it was."""
    digest = hashlib.sha256()
    size = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        for block in _blocks(target, entry, kept):
            digest.update(block)
            size += len(block)
            if size > entry.size:
                break
            _write(file, block)
        file.truncate(size)
        file.flush()
        os.fsync(fd)
    if size != entry.size or digest.hexdigest() != entry.sha256:
        raise _damaged(target, entry, kept)


def _write(file: BinaryIO, block: bytes) -> None:
    """Holes stay as they were."""
    places = range(0, len(block), _HOLE_BYTES)
    holes = {at for at in places if block.startswith(_ZEROS[: len(block) - at], at)}
    if not holes:
        file.write(block)
        return
    for at in places:
        piece = block[at : at + _HOLE_BYTES]
        if at in holes:
            file.seek(len(piece), io.SEEK_CUR)
        else:
            file.write(piece)


def _damaged(target: Target, entry: Entry, kept: str) -> ValueError:
    name = object_name(entry.sha256, kept)
    return ValueError(f"{target.place}: {name} is damaged: it is not what {entry.name} was")


def _blocks(target: Target, entry: Entry, kept: str) -> Iterator[bytes]:
    name = object_name(entry.sha256, kept)
    if entry.size <= _WHOLE_BYTES:
        parts, source = None, pa.BufferReader(pa.py_buffer(target.content(name)))
    else:
        parts = _Parts(target.parts(name))
        source = pa.PythonFile(parts, mode="r")
    with pa.CompressedInputStream(source, "zstd") as stream:
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (pa.ArrowException, OSError) as error:
                if parts is not None and parts.failed:
                    raise
                raise _damaged(target, entry, kept) from error
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
