"""Archives, measured: publishing beside one, how far it lags, what a power cut between two parts
costs, and a restore beside what the disk takes.

    python benchmarks/archive.py [--gib N] [--directory DIR]

The target is a folder on the same disk, so each byte is written twice.  Bodies are random: zstd
makes nothing of them.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa

import pyqstore
from pyqstore.archives import Archived, archive, restore
from pyqstore.backups import Target
from pyqstore.fields import FieldValue

_ROWS = 500
_SIZES = {"1 KiB in a queue": ("q", 1024), "64 KiB in a queue": ("q", 65536),
          "1 KiB in a stream": ("s", 1024)}  # fmt: skip
_SECONDS = 10.0
_PACE = 30e6  # bytes a second
_CHUNK = 4 << 20


def batch(size: int) -> pa.RecordBatch:
    """Rows of random bytes."""
    count = max(1, min(_ROWS, (4 << 20) // size))
    return pa.record_batch({"body": [random.randbytes(size) for _ in range(count)]})


def publishing(
    store: pyqstore.Store, name: str, rows: pa.RecordBatch, pace: float
) -> tuple[float, float]:
    """MB a second, durable, ``pace`` at most; and the ms in which 99 of 100 batches were."""
    properties = pyqstore.Properties(delivery_mode=2)
    size = rows.num_rows * len(rows["body"][0].as_py())
    done, began, took = 0, time.monotonic(), []
    with store.channel() as channel:
        while (now := time.monotonic()) < began + _SECONDS:
            time.sleep(max(0.0, began + done / pace - now))
            at = time.monotonic()
            channel.publish_batch(rows, "", name, properties=properties)
            store.sync()
            took.append(time.monotonic() - at)
            done += size
            if name == "q":
                channel.queue_purge(name)
    return done / 1e6 / (time.monotonic() - began), 1e3 * sorted(took)[len(took) * 99 // 100]


class Running:
    """An archive in a thread."""

    def __init__(self, store: pyqstore.Store, target: Target) -> None:
        self.lags: list[float] = []
        self.last: Archived | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(store, target))
        self._thread.start()
        while self.last is None or not self.last.restorable:
            time.sleep(0.01)

    def _run(self, store: pyqstore.Store, target: Target) -> None:
        def look(report: Archived) -> None:
            self.last = report
            self.lags.append(report.lag_seconds)

        archive(store, target, self._stop, None, look)

    def end(self) -> None:
        """What is durable is sent."""
        self._stop.set()
        self._thread.join()


def declared(path: Path) -> pyqstore.Store:
    """A store with a queue and a stream."""
    store = pyqstore.open(path)
    with store.channel() as channel:
        channel.queue_declare("q", durable=True)
        limits: dict[str, FieldValue] = {
            "x-queue-type": "stream",
            "x-max-length-bytes": 1 << 30,
        }
        channel.queue_declare("s", durable=True, arguments=limits)
    return store


def beside(folder: Path) -> None:
    """Publishing alone and beside an archive, in turn: at a pace, and as fast as it goes."""
    for title, (name, size) in _SIZES.items():
        rows = batch(size)
        for pace in (_PACE, math.inf):
            with declared(folder / "store") as store:
                alone, ms_alone = publishing(store, name, rows, pace)
                running = Running(store, Target(str(folder / "target"), create=True))
                archived, ms = publishing(store, name, rows, pace)
                last = running.last
                running.end()
            assert last is not None
            print(f"{title}: {alone:.0f} MB/s and {ms_alone:.0f} ms alone, {archived:.0f} MB/s and"
                  f" {ms:.0f} ms archived ({archived / alone:.2f});"
                  f" {last.sent_bytes / 1e6 / last.seconds:.0f} MB/s sent;"
                  f" lag {sorted(running.lags)[len(running.lags) // 2]:.1f} s,"
                  f" {max(running.lags):.1f} s at most; begun anew {last.restarts} times",
                  flush=True)  # fmt: skip
            shutil.rmtree(folder / "store")
            shutil.rmtree(folder / "target")


def restoring(folder: Path, size: int) -> None:
    """A store of that size, half of it in the base."""
    target = Target(str(folder / "target"), create=True)
    rows = batch(65536)
    properties = pyqstore.Properties(delivery_mode=2)
    per_batch = rows.num_rows * 65536
    with pyqstore.open(folder / "store") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for _ in range(size // 2 // per_batch):
            channel.publish_batch(rows, "", "q", properties=properties)
        store.sync()
        running = Running(store, target)
        for _ in range(size // 2 // per_batch):
            channel.publish_batch(rows, "", "q", properties=properties)
            store.sync()
        while running.last is None or running.last.lag_bytes:
            time.sleep(0.1)
        running.end()
    shutil.rmtree(folder / "store")
    raw = raw_write(folder / "raw", size)
    copied = raw_copy(folder / "target", folder / "raw")
    began = time.monotonic()
    done = restore(target, folder / "again")
    seconds = time.monotonic() - began
    found = sum(each.stat().st_size for each in (folder / "again").rglob("*") if each.is_file())
    rate = found / seconds
    print(
        f"restore of {found / 1e9:.1f} GB, {done.parts} parts, verified: {seconds:.1f} s,"
        f" {rate / 1e6:.0f} MB/s; the disk alone writes {raw / 1e6:.0f} MB/s: {rate / raw:.2f};"
        f" the target's files are copied at {copied / 1e6:.0f} MB/s: {rate / copied:.2f}"
    )


def raw_write(path: Path, size: int) -> float:
    """Bytes a second of one file, synced."""
    data = random.randbytes(_CHUNK)
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(size // _CHUNK):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    return size / (time.monotonic() - began)


def raw_copy(folder: Path, path: Path) -> float:
    """Bytes a second of all files of a folder, read, and written to one file, synced."""
    size = 0
    began = time.monotonic()
    with path.open("wb") as file:
        for each in folder.rglob("*"):
            if each.is_file():
                with each.open("rb") as source:
                    shutil.copyfileobj(source, file, _CHUNK)
                size += each.stat().st_size
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    return size / (time.monotonic() - began)


def main() -> None:
    """Print what is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="of the store that is restored")
    parser.add_argument("--directory", help="where stores and targets lie")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        beside(Path(folder))
        restoring(Path(folder), int(given.gib * 2**30))


if __name__ == "__main__":
    main()
