"""What opening a store finds, and what reading all of one finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from . import _core
from .callbacks import check_callable
from .figures import Figures
from .options import checked_path

__all__ = ["Damage", "RecoveryReport", "Verification", "verify"]

_DAMAGE_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecoveryReport(Figures):
    """What opening the store found; its fields are found by name too, as in a dict."""

    records: int
    """Journal records replayed."""
    bytes: int
    """Journal bytes read."""
    torn_bytes: int
    """Bytes of an unfinished write cut off at the journal's end; nothing in them was confirmed."""
    lost_ranges: int
    """Damaged places of the journal that were passed over; 0 unless ``recovery="salvage"``."""
    lost_bytes: int
    """Journal bytes lost there."""
    lost_segments: int
    """Index segments that cannot be read, passed over; 0 unless ``recovery="salvage"``."""
    lost_messages: int
    """Messages that they held."""
    recovered_queues: int
    """Queues that are there as "recovered.<id>", because their declaration is lost; 0 unless
    ``recovery="salvage"``."""
    ignored_arguments: int
    """Arguments of queues that make no sense to this version, as one that the version which wrote
    them did not know: kept, and ignored; the log names the first."""
    clock_ahead_s: float
    """How far the machine's clock was ahead of the store's, by which messages expire, in seconds;
    near 0 unless it jumped while the store was closed.  See ``Store.accept_clock()``."""
    checkpoint_lsn: int
    """The journal position at which the replay began: that of the checkpoint; 0: none was there."""
    messages: int
    """Messages in queues afterwards."""
    queues: dict[str, int]
    """Ready messages of each queue, by its name, sorted."""
    ms: float
    """How long it took, in milliseconds."""


class Damage(NamedTuple):
    """A place that is not what was written."""

    path: str
    """The file, relative to the store."""
    offset: int
    """Where in it, in bytes."""
    text: str
    """What is wrong, for people; file and offset stand in it, too."""


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` read, and what it found."""

    damage: tuple[Damage, ...]
    """The first 10,000 damaged places."""
    damages: int
    """How many there are."""
    queues: int
    """Durable queues."""
    checkpoint_records: int
    """Records of the checkpoint."""
    journal_records: int
    """Records of the journal behind the checkpoint."""
    journal_bytes: int
    """Their bytes."""
    segments: int
    """Index segments."""
    bodies: int
    """Bodies of the message store, one that several queues have counted several times."""
    body_bytes: int
    """Their bytes."""


def verify(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], object] | None = None
) -> Verification:
    """Read everything that the store in ``path`` needs of its files, and check it.

    MANIFEST, the checkpoint, the journal behind it, the segments it names, the bodies of messages
    in queues: whatever opening or a consumer would come to.  Nothing is repaired, and nothing is
    written; the store must not be open elsewhere, but to be read.  ``progress`` is called now and
    then with bytes read and about how many there are; what it raises ends the verification.

    Raises StoreNotFound, StoreLocked, StoreFailed (an input/output error), but not StoreCorrupt:
    damage is what is returned.
    """
    check_callable(progress=progress)
    damage: list[Damage] = []

    def add(name: str, offset: int, text: str) -> None:
        if len(damage) < _DAMAGE_MOST:
            damage.append(Damage(name, offset, text))

    counts = _core.verify_store(os.fsencode(checked_path(path)), progress, add)
    return Verification(damage=tuple(damage), **counts)
