"""What a source and a target owe the loop, and what they raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from .. import _core
from ..properties import Properties
from .blobs import delivery_mode_kept, in_order

__all__ = [
    "BATCH", "LARGE_BATCH", "RECORD_PLACE", "Acked", "Batch", "Blamed", "Burying", "Encoded",
    "Full", "Item", "Later", "Linked", "Offsets", "Position", "Refused", "Source", "StreamOffset",
    "Target", "behind", "buried",
    "id_of", "pack_position", "unpack_position",
]  # fmt: skip

Encoded = _core.EncodedProperties
BATCH = 1000
"""Messages of a batch, at most."""
LARGE_BATCH = 4 * BATCH
"""Of one for which a position is noted, and no message by itself."""
RECORD_PLACE = Struct(">iq")
"""A partition, and an offset."""
_ID_BYTES = 16


class Later(Exception):
    """An end cannot be reached, or takes nothing now: the same is tried again after a while."""


class Full(Later):
    """A store has no space; it need not be opened again."""


class Blamed(Later):
    """A broker closed a channel or a connection over something that it was sent."""


class Refused(Exception):
    """A target does not take some messages of a batch; ``reasons`` says why, by index."""

    def __init__(self, batch: Batch, reasons: dict[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.batch: Batch = batch
        self.reasons: dict[int, str] = reasons


class Item(NamedTuple):
    """A message on its way."""

    body: bytes
    properties: bytes
    """As AMQP encodes them."""
    exchange: str
    routing_key: str
    redelivered: bool
    tag: int
    """The source's, to settle it by."""
    place: bytes = b""
    """What no other message of the source has, and stays when it comes again; b"": a broker tells
    of no such thing.  Of a topic, ``RECORD_PLACE``."""


_core._set_item_type(Item)


class StreamOffset(int):
    """A place in a stream of a store."""

    stream: str
    """What no other stream is called, not even one that was deleted; "": a note does not tell."""

    def __new__(cls, offset: int, stream: str = "") -> Self:
        """A number like others, with that."""
        made = super().__new__(cls, offset)
        made.stream = stream
        return made


@dataclass(frozen=True)
class Offsets:
    """A place in a topic of Kafka."""

    topic_id: str
    """Another one if the topic was deleted and made again; "": the cluster tells none."""
    of: Mapping[int, int]
    """By partition, the offset to go on at; one that is not there is read from its begin."""
    topic: str
    """Its name: no offset of another one is taken for one of it."""


Position = StreamOffset | Offsets
"""Where to go on: in a stream, or in a topic."""


def pack_position(position: Position) -> dict[str, Any]:
    """For JSON."""
    if isinstance(position, Offsets):
        return {
            "topic": position.topic_id, "name": position.topic, "offsets": dict(position.of),
        }  # fmt: skip
    return {"offset": int(position), "stream": position.stream}


def unpack_position(told: dict[str, Any]) -> Position:
    """What ``pack_position`` made that of."""
    if "offset" in told:
        return StreamOffset(told["offset"], told.get("stream", ""))
    offsets = {int(partition): int(offset) for partition, offset in told["offsets"].items()}
    return Offsets(told["topic"], offsets, told["name"])


@dataclass
class Acked:
    """What a source knows of the acknowledgement of a batch."""

    for_good: bool = False
    """The batch never comes again."""


@dataclass
class Batch:
    """Messages in the source's order, which are settled together.  Of a topic it may have none, and
    only a position to note."""

    items: list[Item]
    epoch: int
    """Counts the source's connections: tags mean nothing in another one."""
    position: Position | None = None
    """Of a stream or a topic: behind the last message."""
    tries: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    """Indices of messages that the target has, though not of all."""
    dead: dict[int, str] = field(default_factory=dict)
    """By index, messages for the queue of dead letters, and why."""
    buried: set[int] = field(default_factory=set)
    """Those of them that the source has put there."""
    taken: int = 0
    """Of the first messages, how many the target has: it took the batch in parts."""
    repeated: int = 0
    """Messages that the target had already, and did not take again."""
    dead_written: int = 0
    acked: Acked | None = None
    """None: the source never tells."""
    token: str = ""
    """A target that notes it knows the batch when it is begun again; "": it is not."""

    @property
    def size(self) -> int:
        """Bytes of its bodies."""
        return _core.bytes_of_bodies(self.items)


class Source(Protocol):
    """Where messages are from.  All of a thread's."""

    shown: str
    most: int
    """Messages of a batch, unless the target takes fewer."""
    watch: Callable[[], None]
    """Called now and then while it waits for long; what it raises ends the wait."""

    def open(self, position: Position | None) -> None:
        """Begin, or begin again behind what was settled; a stream or a topic at ``position``, None:
        where it is said to begin.  Later, ShovelError."""

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """At most ``most`` messages, of whose bodies and properties only the last may go beyond
        ``bytes_most``; None: none came in ``timeout`` seconds.  Later: the source must be opened
        again."""

    def settle(self, batch: Batch) -> None:
        """The target has them for good.  Later: they may come again.  Full: the same is to be tried
        again."""

    def tend(self, seconds: float) -> None:
        """Do for so long what a connection needs while it is not read: heartbeats."""

    def lag(self) -> int | None:
        """About how many messages wait; None: it is not known."""

    def close(self) -> None:
        """What was not settled stays in the source."""


@runtime_checkable
class Burying(Source, Protocol):
    """A source in a store that may have the queue of dead letters."""

    def bury(self, batch: Batch) -> None:
        """Put its dead letters into the queue for them, once: the target does not.

        Full.  Later: the source is opened again, and asked again.
        """


class Target(Protocol):
    """Where messages go.  All of a thread's."""

    shown: str
    most: int
    """Messages of a batch, unless the source has fewer."""
    watch: Callable[[], None]
    """As of a source."""
    keeps_position: bool
    """Whether it remembers the position of the source with the messages."""
    may_forget: bool
    """Whether it forgets that in the end, so that the source is to note it, too."""
    buries: bool
    """Whether it takes dead letters: a queue in its store."""

    def open(self) -> Position | None:
        """Begin, or begin again.  The position of the source that it remembers.  Later,
        ShovelError."""

    def begin(self, batch: Batch) -> None:
        """Send a batch, but for what is done of it.  Later, Refused, ShovelError.

        After Later and Refused, also of ``ended``, the target is opened again, and all that was
        begun and has not ended is begun again, in order."""

    def ended(self, timeout: float) -> Batch | None:
        """The first batch that was begun, if the target has it for good, else None; waits
        ``timeout`` seconds.  Later, Refused, ShovelError."""

    def tend(self, seconds: float) -> None:
        """As of a source."""

    def close(self) -> None:
        """What was begun and is not ended may be there or not."""


class _Watched(Protocol):
    watch: Callable[[], None]


_Link = TypeVar("_Link", bound=_Watched)


class Linked(Generic[_Link]):
    """An end whose link waits for it."""

    _link: _Link

    @property
    def watch(self) -> Callable[[], None]:
        """As of an end."""
        return self._link.watch

    @watch.setter
    def watch(self, watch: Callable[[], None]) -> None:
        self._link.watch = watch


def behind(batch: Batch, count: int) -> Position | None:
    """The position behind the first ``count`` messages of a batch."""
    position, left = batch.position, len(batch.items) - count
    if position is None or left == 0:
        return position
    if isinstance(position, StreamOffset):
        return StreamOffset(position - left, position.stream)  # a stream has no gaps
    of = dict(position.of)
    for item in reversed(batch.items[count:]):
        partition, offset = RECORD_PLACE.unpack(item.place)
        of[partition] = offset
    return Offsets(position.topic_id, of, position.topic)


def id_of(item: Item) -> bytes:
    """A hash of a message: the same when it comes again.  Messages of a broker that are equal have
    the same as well, those of a store have not."""
    route = f"{item.exchange}\0{item.routing_key}\0".encode("utf-8", "surrogateescape")
    # RabbitMQ sorts the headers of what comes again from a quorum queue.
    properties = item.properties if item.place else in_order(item.properties)
    head = b"%d %d " % (len(item.place), len(properties))
    digest = blake2b(head + item.place + properties + route, digest_size=_ID_BYTES)
    digest.update(item.body)
    return digest.digest()


def buried(item: Item, reason: str) -> Properties | Encoded:
    """Properties of a dead letter: the message's, persistent, with the header x-shovel-error."""
    try:
        blob = delivery_mode_kept(item.properties or b"\0\0")
        properties = Properties.decode(blob)
        place = {"x-shovel-exchange": item.exchange, "x-shovel-routing-key": item.routing_key}
        headers = {**properties.headers, **place, "x-shovel-error": reason[:1000]}
        for name in ("CC", "BCC"):
            headers.pop(name, None)  # a dead letter goes to one place
        return properties.replace(headers=headers, expiration=None)
    except (ValueError, TypeError):  # what made it a dead letter may be its properties
        return Properties(delivery_mode=2, headers={"x-shovel-error": reason[:1000]})
