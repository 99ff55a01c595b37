"""LMDB: ordered keys as a queue, each transaction synced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyqstore.bench.runs import timed

from .contract import BATCH, Rival, package_version, packages_missing

MAP_BYTES = 4 << 30  # a bound of the file, which begins small


class Lmdb(Rival):
    """``sync=True, metasync=True``; keys count up and are appended.

    One writer at a time, and a sync for each transaction: pipelining is publishing and waiting.
    """

    name = "LMDB"

    def __init__(self) -> None:
        self._env: Any = None
        self._last = 0

    def missing(self) -> str | None:
        return packages_missing("lmdb")

    def version(self) -> str:
        import lmdb

        return f"LMDB {'.'.join(map(str, lmdb.version()))}, {package_version('lmdb')}"

    def start(self, directory: Path) -> None:
        import lmdb

        self._env = lmdb.open(str(directory / "lmdb"), map_size=MAP_BYTES)

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return timed(lambda: self._put(body), count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._put(body)

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        for _ in range(batches):
            keys = range(self._last + 1, self._last + 1 + len(batch))
            items = [(key.to_bytes(8), body) for key, body in zip(keys, batch, strict=True)]
            with self._env.begin(write=True) as transaction:
                transaction.cursor().putmulti(items, append=True)
            self._last = keys[-1]

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            with self._env.begin(write=True) as transaction:
                cursor = transaction.cursor()
                if not cursor.first():
                    raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
                for _ in range(min(BATCH, count - len(bodies))):
                    bodies.append(cursor.value())
                    cursor.delete()  # and goes to the next
        return bodies

    def stop(self) -> None:
        if self._env is not None:
            self._env.close()

    def _put(self, body: bytes) -> None:
        self._last += 1
        with self._env.begin(write=True) as transaction:
            transaction.put(self._last.to_bytes(8), body, append=True)
