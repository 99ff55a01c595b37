"""Reads the journal of an open store: whole durable blocks, and the bodies that they name.

The engine keeps everything that was not read yet (``qs_store_keep``), so files stay in place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections import deque
from pathlib import Path
from typing import Any

from .. import _core
from .._ffi import ffi, lib
from ..errors import StoreClosed, StoreCorrupt
from .parts import Part, Piece

__all__ = ["BrokenJournal", "JournalReader"]

_log = logging.getLogger("pyqstore")
_PAGE = 4096
_BLOCKS_AT = 3 * _PAGE  # behind the header and two marks
_CHUNK = 1 << 17
_REFERENCE = struct.Struct("<IIQIII")  # file, slot, offset, envelope, body, checksum
_RECORD_HEADER = 32
_REFERENCES = 4096
_HEADER = struct.Struct("<8sII16sQQQ")  # magic, version, number, uuid, salt, next salt, base LSN


class BrokenJournal(Exception):
    """Kept journal cannot be read: the archive must begin anew."""


class JournalReader:
    """Reads forward through the journal.  One thread at a time uses it."""

    def __init__(self, store: _core.Store, directory: str, bytes_max: int) -> None:
        """From now on the engine keeps the journal, until ``close``.  FileExistsError: the store is
        archived already."""
        self._store = store
        self._folder = Path(directory) / "journal"
        self.lsn: int
        """The LSN after what was read."""
        self.durable: int
        self.lsn, self.durable, number, salt, file_lsn = store._keep(bytes_max)
        place = {"salt": salt, "lsn": file_lsn, "file": number, "from_lsn": self.lsn}
        self._walk = ffi.new("qs_journal_walk *", place)
        self._room = _REFERENCES
        self._refs = ffi.new("char[]", self._room * _REFERENCE.size)
        self._at = _BLOCKS_AT
        self._wanted = _CHUNK
        self._fd = -1
        self._header = b""
        """The header of the current file, as it was when the file was opened."""
        self._next_salt = 0
        self._chunk = b""
        """Whole blocks that were read, and are added once the bodies that they name are."""
        self._named: deque[bytes] = deque()
        """References to bodies that no part has yet."""
        self._named_bytes = 0
        self.wants_part: bool = False
        """The next blocks are to begin another part."""
        self.uuid: str = ""
        self._sent: dict[int, bytearray] = {}
        """For each message file a bit for each slot whose body was read."""
        self.damages: int = 0
        try:
            self._open(number)
            self._pass(self.lsn)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The engine keeps nothing any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(StoreClosed):
            self._store._keep_end()

    def look(self) -> int:
        """Release what was read; return the LSN up to which the journal is durable.  BrokenJournal:
        the engine has given up what it kept."""
        self.durable, is_lost = self._store._keep_from(self.lsn)
        if is_lost:
            raise BrokenJournal("more of the journal waited than lag_bytes, or the disk is full")
        return self.durable

    def read(self, part: Part, upto: int, room: int) -> int:
        """Add some of the next blocks, none after ``upto``, and return their bytes.  Bodies that
        need more than ``room`` are divided over several parts, which begin where their blocks
        begin, so that a reader of the blocks finds them.  BrokenJournal."""
        if not self._chunk and not self._named:
            self._find(upto)
        self.wants_part = self._named_bytes > room and part.to_lsn > part.head.from_lsn
        if self.wants_part:
            return 0
        added = 0
        while self._named and added < max(room, 1):
            added += self._add_body(part, self._named.popleft())
        return added if self._named else added + self._add_blocks(part)

    def add_header(self, part: Part) -> None:
        """Add the header of the current file, for the first part of a stream."""
        self._add(part, 0, self._header)

    def _find(self, upto: int) -> None:
        """Find whole blocks, and the bodies that they name."""
        chunk = os.pread(self._fd, self._wanted, self._at)
        self._chunk = chunk[: self._walked(chunk, upto)]
        refs = bytes(ffi.buffer(self._refs, self._walk.ref_count * _REFERENCE.size))
        for at in range(0, len(refs), _REFERENCE.size):
            reference = refs[at : at + _REFERENCE.size]
            file, slot, _, envelope, body, _ = _REFERENCE.unpack(reference)
            if self._is_new(file, slot):
                self._named.append(reference)
                self._named_bytes += _RECORD_HEADER + envelope + body

    def _add_blocks(self, part: Part) -> int:
        chunk, self._chunk = self._chunk, b""
        if chunk:
            self._add(part, self._at, chunk)
            self._at += len(chunk)
        self.lsn = part.to_lsn = int(self._walk.lsn)
        if not self._walk.next_file:
            return len(chunk)
        self._open(self._walk.next_file)
        self.add_header(part)
        return len(chunk) + len(self._header)

    def _add(self, part: Part, at: int, data: bytes) -> None:
        part.pieces.append(Piece(self._number, at, len(data)))
        part.data.insert(len(part.pieces) - 1, data)

    def _walked(self, chunk: bytes, upto: int) -> int:
        """The bytes of it that are whole blocks, by ``_walk``.  If they are less than one block,
        the next look reads more."""
        walk, error = self._walk, ffi.new("qs_error *")
        walk.upto_lsn = upto
        before = walk.lsn
        data = ffi.from_buffer(chunk)
        status = lib.qs_journal_walk_blocks(data, len(chunk), self._refs, self._room, walk, error)
        if status != 0:
            raise BrokenJournal(f"{self._path}: {ffi.string(error.text).decode()}")
        if walk.wanted_refs > self._room:
            self._room = 2 * int(walk.wanted_refs)
            refs, self._refs = self._refs, ffi.new("char[]", self._room * _REFERENCE.size)
            ffi.memmove(self._refs, refs, walk.ref_count * _REFERENCE.size)
        elif walk.is_elsewhere and not walk.walked_bytes:
            raise BrokenJournal("messages were written into a stream's file and not the journal")
        elif not walk.walked_bytes and before < upto and not self._has_more(chunk):
            raise BrokenJournal(f"{self._path} at offset {self._at}: no block that could be read")
        self._wanted = max(_CHUNK, walk.wanted_bytes)
        return int(walk.walked_bytes)

    def _has_more(self, chunk: bytes) -> bool:
        """Whether the block that begins there continues after the read bytes, in its file."""
        wanted = self._walk.wanted_bytes
        return bool(len(chunk) == self._wanted and len(chunk) < wanted)

    def _pass(self, upto: int) -> None:
        """Skip what is before."""
        while self._walk.lsn < upto:
            count = self._walked(os.pread(self._fd, self._wanted, self._at), upto)
            self._at += count
            if self._walk.next_file:
                self._open(self._walk.next_file)

    @property
    def _path(self) -> str:
        return f"journal/{self._number:010d}.jnl"

    def _open(self, number: int) -> None:
        """Open a file that the file before it, or the engine, names."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._number = number
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._folder / f"{number:010d}.jnl", flags)
            header = self._header = os.pread(self._fd, _PAGE, 0)
        except OSError as error:
            raise BrokenJournal(f"{self._path}: {error.strerror}") from error
        if len(header) < _PAGE:
            raise BrokenJournal(f"{self._path}: cut off")
        _, _, found, uuid, salt, next_salt, _ = _HEADER.unpack_from(header)
        expected = self._next_salt or self._walk.salt
        if (found, salt) != (number, expected):
            raise BrokenJournal(f"{self._path}: not the file that the journal goes on in")
        self._walk.salt, self._walk.file, self._next_salt = salt, number, next_salt
        self._at, self._wanted, self.uuid = _BLOCKS_AT, _CHUNK, uuid.hex()

    def _add_body(self, part: Part, reference: bytes) -> int:
        file, _, offset, envelope, body, _ = _REFERENCE.unpack(reference)
        size = _RECORD_HEADER + envelope + body
        self._named_bytes -= size
        data = self._body(reference, size)
        if data is None:
            return 0
        part.bodies.append(Piece(file, offset, size))
        part.data.append(data)
        return int(size)

    def _is_new(self, file: int, slot: int) -> bool:
        bits = self._sent.setdefault(file, bytearray())
        if len(bits) <= slot >> 3:
            bits.extend(bytes(max(slot // 8 + 1 - len(bits), len(bits))))
        is_new = not bits[slot >> 3] >> (slot & 7) & 1
        bits[slot >> 3] |= 1 << (slot & 7)
        return is_new

    def _body(self, reference: bytes, size: int) -> Any:
        """The body; None: it is damaged."""
        try:
            return bytes(self._store._read_body(reference, size))
        except StoreCorrupt as error:
            self.look()  # or else it went because the engine gave up
            self.damages += 1
            _log.warning("archive: a body cannot be read, and is not archived: %s", error)
            return None
