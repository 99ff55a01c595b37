"""Rows that wait for a commit to name them, in files beside the store.

Layout, inside the store's directory::

    staging/flight-<transaction>/
        <partition>-<attempt>-<crc>.qsb         whole and durable: a staged file, which the store
                                                adopts as it is
        <partition>-<attempt>-<crc>.arrow       the same of rows whose exchange the commit names,
                                                or with "due"
        <partition>-<attempt>.<pid>.*.tmp       being written, or left behind
        <partition>-<attempt>.<pid>.*.part      whole, before it has its name

A file counts only when a commit names it with its size and checksum, which is in its name: an
attempt that is staged again gets a file of its own, and never takes the place of one that a commit
has checked.  What failed and what lost a race is swept with the rest of its transaction, and what
no commit comes for when it is old.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import tempfile
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..errors import StoreCorrupt, StoreError, StoreFull
from ..staged import StagedWriter, read_staged
from .results import Staged
from .routes import Route

__all__ = ["PREFIX", "Staging", "Writing", "corrupt", "sync_directory", "told"]

PREFIX = "flight-"
"""Of the folders that go when they are old."""

_STALE_S = 7 * 24 * 3600.0
_NAME_MAX = 64
_KEY_MAX = 1024  # of what transactions are known by
_UNFINISHED = (".tmp", ".part")
_MISSING = "is missing: it was never staged here, or swept"
_TAIL_BYTES = 64  # of a staged file: its salt, its sizes, and their CRC


class Staging:
    """The staged rows of a store."""

    def __init__(self, store_path: str) -> None:
        """A store in memory has them in a temporary directory."""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.root: Path = Path(store_path) / "staging"
        if store_path == ":memory:":
            self._temporary = tempfile.TemporaryDirectory(prefix="pyqstore-staging-")
            self.root = Path(self._temporary.name)

    def close(self) -> None:
        """Remove what ends with the process."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def write(
        self,
        schema: pa.Schema,
        transaction: str,
        partition: int,
        attempt: str,
        route: Route | None = None,
    ) -> Writing:
        """Begin an attempt's file; with a ``route``, the file is one that the store adopts if
        possible.

        ValueError: an attempt that makes no file name, or a transaction that no commit could name;
        TypeError.
        """
        if type(partition) is not int or type(attempt) is not str:
            raise TypeError(f"partition {partition!r}, attempt {attempt!r}: expected int and str")
        if type(transaction) is not str:
            raise TypeError(f"transaction {transaction!r}: expected str")
        if not 1 <= len(transaction.encode("utf-8", "surrogateescape")) <= _KEY_MAX:
            raise ValueError(
                f"transaction {transaction!r}: expected a name of 1 to {_KEY_MAX} bytes"
            )
        if not attempt.isalnum() or not attempt.isascii() or len(attempt) > _NAME_MAX:
            raise ValueError(f"attempt {attempt!r}: expected 1 to {_NAME_MAX} of A-Z, a-z and 0-9")
        folder = self.folder(transaction)
        # A store in memory finds no files, and a staged file has no delays.
        if route is None or self._temporary is not None or "due" in schema.names:
            return _RowsWriting(folder, partition, attempt, schema)
        return _BlocksWriting(folder, partition, attempt, route)

    def path_of(self, folder: Path, staged: Staged) -> Path:
        """The path of a staged file, after comparing its size and its checksum: for a file of Arrow
        the checksum of all of it, for a file whose blocks have their own checksums that of its
        tail.

        StoreCorrupt: the file is missing, or differs.
        """
        is_adopted = staged.route is not None
        stem = _stem(staged.partition, staged.attempt)
        path = folder / _name(stem, staged.crc32, is_adopted)
        try:
            found = _tail_of(path) if is_adopted else _summed(path)
        except FileNotFoundError:
            raise corrupt(path, _MISSING) from None
        if found != (staged.bytes, staged.crc32):
            what = f"has {found[0]} bytes with CRC {found[1]:08x}, not those staged"
            raise corrupt(path, what)
        return path

    def read(self, folder: Path, staged: Staged) -> Iterator[pa.RecordBatch]:
        """The batches of a file; those of a file of Arrow are read in place, through a memory map.

        StoreCorrupt: the file is missing, or differs from what was staged.
        """
        if staged.rows == 0:
            return
        path = self.path_of(folder, staged)
        try:
            if staged.route is not None:
                yield from read_staged(path)
            else:
                with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                    yield from reader
        except FileNotFoundError:
            raise corrupt(path, _MISSING) from None

    def sweep(self, transaction: str) -> None:
        """Remove all files of a transaction.  Never raises."""
        shutil.rmtree(self.folder(transaction), ignore_errors=True)

    def sweep_stale(self, older_than_s: float = _STALE_S) -> None:
        """Remove folders that have not changed for so long.  Never raises."""
        limit = time.time() - older_than_s
        try:
            old = [
                entry.path
                for entry in os.scandir(self.root)
                if entry.name.startswith(PREFIX) and entry.stat().st_mtime < limit
            ]
        except OSError:
            return
        for path in old:
            shutil.rmtree(path, ignore_errors=True)

    def sweep_unfinished(self) -> None:
        """Remove unfinished files of servers that have ended: no other process has the store.
        Never raises."""
        for path in self.root.glob(f"{PREFIX}*/*"):
            if path.suffix in _UNFINISHED and f".{os.getpid()}." not in path.name:
                with contextlib.suppress(OSError):
                    path.unlink()

    def folder(self, transaction: str) -> Path:
        """The folder of a transaction's files."""
        digest = hashlib.sha256(transaction.encode("utf-8", "surrogateescape")).hexdigest()
        return self.root / f"{PREFIX}{digest[:32]}"


class Writing(ABC):
    """An attempt's file until it is finished."""

    def __init__(self, folder: Path, partition: int, attempt: str, is_adopted: bool) -> None:
        self._partition, self._attempt = partition, attempt
        self._folder, self._stem = folder, _stem(partition, attempt)
        self._is_adopted = is_adopted
        with self._told():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None:
        """Write more rows."""

    @abstractmethod
    def finish(self) -> Staged:
        """Finish the file, durable under its name."""

    @abstractmethod
    def close(self) -> None:
        """Remove the file if it was not finished."""

    def _begins(self) -> str:
        """The start of the file's name until it is finished."""
        return f"{self._stem}.{os.getpid()}."

    def _take_name(self, unnamed: Path, crc32: int) -> None:
        """Rename a file whose content is durable."""
        path = self._folder / _name(self._stem, crc32, self._is_adopted)
        os.rename(unnamed, path)
        for folder in list(path.parents)[:3]:  # the transaction's, staging, the store's
            sync_directory(folder)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """An error of the system, in the form of a store's error."""
        try:
            with told(self._named):
                yield
        except FileNotFoundError:
            what = "was removed while it was staged: its transaction was committed, or aborted"
            raise corrupt(self._named, what) from None

    @property
    def _named(self) -> Path:
        """The name of the file before its checksum is known."""
        return self._folder / f"{self._stem}{_suffix(self._is_adopted)}"


class _RowsWriting(Writing):
    """A file of Arrow: its rows are checked when it is committed."""

    def __init__(self, folder: Path, partition: int, attempt: str, schema: pa.Schema) -> None:
        super().__init__(folder, partition, attempt, False)
        with self._told():
            handle, name = tempfile.mkstemp(".tmp", self._begins(), folder)
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "wb")
        with self._told():
            self._writer = pa.ipc.new_stream(self._file, schema)
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        with self._told():
            self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> Staged:
        with self._told():
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            size, crc32 = _summed(self._temporary)
            self._take_name(self._temporary, crc32)
        return Staged(self._partition, self._attempt, self._rows, size, crc32)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what its buffer holds is not wanted
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class _BlocksWriting(Writing):
    """A file of blocks, with each row checked, which the store adopts as it is."""

    def __init__(self, folder: Path, partition: int, attempt: str, route: Route) -> None:
        super().__init__(folder, partition, attempt, True)
        # It is durable under a name of its own first: another try may have the attempt's name.
        self._whole = folder / f"{self._begins()}{secrets.token_hex(8)}.part"
        self._route = route
        with self._told():
            self._writer = StagedWriter(
                self._whole,
                exchange=route.exchange,
                routing_key=route.routing_key,
                properties=route.decoded(),
            )

    def add(self, batch: pa.RecordBatch) -> None:
        with self._told():
            self._writer.write_batch(batch)

    def finish(self) -> Staged:
        size, crc32 = 0, 0
        with self._told():
            rows = self._writer.close().rows
            if rows > 0:
                size, crc32 = _tail_of(self._whole)
                self._take_name(self._whole, crc32)
        return Staged(self._partition, self._attempt, rows, size, crc32, self._route.number)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # its folder may have been swept
            self._writer.abort()
        self._whole.unlink(missing_ok=True)


def _stem(partition: int, attempt: str) -> str:
    return f"{int(partition)}-{attempt}"


def _suffix(is_adopted: bool) -> str:
    return ".qsb" if is_adopted else ".arrow"


def _name(stem: str, crc32: int, is_adopted: bool) -> str:
    return f"{stem}-{crc32:08x}{_suffix(is_adopted)}"


def _summed(path: Path) -> tuple[int, int]:
    """Size and CRC of a file."""
    with pa.memory_map(str(path)) as file:
        size = file.size()
        return size, zlib.crc32(file.read_buffer(size))


def _tail_of(path: Path) -> tuple[int, int]:
    """Size of a staged file, and the CRC of its tail, which has a salt that no other file has."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL_BYTES, 0))
        return size, zlib.crc32(file.read())


def _told_name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """An error of the system about a file, in the form of a store's error, except for
    FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        raised = kind(f"staged file {_told_name(path)}: {error.strerror or error}")
        raised.path, raised.os_errno = f"staging/{_told_name(path)}", error.errno
        raise raised from error


def corrupt(path: Path, what: str) -> StoreCorrupt:
    """The exception for a staged file that cannot be used."""
    name = _told_name(path)
    error = StoreCorrupt(f"staged file {name} {what}; nothing is published")
    error.path, error.offset = f"staging/{name}", 0
    return error


def sync_directory(path: Path) -> None:
    """Make the directory's names durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
