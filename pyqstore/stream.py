"""Streams: logs that keep their messages, for any number of readers."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from . import _core
from .errors import NotFound, OffsetOutOfRange, PreconditionFailed, StoreCorrupt
from .fields import FieldValue
from .figures import StreamStatus
from .forking import check_process
from .keyed import keyed_exchange
from .message import Receipt
from .queue import (
    Codec,
    Seconds,
    _Channels,
    check_codec,
    check_name,
    envelope,
    wait,
)
from .sequences import listed
from .times import since_1970
from .waiting import SLICE_NS, check_main

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["Committed", "Start", "Stream"]

_READ_ROWS = 65_536
_READ_BYTES = 16 << 20
_OFFSET_MAX = 2**64 - 2  # the next one fits as well
_TIME_US_MAX = 2**63 - 1
_WORDS = {
    "first": _core.START_FIRST,
    "last": _core.START_LAST,
    "next": _core.START_NEXT,
}
_MICROSECOND = timedelta(microseconds=1)
_Result = TypeVar("_Result")


class Committed(NamedTuple):
    """The place where ``group`` continues in a stream: a start for ``Stream.read``.  ``default``:
    the start of a group that has committed nothing."""

    group: str
    default: str | int | datetime | timedelta = "first"


Start = str | int | datetime | timedelta | Committed
"""Where reading begins: "first"; "last", the last block; "next", what is published from now on; an
offset; a time, or a time span back from now; where a group goes on."""


class Stream:
    """A log of messages, from ``Store.stream()``.  Any thread may use it.

    Messages have offsets, from 0 on, which are never reused, and times, which never decrease.
    Reading removes nothing; limits of age and size drop whole segments.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        codec: Codec | None = None,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """See ``Store.stream``."""
        self._store = store
        self._name = check_name(name)
        self._codec = check_codec(codec)
        self._channels = _Channels(store)
        self._exchange: str | None = None  # for keys, once it was declared
        declare(store, self._channels, name, arguments or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._store!r}>"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    @property
    def first(self) -> int:
        """The offset of the first message kept."""
        return self.status().first

    @property
    def next(self) -> int:
        """The offset of the next message to be published."""
        return self.status().next

    def __len__(self) -> int:
        """How many messages are kept.  NotFound: the stream was deleted."""
        status = self.status()
        return status.next - status.first

    def __bool__(self) -> bool:
        return True  # an empty stream is a stream

    def status(self) -> StreamStatus:
        """Offsets, segments and bytes.  NotFound: the stream was deleted."""
        return StreamStatus(**_core.stream_status(self._store, self._name))

    def offset_at(self, when: datetime | timedelta) -> int:
        """The offset of the first message published at ``when`` (a timedelta: that long ago) or
        later; ``next`` if there is none.

        A datetime without a zone is local time.
        """
        return int(_core.stream_offset_at(self._store, self._name, microseconds_of(when)))

    # Publishing.

    def publish(
        self,
        body: object,
        *,
        key: str = "",
        headers: Mapping[str, FieldValue] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Publish a message; it is durable when this returns.

        ``body``: bytes, or str, which becomes UTF-8, or any value that the ``codec`` (given here,
        or of the stream) accepts.  ``key``: its ``routing_key``, by which readers filter; by
        default the stream's name.

        Raises MessageReturned when the stream was deleted, StoreFull, StoreFailed.
        """
        encoded, properties = envelope(body, check_codec(codec) or self._codec, headers=headers)

        def publish(exchange: str) -> None:
            with self._channels.publishing() as channel:
                channel.basic_publish(
                    exchange, key or self._name, encoded, properties, mandatory=True
                )
                wait(channel)

        self._publish(publish, bool(key))

    def publish_batch(
        self, data: object, *, routing_key: str | None = None, body: str = "body"
    ) -> Receipt:
        """Publish every row of ``data``, in order, or nothing at all; all are durable when this
        returns.

        ``data`` and its columns are those of ``Channel.publish_batch``, but ``exchange`` is
        ignored.  Readers filter by the column ``routing_key``, or the argument ``routing_key``; by
        default it is the stream's name.

        Raises as ``publish`` does; MessageReturned: nothing was published.
        """
        rows, has_keys = with_keys(data)

        def publish(exchange: str) -> Receipt:
            with self._channels.publishing() as channel:
                receipt = channel.publish_batch(
                    rows, exchange, routing_key or self._name, body=body, mandatory=True
                )
                wait(channel, receipt)
            return receipt

        return self._publish(publish, has_keys or bool(routing_key))

    def _publish(self, publish: Callable[[str], _Result], has_key: bool) -> _Result:
        """To the stream itself, or with a key to the exchange that leads to it, which goes when the
        stream is deleted: one that was declared since has another."""
        if not has_key:
            return publish("")
        if self._exchange is not None:
            try:
                return publish(self._exchange)
            except NotFound:
                self._exchange = None
        exchange = keyed_exchange(self._channels.receiving, "stream", self._name)
        self._exchange = exchange
        return publish(exchange)

    def forget_group(self, group: str) -> None:
        """Forget what the group has committed; durable when this returns.

        The next consumer of the group begins at its ``start``; a running one continues, and may
        commit again.  A group that has committed nothing is fine.  Raises NotFound if the stream
        was deleted, ValueError for an invalid name of a group.
        """
        if not group:
            raise ValueError("a group needs a name")
        self._channels.receiving()._forget_offset(self._name, group)

    # Reading.

    def read(
        self,
        start: Start = "first",
        stop: str | int | datetime | timedelta | None = None,
        columns: Sequence[str] | None = None,
        routing_keys: Sequence[str] | None = None,
        follow: bool = False,
    ) -> pyarrow.RecordBatchReader:
        """Read the messages from ``start`` on: returns a reader of record batches, which polars,
        duckdb and pandas accept.

        The reader ends before ``stop`` (given like ``start``; None: the present end of the stream).
        With ``follow`` it never ends, and waits for new messages.  Columns: ``offset`` (uint64),
        ``timestamp`` (when the message was published), ``exchange``, ``routing_key``, ``body``,
        ``headers`` and the properties; ``columns`` selects some of them.  ``routing_keys``: only
        messages whose routing key matches one of these; "*" stands for a word and "#" for any
        words, as in a topic exchange; an empty list reads nothing.

        Raises NotFound, ValueError; OffsetOutOfRange if the offset ``start`` was dropped, here or,
        if it is dropped later, from the reader; StoreCorrupt from the reader.
        """
        import pyarrow

        reader = self._reader(start, stop, columns, routing_keys, follow)
        return pyarrow.RecordBatchReader.from_batches(reader.schema, reader)

    def _reader(
        self,
        start: Start,
        stop: str | int | datetime | timedelta | None,
        columns: Sequence[str] | None,
        routing_keys: Sequence[str] | None,
        follow: bool,
    ) -> Reader:
        columns = names_of("columns", columns)
        routing_keys = names_of("routing_keys", routing_keys)
        where = start_of(self._store, self._name, start)
        end = end_of(self._store, self._name, stop, follow)
        reader = Reader(self._store, self._name, where, end, columns, routing_keys)
        reader.follows = follow
        return reader

    def delete(self) -> int:
        """Delete the stream and return how many messages it had; 0 if it was deleted already."""
        try:
            count = len(self)
        except NotFound:
            count = 0
        self._channels.receiving().queue_delete(self._name)
        return count


def names_of(what: str, value: Sequence[str] | None) -> list[str] | None:
    """``columns``, ``routing_keys``: None, or a list of str."""
    return None if value is None else listed(what, value, str)


# Of a reader: the offset behind what the caller has; what comes next, if that was read; the offset
# behind that.  A plain tuple: three named ones for each batch cost as much as taking its rows.
_State = tuple[int, "pyarrow.RecordBatch | StoreCorrupt | None", int]


class Reader:
    """Reads one stream from a start, as ``start_of`` has it, to the offset ``end``; None: it goes
    on for ever.

    Its position moves when the caller has the rows.  What an exception, as of a signal handler,
    keeps from the caller comes with the next call.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        start: tuple[int, int],
        end: int | None,
        columns: Sequence[str] | None,
        routing_keys: Sequence[str] | None,
    ) -> None:
        import pyarrow

        keys = names_of("routing_keys", routing_keys)
        at, value = start
        self._columns = names_of("columns", columns)
        self._is_nothing = keys == []
        self._store = store
        self._name = name
        parts = _columns_of(self._columns)
        try:
            self.core: _core.StreamReader = _core.StreamReader(
                store, name, at, value, parts, tuple(keys or ())
            )
        except OffsetOutOfRange as error:
            raise OffsetOutOfRange(error.first, error.next, name) from None
        whole = schema_of_parts(parts)
        self.schema: pyarrow.Schema = picked(whole, self._columns)
        self._end = end
        self.follows: bool = False
        """Whether it waits for rows that are not published yet."""
        self._whole = whole
        self._import = pyarrow.RecordBatch._import_from_c
        self._picks = self._columns is not None and self._columns != whole.names
        # One assignment changes all, so that no exception comes between.
        position = self.core.position
        self._state: _State = (position, None, position)

    @property
    def position(self) -> int:
        """The offset behind what the caller has."""
        return self._state[0]

    def seek(self, offset: int) -> None:
        """Go on there.  Raises NotFound, OffsetOutOfRange."""
        self._seek(offset)
        self._state = (offset, None, offset)

    def _seek(self, offset: int) -> None:
        try:
            self.core.seek(_core.START_OFFSET, offset)
        except OffsetOutOfRange as error:
            raise OffsetOutOfRange(error.first, error.next, self._name) from None

    def is_there(self) -> bool:
        """Whether the stream is: not another one, that was declared with its name since."""
        try:
            self.core.seek(_core.START_OFFSET, self.position)
        except NotFound:
            return False
        except OffsetOutOfRange:  # dropped meanwhile
            pass
        return True

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self._is_nothing or (self._end is not None and self.position >= self._end)

    def look(
        self, rows_max: int = _READ_ROWS, timeout_ns: int = SLICE_NS
    ) -> pyarrow.RecordBatch | StoreCorrupt | None:
        """What comes next, or None when nothing came in time.  It stays what comes next until
        ``take``, and so does an error about rows that cannot be read."""
        position, ahead, _ = self._state
        core = self.core
        if ahead is not None:
            check_process(self._store)
            if isinstance(ahead, StoreCorrupt) or len(ahead) <= rows_max:
                return ahead
            self._state = (position, None, position)  # fewer are read again
        if core.position != position:  # of a call that was interrupted, or given up just now
            self._seek(position)
        if self._end is not None:
            rows_max = min(rows_max, max(1, self._end - position))
        try:
            taken = core.next(rows_max, _READ_BYTES, timeout_ns)
        except StoreCorrupt as error:
            self._state = (position, error, core.position)
            return error
        except OffsetOutOfRange as error:
            raise OffsetOutOfRange(error.first, error.next, self._name) from None
        if taken is None:  # a filter may have passed over some
            behind = core.position
            self._state = (behind, None, behind)
            return None
        behind = core.position
        batch = self._batch(taken, behind)
        self._state = (position, batch, behind)
        return batch

    def _batch(self, taken: _core.ArrowBatch, position: int) -> pyarrow.RecordBatch:
        # With the schema that is known: taking it from each batch anew costs as much as the rows.
        batch = self._import(taken.address, self._whole)
        if self._end is not None and position > self._end:  # of a filter
            behind = sum(offset >= self._end for offset in batch["offset"].to_pylist())
            batch = batch.slice(0, len(batch) - behind)
        return batch.select(self._columns) if self._picks else batch

    def take(self, what: _Result) -> _Result:
        """What ``look`` returned is the caller's, when this returns: it is returned, or raised if
        it is an exception."""
        before = self._state
        _, ahead, behind = before
        if ahead is None:
            raise RuntimeError("another thread is using this reader; open one for each")
        if isinstance(what, Exception):
            self._state = (behind, None, behind)
            raise what
        try:
            self._state = (behind, None, behind)
            return what
        except BaseException:
            self._state = before
            raise

    def next(
        self, rows_max: int = _READ_ROWS, timeout_ns: int = SLICE_NS
    ) -> pyarrow.RecordBatch | None:
        """The next batch, or None when none came in time."""
        found = self.look(rows_max, timeout_ns)
        return None if found is None else self.take(found)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        """Of all batches.  It goes on after an exception, which would end a generator."""
        while not self.over:
            found = self.look()
            if found is not None:
                if isinstance(found, StoreCorrupt) or len(found) > 0:
                    return self.take(found)
                self.take(found)
            elif self.follows:
                check_main()
        raise StopIteration


def end_of(store: Store, name: str, stop: Start | None, follow: bool) -> int | None:
    """Before which offset reading ends."""
    if stop is None:
        return None if follow else int(_core.stream_status(store, name)["next"])
    value = offset_of(store, name, stop)
    return value if follow else min(value, int(_core.stream_status(store, name)["next"]))


def offset_of(store: Store, name: str, start: Start) -> int:
    """The offset that a start is now."""
    at, value = start_of(store, name, start)
    if at == _core.START_TIME:
        value = _core.stream_offset_at(store, name, value)
    elif at == _core.START_LAST:
        value = _core.StreamReader(store, name, at, 0, _core.COLUMN_TIMESTAMP, ()).position
    elif at != _core.START_OFFSET:
        value = _core.stream_status(store, name)["first" if at == _core.START_FIRST else "next"]
    return value


def _parts() -> dict[str, int]:
    """Which part of a batch the engine must read for each column."""
    from .columns import COLUMNS, STREAM

    return {column.name: column.part for column in COLUMNS if column.received & STREAM}


def schema_of_parts(parts: int = 0) -> pyarrow.Schema:
    """The schema of a stream's batches with these parts; 0: with all."""
    from .columns import STREAM, schema_of

    return schema_of(STREAM, parts)


def picked(whole: pyarrow.Schema, columns: Sequence[str] | None) -> pyarrow.Schema:
    """The columns that are wanted; None: all.  ValueError: one of them is none."""
    import pyarrow

    if columns is None:
        return whole
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(_parts())}")
    return pyarrow.schema([whole.field(name) for name in columns])


def _columns_of(columns: Sequence[str] | None) -> int:
    """What the engine must read; it takes 0 for all."""
    if columns is None:
        return 0
    asked, parts = 0, _parts()
    for name in columns:
        asked |= parts.get(name, _core.COLUMN_PROPERTIES)
    return asked or _core.COLUMN_TIMESTAMP


def start_of(store: Store, name: str, start: Start) -> tuple[int, int]:
    """Kind and value of a start, as C takes them."""
    if isinstance(start, Committed):
        offset = _core.stream_cursor(store, name, start.group)
        if offset is None:
            return start_of(store, name, start.default)
        return _core.START_OFFSET, offset
    if isinstance(start, str):
        if start not in _WORDS:
            raise ValueError(f'start must be "first", "last", "next", not {start!r}')
        return _WORDS[start], 0
    if isinstance(start, datetime | timedelta):
        return _core.START_TIME, microseconds_of(start)
    try:
        offset = operator.index(start)
    except TypeError:
        raise TypeError(
            "start must be a word, an offset, a datetime, a timedelta or Committed, not "
            f"{type(start).__name__}"
        ) from None
    if not 0 <= offset <= _OFFSET_MAX:
        raise ValueError(f"an offset must be 0 to {_OFFSET_MAX}, not {offset}")
    return _core.START_OFFSET, offset


def microseconds_of(when: datetime | timedelta) -> int:
    """Since 1970; 0 of what was before."""
    if isinstance(when, timedelta):
        time_us = time.time_ns() // 1000 - when // _MICROSECOND
    elif isinstance(when, datetime):
        time_us = since_1970(when) // _MICROSECOND
    else:
        raise TypeError(f"a datetime or a timedelta, not {type(when).__name__}")
    return min(max(0, time_us), _TIME_US_MAX)


def declare(
    store: Store, channels: _Channels, name: str, arguments: Mapping[str, FieldValue]
) -> None:
    """Declare a stream; without arguments one that is there will do."""
    if not arguments:
        try:
            check_stream(store, name)
        except NotFound:
            pass
        else:
            return
    encoded = {"x-queue-type": "stream", **arguments}
    channels.receiving().queue_declare(name, durable=True, arguments=encoded)


def check_stream(store: Store, name: str) -> None:
    """NotFound, and PreconditionFailed of a queue."""
    try:
        _core.stream_status(store, name)
    except ValueError:
        store.queue_status(name)  # ValueError: the name is none
        raise PreconditionFailed(
            406, f"PRECONDITION_FAILED - queue '{name}' is there and is no stream"
        ) from None


def stream_arguments(
    max_age: str | Seconds | None,
    max_length_bytes: int | None,
    max_messages: int | None,
    segment_bytes: int | None,
) -> dict[str, FieldValue]:
    """Those of a declaration."""
    if isinstance(max_age, timedelta):
        max_age = max_age.total_seconds()
    if isinstance(max_age, int | float):
        if not 0 <= max_age < math.inf:  # not a number as well
            raise ValueError(f"max_age must be a number of 0 or more seconds, not {max_age}")
        max_age = f"{-int(-max_age // 1)}s"
    arguments: dict[str, FieldValue | None] = {
        "x-max-age": max_age,
        "x-max-length-bytes": max_length_bytes,
        "x-max-messages": max_messages,
        "x-stream-max-segment-size-bytes": segment_bytes,
    }
    return {key: value for key, value in arguments.items() if value is not None}


def with_keys(data: object) -> tuple[object, bool]:
    """Arrow data without the column that would lead elsewhere, and whether rows have keys.

    What is no Arrow data stays as it is, for ``publish_batch`` to refuse: pyarrow would make a
    table of a dict, and end the process where that holds itself.
    """
    names = getattr(data, "column_names", None)  # of pyarrow's Table
    if names is None:
        names = getattr(getattr(data, "schema", None), "names", None)  # of its RecordBatch
    is_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    if is_arrow and (names is None or "exchange" in names):
        import pyarrow

        table = pyarrow.table(data)
        names = table.column_names
        data = table.select([i for i, name in enumerate(names) if name != "exchange"])
    return data, names is not None and "routing_key" in names
