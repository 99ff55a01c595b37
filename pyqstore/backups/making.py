"""Making a backup of a store's files, which nothing changes meanwhile: a snapshot's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from .. import store as _store
from .keeping import FILES, Backup, Entry, backups, document_name, next_name, object_name
from .target import Target

__all__ = ["Made", "Sent", "back_up", "send"]

_CHUNK_BYTES = 4 << 20


class Made(NamedTuple):
    """What a backup took."""

    name: str
    """By which it is restored."""
    files: int
    """Of the store."""
    sent: int
    """Files whose content the target did not have yet."""
    bytes: int
    """Of the files, holes among them."""
    sent_bytes: int
    """That the target got, compressed."""
    damages: int
    """Places that ``verify`` finds damaged in the store, and so in what is restored."""


class Sent(NamedTuple):
    """A store's files, which a target has."""

    files: tuple[Entry, ...]
    sent: int
    """Files whose content the target did not have yet."""
    sent_bytes: int
    """That the target got, compressed."""


def back_up(
    folder: str | os.PathLike[str],
    target: Target,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Made:
    """Put a store that nobody opens meanwhile, as a snapshot, into the target.  It is there, and
    durable, when this returns.  A damaged one is as well, and ``damages`` says so.  ``progress`` is
    told bytes: done, of how many.

    StoreNotFound: there is none; ValueError: there is a file that is no store's; OSError.
    """
    damages = _store.verify(folder).damages
    sent = send(folder, target, progress)
    backup = Backup(*next_name(backups(target)), sent.files)
    target.put(document_name(backup.name), [backup.document()])
    _check(target, backup)
    return Made(backup.name, len(sent.files), sent.sent, backup.size, sent.sent_bytes, damages)


def send(
    folder: str | os.PathLike[str],
    target: Target,
    progress: Callable[[int, int], object],
    kept: str = FILES,
) -> Sent:
    """Put what the target's folder ``kept`` does not have yet of the store's files.  ValueError:
    there is a file that is no store's; OSError."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    total = 2 * sum(path.stat().st_size for path in paths)  # each is read for its checksum first
    there = set(target.listed(kept))
    entries: list[Entry] = []
    done = sent = sent_bytes = 0
    for path in paths:
        size = path.stat().st_size
        entry = Entry(path.relative_to(folder).as_posix(), size, _checksum(path))
        entry.check()
        entries.append(entry)
        name = object_name(entry.sha256, kept)
        if name.removeprefix(f"{kept}/") not in there:
            counter = _Counter()
            target.put(name, counter.counted(_compressed(path)))
            there.add(name.removeprefix(f"{kept}/"))
            sent += 1
            sent_bytes += counter.bytes
        done += 2 * size
        progress(done, total)
    return Sent(tuple(entries), sent, sent_bytes)


def _check(target: Target, backup: Backup) -> None:
    """A file that was there at first may have gone: with a backup that another run removed."""
    there = target.listed(FILES)
    for each in backup.files:
        if object_name(each.sha256).removeprefix(f"{FILES}/") not in there:
            target.remove([document_name(backup.name)])
            raise OSError(
                f"{target.place}: what {each.name} holds was removed while the backup was made:"
                " make it again"
            )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Counter:
    def __init__(self) -> None:
        self.bytes = 0

    def counted(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.bytes += len(part)
            yield part


class _Pieces:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: pa.Buffer) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _compressed(path: Path) -> Iterator[bytes]:
    pieces = _Pieces()
    with (
        path.open("rb") as file,
        pa.CompressedOutputStream(pa.PythonFile(pieces, mode="w"), "zstd") as out,
    ):
        while chunk := file.read(_CHUNK_BYTES):
            out.write(chunk)
            if ready := pieces.taken():
                yield ready
    yield pieces.taken()
