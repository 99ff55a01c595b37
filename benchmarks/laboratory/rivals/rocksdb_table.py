"""RocksDB: ordered keys as a queue, its log synced."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pyqstore.bench.runs import timed

from .contract import BATCH, OUTSTANDING, Rival, package_version, packages_missing


class RocksDb(Rival):
    """``WriteOptions.sync``; keys count up; a range of them is deleted to acknowledge.

    Pipelined messages are written one by one without a sync, and ``flush_wal(sync=True)`` answers
    for those that are outstanding.
    """

    name = "RocksDB"

    def __init__(self) -> None:
        self._db: Any = None
        self._first = self._last = 0

    def missing(self) -> str | None:
        return packages_missing("rocksdict")

    def version(self) -> str:
        return package_version("rocksdict")

    def start(self, directory: Path) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        # A log that is used again needs no new blocks, whose place each sync would have to note.
        options.set_recycle_log_file_num(4)
        self._db = rocksdict.Rdict(str(directory / "rocksdb"), options)
        self._new_batch = rocksdict.WriteBatch
        self._synced = rocksdict.WriteOptions()
        self._synced.sync = True

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return timed(lambda: self._db.put(self._next_key(), body, self._synced), count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), OUTSTANDING):
            for body in bodies[start : start + OUTSTANDING]:
                self._db.put(self._next_key(), body)
            self._db.flush_wal(sync=True)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            writes = self._new_batch(raw_mode=True)
            for body in batch:
                writes.put(self._next_key(), body)
            self._db.write(writes, self._synced)

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            # From the first that is left: whoever starts at the very first key walks over all
            # that was deleted.
            ready = self._db.values(from_key=self._key(self._first))
            got = list(islice(ready, min(BATCH, count - len(bodies))))
            if not got:
                raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
            begin, self._first = self._first, self._first + len(got)
            self._db.delete_range(self._key(begin), self._key(self._first), self._synced)
            bodies += got
        return bodies

    def stop(self) -> None:
        if self._db is not None:
            self._db.close()

    def _next_key(self) -> bytes:
        key = self._key(self._last)
        self._last += 1
        return key

    @staticmethod
    def _key(number: int) -> bytes:
        return number.to_bytes(8)
