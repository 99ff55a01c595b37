"""A reader of the files of a store that knows nothing but docs/FORMAT.md.

It takes what is whole, wherever it lies: all blocks of journal files, also those that a checkpoint
has replaced, and all records of checkpoints.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pyqstore.codec import crc32c

PAGE = 4096
BLOCKS_AT = 3 * PAGE
MESSAGES, SETTLE, WORK_SEGMENT = 1, 2, 42
FLAGS = {1: "properties per row", 2: "stored bodies", 4: "transient rows", 8: "expirations",
         16: "dues", 32: "aligned columns"}  # fmt: skip
"""Of messages records."""
COLUMNS = {1: "deliveries", 2: "expiries", 4: "sizes", 8: "dues"}
"""Of the state of a segment."""
TIMES = ("one time for all rows", "runs of times", "a time for each row")
"""Of blocks, by their kind of times."""


@dataclass(frozen=True)
class Record:
    """A record, and where it was found."""

    type: int
    flags: int
    data: memoryview
    where: str


@dataclass(frozen=True)
class Manifest:
    """The first fields of MANIFEST."""

    version: int
    incompatible: int
    compatible: int
    flags: int
    checkpoint: int

    @classmethod
    def of(cls, store: Path) -> "Manifest":
        data = (store / "MANIFEST").read_bytes()
        assert data[:8] == b"QSMANIF1"
        assert crc32c(data[:-4]) == struct.unpack("<I", data[-4:])[0]
        return cls(*struct.unpack_from("<IIII", data, 8), struct.unpack_from("<Q", data, 56)[0])


def _split(data: memoryview, where: str) -> Iterator[Record]:
    at = 0
    while at < len(data):
        length, kind, flags = struct.unpack_from("<IBB", data, at)
        assert length >= 8, where
        assert length % 8 == 0, where
        assert at + length <= len(data), where
        yield Record(kind, flags, data[at : at + length], where)
        at += length


def journal_records(path: Path) -> Iterator[Record]:
    """The records of a journal file, as far as its blocks are valid."""
    data = memoryview(path.read_bytes())
    if bytes(data[:8]) != b"QSJOURN1":
        return
    (number,) = struct.unpack_from("<I", data, 12)
    (salt,) = struct.unpack_from("<Q", data, 32)
    at = BLOCKS_AT
    while at + 64 <= len(data) and bytes(data[at : at + 4]) == b"QSJB":
        has_salt, has_number, used = struct.unpack_from("<QII", data, at + 24)
        (crc,) = struct.unpack_from("<I", data, at + 60)
        end = at + 64 + used
        if (has_salt, has_number) != (salt, number) or end > len(data):
            return
        records = data[at + 64 : end]
        if crc32c(records, crc32c(data[at : at + 60])) != crc:
            return
        yield from _split(records, f"{path.name}:{at}")
        at = -(-end // PAGE) * PAGE


def checkpoint_records(path: Path) -> Iterator[Record]:
    data = memoryview(path.read_bytes())
    assert bytes(data[:8]) == b"QSCHECK1", path
    yield from _split(data[64:], path.name)


def records(store: Path) -> Iterator[Record]:
    """All that are whole, of journal and checkpoint."""
    for path in sorted((store / "journal").glob("*.jnl")):
        yield from journal_records(path)
    for path in sorted((store / "checkpoint").glob("*.ckp")):
        yield from checkpoint_records(path)


def bodies_in_place(record: Record) -> pa.BinaryArray:
    """The bodies of a messages record with aligned columns, as an array over the bytes of the file:
    offsets and cells are its buffers, nothing is copied."""
    rows, _routes, _destinations, _, _, _, at = struct.unpack_from("<7I", record.data, 8)
    assert record.flags & 32
    assert at % 64 == 0
    if record.flags & 2:
        at += -(-rows // 8 // 64) * 64
    cells_at = -(-(at + 4 * (rows + 1)) // 64) * 64
    whole = pa.py_buffer(record.data)
    offsets = whole.slice(at, 4 * (rows + 1))
    array = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, whole.slice(cells_at)])
    array.validate(full=True)
    return array


def _kinds_of_segment(path: Path, data: bytes) -> Iterator[str]:
    entries, _slots, flags = struct.unpack_from("<III", data, 52)
    yield "segment, packed" if flags & 1 else "segment, dense"
    if path.parent.name == "transient":
        yield "transient segment"
    header = -(-(128 + entries // 8 + 4) // PAGE) * PAGE
    area = -(-(64 + 2 * (8 * -(-entries // 64)) + 21 * entries) // PAGE) * PAGE
    for at in (header, header + area):
        if data[at : at + 8] == b"QSSEGST\n":
            (columns,) = struct.unpack_from("<I", data, at + 8)
            yield "segment state"
            yield from (f"segment state, {name}" for bit, name in COLUMNS.items() if columns & bit)


def _kinds_of_blocks(data: bytes) -> Iterator[str]:
    """Of a file with blocks of messages by columns."""
    yield "block file, sealed" if data[-4:] == b"QSBF" else "block file"
    if data[-4:] == b"QSST":
        yield "block file, adopted"
    salt = data[48:56]
    for at in range(PAGE, len(data) - 128, 64):
        head = data[at : at + 128]
        if head[:4] == b"QSBK" and head[8:16] == salt:
            assert crc32c(head[:-4]) == struct.unpack("<I", head[-4:])[0]
            yield f"block, {TIMES[head[5]]}"


def kinds_of_file(path: Path) -> Iterator[str]:
    """What a file is, by its first bytes, and what is special about it."""
    data = path.read_bytes()
    magic = data[:8]
    if magic == b"QSMANIF1":
        yield "MANIFEST"
    elif magic == b"QSJOURN1":
        yield "journal file"
        if any(data[at : at + 8] == b"QSJMARK1" for at in (PAGE, 2 * PAGE)):
            yield "mark"
    elif magic == b"QSCHECK1":
        yield "checkpoint"
    elif magic == b"QSKEYSF\n":
        yield "key file"
    elif magic == b"QSMESSG\n":
        (generation,) = struct.unpack_from("<I", data, 20)
        yield "message file, rewritten" if generation else "message file"
    elif magic == b"QSSEGMT\n":
        yield from _kinds_of_segment(path, data)
    elif magic == b"QSBLOCK\n":
        yield from _kinds_of_blocks(data)
    elif magic == b"QSINBOX1":
        yield {1: "inbox manifest", 2: "inbox answer"}[data[8]]
    elif path.name in ("LOCK", "RESERVE"):
        yield path.name


def kinds(store: Path) -> set[str]:
    """Everything of docs/FORMAT.md that occurs in a store, by name."""
    found: set[str] = set()
    for path in store.rglob("*"):
        if path.is_file():
            found.update(kinds_of_file(path))
    for record in records(store):
        found.add(f"record {record.type}")
        if record.type == MESSAGES:
            found.update(f"messages, {name}" for bit, name in FLAGS.items() if record.flags & bit)
            (rows,) = struct.unpack_from("<I", record.data, 8)
            found.add("messages, one row" if rows == 1 else "messages, several rows")
        elif record.type == SETTLE:
            found.add(f"settle {record.flags}")
        elif record.type == WORK_SEGMENT and record.data[37] > 0:
            found.add("work queue segment, with bitmaps of counts")
    return found
