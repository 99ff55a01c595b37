"""A queue or a stream of a store as a source."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from weakref import WeakKeyDictionary

from .. import _core
from ..channel import Channel
from ..errors import Error, NotFound, OffsetOutOfRange, PreconditionFailed, ShovelError, StoreFull
from ..message import ReturnedMessage
from ..salvaging.manifest import Manifest
from ..store import Store
from ..stream import Start, offset_of
from .ends import (
    BATCH,
    LARGE_BATCH,
    Batch,
    Burying,
    Full,
    Item,
    Later,
    Offsets,
    Position,
    StreamOffset,
    buried,
)

__all__ = ["StoreSource", "stream_of"]

_AHEAD_MAX = 65_535  # what a prefetch can be
_SESSION_BYTES = 16
_IDENTITY_BYTES = 16
_KEEP_NS = 60 * 10**9
_NOTE_S = 1.0  # between two notes of what the target notes, too
_sessions: WeakKeyDictionary[Store, bytes] = WeakKeyDictionary()


def stream_of(store: Store, name: str) -> str:
    """What no other stream is called: of no other store, wherever that is, and not one that was
    deleted.  NotFound."""
    both = Manifest.read(Path(store.directory)).uuid + name.encode("utf-8", "surrogateescape")
    number = _core.stream_status(store, name)["id"]
    return f"{blake2b(both, digest_size=_IDENTITY_BYTES).hexdigest()}-{number}"


class StoreSource(Burying):
    """Messages are acknowledged, durably, when the target has them.  A stream keeps them: the
    target remembers the position in it, or else the stream does, for a group."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        shovel: str,
        start: Start,
        dead: str | None,
        shown: str,
        ahead: int,
        notes_position: bool,
        target_notes: bool | None = None,
    ) -> None:
        """``dead``: the queue of dead letters, where the target takes none.  ``ahead``: how many
        messages may be read and not settled, if batches have BATCH.  ``notes_position``: the target
        does not remember the position in a stream, or not for ever.  ``target_notes``: it remembers
        it, or the messages; None: if it is not noted here.  NotFound: no such queue."""
        self._dead = dead
        self.shown: str = shown
        self.watch: Callable[[], None] = lambda: None
        self._store = store
        self._uuid = Manifest.read(Path(store.directory)).uuid
        # Others may have the places of transient messages when the store was opened again.
        self._session = _sessions.setdefault(store, os.urandom(_SESSION_BYTES))
        self._name = name
        self._group = f"shovel.{shovel}"
        self._start = start
        status = store.queue_status(name)
        self.is_stream: bool = status.stream
        self.most: int = LARGE_BATCH if status.stream else BATCH
        self._ahead = min(ahead * self.most // BATCH, _AHEAD_MAX)
        self._keeps = bool(status.durable)
        self._notes_position = notes_position
        self._target_notes = not notes_position if target_notes is None else target_notes
        self._to_note: int | None = None
        self._noted_at = float("-inf")
        self._channel: Channel | None = None
        self.started: StreamOffset | None = None
        """In a stream of which nothing is noted yet: it is asked for once where to begin."""
        self._stream = ""
        self._tag = ""
        self._epoch = 0
        self._reader: _core.ItemReader | None = None
        self._wrong: Error | None = None
        """It ended a batch that had messages already; the next read raises it."""

    def open(self, position: Position | None) -> None:
        """As of Source.  NotFound; OffsetOutOfRange: the stream has dropped what was not moved."""
        self.close()
        self._epoch += 1
        self._wrong = None
        channel = self._store.channel()
        self._channel = channel
        channel.basic_qos(self._ahead)
        first = self._begin(position) if self.is_stream else 0
        arguments = {"x-stream-offset": first} if self.is_stream else None
        self._tag = channel.basic_consume(self._name, arguments=arguments)
        self._reader = _core.ItemReader(
            channel, self.is_stream, self._keeps, self._uuid, self._session, first, self._gap
        )

    def _begin(self, position: Position | None) -> int:
        self._stream = stream_of(self._store, self._name)
        self._check_same(self.started if position is None else position)
        noted: int | None = None if isinstance(position, Offsets) else position
        if noted is None or self._notes_position:  # the target may have forgotten it
            own = _core.stream_cursor(self._store, self._name, self._group)
            noted = max((each for each in (noted, own) if each is not None), default=None)
        if noted is None and self.started is None:
            begin = offset_of(self._store, self._name, self._start)
            self.started = StreamOffset(begin, self._stream)
        noted = self.started if noted is None else noted
        assert noted is not None
        status = _core.stream_status(self._store, self._name)
        if not status["first"] <= noted <= status["next"]:
            raise OffsetOutOfRange(status["first"], status["next"], self._name)
        return noted

    def _check_same(self, position: Position | None) -> None:
        """ShovelError: it is a position in something else."""
        if isinstance(position, Offsets):
            raise ShovelError(f"this shovel has read a topic, not {self.shown}: give another name")
        if position is not None and position.stream not in ("", self._stream):
            raise ShovelError(
                f"this shovel has read another stream than {self.shown}, or one that was deleted:"
                " to move what is in this one, give the shovel another name"
            )

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """As of Source."""
        if self._wrong is not None:
            raise self._wrong
        channel, reader = self._channel, self._reader
        assert channel is not None
        assert reader is not None
        items: list[Item] = []
        try:
            message = channel.next_delivery(self._tag, timeout)
            if message is not None:
                item = reader.item(message)
                items.append(item)
                reader.take(items, most, bytes_most - len(item.body) - len(item.properties))
        except StoreFull as error:  # deliveries that are counted are written to the disk
            if not items:
                raise Later(str(error)) from error
        except Error as error:
            if not items:
                raise
            self._wrong = error  # what came before it is good
        if not items:
            return None
        if self._target_notes:
            self._keep()
        position = StreamOffset(self._next, self._stream) if self.is_stream else None
        return Batch(items, self._epoch, position)

    def _keep(self) -> None:
        """The target is to note no message that a crash of this store could undo: another one would
        have its place."""
        store = self._store
        try:
            store.sync()
        except StoreFull:  # for what was acknowledged; what was published has its space
            store._wait_durable(store._stats()["appended_lsn"], _KEEP_NS)

    def _gap(self) -> None:
        """OffsetOutOfRange: retention has overtaken the shovel, and messages are gone."""
        status = _core.stream_status(self._store, self._name)
        raise OffsetOutOfRange(status["first"], status["next"], self._name)

    @property
    def _next(self) -> int:
        """Of a stream, the offset to go on at."""
        return 0 if self._reader is None else self._reader.next

    def settle(self, batch: Batch) -> None:
        """As of Source."""
        channel = self._channel
        if channel is None or batch.epoch != self._epoch:
            return  # they come again, and the target knows them
        tag = batch.items[-1].tag
        if self.is_stream and self._notes_position:
            assert isinstance(batch.position, int)
            self._to_note = batch.position
            now = time.monotonic()
            if not self._target_notes or now - self._noted_at >= _NOTE_S:
                self._note()
                self._noted_at = now
        elif not self.is_stream and self._target_notes:
            # Durable: so what comes again is not more than the target remembers.
            try:
                with channel.transaction():
                    channel.basic_ack(tag, multiple=True)
                return
            except StoreFull:
                pass  # it is durable with the next checkpoint, which a full store can make
        channel.basic_ack(tag, multiple=True)

    def _note(self) -> None:
        """The position in the stream.  Full."""
        position, self._to_note = self._to_note, None
        if position is None:
            return
        try:
            with self._store.channel() as other, other.transaction():
                other._commit_offset(self._name, self._group, position)
        except StoreFull as error:
            self._to_note = position
            raise Full(str(error)) from error

    def bury(self, batch: Batch) -> None:
        """As of Source.  NotFound: the queue of dead letters is not there.  ShovelError: it refuses
        them."""
        assert self._dead is not None
        indices = sorted(batch.dead.keys() - batch.buried)
        if not indices:
            return
        returned: list[ReturnedMessage] = []
        is_published = False
        try:
            with self._store.channel() as channel:
                channel.add_return_listener(returned.append)
                with channel.transaction():
                    for index in indices:
                        item = batch.items[index]
                        properties = buried(item, batch.dead[index])
                        channel.basic_publish("", self._dead, item.body, properties, True)
                    is_published = True
                    # NotFound: what was published before this went nowhere, and is rolled back.
                    channel.queue_declare(self._dead, passive=True)
                channel.process_events()
        except StoreFull as error:
            raise Full(str(error)) from error
        except PreconditionFailed as error:
            if is_published:  # the queue is full and refuses more
                raise Full(str(error)) from error
            raise ShovelError(f"the queue of dead letters refuses a message: {error}") from error
        if returned:
            raise NotFound(404, f"the queue {self._dead!r} was deleted meanwhile")
        batch.buried.update(indices)

    def tend(self, _seconds: float) -> None:
        """Nothing has to be done."""

    def lag(self) -> int | None:
        """As of Source."""
        status = self._store.queue_status(self._name)
        if self.is_stream:
            return max(0, int(status.next) - self._next)
        return int(status.messages_ready) + int(status.messages_unacked)

    def close(self) -> None:
        """As of Source."""
        with contextlib.suppress(Error, Full):
            self._note()
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(Error):
                channel.close()
