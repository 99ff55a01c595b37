"""Consumers of streams: what they have read is theirs to commit, and groups divide streams."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _core
from .callbacks import check_callable
from .closing import Closing
from .errors import (
    Error,
    NotFound,
    OffsetOutOfRange,
    PreconditionFailed,
    StoreCorrupt,
)
from .forking import check_process
from .sequences import listed
from .stream import (
    Committed,
    Reader,
    Start,
    check_stream,
    names_of,
    picked,
    schema_of_parts,
    start_of,
)
from .stream_group import Group, Member
from .waiting import Deadline, Seconds

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["StreamConsumer"]

Listener = Callable[[list[str]], object]

_LOOK_AGAIN_S = 0.005
_ROWS_MAX = 2**64 - 1


class StreamConsumer(Closing):
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
        asked = listed("streams", streams, str)
        self._columns = names_of("columns", columns)
        self._routing_keys = names_of("routing_keys", routing_keys)
        if reset not in (None, "first", "next"):
            raise ValueError(f'reset must be "first", "next" or None, not {reset!r}')
        self._store = store
        self._group_name = group
        self._start = start
        self._reset = reset
        if self._routing_keys == []:
            raise ValueError(
                "routing_keys: nothing would ever come; name the keys, or leave it out for all"
            )
        check_callable(on_assign=on_assign, on_revoke=on_revoke)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        # Each of these changes by one assignment, or is changed again when it is found half done: a
        # signal handler may raise anywhere.
        self._turns: list[str] = []  # assigned streams
        self._readers: dict[str, Reader] = {}  # of those that could be opened
        self._failed: dict[str, Exception] = {}  # why others could not, until it is told
        self._terms: dict[str, int] = {}  # of assigned streams, in the group
        self._untold: list[str] = []  # assigned, for the listener to hear
        self._is_telling = False  # a listener is called
        self._committed: dict[str, int] = {}
        self._paused: set[str] = set()
        self._deleted: list[str] = []  # and told so
        self._channel: Any = None
        self._is_closed = False
        self._made_at = datetime.now(UTC)
        self._topology = store._topology()
        names, self._exchanges = streams_of(store, asked)
        self._first_names = frozenset(names)
        for name in names or [""]:
            _check_start(store, name, start)  # ValueError here, not in a poll
        self._schema = picked(schema_of_parts(), self._columns)  # of what poll returns without rows
        self._group: Group = store._groups.of(group)
        self._member: Member = self._group.join(names, instance)

    def __repr__(self) -> str:
        state = " (closed)" if self._is_closed else ""
        return f"<{type(self).__name__} of {self._group_name!r}: {self.assignment}{state}>"

    def __del__(self) -> None:
        member: Member | None = getattr(self, "_member", None)
        if member is not None:  # it is not, where the constructor raised
            member.is_gone = True

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
        """Whether ``close`` was called.  In a child of fork() it is not open."""
        return self._is_closed or self._store._forked

    @property
    def assignment(self) -> list[str]:
        """The streams that this consumer reads now, sorted."""
        return sorted(self._turns)

    def poll(self, max_rows: int = 65_536, timeout: Seconds | None = 0.0) -> pyarrow.RecordBatch:
        """The next messages of one of the streams; waits ``timeout`` seconds for some (None: for
        ever), and returns no rows when none came.

        Columns: as of ``Stream.read``, and ``stream`` (dictionary of string) behind them.  Streams
        are taken in turn.  What came or went with the group's members is so from here on.

        Raises OffsetOutOfRange when messages went that were not read yet, unless ``reset`` was
        given; its ``stream`` is the one.  ``seek`` elsewhere, or each turn of that stream raises
        again, also of another consumer that has it then.  NotFound when a
        stream was deleted: told once, and left out from then on; when none is left, told each time.
        StoreCorrupt, StoreClosed.  The other streams have their turns all the same.

        When a signal handler raises meanwhile, the rows come with the next poll.
        """
        return self._taken(self._look(rows_of(max_rows), Deadline(timeout)))

    def _look(self, max_rows: int, deadline: Deadline) -> _Found | None:
        """What comes next.  It stays what comes next until it is taken, whoever is interrupted or
        cancelled meanwhile."""
        while True:
            self._check_open()
            self._follow_group()
            self._check_left()
            found = self._first_of(max_rows, deadline.slice_ns())
            if found is not None or deadline.over:
                return found

    def _check_left(self) -> None:
        """NotFound: each stream that it was to read was deleted, so nothing ever comes, as no
        exchange may have another one bound."""
        if self._deleted and not self._exchanges and not self._member.streams:
            names = ", ".join(f"'{name}'" for name in self._deleted)
            raise NotFound(
                404, f"NOT_FOUND - no stream is left to this consumer: {names} was deleted"
            )

    def _taken(self, found: _Found | None) -> pyarrow.RecordBatch:
        """It is the caller's when this returns, or raises what was found."""
        if found is None:
            return self._empty()
        what = found.what
        if isinstance(what, NotFound):
            self._deleted = sorted({*self._deleted, found.name})
            self._group.leave_out(self._member, found.name)
            self._topology = -1  # another one of its name may be bound by now
            self._drop(found.name)
            raise what
        assert found.reader is not None
        if isinstance(what, StoreCorrupt):
            return found.reader.take(what)
        return found.reader.take(_named(what, found.name))

    def _first_of(self, max_rows: int, wait_ns: int) -> _Found | None:
        """From the streams in turn; the engine waits for one, or for any of several."""
        names = [name for name in self._turns if name not in self._paused]
        for name in names:
            self._turns = [*(other for other in self._turns if other != name), name]
            found = self._find(name, max_rows, wait_ns if len(names) == 1 else 0)
            if found is not None:
                return found
        if not names:  # until the group, or another thread, has one for it
            time.sleep(min(wait_ns / 1e9, _LOOK_AGAIN_S))
        elif len(names) > 1 and wait_ns > 0:
            _core.wait_for_streams([self._readers[name].core for name in names], wait_ns)
        return None

    def _find(self, name: str, max_rows: int, wait_ns: int) -> _Found | None:
        try:
            reader = self._opened(name)
            while True:
                try:
                    what = reader.look(max_rows, wait_ns)
                    break
                except OffsetOutOfRange:
                    if self._reset is None:
                        raise
                    reader = self._use(name, self._reader(name, self._start_of(name, self._reset)))
        except NotFound as error:
            return _Found(name, None, error)
        return None if what is None else _Found(name, reader, what)

    def _empty(self) -> pyarrow.RecordBatch:
        import pyarrow

        columns = [pyarrow.array([], field.type) for field in self._schema]
        return _named(pyarrow.record_batch(columns, schema=self._schema), "")

    # The group.

    def _follow_group(self) -> None:
        """Give up what others are to have, and begin what is new.  Raises ForkedStore."""
        check_process(self._store)
        if self._is_telling:  # a listener asks; it is in here already
            return
        self._follow_exchanges()
        if self._group.has_news(self._member):
            self._give_up()
            self._begin()
        if self._untold:
            try:
                if self._on_assign is not None:
                    self._tell(self._on_assign, self._untold)
            except Exception:  # the listener's own is raised once; an interrupted one hears again
                self._untold = []
                raise
            self._untold = []

    def _follow_exchanges(self) -> None:
        """Have what was bound meanwhile, too."""
        topology = self._store._topology() if self._exchanges else self._topology
        if topology != self._topology:
            there = set(self._store.exchanges())
            gone = [exchange for exchange in self._exchanges if exchange not in there]
            self._deleted = sorted({*self._deleted, *gone})
            self._exchanges = [exchange for exchange in self._exchanges if exchange in there]
            bound = [n for e in self._exchanges for n in bound_to(self._store, e)]
            self._group.add(self._member, (n for n in bound if _is_stream(self._store, n)))
            self._topology = topology

    def _give_up(self) -> None:
        revoked = self._group.revoked_of(self._member)
        if revoked:
            if self._on_revoke is not None:
                self._tell(self._on_revoke, revoked)  # may commit
            for name in revoked:
                self._drop(name)
            self._group.released(self._member, revoked)

    def _begin(self) -> None:
        assigned = self._group.assigned_to(self._member)
        if not assigned:
            return
        self._terms.update(self._group.terms_of(assigned))
        self._turns = [*(name for name in self._turns if name not in assigned), *assigned]
        for name in assigned:
            try:
                self._open(name)
            except Exception as error:  # for whoever asks for this stream; others have theirs
                self._failed[name] = error
        self._untold = sorted({*self._untold, *assigned})
        self._group.taken(self._member, assigned)

    def _tell(self, listener: Listener, names: list[str]) -> None:
        self._is_telling = True
        try:
            listener(names)
        finally:
            self._is_telling = False

    def _opened(self, name: str) -> Reader:
        """The reader of an assigned stream.  What there was against one is raised once, and then it
        is tried again."""
        reader = self._readers.get(name)
        if reader is not None:
            return reader
        error = self._failed.pop(name, None)
        if error is not None:
            raise error
        return self._open(name)

    def _open(self, name: str) -> Reader:
        """A reader from where the group goes on."""
        committed = _core.stream_cursor(self._store, name, self._group_name)
        if committed is None:
            start = self._start_of(name, self._start)
        else:
            self._committed[name] = committed
            start = (_core.START_OFFSET, committed)
        try:
            if committed is not None:
                self._check_end(name, committed)
            reader = self._reader(name, start)
        except OffsetOutOfRange:
            if self._reset is None:
                raise
            reader = self._reader(name, self._start_of(name, self._reset))
        return self._use(name, reader)

    def _use(self, name: str, reader: Reader) -> Reader:
        self._readers[name] = reader
        self._failed.pop(name, None)
        return reader

    def _start_of(self, name: str, start: Start) -> tuple[int, int]:
        if start == "next" and name not in self._first_names:
            start = self._made_at  # it was bound later: what came before this looked is news, too
        return start_of(self._store, name, start)

    def _reader(self, name: str, start: tuple[int, int]) -> Reader:
        return Reader(self._store, name, start, None, self._columns, self._routing_keys)

    def _check_end(self, name: str, offset: int) -> None:
        """OffsetOutOfRange: it is behind the end, where nothing comes for long, and nobody is
        told."""
        status = _core.stream_status(self._store, name)
        if offset > status["next"]:
            raise OffsetOutOfRange(status["first"], status["next"], name)

    def _drop(self, name: str) -> None:
        self._turns = [other for other in self._turns if other != name]
        self._untold = [other for other in self._untold if other != name]
        self._readers.pop(name, None)
        self._terms.pop(name, None)
        self._failed.pop(name, None)
        self._committed.pop(name, None)
        self._paused.discard(name)

    # Where it stands.

    def commit(self) -> None:
        """The group goes on behind what ``poll`` has returned; durable when this returns.

        Call it when that is done with: a crash before it means that those messages come again.

        When it raises, the group has not moved.  NotFound: a stream was deleted, and another one
        with its name was declared; the next poll leaves it out.  OffsetOutOfRange: a position is
        behind the end of its stream.
        """
        self._check_open()
        offsets = self._uncommitted()
        if not offsets:
            return
        if self._channel is None or self._channel.closed:
            self._channel = self._store.channel()
        try:
            with self._channel.transaction() as tx:
                tx.commit_offsets(self)
        except BaseException:
            with suppress(Error):
                self._channel.close()  # an interrupt may have left a transaction open
            raise

    def _uncommitted(self) -> dict[str, int]:
        """Without what was deleted, which poll tells.  Raises as ``commit``."""
        self._check_open()
        offsets: dict[str, int] = {}
        for name, reader in list(self._readers.items()):
            position = reader.position
            if self._committed.get(name) != position and self._is_there(name):
                self._check_end(name, position)
                offsets[name] = position
        return offsets

    def _is_there(self, name: str) -> bool:
        """Whether the stream that is read is.  NotFound: another one has its name."""
        reader = self._readers.get(name)
        if reader is None:  # another thread polled meanwhile
            raise ValueError(f"stream {name!r} is not assigned to this consumer any more")
        if reader.is_there():
            return True
        try:
            _core.stream_status(self._store, name)
        except (NotFound, ValueError):  # or a queue has it
            return False
        raise NotFound(
            404,
            f"NOT_FOUND - stream '{name}' was deleted and declared again: the position in the one"
            " that was read means nothing in the other, and is not committed",
        )

    def _check_noted(self, offsets: Mapping[str, int]) -> None:
        """NotFound: they were noted in a transaction by the names of streams, and one of these
        streams is not the one that was read.  A stream that is there now was there all the time."""
        for name in offsets:
            self._is_there(name)

    def _terms_of(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Of streams that are assigned: for ``_check_terms`` at the end of a transaction."""
        return {name: self._terms[name] for name in offsets}

    def _check_terms(self, terms: Mapping[str, int]) -> None:
        """ValueError: another consumer of the group was given one of these streams meanwhile."""
        for name, term in self._group.terms_of(terms).items():
            if term != terms[name]:
                raise ValueError(
                    f"stream {name!r} went to another consumer of group {self._group_name!r}"
                    " before the transaction ended: the offset is not committed"
                )

    def _note_committed(self, offsets: Mapping[str, int]) -> None:
        self._committed.update(offsets)

    def committed(self, stream: str) -> int | None:
        """Where the group goes on in a stream; None if it has committed nothing."""
        return _core.stream_cursor(self._store, stream, self._group_name)

    def position(self, stream: str) -> int:
        """The offset behind what ``poll`` has returned of an assigned stream.  Raises as
        ``poll``."""
        self._check_open()
        self._follow_group()
        return self._opened(self._assigned(stream)).position

    def seek(self, stream: str, offset: Start) -> None:
        """``poll`` goes on there, in an assigned stream.

        OffsetOutOfRange: an offset that the stream does not keep any more, or that is behind the
        one which is published next.
        """
        self._check_open()
        self._follow_group()
        name = self._assigned(stream)
        at, value = self._start_of(name, offset)
        if at == _core.START_OFFSET:
            self._check_end(name, value)
        self._use(name, self._reader(name, (at, value)))

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
        """How many messages of each assigned stream are behind its position, and are what ``poll``
        gives without waiting: all that are durable, where the position was dropped.  Without
        streams that were deleted."""
        self._check_open()
        self._follow_group()
        lags: dict[str, int] = {}
        for name in self.assignment:
            with suppress(NotFound):
                status = _core.stream_status(self._store, name)
                reader = self._readers.get(name)
                position = self._committed.get(name, 0) if reader is None else reader.position
                lags[name] = max(0, status["durable"] - max(position, status["first"]))
        return lags

    def _assigned(self, stream: str) -> str:
        if stream not in self._turns:
            raise ValueError(f"stream {stream!r} is not assigned to this consumer")
        return stream

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the consumer is closed")
        self._store._check()

    def close(self) -> None:
        """Leave the group: others have its streams from now on.  Nothing is committed by it.
        Closing twice is fine."""
        if self.closed:
            return
        self._group.leave(self._member)
        if self._channel is not None:
            with suppress(Error):  # the store went first
                self._channel.close()
        self._is_closed = True  # where this was interrupted, it is done again
        self._turns = []
        self._readers.clear()
        self._failed.clear()


class _Found(NamedTuple):
    """In a stream: rows, or what is against them.  Without a reader the stream could not be
    opened."""

    name: str
    reader: Reader | None
    what: pyarrow.RecordBatch | StoreCorrupt | NotFound


def rows_of(max_rows: int) -> int:
    """``max_rows`` of ``poll``.  TypeError, ValueError."""
    try:
        rows = operator.index(max_rows)
    except TypeError:
        raise TypeError(f"max_rows must be int, not {type(max_rows).__name__}") from None
    if not 1 <= rows <= _ROWS_MAX:
        raise ValueError(f"max_rows must be 1 to {_ROWS_MAX}, not {max_rows}")
    return rows


def _named(batch: pyarrow.RecordBatch, name: str) -> pyarrow.RecordBatch:
    """With the column ``stream`` behind the others."""
    import pyarrow

    codes = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), len(batch))
    column = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([name]))
    return batch.append_column("stream", column)


def streams_of(store: Store, asked: Sequence[str]) -> tuple[list[str], list[str]]:
    """The streams that these names stand for now, and those of the names that are exchanges'.

    NotFound, PreconditionFailed (a queue), ValueError: there is no name.
    """
    if not asked:
        raise ValueError("a consumer needs a stream")
    queues = set(store.queues())
    found: dict[str, None] = {}
    exchanges = []
    for name in asked:
        if name and name not in queues and name in store.exchanges():
            exchanges.append(name)
            found.update(dict.fromkeys(bound_to(store, name)))
        else:
            found[name] = None
    for name in found:
        check_stream(store, name)
    return list(found), exchanges


def bound_to(store: Store, exchange: str) -> list[str]:
    """The queues that an exchange leads to, also through others."""
    bindings = store.bindings()
    exchanges, queues = [exchange], dict[str, None]()
    for source in exchanges:
        for binding in bindings:
            if binding.source == source and not binding.to_exchange:
                queues[binding.destination] = None
            elif binding.source == source and binding.destination not in exchanges:
                exchanges.append(binding.destination)
    return list(queues)


def _is_stream(store: Store, name: str) -> bool:
    try:
        check_stream(store, name)
    except (NotFound, PreconditionFailed):
        return False
    return True


def _check_start(store: Store, name: str, start: Start) -> None:
    """ValueError, TypeError: it is none.  Without a name, what can be told without a stream."""
    while not name and isinstance(start, Committed):
        start = start.default
    start_of(store, name, start)
