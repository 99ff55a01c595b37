"""Consumers of streams: what they have read is theirs to commit, and groups divide streams."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _core
from .errors import Error, OffsetOutOfRange, StoreClosed
from .stream import Reader, Start, check_stream, start_of
from .stream_group import Group, Member
from .waiting import Deadline

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["StreamConsumer"]

Listener = Callable[[list[str]], object]

_LOOK_AGAIN_S = 0.005


class StreamConsumer:
    """Reads streams for a group, from ``Store.stream_consumer()``.  One thread at a time uses it.

    The consumers of a group divide its streams among them: each stream is read by one of them at a
    time.  Where the group goes on is durable when it was committed, with ``commit()`` or in a
    transaction; what was read and not committed is read again by whoever comes next.
    """

    def __init__(
        self,
        store: Store,
        streams: Sequence[str],
        group: str,
        *,
        instance: str | None = None,
        start: Start = "first",
        reset: Literal["first", "next"] | None = None,
        columns: Sequence[str] | None = None,
        routing_keys: Sequence[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
    ) -> None:
        """See ``Store.stream_consumer``."""
        self._store = store
        self._group_name = group
        self._start = start
        self._reset = reset
        self._columns = None if columns is None else list(columns)
        self._routing_keys = None if routing_keys is None else list(routing_keys)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._readers: dict[str, Reader] = {}  # of assigned streams
        self._positions: dict[str, int] = {}  # behind what poll returned
        self._committed: dict[str, int] = {}
        self._paused: set[str] = set()
        self._turns: deque[str] = deque()
        self._schema: Any = None  # of what poll returns when nothing came
        self._channel: Any = None
        self._is_closed = False
        names = streams_of(store, streams)
        for name in names:
            start_of(store, name, start)  # ValueError here, not in a poll
        self._group: Group = store._groups.of(group)
        self._member: Member = self._group.join(names, instance)

    def __repr__(self) -> str:
        state = " (closed)" if self._is_closed else ""
        return f"<{type(self).__name__} of {self._group_name!r}: {self.assignment}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self._group.leave(self._member)

    @property
    def group(self) -> str:
        """The group's name."""
        return self._group_name

    @property
    def instance(self) -> str:
        """The name of this consumer in its group."""
        return self._member.instance

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    @property
    def assignment(self) -> list[str]:
        """The streams that this consumer reads now, sorted."""
        return sorted(self._readers)

    def poll(self, max_rows: int = 65_536, timeout: float | None = 0.0) -> pyarrow.RecordBatch:
        """The next messages of one of the streams; waits ``timeout`` seconds for some (None: for
        ever), and returns no rows when none came.

        Columns: as of ``Stream.read``, and ``stream`` (dictionary of string) behind them.  Streams
        are taken in turn.  What came or went with the group's members is so from here on.

        Raises OffsetOutOfRange when messages went that were not read yet, unless ``reset`` was
        given; StoreCorrupt, StoreClosed.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows must be 1 or more, not {max_rows}")
        deadline = Deadline(timeout)
        while True:
            self._check_open()
            self._follow_group()
            wait_ns = deadline.slice_ns()
            batch = self._first_of(max_rows, wait_ns)
            if batch is not None:
                return batch
            if deadline.over:
                return self._empty()

    def _first_of(self, max_rows: int, wait_ns: int) -> pyarrow.RecordBatch | None:
        """From the streams in turn; the engine waits for one, or for any of several."""
        names = [name for name in self._turns if name not in self._paused]
        for name in names:
            self._turns.remove(name)
            self._turns.append(name)
            batch = self._take(name, max_rows, wait_ns if len(names) == 1 else 0)
            if batch is not None:
                return batch
        if not names:  # until the group, or another thread, has one for it
            time.sleep(min(wait_ns / 1e9, _LOOK_AGAIN_S))
        elif len(names) > 1 and wait_ns > 0:
            _core.wait_for_streams([self._readers[name].core for name in names], wait_ns)
        return None

    def _take(self, name: str, max_rows: int, wait_ns: int) -> pyarrow.RecordBatch | None:
        reader = self._readers[name]
        try:
            batch = reader.next(max_rows, wait_ns)
        except OffsetOutOfRange as error:
            if self._reset is None:
                raise
            self._open(name, error.first if self._reset == "first" else error.next)
            return None
        self._positions[name] = reader.position
        return None if batch is None else _named(batch, name)

    def _empty(self) -> pyarrow.RecordBatch:
        import pyarrow

        if self._schema is None:
            name = self._member.streams[0]
            at_end = (_core.START_NEXT, 0)
            self._schema = Reader(self._store, name, at_end, None, self._columns, None).schema
        columns = [pyarrow.array([], field.type) for field in self._schema]
        return _named(pyarrow.record_batch(columns, schema=self._schema), "")

    # The group.

    def _follow_group(self) -> None:
        """Give up what others are to have, and begin what is new."""
        if not self._group.has_news(self._member):
            return
        revoked = self._group.revoked_of(self._member)
        if revoked:
            if self._on_revoke is not None:
                self._on_revoke(revoked)  # may commit
            for name in revoked:
                self._drop(name)
            self._group.released(self._member, revoked)
        assigned = self._group.assigned_to(self._member)
        for name in assigned:
            self._open(name, None)
        if assigned and self._on_assign is not None:
            self._on_assign(assigned)

    def _open(self, name: str, offset: int | None) -> None:
        """A reader from ``offset`` on, or from where the group goes on."""
        committed = _core.stream_cursor(self._store, name, self._group_name)
        if committed is not None:
            self._committed[name] = committed
        if offset is None:
            offset = committed
        start = (
            start_of(self._store, name, self._start)
            if offset is None
            else (_core.START_OFFSET, offset)
        )
        try:
            reader = self._reader(name, start)
        except OffsetOutOfRange as error:
            if self._reset is None:
                raise
            value = error.first if self._reset == "first" else error.next
            reader = self._reader(name, (_core.START_OFFSET, value))
        if name not in self._readers:
            self._turns.append(name)
        self._readers[name] = reader
        self._positions[name] = reader.position

    def _reader(self, name: str, start: tuple[int, int]) -> Reader:
        return Reader(self._store, name, start, None, self._columns, self._routing_keys)

    def _drop(self, name: str) -> None:
        if self._readers.pop(name, None) is not None:
            self._turns.remove(name)
        self._positions.pop(name, None)
        self._paused.discard(name)

    # Where it stands.

    def commit(self) -> None:
        """The group goes on behind what ``poll`` has returned; durable when this returns.

        Call it when that is done with: a crash before it means that those messages come again.
        """
        self._check_open()
        offsets = self._uncommitted()
        if not offsets:
            return
        if self._channel is None or self._channel.closed:
            self._channel = self._store.channel()
        with self._channel.transaction() as tx:
            tx.commit_offsets(self)

    def _uncommitted(self) -> dict[str, int]:
        return {
            name: position
            for name, position in self._positions.items()
            if self._committed.get(name) != position
        }

    def _note_committed(self, offsets: Mapping[str, int]) -> None:
        self._committed.update(offsets)

    def committed(self, stream: str) -> int | None:
        """Where the group goes on in a stream; None if it has committed nothing."""
        return _core.stream_cursor(self._store, stream, self._group_name)

    def position(self, stream: str) -> int:
        """The offset behind what ``poll`` has returned of an assigned stream."""
        self._follow_group()
        return self._positions[self._assigned(stream)]

    def seek(self, stream: str, offset: Start) -> None:
        """``poll`` goes on there, in an assigned stream."""
        self._check_open()
        self._follow_group()
        name = self._assigned(stream)
        start = start_of(self._store, name, offset)
        self._readers[name] = reader = self._reader(name, start)
        self._positions[name] = reader.position

    def pause(self, *streams: str) -> None:
        """``poll`` passes over these assigned streams until ``resume``; without any, over all."""
        self._follow_group()
        self._paused.update(self._assigned(name) for name in streams or self.assignment)

    def resume(self, *streams: str) -> None:
        """Take back ``pause``."""
        self._follow_group()
        self._paused.difference_update(
            [self._assigned(name) for name in streams or self.assignment]
        )

    @property
    def paused(self) -> list[str]:
        """The assigned streams that ``poll`` passes over, sorted."""
        return sorted(self._paused)

    def lag(self) -> dict[str, int]:
        """How many messages of each assigned stream are behind its position."""
        self._check_open()
        self._follow_group()
        return {
            name: max(0, int(_core.stream_status(self._store, name)["next"]) - position)
            for name, position in sorted(self._positions.items())
        }

    def _assigned(self, stream: str) -> str:
        if stream not in self._readers:
            raise ValueError(f"stream {stream!r} is not assigned to this consumer")
        return stream

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the consumer is closed")
        if self._store.closed:
            raise StoreClosed("the store is closed")

    def close(self) -> None:
        """Leave the group: others have its streams from now on.  Nothing is committed by it.
        Closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._readers.clear()
        self._turns.clear()
        self._group.leave(self._member)
        if self._channel is not None:
            with suppress(Error):  # the store went first
                self._channel.close()


def _named(batch: pyarrow.RecordBatch, name: str) -> pyarrow.RecordBatch:
    """With the column ``stream`` behind the others."""
    import pyarrow

    codes = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), len(batch))
    column = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([name]))
    return batch.append_column("stream", column)


def streams_of(store: Store, streams: str | Iterable[str]) -> list[str]:
    """The names of streams; that of an exchange stands for the streams that are bound to it."""
    asked = [streams] if isinstance(streams, str) else list(streams)
    if not asked:
        raise ValueError("a consumer needs a stream")
    queues = set(store.queues())
    exchanges = store.exchanges()
    found: dict[str, None] = {}
    for name in asked:
        if name not in queues and name in exchanges:
            bound = [b.destination for b in store.bindings() if b.source == name]
            found.update(dict.fromkeys(bound))
        else:
            found[name] = None
    for name in found:
        check_stream(store, name)
    return list(found)
