"""What a salvage tells."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ..findings import Damage
from .copying import Unread

__all__ = ["Report"]


@dataclass(kw_only=True)
class Report:
    """What became of a damaged store: what the new one has, and what is lost."""

    directory: str
    """Of the new store."""
    queues: int = 0
    """That it has, streams among them."""
    messages: int = 0
    """In all of them, those of a stream counted once."""
    damages: int = 0
    """Damaged places that were found in the original."""
    damage: tuple[Damage, ...] = ()
    """The first 10,000 of them."""
    unread: list[Unread] = field(default_factory=list)
    """Places that the disk could not read: zeros in the copy."""
    passed_over: list[str] = field(default_factory=list)
    """What is no regular file, and no directory."""
    manifest_made_again: bool = False
    """MANIFEST was lost, and with it where the journal ended, and the checkpoint's checksum."""
    lost_checkpoint: bool = False
    """All that only the checkpoint knew is lost: queues, messages that were not in the journal any
    more, keys of transactions."""
    lost_ranges: int = 0
    """Damaged places of the journal."""
    lost_bytes: int = 0
    """The bytes of them, and of files of keys."""
    torn_bytes: int = 0
    """Cut off at the journal's end: an unfinished write, as far as can be told."""
    lost_segments: int = 0
    """Index segments that cannot be read."""
    lost_segment_messages: int = 0
    """The messages in them."""
    lost_messages: dict[str, int] = field(default_factory=dict)
    """By queue: messages that cannot be read, and were dropped."""
    lost_offsets: dict[str, int] = field(default_factory=dict)
    """By stream: messages that cannot be read.  Their offsets stay, and whoever comes there is
    told."""
    recovered_queues: list[str] = field(default_factory=list)
    """Queues whose declaration is lost, and with it their names, arguments and bindings."""

    @property
    def is_lossless(self) -> bool:
        """Whether all that the original had is in the new store."""
        return not (
            self.manifest_made_again
            or self.lost_checkpoint
            or self.lost_ranges
            or self.lost_bytes
            or self.lost_segments
            or self.lost_messages
            or self.lost_offsets
            or self.recovered_queues
            or self.passed_over
            or self.unread
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = asdict(self)
        told["lossless"] = self.is_lossless
        told["damage"] = [place._asdict() for place in self.damage]
        told["unread"] = [place._asdict() for place in self.unread]
        return told
