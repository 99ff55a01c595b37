"""Writes parts into the files of a store that is being made."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..codec import crc32c
from ..disk import sync
from .parts import Part, Piece

__all__ = ["StoreWriter"]

_PAGE = 4096
_SECTOR = 512
_AT_ONCE = 4  # files that are synced
_MODE = 0o600
_HEADER = struct.Struct("<8sII16sQQQI")  # of a journal file, up to its pages
_BLOCK = struct.Struct("<4sIQQQIIII")  # of a commit block, up to where the session goes on
_MESSAGES = struct.Struct("<8sIIII16sQQI")  # of a message file, up to its slots
_MESSAGES_MAGIC = b"QSMESSG\n"
_MESSAGES_VERSION = 1
_SALT_AT = 8  # of a body's record
_SALT = struct.Struct("<Q")


class StoreWriter:
    """Any thread may write a part, in any order: each part has its own places in the files."""

    def __init__(self, folder: Path, uuid: str, first_file: int) -> None:
        """``first_file``: the file in which the base's journal begins; earlier files are not
        needed."""
        self._folder = folder
        self._uuid = bytes.fromhex(uuid)
        self._first_file = first_file
        self._messages = folder / "messages"
        self._rewritten = {
            int(path.name.partition("-")[0]) for path in self._messages.glob("*-*.msg")
        }
        """Message files that the base has in a later generation: they had all their bodies then."""
        self._lock = threading.Lock()
        self._written: set[Path] = set()
        self.end_lsn: int = 0
        """The end of the last atomic group that is whole in the last part; 0: there is none."""

    def write(self, part: Part, data: memoryview, upto: int) -> None:
        """Write a part with its data, except for the journal after ``upto``.  ValueError: it makes
        no sense."""
        with contextlib.ExitStack() as stack:
            files: dict[Path, int] = {}

            def opened(path: Path) -> int:
                if path not in files:
                    files[path] = self._opened(path)
                    stack.callback(os.close, files[path])
                return files[path]

            for piece in part.pieces:
                content, data = data[: piece.bytes], data[piece.bytes :]
                content = self._counted(piece, content, part.to_lsn, upto)
                if content:
                    if part.to_lsn >= upto:
                        self._note_end(piece, content)
                    path = self._folder / "journal" / f"{piece.file:010d}.jnl"
                    self._write_piece(opened(path), piece, content)
            for body in part.bodies:
                content, data = data[: body.bytes], data[body.bytes :]
                if body.file not in self._rewritten:
                    path = self._messages / f"{body.file:010d}.msg"
                    self._write_body(opened(path), body, content)

    def close(self) -> None:
        """Make all of it durable, except for names."""
        with ThreadPoolExecutor(_AT_ONCE, "pyqstore-restore") as pool:
            list(pool.map(sync, self._written))

    def _counted(self, piece: Piece, content: memoryview, to_lsn: int, upto: int) -> memoryview:
        """The pieces of it to write."""
        if piece.file < self._first_file:
            return content[:0]
        if piece.at == 0:
            *_, base_lsn, _ = _HEADER.unpack_from(content)
            return content if base_lsn < upto else content[:0]
        return content if to_lsn < upto else content[: _blocks_upto(content, upto)]

    def _note_end(self, piece: Piece, content: memoryview) -> None:
        if piece.at != 0:
            end = max(
                (lsn + count for _, lsn, count, more in _blocks(content) if not more), default=0
            )
            with self._lock:
                self.end_lsn = max(self.end_lsn, end)

    def _write_piece(self, fd: int, piece: Piece, content: memoryview) -> None:
        if piece.at == 0:  # the file has its size from the start, as the store gave it
            *_, pages = _HEADER.unpack_from(content)
            self._grow(fd, pages * _PAGE)
        _write_all(fd, piece.at, content)

    def _write_body(self, fd: int, body: Piece, content: memoryview) -> None:
        if self._grow(fd, -(-(body.at + body.bytes) // _SECTOR) * _SECTOR):
            (salt,) = _SALT.unpack_from(content, _SALT_AT)
            _write_all(fd, 0, memoryview(self._message_header(body.file, salt)))
        _write_all(fd, body.at, content)

    def _message_header(self, number: int, salt: int) -> bytes:
        page = bytearray(_PAGE)
        _MESSAGES.pack_into(
            page, 0, _MESSAGES_MAGIC, _MESSAGES_VERSION, 0, number, 0, self._uuid, salt, 0, 0
        )
        struct.pack_into("<I", page, _PAGE - 4, crc32c(page[: _PAGE - 4]))
        return bytes(page)

    def _grow(self, fd: int, size: int) -> bool:
        """Grow the file; its size never shrinks.  Returns whether the file was empty."""
        with self._lock:
            before = os.fstat(fd).st_size
            if before < size:
                os.ftruncate(fd, size)
        return before == 0

    def _opened(self, path: Path) -> int:
        with self._lock:
            self._written.add(path)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)


def _write_all(fd: int, at: int, content: memoryview) -> None:
    while content:
        written = os.pwrite(fd, content, at)
        content, at = content[written:], at + written


def _blocks_upto(content: memoryview, upto: int) -> int:
    """Bytes of the blocks that end at or before that LSN.  An end block there is left out: it names
    a file without contents."""
    end = 0
    for at, lsn, count, _ in _blocks(content):
        if lsn + count > upto or (count == 0 and lsn >= upto):
            return at
        end = at + -(-(64 + count) // _PAGE) * _PAGE
    return end


def _blocks(content: memoryview) -> Iterator[tuple[int, int, int, bool]]:
    """For each block its offset, its LSN, its bytes of records, and whether its atomic group
    continues."""
    at = 0
    while at < len(content):
        magic, flags, lsn, _, _, _, count, _, _ = _BLOCK.unpack_from(content, at)
        if magic != b"QSJB":
            raise ValueError(f"no block of the journal begins at {at}")
        yield at, lsn, count, bool(flags & 1)
        at += -(-(64 + count) // _PAGE) * _PAGE
