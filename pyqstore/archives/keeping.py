"""What the target of an archive holds: documents of bases, files that they name, and parts."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from ..backups.keeping import Entry, entries_of, next_name, object_name, remove_unneeded
from ..backups.target import Target
from .parts import Head, parsed_name

__all__ = ["FILES", "Base", "bases", "new_stream", "next_base", "parts_of", "prune", "read_base"]

FILES = "base-files"
_DOCUMENTS = "bases"
_PARTS = "parts"
_FORMAT = 1
_DOCUMENT = re.compile(r"(\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8})\.json")
_STREAM = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8}")
_SPARED = timedelta(days=1)  # a base that is being made may need what no document names


@dataclass(frozen=True)
class Base:
    """A store as it was at one moment, at which a restore begins."""

    name: str
    """Begins with the time, so that the last name is the newest."""
    made: datetime
    """When, in UTC: what was durable by then is in it, with the parts up to ``lsn``."""
    uuid: str
    """Of the store."""
    stream: str
    """Of the parts that continue it."""
    from_lsn: int
    """Where they begin to be needed."""
    lsn: int
    """What they say behind it is not in the base."""
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of its files, holes among them."""
        return sum(each.size for each in self.files)

    def document(self) -> bytes:
        """As it is stored."""
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
        """Of its document in the target."""
        return f"{_DOCUMENTS}/{self.name}.json"


def bases(target: Target) -> list[str]:
    """The names of the bases, the oldest first.  OSError."""
    matched = map(_DOCUMENT.fullmatch, target.listed(_DOCUMENTS))
    return sorted(found[1] for found in matched if found is not None)


def next_base(target: Target) -> tuple[str, datetime]:
    """The name of a base that is made now, and when that is."""
    return next_name(bases(target))


def new_stream() -> str:
    """A name for parts that follow each other."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"


def read_base(target: Target, name: str) -> Base:
    """FileNotFoundError: there is none of that name; ValueError: it is not whole; OSError."""
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


def parts_of(target: Target, stream: str) -> list[Head]:
    """The parts of a stream in their order.  OSError."""
    found = map(parsed_name, target.listed(f"{_PARTS}/{stream}"))
    return sorted((each for each in found if each is not None), key=lambda head: head.number)


def prune(target: Target, days: float, spared: timedelta = _SPARED) -> list[str]:
    """Remove what no moment of the last ``days`` needs: all bases older than the newest one that is
    as old as that, then files and parts that no base needs; not what is younger than ``spared``,
    which a base that is being made may need.

    Returns the names of the bases that went; the newest base always stays.  ValueError: ``days`` is
    negative, or a document that stays cannot be read; OSError.
    """
    if not days >= 0:
        raise ValueError(f"days must be 0 or more, not {days}")
    names = bases(target)
    found = [read_base(target, name) for name in names]
    before = datetime.now(UTC) - timedelta(days=days)
    old = [each for each in found if each.made <= before]
    gone = old[:-1]
    stay = [each for each in found if each not in gone]
    target.remove([each.place for each in gone])
    if stay:
        needed = {object_name(file.sha256, FILES) for each in stay for file in each.files}
        remove_unneeded(target, needed, FILES, spared)
        _remove_parts(target, stay, spared)
    return [each.name for each in gone]


def _remove_parts(target: Target, stay: list[Base], spared: timedelta) -> None:
    """Those before all bases of their stream, and streams without a base."""
    streams: dict[str, dict[Head, tuple[str, datetime]]] = {}
    for name, written in target.listed(_PARTS).items():
        stream, _, file = name.partition("/")
        head = parsed_name(file)
        if head is not None:
            streams.setdefault(stream, {})[head] = (f"{_PARTS}/{name}", written)
    young = datetime.now(UTC) - spared
    for stream, parts in streams.items():
        first = min((each.from_lsn for each in stay if each.stream == stream), default=None)
        heads = sorted(parts, key=lambda head: head.number)
        if first is None:
            going = heads if all(parts[each][1] <= young for each in heads) else []
        else:  # a part ends where the next one begins
            going = [each for each, behind in pairwise(heads) if behind.from_lsn <= first]
        target.remove([parts[each][0] for each in going])
