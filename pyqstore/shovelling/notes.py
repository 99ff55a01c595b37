"""What a store remembers of a shovel: a stream, to which each transaction that takes a batch
publishes a note.  So a note is there if, and only if, its batch is.

A note of a stream has the offset at which to go on, one of a topic of Kafka the offset of each of
its partitions.  One of a queue has the ids of the batch's
messages: what was not acknowledged before a crash comes again, and its id tells.  Another note says
later of which messages it is known that they never come again.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import Any

from ..channel import Channel
from ..errors import ShovelError
from ..properties import Properties
from ..store import Store
from .ends import Position, pack_position, unpack_position

__all__ = ["Notes", "connection_of", "part_of"]

_PREFIX = "pyqstore.shovel."
_ID_BYTES = 16
_IDS_MAX = 100_000
_BYTES_MAX = 64 << 20  # in which _IDS_MAX notes of one id each find room
_SEGMENT_BYTES = 8 << 20
_NAME_BYTES_MAX = 255
_PART = "/"
"""Between a token, and how many messages of its batch are there."""
_TOKENS_MAX = 64  # more than batches that are under way
_IDS = Properties(delivery_mode=2, type="ids")
_SETTLED = Properties(delivery_mode=2, type="settled")
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
        self._doubtful: OrderedDict[int, list[bytes]] = OrderedDict()
        """By the note's number, those of its ids that may come again."""
        self._count = 0
        """Of these ids."""
        self._number = 0
        """Of notes with ids.  A note tells of another by how many such ones are behind it, for a
        stream drops its first ones."""
        self._latest = 0
        """The number of the latest note, or 0: it has no ids."""
        self._tokens_of: dict[int, str] = {}
        """By the numbers of notes whose ids may come again."""
        self.position: Position | None = None
        self.tokens: deque[str] = deque(maxlen=_TOKENS_MAX)
        """Of the latest batches that have one."""
        store.stream(self.stream, max_length_bytes=_BYTES_MAX, segment_bytes=_SEGMENT_BYTES)

    def read(self) -> None:
        """What the notes say now."""
        self._doubtful.clear()
        self._tokens_of.clear()
        self._count = self._latest = 0
        self.position = None
        undone: Position | None = None
        self.tokens.clear()
        columns = ["body", "type", "message_id"]
        for batch in self._store.stream(self.stream).read("first", columns=columns):
            for row in batch.to_pylist():
                undone = self._take(row, undone)

    def _take(self, row: dict[str, Any], before: Position | None) -> Position | None:
        """One note; the position before it, for a note that takes it back."""
        body: bytes = row["body"]
        token = row["message_id"] or ""
        if token:
            whole = token.partition(_PART)[0]
            if self.tokens and self.tokens[-1].partition(_PART)[0] == whole:
                self.tokens.pop()  # that of the part before it
            self.tokens.append(token)
        if row["type"] == "position":
            before, self.position = self.position, unpack_position(json.loads(body))
            self._latest = 0
        elif row["type"] == "ids":
            ids = [body[at : at + _ID_BYTES] for at in range(0, len(body), _ID_BYTES)]
            self.took(ids, token)
        elif row["type"] == "undo":
            self.position = before
            self._forget(self._latest)
            self._latest = 0
            if self.tokens:
                self.tokens.pop()
        elif row["type"] == "settled":
            told = json.loads(body)
            numbers = [self._number - each for each in told["behind"]]
            self.settled(numbers, [bytes.fromhex(each) for each in told["ids"]])
        else:
            raise ShovelError(f"stream {self.stream!r} has a note that this version cannot read")
        return before

    def taken_of(self, token: str) -> int:
        """Of the first messages of a batch with this token, how many are here."""
        if not token:
            return 0
        parts = [each.partition(_PART) for each in self.tokens]
        return max((int(count) for whole, _, count in parts if whole == token and count), default=0)

    def publish_ids(self, channel: Channel, ids: list[bytes], token: str = "") -> None:
        """In the channel's transaction."""
        channel.basic_publish("", self.stream, b"".join(ids), _of(_IDS, token), True)

    def publish_position(self, channel: Channel, position: Position, token: str = "") -> None:
        """In the channel's transaction."""
        told = json.dumps(pack_position(position))
        channel.basic_publish("", self.stream, told, _of(_POSITION, token), True)

    def publish_undo(self, channel: Channel) -> None:
        """The note before this one is void: what it tells of went nowhere."""
        channel.basic_publish("", self.stream, b"", _UNDO, True)

    def publish_settled(self, channel: Channel, numbers: list[int], ids: list[bytes]) -> None:
        """As of ``settled``."""
        behind = [self._number - number for number in numbers]
        told = json.dumps({"behind": behind, "ids": [each.hex() for each in ids]})
        channel.basic_publish("", self.stream, told, _SETTLED, True)

    def doubtful(self, token: str = "") -> Counter[bytes]:
        """The ids of what may come again: of the latest that were not settled, but for those of the
        connection that the batch of this token came through."""
        ours = connection_of(token)
        return Counter(
            each
            for number, ids in self._doubtful.items()
            if not ours or connection_of(self._tokens_of.get(number, "")) != ours
            for each in ids
        )

    def took(self, ids: list[bytes], token: str = "") -> int:
        """The transaction with these was committed.  The number of their note."""
        self._number += 1
        self._latest = self._number
        self._doubtful[self._number] = ids
        if token:
            self._tokens_of[self._number] = token
        self._count += len(ids)
        while self._count - len(self._doubtful[next(iter(self._doubtful))]) >= _IDS_MAX:
            self._forget(next(iter(self._doubtful)))
        return self._number

    def settled(self, numbers: Iterable[int], ids: Iterable[bytes]) -> None:
        """What these notes tell of never comes again, nor do messages of other notes with these
        ids, which had come again before."""
        for number in numbers:
            self._forget(number)
        left = Counter(ids)
        if not left:
            return
        for number, before in self._doubtful.items():
            kept = []
            for each in before:
                if left[each] > 0:
                    left[each] -= 1
                else:
                    kept.append(each)
            self._doubtful[number] = kept
            self._count -= len(before) - len(kept)

    def _forget(self, number: int) -> None:
        self._count -= len(self._doubtful.pop(number, []))
        self._tokens_of.pop(number, None)


def part_of(token: str, stop: int, count: int) -> str:
    """The token of the first messages, up to one, of a batch with so many."""
    return token if not token or stop == count else f"{token}{_PART}{stop}"


def connection_of(token: str) -> str:
    """What tokens of batches have in common that came through one connection of the source."""
    return token.rpartition("-")[0]


def _of(properties: Properties, token: str) -> Properties:
    return properties.replace(message_id=token) if token else properties
