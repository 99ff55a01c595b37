"""What a target holds: documents of backups, and files that they name."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .target import Target

__all__ = [
    "FILES",
    "Backup",
    "Entry",
    "backups",
    "document_name",
    "entries_of",
    "next_name",
    "object_name",
    "prune",
    "read",
    "remove_unneeded",
]

FILES = "files"
_DOCUMENTS = "backups"
_FORMAT = 1
_TIME = "%Y%m%dT%H%M%S.%fZ"
_DOCUMENT = re.compile(r"(\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8})\.json")
# Names of a store's files: a document that others wrote must lead nowhere else.
_FILE = re.compile(r"(?:(?:checkpoint|index|journal|messages|streams|transient)/)?[\w-][\w.-]*")
_HASH = re.compile(r"[0-9a-f]{64}")
_SPARED = timedelta(days=1)  # a backup that is being made may need what no document names


@dataclass(frozen=True)
class Entry:
    """A file of a store."""

    name: str
    """Under the store's directory."""
    size: int
    """Bytes."""
    sha256: str

    def check(self) -> None:
        """ValueError: it is no file of a store, and its name might lead elsewhere."""
        if not _FILE.fullmatch(self.name) or not _HASH.fullmatch(self.sha256) or self.size < 0:
            raise ValueError(f"{self} is no file of a store")


@dataclass(frozen=True)
class Backup:
    """What ``restore`` needs."""

    name: str
    """Begins with the time, so that the last name is the newest."""
    made: datetime
    """When, in UTC."""
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of its files, holes among them."""
        return sum(each.size for each in self.files)

    def document(self) -> bytes:
        """As it is stored."""
        files = [vars(each) for each in self.files]
        text = json.dumps({"format": _FORMAT, "made": self.made.isoformat(), "files": files})
        return text.encode()


def backups(target: Target) -> list[str]:
    """The names of the backups, the oldest first.  OSError."""
    matched = map(_DOCUMENT.fullmatch, target.listed(_DOCUMENTS))
    return sorted(found[1] for found in matched if found is not None)


def read(target: Target, name: str) -> Backup:
    """FileNotFoundError: there is none of that name; ValueError: it is not whole; OSError."""
    place = document_name(name)
    if _DOCUMENT.fullmatch(f"{name}.json") is None:
        raise FileNotFoundError(f"{target.place}: no backup is named {name!r}")
    data = b"".join(target.parts(place))
    try:
        return _parsed(name, json.loads(data))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{target.place}: {place} is no backup's document: {error!r}") from None


def _parsed(name: str, told: Any) -> Backup:
    if told["format"] != _FORMAT:
        raise ValueError(f"its format is {told['format']!r}, and this version knows {_FORMAT}")
    return Backup(name, datetime.fromisoformat(told["made"]), entries_of(told["files"]))


def entries_of(told: Any) -> tuple[Entry, ...]:
    """The files that a document names.  ValueError and the like: they are none."""
    files = tuple(Entry(str(each["name"]), int(each["size"]), str(each["sha256"])) for each in told)
    for each in files:
        each.check()
    if len({each.name for each in files}) < len(files):
        raise ValueError("a file is there twice")
    return files


def next_name(names: list[str]) -> tuple[str, datetime]:
    """Of a backup that is made now, and when that is: behind all others whatever the clock
    says."""
    made = datetime.now(UTC)
    if names:
        last = datetime.strptime(names[-1].partition("-")[0], _TIME).replace(tzinfo=UTC)
        made = max(made, last + timedelta(microseconds=1))
    return f"{made:{_TIME}}-{secrets.token_hex(4)}", made


def document_name(name: str) -> str:
    """Of a backup's document in its target."""
    return f"{_DOCUMENTS}/{name}.json"


def object_name(sha256: str, kept: str = FILES) -> str:
    """Of a file's content in its target, in the folder ``kept``."""
    return f"{kept}/{sha256}.zst"


def prune(target: Target, keep: int, spared: timedelta = _SPARED) -> list[str]:
    """Remove all backups but the newest ``keep``, and then what files no backup names; not those
    that are younger than ``spared``, which a backup under way may be about to name.

    Returns the names of the backups that went.  ValueError: ``keep`` is less than 1, or a document
    that stays cannot be read; OSError.
    """
    if keep < 1:
        raise ValueError(f"keep must be 1 or more, not {keep}: the newest backup stays")
    names = backups(target)
    gone, stay = names[:-keep], names[-keep:]
    needed = {object_name(each.sha256) for name in stay for each in read(target, name).files}
    target.remove([document_name(name) for name in gone])
    remove_unneeded(target, needed, FILES, spared)
    return gone


def remove_unneeded(target: Target, needed: Container[str], kept: str, spared: timedelta) -> None:
    """Remove the objects in the folder ``kept`` that are not needed and older than ``spared``."""
    before = datetime.now(UTC) - spared
    target.remove(
        [
            f"{kept}/{name}"
            for name, written in target.listed(kept).items()
            if f"{kept}/{name}" not in needed and written <= before
        ]
    )
