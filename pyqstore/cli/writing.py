"""Files that ``export`` writes: whole, or not there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..control.messages import Seen
from ..disk import sync
from ..terminal import visible_json
from . import columns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["LinesSink", "ParquetSink", "Sink", "check_free", "new_file"]

_GROUP_ROWS = 65_536  # about
_GROUP_BYTES = 16 << 20  # of bodies and properties, but for the last frame


class Sink(Protocol):
    """What messages go into."""

    def begin(self, is_stream: bool, /) -> None:
        """Before the first one."""

    def write(self, messages: Sequence[Seen], /) -> None:
        """Some of them."""

    def end(self) -> None:
        """Behind the last one."""


class LinesSink:
    """JSON lines."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._is_stream = False

    def begin(self, is_stream: bool) -> None:
        """As of Sink."""
        self._is_stream = is_stream

    def write(self, messages: Sequence[Seen]) -> None:
        """As of Sink."""
        for each in messages:
            text = visible_json(json.dumps(columns.json_row(each, self._is_stream)))
            self._file.write(text.encode() + b"\n")

    def end(self) -> None:
        """As of Sink."""
        self._file.flush()


class ParquetSink:
    """Parquet, a row group for as many messages as memory is to hold."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._is_stream = False
        self._batches: list[pyarrow.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def begin(self, is_stream: bool) -> None:
        """As of Sink."""
        import pyarrow.parquet

        self._is_stream = is_stream
        schema = columns.parquet_schema(is_stream)
        self._writer = pyarrow.parquet.ParquetWriter(self._file, schema)

    def write(self, messages: Sequence[Seen]) -> None:
        """As of Sink."""
        import pyarrow

        assert self._writer is not None
        rows = [columns.parquet_row(each, self._is_stream) for each in messages]
        self._batches.append(pyarrow.RecordBatch.from_pylist(rows, schema=self._writer.schema))
        self._rows += len(rows)
        self._bytes += sum(each.bytes for each in messages)
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write_group()

    def end(self) -> None:
        """As of Sink."""
        if self._rows > 0:
            self._write_group()
        assert self._writer is not None
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow

        assert self._writer is not None
        group = pyarrow.Table.from_batches(self._batches)
        self._writer.write_table(group, row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0


def check_free(path: Path, replaces: bool) -> None:
    """FileExistsError, ValueError: a file must not be made there."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such directory")
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise ValueError(f"{path} is no file; - is the standard output")
    if not replaces:
        raise FileExistsError(f"{path} is there already: --force replaces it")


@contextlib.contextmanager
def new_file(path: Path, replaces: bool) -> Iterator[IO[bytes]]:
    """A file that is at ``path``, durably, when the block has ended; after an error nothing is.
    Until then it is beside it, under a name of its own.  "-" is the standard output."""
    if str(path) == "-":
        yield sys.stdout.buffer
        return
    check_free(path, replaces)
    beside = path.with_name(f".{secrets.token_hex(8)}.pyqstore-export")
    try:
        with io.BufferedWriter(_File(beside, path)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _put(beside, path, replaces)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


class _File(io.FileIO):
    """A new file, whose errors name the one that it is to be."""

    def __init__(self, beside: Path, path: Path) -> None:
        self._path = path
        super().__init__(beside, "xb")

    def write(self, data: Any, /) -> Any:
        """As of FileIO."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def _put(beside: Path, path: Path, replaces: bool) -> None:
    check_free(path, replaces)  # it took a while
    if replaces:
        beside.replace(path)
    else:
        try:
            os.link(beside, path)  # unlike a rename this replaces nothing
        except FileExistsError:
            check_free(path, replaces)
            raise
        except OSError:  # a file system without links
            beside.replace(path)
    sync(path.parent)
