"""MANIFEST, read and written by the tool that salvages, in the copy of a store: made again from the
headers of the other files where it is lost, and without a checkpoint where that is
(docs/FORMAT.md)."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from ..codec import crc32c

__all__ = ["Checkpoint", "Manifest", "made_again", "message_files"]

_MAGIC = b"QSMANIF1"
_VERSION = 7
_FEATURES = 15  # all that files of this version may need
_HEAD = struct.Struct("<8sIIII16sQIIQQQIIQQ")
_SESSION = struct.Struct("<QQII")
_CRC = struct.Struct("<I")
_JOURNAL = struct.Struct("<8sII16sQQQIIQI")  # and its checksum
_JOURNAL_MAGIC, _JOURNAL_VERSION = b"QSJOURN1", 3
_CHECKPOINT = struct.Struct("<8sII16sQQI")
_CHECKPOINT_MAGIC, _CHECKPOINT_VERSION, _CHECKPOINT_HEAD_BYTES = b"QSCHECK1", 3, 64
_RECORD = struct.Struct("<IB")
_MESSAGE_FILE = struct.Struct("<8xII8xQ")
_MESSAGE_FILE_TYPE = 16
_SEGMENT = struct.Struct("<8sII16sQQII")
_SEGMENT_MAGIC = b"QSSEGMT\n"
_SEGMENT_ENTRIES = 16384


class Session(NamedTuple):
    """From one open of the store to the next."""

    salt: int
    base_lsn: int
    first_file: int
    after_crash: int


class Checkpoint(NamedTuple):
    """A file that has what the journal says before ``lsn``."""

    number: int = 0
    lsn: int = 0
    bytes: int = 0
    crc: int = 0


_NO_CHECKPOINT = Checkpoint()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What it says, as far as a copy needs it: no end of the journal."""

    uuid: bytes
    segment_entries: int
    session_number: int
    clock_us: int
    sessions: tuple[Session, ...]
    checkpoint: Checkpoint = _NO_CHECKPOINT
    features: int = _FEATURES
    flags: int = 0
    end_lsn: int = 0

    @classmethod
    def read(cls, store: Path) -> Self:
        """That of a store whose engine reads it: nothing is checked here."""
        data = (store / "MANIFEST").read_bytes()
        head = _HEAD.unpack_from(data)
        sessions = _SESSION.iter_unpack(data[_HEAD.size : -_CRC.size])
        return cls(
            features=head[2],
            flags=head[4],
            uuid=head[5],
            end_lsn=head[6],
            segment_entries=head[7],
            checkpoint=Checkpoint(*head[9:13]),
            session_number=head[14],
            clock_us=head[15],
            sessions=tuple(Session(*session) for session in sessions),
        )

    def write(self, store: Path) -> None:
        """To a store that nobody else knows of yet."""
        head = _HEAD.pack(
            _MAGIC, _VERSION, self.features, 0, self.flags, self.uuid, self.end_lsn,
            self.segment_entries, len(self.sessions), *self.checkpoint, 0, self.session_number,
            self.clock_us,
        )  # fmt: skip
        data = head + b"".join(_SESSION.pack(*session) for session in self.sessions)
        descriptor = os.open(store / "MANIFEST", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data + _CRC.pack(crc32c(data)))
            file.flush()
            os.fsync(file.fileno())

    def without_checkpoint(self) -> Manifest:
        """The journal alone.  It begins at LSN 0, so that what is missing of it counts as lost, and
        messages in queues whose declaration is lost come back."""
        first, *others = self.sessions
        sessions = (first._replace(base_lsn=0), *others)
        return replace(self, checkpoint=_NO_CHECKPOINT, sessions=sessions)


class _Journal(NamedTuple):
    """The header of a journal file."""

    number: int
    uuid: bytes
    salt: int
    base_lsn: int
    session: int


def made_again(store: Path) -> Manifest | None:
    """From the headers of journal files, the newest checkpoint that may be whole, and a segment.
    None: there is nothing to make it from."""
    journal = list(_journal_files(store))
    uuids = Counter(file.uuid for file in journal)
    checkpoints = list(_checkpoints(store))
    uuids.update(uuid for uuid, _ in checkpoints)
    if not uuids:
        return None
    uuid = uuids.most_common(1)[0][0]
    checkpoint = next((one for owner, one in checkpoints if owner == uuid), _NO_CHECKPOINT)
    first = _first_file([file for file in journal if file.uuid == uuid], checkpoint)
    if first is None:  # the checkpoint alone is left
        begin = Session(int.from_bytes(os.urandom(8), "little"), checkpoint.lsn, 1, 1)
    else:
        begin = Session(first.salt, first.base_lsn, first.number, 1)
    return Manifest(
        uuid=uuid,
        segment_entries=_segment_entries(store),
        session_number=first.session if first is not None else 1,
        clock_us=0,
        sessions=(begin,),
        checkpoint=checkpoint,
    )


def _first_file(journal: list[_Journal], checkpoint: Checkpoint) -> _Journal | None:
    """The file in which the checkpoint's LSN lies; without a checkpoint the first one."""
    if not checkpoint.number:
        return min(journal, key=lambda file: (file.base_lsn, file.number), default=None)
    before = [file for file in journal if file.base_lsn <= checkpoint.lsn]
    return max(before, key=lambda file: (file.base_lsn, file.number), default=None)


def _heads(store: Path, pattern: str, count: int) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(store.glob(pattern)):
        with path.open("rb") as file:
            data = file.read(count)
        if len(data) == count:
            yield path, data


def _journal_files(store: Path) -> Iterator[_Journal]:
    for path, data in _heads(store, "journal/*.jnl", _JOURNAL.size + _CRC.size):
        magic, version, number, uuid, salt, _, lsn, _, _, session, _ = _JOURNAL.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _JOURNAL.size)
        is_whole = (magic, version) == (_JOURNAL_MAGIC, _JOURNAL_VERSION)
        is_whole = is_whole and crc == crc32c(data[: _JOURNAL.size])
        if is_whole and path.stem == f"{number:010}":  # else it is used again
            yield _Journal(number, uuid, salt, lsn, session)


def _checkpoints(store: Path) -> Iterator[tuple[bytes, Checkpoint]]:
    """Newest first."""
    for path in sorted(store.glob("checkpoint/*.ckp"), reverse=True):
        data = path.read_bytes()
        if len(data) < _CHECKPOINT_HEAD_BYTES:
            continue
        magic, version, _, uuid, number, lsn, _ = _CHECKPOINT.unpack_from(data)
        is_whole = (magic, version) == (_CHECKPOINT_MAGIC, _CHECKPOINT_VERSION)
        if is_whole and path.stem == f"{number:010}":
            yield uuid, Checkpoint(number, lsn, len(data), crc32c(data))


def _segment_entries(store: Path) -> int:
    found: Counter[int] = Counter()
    for _, data in _heads(store, "index/*.seg", _SEGMENT.size):
        magic, *_, entries = _SEGMENT.unpack_from(data)
        if magic == _SEGMENT_MAGIC:
            found[entries] += 1
    return found.most_common(1)[0][0] if found else _SEGMENT_ENTRIES


def message_files(store: Path) -> Iterator[tuple[str, int]]:
    """The names of the message files that the checkpoint names, and how far they reach."""
    number = Manifest.read(store).checkpoint.number
    data = (store / "checkpoint" / f"{number:010}.ckp").read_bytes()
    at = _CHECKPOINT_HEAD_BYTES
    while at < len(data):
        length, kind = _RECORD.unpack_from(data, at)
        if kind == _MESSAGE_FILE_TYPE:
            file, generation, end = _MESSAGE_FILE.unpack_from(data, at)
            yield f"{file:010}{f'-{generation:04}' if generation else ''}.msg", end
        at += length
