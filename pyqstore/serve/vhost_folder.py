"""The directory of ``pyqstore serve --vhosts``: a store for each virtual host, and their notes.

``FOLDER/NAME`` is the store, with the name quoted as in a URL; ``FOLDER/.vhosts.json`` has
descriptions and tags.  A store is renamed before it is removed: the next start removes what a power
cut leaves of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ..disk import sync
from .user_file import read_json, write_json

__all__ = ["VHOST_BYTES_MAX", "VhostFolder", "VhostNote"]

VHOST_BYTES_MAX = 255
_log = logging.getLogger("pyqstore")
_NOTES = ".vhosts.json"
_REMOVED = ".removed-"
_NAME_BYTES_MAX = 255  # of a file name


@dataclass(frozen=True)
class VhostNote:
    """Description and tags of a virtual host."""

    description: str = ""
    tags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """In RabbitMQ's form."""
        return {"description": self.description, "tags": list(self.tags)}

    @classmethod
    def of(cls, found: Any, before: VhostNote | None = None) -> VhostNote:
        """Parses a note; missing values are taken from ``before``.  ValueError: it is invalid."""
        if not isinstance(found, dict):
            raise ValueError(f"expected an object, not {found!r:.80}")
        kept = cls() if before is None else before
        description, tags = found.get("description", kept.description), found.get("tags")
        words = tags.split(",") if isinstance(tags, str) else tags
        words = list(kept.tags) if words is None else words
        if not isinstance(description, str):
            raise ValueError("description must be text")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("tags must be text, or a list of text")
        return cls(description, tuple(word.strip() for word in words if word.strip()))


class VhostFolder:
    """Belongs to one process, like its stores; one thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        """Creates the directory if it is missing.  ValueError: another server uses it, or an entry
        is not a store's; OSError."""
        self._path = path
        try:
            path.mkdir(mode=0o700)
            sync(path.absolute().parent)
        except FileExistsError:
            pass
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{path}: another server has its virtual hosts there") from None
        for entry in path.iterdir():
            if entry.name.startswith(_REMOVED):
                shutil.rmtree(entry, ignore_errors=True)
        self._notes = self._read_notes()

    def places(self) -> dict[str, Path]:
        """The stores by virtual host.  ValueError: an entry's name is not one of a virtual host."""
        found = {}
        for entry in sorted(self._path.iterdir()):
            if entry.name.startswith(".") or entry.name == "lost+found":
                continue
            name = unquote(entry.name)
            if _quoted(name) != entry.name or not entry.is_dir():
                raise ValueError(
                    f"{entry}: no store of a virtual host; --vhosts has nothing else in its folder"
                )
            found[name] = entry
        return found

    def place(self, name: str) -> Path:
        """The directory of a new store.  ValueError: no virtual host can have the name."""
        encoded = name.encode()
        if not 0 < len(encoded) <= VHOST_BYTES_MAX or 0 in encoded or name == "/":
            raise ValueError(f"no name of a further vhost: {name!r:.300}; 1 to 255 bytes, no NUL")
        if len(quoted := _quoted(name)) > _NAME_BYTES_MAX:
            raise ValueError(f"the name of vhost {name!r} is too long: {quoted} names its store")
        return self._path / quoted

    def note(self, name: str) -> VhostNote:
        """The note of a virtual host."""
        return self._notes.get(name, VhostNote())

    def keep_note(self, name: str, note: VhostNote) -> None:
        """Durable on return."""
        self._change_notes({**self._notes, name: note})

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Locks the store against other processes, as far as the file system has locks.
        ValueError: another process has it open."""
        place = self.place(name)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, directory)
                try:
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(f"{place} is open: close it there first") from None
                except OSError as error:  # directories cannot be locked
                    _log.debug("%s: %s", place, error)
            yield

    def take_away(self, name: str) -> Path:
        """Removes a closed or missing store durably, and its note.  Returns the renamed directory,
        to be deleted.  OSError: nothing has changed."""
        leaving = self._path / f"{_REMOVED}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            self.place(name).rename(leaving)
        try:
            sync(self._path)
            self._change_notes({key: note for key, note in self._notes.items() if key != name})
        except OSError as error:
            _log.warning("vhost %r is deleted, and may be there after a power cut: %s", name, error)
        return leaving

    def _read_notes(self) -> dict[str, VhostNote]:
        path = self._path / _NOTES
        try:
            found = read_json(path)
            if not isinstance(found, dict):
                raise ValueError("expected an object")
            return {name: VhostNote.of(note) for name, note in found.items()}
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _change_notes(self, notes: dict[str, VhostNote]) -> None:
        told = {name: note for name, note in notes.items() if note != VhostNote()}
        if told != self._notes:
            write_json(self._path, _NOTES, {name: note.to_dict() for name, note in told.items()})
            self._notes = told


def _quoted(name: str) -> str:
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
