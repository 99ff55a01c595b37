"""The contents of an archive's target: documents of bases, files that they name, and parts."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..backups.keeping import Entry, entries_of, next_name, object_name
from ..backups.target import Target
from .parts import Head, parsed_name

__all__ = [
    "FILES",
    "Base",
    "bases",
    "beginning",
    "made_of",
    "new_stream",
    "next_base",
    "parts_of",
    "prune",
    "read_base",
]

FILES = "base-files"
_DOCUMENTS = "bases"
_PARTS = "parts"
_FORMAT = 1
_TIME = "%Y%m%dT%H%M%S.%fZ"
_DOCUMENT = re.compile(r"(\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8})\.json")
_STREAM = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8}")
_SPARED = timedelta(days=1)  # a base that is being made may need what no document names


@dataclass(frozen=True)
class Base:
    """A store at one moment, from which a restore begins."""

    name: str
    """Begins with the time, so the last name is the newest."""
    made: datetime
    """The time, in UTC: with the parts up to ``lsn`` the base has what was durable then."""
    uuid: str
    """The store's UUID."""
    stream: str
    """The stream of the parts that continue it."""
    from_lsn: int
    """The LSN from which these parts are needed."""
    lsn: int
    """What they have after this LSN is not in the base."""
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of its files, including holes."""
        return sum(each.size for each in self.files)

    def document(self) -> bytes:
        """The document, as it is stored."""
        told = {
            "format": _FORMAT,
            "made": self.made.isoformat(),
            "uuid": self.uuid,
            "stream": self.stream,
            "from_lsn": self.from_lsn,
            "lsn": self.lsn,
            "files": [vars(each) for each in self.files],
        }
        return json.dumps(told).encode()

    @property
    def place(self) -> str:
        """The place of the document in the target."""
        return f"{_DOCUMENTS}/{self.name}.json"


def bases(target: Target) -> list[str]:
    """The names of the bases, the oldest first.  OSError."""
    matched = map(_DOCUMENT.fullmatch, target.listed(_DOCUMENTS))
    return sorted(found[1] for found in matched if found is not None)


def made_of(name: str) -> datetime:
    """The time at which the base of that name was made."""
    return datetime.strptime(name.partition("-")[0], _TIME).replace(tzinfo=UTC)


def next_base(target: Target) -> tuple[str, datetime]:
    """The name for a base that is made now, and its time."""
    return next_name(bases(target))


def new_stream() -> str:
    """A name for a stream of parts."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"


def read_base(target: Target, name: str) -> Base:
    """FileNotFoundError: there is no base of that name; ValueError: its document is invalid;
    OSError."""
    place = f"{_DOCUMENTS}/{name}.json"
    data = b"".join(target.parts(place))
    try:
        return _parsed(name, json.loads(data))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{target.place}: {place} is no base's document: {error!r}") from None


def _parsed(name: str, told: Any) -> Base:
    if told["format"] != _FORMAT:
        raise ValueError(f"its format is {told['format']!r}, and this version knows {_FORMAT}")
    if not _STREAM.fullmatch(told["stream"]):
        raise ValueError(f"{told['stream']!r} is no stream of parts")
    return Base(
        name,
        datetime.fromisoformat(told["made"]),
        str(told["uuid"]),
        told["stream"],
        int(told["from_lsn"]),
        int(told["lsn"]),
        entries_of(told["files"]),
    )


def parts_of(target: Target, stream: str) -> dict[Head, int]:
    """The parts of a stream in their order, and the bytes of their objects.  OSError."""
    sizes = {parsed_name(name): size for name, size in target.sizes(f"{_PARTS}/{stream}").items()}
    heads = sorted((each for each in sizes if each is not None), key=lambda head: head.number)
    return {head: sizes[head] for head in heads}


def prune(target: Target, days: float, spared: timedelta = _SPARED) -> list[str]:
    """Remove what only moments before the last ``days`` need.  That is every base older than the
    newest readable base of at least that age, then files and parts that no base needs.  Objects
    younger than ``spared`` stay, because a base that is being made may need them.

    Returns the names of the removed bases; the newest base always stays.  ValueError: ``days`` is
    negative, or a document that stays cannot be read; OSError.
    """
    if not days >= 0:
        raise ValueError(f"days must be 0 or more, not {days}")
    before = datetime.now(UTC) - timedelta(days=days)
    known: dict[str, Base] = {}
    gone = _gone(target, [each for each in bases(target) if made_of(each) <= before], known)
    target.remove([f"{_DOCUMENTS}/{name}.json" for name in gone])
    young = datetime.now(UTC) - spared
    files = [name for name, written in target.listed(FILES).items() if written <= young]
    parts = target.listed(_PARTS)
    stay = []  # with those that came meanwhile
    for name in bases(target):
        try:
            stay.append(known.get(name) or read_base(target, name))
        except FileNotFoundError:  # it went meanwhile
            continue
    if stay:
        needed = {object_name(file.sha256, FILES) for each in stay for file in each.files}
        names = [f"{FILES}/{name}" for name in files]
        target.remove([each for each in names if each not in needed])
        _remove_parts(target, parts, stay, young)
    return gone


def _gone(target: Target, old: list[str], known: dict[str, Base]) -> list[str]:
    """The bases before the newest one that can be read, which is then in ``known``."""
    for at in reversed(range(len(old))):
        try:
            known[old[at]] = read_base(target, old[at])
        except (ValueError, FileNotFoundError):
            continue
        return old[:at]
    return []


def _remove_parts(
    target: Target, listed: dict[str, datetime], stay: list[Base], young: datetime
) -> None:
    """Remove parts before all bases of their stream, and streams without a base."""
    streams: dict[str, dict[Head, tuple[str, datetime]]] = {}
    for name, written in listed.items():
        stream, _, file = name.partition("/")
        head = parsed_name(file)
        if head is not None:
            streams.setdefault(stream, {})[head] = (f"{_PARTS}/{name}", written)
    for stream, parts in streams.items():
        first = min((each.from_lsn for each in stay if each.stream == stream), default=None)
        if first is None:
            going = list(parts) if all(each[1] <= young for each in parts.values()) else []
        else:
            begin = beginning(parts, first)
            going = [each for each in parts if each.from_lsn < begin]
        target.remove([parts[each][0] for each in sorted(going, key=lambda head: head.number)])


def beginning(heads: Iterable[Head], lsn: int) -> int:
    """The LSN at which the needed parts for ``lsn`` begin.  Several parts may begin there, with
    bodies for the last of them."""
    return max((each.from_lsn for each in heads if each.from_lsn <= lsn), default=lsn)
