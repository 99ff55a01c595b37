"""Staged files: what a process without the store writes, and a store adopts.

A task of a job that runs in many processes writes its rows to a file of its own
(:class:`StagedWriter`); whoever has the store adopts the files of all tasks at once, under a
transaction's key (:meth:`pyqstore.Store.adopt`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import _core
from .properties import Properties
from .sequences import listed

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Adoption", "StagedFile", "StagedWriter", "check_staged", "read_staged"]

_SUFFIX = ".qsb"


@dataclass(frozen=True)
class StagedFile:
    """What a writer left.

    Attributes:
        path: as it was given; "" if there were no rows, and so is no file.
        rows: how many; bytes: of the file; body_bytes: of all bodies.
        routes: distinct (exchange, routing key); 0: too many to be told.
    """

    path: str
    rows: int
    bytes: int
    body_bytes: int
    routes: int


@dataclass(frozen=True)
class Adoption:
    """What :meth:`pyqstore.Store.adopt` did.

    Attributes:
        committed: False: the key was committed before, and nothing changed.
        rows: messages; unroutable: those of them that no queue took.
        files: that have rows; linked: those of them that a stream has now as they are.
        excluded: a key of ``unless`` was committed before (``adopt_into``), and nothing changed.
    """

    committed: bool
    rows: int
    unroutable: int
    files: int
    linked: int
    excluded: bool = False


class StagedWriter:
    """Writes record batches to a file that a store adopts.  No store is opened.

    ``path`` is in a directory that is there, that this process's user owns and no other one can
    write to.  What is written is ``path.NUMBER.tmp`` until :meth:`close`: then the file is durable
    under its name.  As a context manager it closes at the end, and removes what it wrote after an
    exception; what a process that died left goes with the directory, which is the caller's.
    ``exchange``, ``routing_key``, ``properties`` and ``body`` are those of ``publish_batch``;
    headers must be strings, CC and BCC not among them, ``properties`` has no ``cluster_id``, and
    its ``expiration`` no leading zeros.

    FileExistsError: ``path`` is there, now or when the writer closes: of several writers of one
    path the first that closes has it.  FileNotFoundError: its directory is not.  ValueError: its
    name has more than 234 bytes, or ends in ".tmp"; the directory is another user's.  Memory is
    that of one batch.  One thread at a time uses a writer.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        exchange: str = "",
        routing_key: str | None = None,
        properties: Properties | None = None,
        body: str = "body",
    ) -> None:
        self._path = os.fspath(path)
        if not isinstance(body, str):
            raise TypeError(f"body must be the name of a column, not {type(body).__name__}")
        if "\0" in body:
            raise ValueError("body must not contain a NUL character")
        folder, name = _parts_of(self._path)
        if name.endswith(b".tmp"):
            raise ValueError("a staged file's name ends in .tmp only while it is being written")
        self._writer = _core.StagedWriter(
            folder, name, exchange, "" if routing_key is None else routing_key, body, properties
        )
        self._result: StagedFile | None = None
        self._is_open = True

    def write_batch(self, data: object) -> int:
        """Write every row of ``data``; returns how many.

        ``data`` is anything with the Arrow PyCapsule protocol; of a stream one batch at a time is
        in memory, and is written whole or not at all.  Columns are those of ``publish_batch``
        without ``due``.  Raises TypeError for other data; ValueError naming the column or the row
        of the batch, after which the writer goes on; OSError, after which only the end is left.
        """
        export_array = getattr(data, "__arrow_c_array__", None)
        export_stream = getattr(data, "__arrow_c_stream__", None)
        if export_array is not None:
            schema, array = export_array()
            return self._writer.put_array(schema, array)
        if export_stream is not None:
            return self._writer.put_stream(export_stream())
        raise TypeError(
            "data must speak the Arrow PyCapsule protocol (__arrow_c_stream__ or"
            f" __arrow_c_array__); {type(data).__name__} does not"
        )

    def close(self) -> StagedFile:
        """Make the file durable under its name; the same as before when called again."""
        if self._is_open:
            rows, size, body_bytes, routes = self._end(True)
            self._result = StagedFile(self._path if rows else "", rows, size, body_bytes, routes)
        return self.result

    def abort(self) -> None:
        """Remove what was written; nothing happens to a file that was closed."""
        if self._is_open:
            self._end(False)

    def _end(self, keep: bool) -> tuple[int, int, int, int]:
        self._is_open = False
        try:
            return self._writer.close(keep)
        except RuntimeError:  # another thread is using it: it is as open as before
            self._is_open = True
            raise

    @property
    def result(self) -> StagedFile:
        """What there is since :meth:`close`; ValueError before, and without a file."""
        if self._result is None:
            raise ValueError("there is no file: the writer was not closed, or it was aborted")
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def read_staged(path: str | os.PathLike[str]) -> Iterator[pyarrow.RecordBatch]:
    """The record batches of a staged file, one block each, with the columns of ``get_batch``:
    every checksum is checked, and ``delivery_tag`` is the row's number.  Needs pyarrow.

    FileNotFoundError; StoreCorrupt: the file is not whole, or a block is damaged.
    """
    from pyarrow import record_batch

    reader = _core.StagedReader(*_parts_of(os.fspath(path)))
    while (batch := reader.next()) is not None:
        yield record_batch(batch)


def check_staged(path: str | os.PathLike[str]) -> StagedFile:
    """Read and check all of a staged file; what it has.  Without pyarrow.

    Raises as :func:`read_staged`.
    """
    name = os.fspath(path)
    reader = _core.StagedReader(*_parts_of(name))
    while reader.next() is not None:
        pass
    return StagedFile(name, *reader.info())


def _parts_of(path: str) -> tuple[bytes, bytes]:
    folder, name = os.path.split(path)
    return _encoded(folder or "."), _encoded(name)


def _encoded(path: str | os.PathLike[str]) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path must not contain a NUL character")
    return encoded


def staged_paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[bytes]:
    """The paths of staged files: those given but for "", which a writer without rows tells, or all
    of a folder that end in ".qsb", by name."""
    if isinstance(files, (str, os.PathLike)):
        folder = os.fspath(files)
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
        return [os.fsencode(os.path.join(folder, name)) for name in names]
    paths = listed("files", files, str, os.PathLike)
    return [_encoded(path) for path in paths if path != ""]
