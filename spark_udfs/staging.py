"""Staged rows: what tasks leave in files, and what a commit reads back.

Layout, inside the store's directory::

    staging/<job>/<partition>-<attempt>.qsb          whole: named after its bytes were synced; what
                                                     the store adopts as it is
    staging/<job>/<partition>-<attempt>.arrow        the same in Arrow, for rows with a column "due"
    staging/<job>/<partition>-<attempt>.*.tmp        being written, or what a dead attempt left
    staging/spool-<name>/                            what was taken from a queue (``spool``)

A file counts only when a commit names it: leftovers of failed and speculative attempts are swept,
never read. The job's folder is made once, before tasks run, and never by a task: an attempt that
outlives its job finds no folder and fails, instead of leaving rows behind.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .columns import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "staging"
ROUTES_MAX = 10_000
STALE_S = 7 * 24 * 3600.0
# Folders that hold the only copy of something: never swept by age.
KEPT_PREFIX = "spool-"
_KEPT = (KEPT_PREFIX, "prepared-")  # the latter are those of servers of Arrow Flight
UNSEEN = "does not see"
BLOCKS = ".qsb"
_ROW = re.compile(r"\brow (\d+)")


Route = tuple[str | None, str | None]


class StagingError(RuntimeError):
    """A staged file is not what its commit message says."""


@dataclass(frozen=True)
class StagedFile:
    """One task's rows.

    Attributes:
        name: file name within the job's folder; "" when there were no rows (then there is no file).
        partition: number of the partition; files are published in this order.
        rows: how many.
        bytes: size of the file.
        crc32: of the whole file (zlib's polynomial); 0 of one that the store adopts, whose blocks
            have their own.
        routes: the distinct (exchange, routing key) of the rows, None where a row has none of its
            own; None when there are more than ``ROUTES_MAX``.
    """

    name: str
    partition: int
    rows: int
    bytes: int
    crc32: int
    routes: frozenset[Route] | None = frozenset()

    @property
    def is_adopted(self) -> bool:
        """Whether the store takes it as it is."""
        return self.name.endswith(BLOCKS)


class _SummingFile:
    """What pyarrow needs of a file to write to, with a running size and CRC."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by close()
        self.bytes = 0
        self.crc32 = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self.crc32 = zlib.crc32(view, self.crc32)
        self.bytes += len(view)
        rest = view
        while rest:
            rest = rest[self._file.write(rest) :]
        return len(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.closed = True
        self._file.close()


class StagingFolder:
    """The staged files of one job."""

    def __init__(self, store_path: str, job: str) -> None:
        self.root = Path(store_path) / FOLDER
        self.path = self.root / job

    def create(self) -> None:
        """Make the folder, before any task of a batch job runs, or by the first one of a stream's.

        Raises:
            FileNotFoundError: there is no store here.
        """
        for _ in range(100):
            self.root.mkdir(mode=0o700, exist_ok=True)
            try:
                self.path.mkdir(mode=0o700, exist_ok=True)
                return
            except FileNotFoundError:
                continue  # another job's sweep removed the empty root in between
        raise StagingError(f"cannot make the folder {self.path}")

    def join(self) -> None:
        """Make the folder from a task of a stream's batch, which nobody prepares: attempts that
        come late leave something, which goes when it is old.

        Raises:
            StagingError: this machine does not see the store.
        """
        try:
            self.create()
        except FileNotFoundError as error:
            raise self.unseen() from error

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        partition: int,
        attempt: int,
        tells_routes: bool = True,
        is_durable: bool = True,
    ) -> StagedFile:
        """Write one attempt's batches to a file of its own; durable when this returns, if asked.

        One batch is in memory at a time.

        Args:
            batches: of one schema, b rows each.
            partition: number of the partition.
            attempt: number of the attempt, unique in the job.
            tells_routes: collect the distinct routes of the rows.

        Raises:
            OSError: the file could not be written.
            StagingError: this machine does not see the store, or the job is over (its folder is
                gone).
        """
        import pyarrow as pa

        name = f"{partition}-{attempt}.arrow"
        temporary = self.path / (name + ".tmp")
        sink: _SummingFile | None = None
        writer: pa.RecordBatchFileWriter | None = None
        routes: set[Route] | None = set() if tells_routes else None
        rows = 0
        try:
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                if writer is None:
                    sink = self._open(temporary)
                    writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
                routes = _add_routes(routes, batch)
            if writer is None or sink is None:
                return StagedFile(name="", partition=partition, rows=0, bytes=0, crc32=0)
            writer.close()
            if is_durable:
                sink.sync()
        except BaseException:
            if sink is not None:
                temporary.unlink(missing_ok=True)
            raise
        finally:
            if sink is not None:
                sink.close()
        os.rename(temporary, self.path / name)
        if is_durable:
            sync_directory(self.path)
        return StagedFile(
            name=name,
            partition=partition,
            rows=rows,
            bytes=sink.bytes,
            crc32=sink.crc32,
            routes=None if routes is None else frozenset(routes),
        )

    def write_blocks(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        partition: int,
        attempt: int,
        exchange: str = "",
        routing_key: str | None = None,
        content_type: str | None = None,
    ) -> StagedFile:
        """The same as ``write`` as a file that the store adopts; every row is checked.

        Args:
            exchange, routing_key, content_type: of rows that have none of their own.

        Raises:
            As ``write``, and ColumnError: a row that makes no message.
        """
        import pyqstore

        name = f"{partition}-{attempt}{BLOCKS}"
        properties = pyqstore.Properties(content_type=content_type, delivery_mode=2)
        rows = 0
        try:
            with pyqstore.StagedWriter(
                self.path / name,
                exchange=exchange,
                routing_key=routing_key,
                properties=properties,
            ) as writer:
                for batch in batches:
                    try:
                        rows += writer.write_batch(batch)
                    except (ValueError, pyqstore.ChannelError) as error:
                        words = _renumbered(error, rows)
                        raise ColumnError(f"partition {partition}: {words}") from error
        except FileNotFoundError as error:
            raise self._gone() from error
        made = writer.result
        return StagedFile(
            name=name if made.rows else "",
            partition=partition,
            rows=made.rows,
            bytes=made.bytes,
            crc32=0,
            routes=None,
        )

    def path_of(self, staged: StagedFile) -> Path:
        """Of a file that the store adopts.

        Raises:
            StagingError: the file is missing, or its size is not what the message says.
        """
        path = self.path / staged.name
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise StagingError(f"staged file {path} is missing") from error
        if size != staged.bytes:
            raise StagingError(
                f"staged file {path} has {size} bytes, its task reported {staged.bytes}"
            )
        return path

    def _open(self, path: Path) -> _SummingFile:
        """A new file in the job's folder, or words for why there is none."""
        try:
            return _SummingFile(path)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _gone(self) -> StagingError:
        """There is no folder."""
        if not self.root.parent.is_dir():
            return self.unseen()
        return StagingError(
            f"the job is over: its folder {self.path} is gone, and so is what this attempt would "
            f"add"
        )

    def unseen(self) -> StagingError:
        """What an executor says that does not see the store's directory, or has another one there
        (whoever looks for ``UNSEEN`` in it can tell)."""
        return StagingError(
            f"executor {socket.gethostname()} {UNSEEN} {self.root.parent}: a store that Spark "
            f"writes to must lie in a directory that every executor sees under this name"
        )

    def read(self, staged: StagedFile) -> Iterator[pa.RecordBatch]:
        """The batches of a staged file, read in place through a memory map.

        Everything is checked before the first batch is handed out.

        Raises:
            StagingError: the file is missing, or its size, CRC or row count is not what the message
                says.
        """
        import pyarrow as pa

        path = self.path / staged.name
        try:
            mapped = pa.memory_map(str(path), "r")
        except FileNotFoundError as error:
            raise StagingError(f"staged file {path} is missing") from error
        with mapped:
            size = mapped.size()
            crc32 = zlib.crc32(memoryview(mapped.read_buffer(size)))
            if size != staged.bytes or crc32 != staged.crc32:
                raise StagingError(
                    f"staged file {path} has {size} bytes with CRC {crc32:08x}, "
                    f"its task reported {staged.bytes} with {staged.crc32:08x}"
                )
            mapped.seek(0)
            reader = pa.ipc.open_file(mapped)
            rows = reader.count_rows()
            if rows != staged.rows:
                raise StagingError(
                    f"staged file {path} has {rows} rows, its task reported {staged.rows}"
                )
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def sweep(self) -> None:
        """Remove the job's folder, and the root when that is empty.  Never raises."""
        for _ in range(10):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                break
            time.sleep(0.01)  # an attempt that lost its race was just adding a file
        _remove_empty(self.root)

    def clear(self, *, but: str = "") -> None:
        """Remove the job's files, but one; the folder stays, and tells that its commit is not over.
        Never raises."""
        with suppress(OSError):
            for entry in os.scandir(self.path):
                with suppress(OSError):
                    if entry.name != but:
                        os.unlink(entry.path)

    def stale(self, *, older_than_s: float = STALE_S) -> list[str]:
        """Other jobs' folders that nothing was added to for so long: their drivers died.

        A job that is that slow fails at its commit (a file it names is missing); nothing is lost in
        silence.
        """
        limit = time.time() - older_than_s
        try:
            return [
                entry.name
                for entry in os.scandir(self.root)
                if entry.stat().st_mtime < limit and not entry.name.startswith(_KEPT)
            ]
        except OSError:
            return []

    def sweep_stale(self, names: Sequence[str]) -> None:
        """Remove such folders.  Never raises."""
        for name in names:
            shutil.rmtree(self.root / name, ignore_errors=True)
        _remove_empty(self.root)


def _add_routes(routes: set[Route] | None, batch: pa.RecordBatch) -> set[Route] | None:
    """The batch's distinct routes added; None once they are too many to be worth a message."""
    if routes is None:
        return None
    names = [name for name in ("exchange", "routing_key") if name in batch.schema.names]
    if not names:
        return {(None, None)}
    import pyarrow as pa

    distinct = pa.Table.from_batches([batch.select(names)]).group_by(names).aggregate([])
    routes.update((row.get("exchange"), row.get("routing_key")) for row in distinct.to_pylist())
    return routes if len(routes) <= ROUTES_MAX else None


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # not empty, or gone: both fine
        folder.rmdir()


def sync_directory(path: Path) -> None:
    """What was renamed or made in it is durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renumbered(error: Exception, first_row: int) -> str:
    """The words of an error about a row of a batch whose first row has this number."""
    return _ROW.sub(lambda found: f"row {first_row + int(found[1])}", str(error), count=1)
