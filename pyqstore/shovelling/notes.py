"""What a store remembers of a shovel: a stream, to which each transaction that takes a batch
publishes a note.  So a note is there if, and only if, its batch is.

A note of a stream has the offset at which to go on.  One of a queue has the ids of the batch's
messages: what was not acknowledged before a crash comes again, and its id tells.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from ..channel import Channel
from ..errors import ShovelError
from ..properties import Properties
from ..store import Store

__all__ = ["Notes"]

_PREFIX = "pyqstore.shovel."
_ID_BYTES = 16
_IDS_MAX = 100_000
_BYTES_MAX = 64 << 20  # in which _IDS_MAX notes of one id each find room
_SEGMENT_BYTES = 8 << 20
_NAME_BYTES_MAX = 255
_IDS = Properties(delivery_mode=2, type="ids")
_POSITION = Properties(delivery_mode=2, type="position")
_UNDO = Properties(delivery_mode=2, type="undo")


class Notes:
    """Of one shovel."""

    def __init__(self, store: Store, name: str) -> None:
        """Declares the stream where it is not there."""
        self.stream: str = f"{_PREFIX}{name}"
        if len(self.stream.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
            most = _NAME_BYTES_MAX - len(_PREFIX)
            raise ShovelError(f"the name of a shovel has {most} bytes at most, not {name!r}")
        self._store = store
        self.ids: deque[bytes] = deque(maxlen=_IDS_MAX)
        """Of the latest messages."""
        self.latest: tuple[bytes, ...] = ()
        """Of those of the latest batch."""
        self.position: int | None = None
        store.stream(self.stream, max_length_bytes=_BYTES_MAX, segment_bytes=_SEGMENT_BYTES)

    def read(self) -> None:
        """What the notes say now."""
        self.ids.clear()
        self.latest = ()
        self.position = None
        undone: int | None = None
        for batch in self._store.stream(self.stream).read("first", columns=["body", "type"]):
            for row in batch.to_pylist():
                undone = self._take(row, undone)

    def _take(self, row: dict[str, Any], before: int | None) -> int | None:
        """One note; the position before it, for a note that takes it back."""
        body: bytes = row["body"]
        if row["type"] == "position":
            before, self.position = self.position, int(json.loads(body)["offset"])
        elif row["type"] == "ids":
            self.took([body[at : at + _ID_BYTES] for at in range(0, len(body), _ID_BYTES)])
        elif row["type"] == "undo":
            self.position = before
            for _ in range(min(len(self.latest), len(self.ids))):
                self.ids.pop()
            self.latest = ()
        else:
            raise ShovelError(f"stream {self.stream!r} has a note that this version cannot read")
        return before

    def publish_ids(self, channel: Channel, ids: list[bytes]) -> None:
        """In the channel's transaction."""
        channel.basic_publish("", self.stream, b"".join(ids), _IDS, True)

    def publish_position(self, channel: Channel, position: int) -> None:
        """In the channel's transaction."""
        channel.basic_publish("", self.stream, json.dumps({"offset": position}), _POSITION, True)

    def publish_undo(self, channel: Channel) -> None:
        """The note before this one is void: what it tells of went nowhere."""
        channel.basic_publish("", self.stream, b"", _UNDO, True)

    def took(self, ids: list[bytes]) -> None:
        """The transaction with these was committed."""
        self.ids.extend(ids)
        self.latest = tuple(ids)
