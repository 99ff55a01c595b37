"""persist-queue: its queue in files, and its queue with acknowledgements in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyqstore.bench.runs import timed

from .contract import BATCH, Rival, package_version, packages_missing


class _PersistQueue(Rival):
    """What both do the same way: they put one by one, and have no batches."""

    def __init__(self) -> None:
        self._queue: Any = None

    def missing(self) -> str | None:
        return packages_missing("persistqueue")

    def version(self) -> str:
        return package_version("persist-queue")

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return timed(lambda: self._queue.put(body), count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            self.publish_pipelined(batch)


class PersistFiles(_PersistQueue):
    """``Queue``: chunks of pickles, and a file of its own for the place.

    Every put renames a new file of the place over the old one.  A ``task_done`` saves the place of
    everything received before it.
    """

    name = "persist-queue files"

    def start(self, directory: Path) -> None:
        import persistqueue

        # Its new files are renamed into place, so they must be made on the same disk.
        (directory / "new").mkdir()
        self._queue = persistqueue.Queue(str(directory / "queue"), tempdir=str(directory / "new"))

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            got = [self._queue.get_nowait() for _ in range(min(BATCH, count - len(bodies)))]
            for _ in got:
                self._queue.task_done()  # the first saves, the others count
            bodies += got
        return bodies

    def stop(self) -> None:
        self._queue = None  # it closes its files when it goes; it has no other way


class PersistSqlite(_PersistQueue):
    """``SQLiteAckQueue``, as it comes: write-ahead mode, a commit for each call.

    ``auto_commit`` cannot be turned off.  Each message is one commit to put, one to get, one to
    acknowledge.
    """

    name = "persist-queue SQLite"

    def start(self, directory: Path) -> None:
        import persistqueue

        self._queue = persistqueue.SQLiteAckQueue(str(directory / "queue"))

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        for _ in range(count):
            got = self._queue.get(block=False, raw=True)
            self._queue.ack(id=got["pqid"])
            bodies.append(got["data"])
            if len(bodies) % 100 == 0 or len(bodies) == count:
                # Acknowledged messages stay until this, and each get walks over them.
                self._queue.clear_acked_data(max_delete=BATCH, keep_latest=0)
        return bodies

    def stop(self) -> None:
        if self._queue is not None:
            self._queue.close()
