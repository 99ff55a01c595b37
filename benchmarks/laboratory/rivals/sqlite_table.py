"""SQLite: a table as a queue, in write-ahead mode, synced at each commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pyqstore.bench.runs import timed

from .contract import BATCH, Rival

INSERT = "INSERT INTO queue (body) VALUES (?)"


class Sqlite(Rival):
    """``journal_mode=WAL, synchronous=FULL``; an INTEGER PRIMARY KEY gives the order.

    SQLite has no answers outstanding: a single durable message is a transaction.  So pipelining is
    publishing and waiting, one after the other.
    """

    name = "SQLite"

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def start(self, directory: Path) -> None:
        # No transactions but those that are begun here: each INSERT alone is one.
        self._connection = sqlite3.connect(directory / "queue.db", isolation_level=None)
        self._execute = self._connection.execute
        (mode,) = self._execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise RuntimeError(f"SQLite stays in journal mode {mode} on this file system")
        self._execute("PRAGMA synchronous=FULL")
        self._execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def publish_and_wait(self, body: bytes, count: int) -> list[float]:
        return timed(lambda: self._execute(INSERT, (body,)), count)

    def publish_pipelined(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._execute(INSERT, (body,))

    def publish_batches(self, batch: Sequence[bytes], batches: int) -> None:
        assert self._connection is not None
        for _ in range(batches):
            self._execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, ((body,) for body in batch))
            self._execute("COMMIT")

    def consume(self, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            self._execute("BEGIN IMMEDIATE")
            select = "SELECT id, body FROM queue ORDER BY id LIMIT ?"
            rows = self._execute(select, (min(BATCH, count - len(bodies)),)).fetchall()
            if not rows:
                raise RuntimeError(f"{len(bodies)} messages came and no more, of {count}")
            self._execute("DELETE FROM queue WHERE id <= ?", (rows[-1][0],))
            self._execute("COMMIT")
            bodies += [body for _, body in rows]
        return bodies

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
