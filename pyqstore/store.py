"""Opening a store, and its methods."""

from __future__ import annotations

import atexit
import logging
import operator
import os
import ssl
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from . import _core
from .callbacks import check_callable
from .channel import Channel
from .channel.handle import raise_first, tell_rest
from .closing import Closing
from .connection import Connection
from .control.hub import Door, open_door
from .counts import Counters, Counts, counters_of
from .errors import Error, StoreCorrupt
from .fields import FieldValue
from .figures import DetailedStats, Latency, QueueStatus, Stats
from .findings import Damage, RecoveryReport, Verification, verify
from .listening import Authenticate, Certified, Listener
from .listings import Binding, ExchangeInfo, bindings_of, exchanges_of, text_of
from .message_trace import Trace
from .opening import filesystem_of, log_opened, report_of, warn_of_surroundings
from .options import (
    SYNC,
    StoreOptions,
    checked_path,
    decoded,
    encoded,
    number_of,
    signature_of,
    word_of,
)
from .queue import Codec, Queue, Seconds, warn_of_slips
from .snapshots import Copied, snapshot
from .staged import Adoption, staged_paths
from .stream import Start, Stream, stream_arguments
from .stream_consumer import StreamConsumer
from .stream_group import Groups

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .http.server import HttpServer

__all__ = [
    "Binding",
    "Damage",
    "ExchangeInfo",
    "RecoveryReport",
    "Store",
    "StoreOptions",
    "Verification",
    "open",
    "verify",
]


_log = logging.getLogger("pyqstore")
_BROWSE_ROWS = 65_536
_BROWSE_BYTES = 16 << 20
_U64_MAX = 2**64 - 1
_MODES = {"default": 0, "lazy": 1}


def open(  # noqa: A001 - pyqstore.open
    path: str | os.PathLike[str], **options: Unpack[StoreOptions]
) -> Store:
    """Open the store in the directory ``path``, which is made (mode 0700) if missing, and recover
    it.

    The path ":memory:" opens a new store in this process's memory, which makes no files and is gone
    when it is closed: for tests, and for messages that need not outlive the process.

    :class:`StoreOptions` describes the options.  These are their defaults; sizes are in bytes, or
    as "64MiB":

    - ``memory_budget`` 256 MiB, ``body_bytes_max`` 128 MiB, ``embed_below`` 4096;
      ``segment_entries`` 16384 messages of an index segment, fixed when the store is made;
      ``journal_file_bytes`` and ``message_file_bytes`` 64 MiB;
    - ``checkpoint_bytes`` 256 MiB of journal, ``checkpoint_interval`` 60 s; ``commit_delay_us`` 0;
    - ``sync`` "fdatasync" (or "none", for benchmarks), ``recovery`` "strict" (or "salvage"),
      ``create`` True, ``read_only`` False, ``control`` True, ``progress`` None.

    Opening replays the journal since the last checkpoint, and takes time in proportion.
    ``progress`` is called meanwhile, in this thread; an exception that it raises is raised here
    once the replay has ended, and the store is closed again.

    Raises StoreNotFound (no store and ``create=False``, no parent directory, or a directory with
    other files: a new store needs an empty one), StoreLocked (another owner), StoreCorrupt (damage,
    with file and offset), StoreFailed (an input/output error), StoreFull, StoreError (a version or
    features that this build does not know; some such stores can still be read with ``read_only``);
    TypeError for an unknown option, ValueError for one out of range, and for a directory that
    belongs to another user or that others can write.

    Warns of UnsafeFilesystem and ClockJump, but not with ``read_only``.
    """
    return Store(path, **options)


open.__signature__ = signature_of(open)  # type: ignore[attr-defined]


class Store(_core.Store, Closing):
    """An open store: one directory, one owner.  Thread-safe.  From :func:`open`.

    After ``fork()`` the child's calls raise ForkedStore.  A channel keeps its store alive.  The
    exit of the interpreter closes open stores.
    """

    _path: str
    _directory: str
    _create: bool
    _door: Door | None  # for tools; None: there is none
    _recovery_report: RecoveryReport
    _groups: Groups
    _listeners: weakref.WeakSet[Listener]
    _faces: weakref.WeakSet[Any]  # what asynchronous stores have open on this one
    _firehose: Any = None  # who copies its messages, of pyqstore.http

    def __new__(cls, path: str | os.PathLike[str], **options: Unpack[StoreOptions]) -> Self:
        """See :func:`open`."""
        arguments = encoded(options)
        control = arguments.pop("control")
        name = checked_path(path)
        self = super().__new__(cls, os.fsencode(name), **arguments)
        try:
            self._path = name
            self._directory = name if name == ":memory:" else os.path.abspath(name)
            self._create = arguments["create"]
            self._door = None
            self._groups = Groups()
            self._faces = weakref.WeakSet()
            self._listeners = weakref.WeakSet()
            self._recovery_report = report_of(self)
            log_opened(name, options, self._recovery_report)
            _open_stores.add(self)
            if not arguments["read_only"]:
                warn_of_surroundings(name, self, self._recovery_report.clock_ahead_s)
                if control and name != ":memory:":
                    self._door = open_door(self, self._directory)
        except BaseException:  # a warning that is an error: nobody could close the store
            with suppress(Error):
                self.close()
            raise
        return self

    def __del__(self) -> None:
        if not self.closed and not self._forked:
            warnings.warn(f"unclosed store {self!r}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __repr__(self) -> str:
        path = getattr(self, "_path", "")
        return f"<{type(self).__name__} {path!r}{' (closed)' if self.closed else ''}>"

    def close(self) -> None:
        """Requeue the messages that channels hold, make everything durable and release the store.
        Closing twice is fine.

        Waits for running calls of other threads; calls that wait end within 0.1 s.  In a child of
        fork() only memory is freed.  Raises StoreFailed if published messages could not be made
        durable, StoreFull if there was no space to record that they are: the next open recovers, as
        after a crash.  The store is closed all the same.
        """
        if self._forked or self.closed:
            self._close()
            raise_first(tell_rest(self))
            return
        for face in (*getattr(self, "_faces", ()), self._firehose):
            if face is not None:
                face.close()
        door = getattr(self, "_door", None)
        if door is not None:
            door.close()
        try:
            self._close()
        except Error as error:
            _log.error("%s: closed: %s", self._path, error)
            raise
        finally:
            if door is not None:
                door.join()
            raised = tell_rest(self)
        if hasattr(self, "_recovery_report"):
            _log.info("%s: closed", self._path)
        raise_first(raised)

    def channel(self) -> Channel:
        """Open a channel with a connection of its own.  Raises StoreClosed, ForkedStore."""
        return Channel(self)

    def connection(self, name: str = "") -> Connection:
        """Open a connection, for channels that share exclusive queues.  ``name`` is for people.

        Raises StoreClosed, ForkedStore.
        """
        return Connection(self, name)

    def queue(
        self,
        name: str,
        *,
        codec: Codec | None = None,
        **arguments: FieldValue | timedelta,
    ) -> Queue:
        """The queue ``name``, declared durable: messages are persistent, a put returns when they
        are durable, and nothing is acknowledged before it was handled.

        ``arguments`` are those of ``queue_declare``, with or without "x-", times in milliseconds or
        as a timedelta: ``max_length=1000``, ``delivery_limit=5``.  Without arguments an existing
        durable queue is taken as it is.  ``codec`` converts values to bodies, such as
        ``pyqstore.json``.

        PreconditionFailed: the queue exists with other arguments, or is not durable.
        """
        queue = Queue(self, name, codec, arguments)
        warn_of_slips(name, arguments, stacklevel=2)
        return queue

    def stream(
        self,
        name: str,
        *,
        max_age: str | Seconds | None = None,
        max_length_bytes: int | None = None,
        max_messages: int | None = None,
        segment_bytes: int | None = None,
        codec: Codec | None = None,
    ) -> Stream:
        """The stream ``name``, declared: a log that keeps its messages, for any number of readers.

        Without a limit an existing stream is taken as it is.  Messages beyond a limit are dropped
        by whole segments of ``segment_bytes`` (an eighth of each limit), and the last segment
        stays: ``max_age``, seconds, a timedelta or RabbitMQ's form ("7D"), after it was published;
        ``max_length_bytes`` of its files; ``max_messages``.  ``codec``: as of ``Store.queue``.

        PreconditionFailed: it exists with other limits, or is a queue.
        """
        arguments = stream_arguments(max_age, max_length_bytes, max_messages, segment_bytes)
        return Stream(self, name, codec, arguments)

    def stream_consumer(
        self,
        streams: str | Sequence[str],
        group: str,
        *,
        instance: str | None = None,
        start: Start = "first",
        reset: Literal["first", "next"] | None = None,
        columns: Sequence[str] | None = None,
        routing_keys: Sequence[str] | None = None,
        on_assign: Callable[[list[str]], object] | None = None,
        on_revoke: Callable[[list[str]], object] | None = None,
    ) -> StreamConsumer:
        """A consumer of ``streams``, one of ``group``, whose consumers divide the streams.

        The name of an exchange stands for all streams bound to it, also through other exchanges or
        later.  ``instance``: the consumer's name in the group.  Where the group has committed
        nothing, reading begins at ``start``, as in ``Stream.read``.  Where its offset was dropped
        meanwhile, reading continues at ``reset``; None: OffsetOutOfRange.  ``columns``,
        ``routing_keys``: as in ``Stream.read``, without an empty list of keys.
        ``on_assign(streams)`` and ``on_revoke(streams)`` are called in ``poll`` and the like, after
        streams are assigned and before they are revoked.

        NotFound, PreconditionFailed (a queue), ValueError.
        """
        return StreamConsumer(
            self,
            [streams] if isinstance(streams, str) else streams,
            group,
            instance=instance,
            start=start,
            reset=reset,
            columns=columns,
            routing_keys=routing_keys,
            on_assign=on_assign,
            on_revoke=on_revoke,
        )

    def listen(
        self,
        address: str = "127.0.0.1:5672",
        *,
        vhosts: Mapping[str, Store] | None = None,
        users: Mapping[str, str] | Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        certified: Certified | None = None,
        product: str = "RabbitMQ",
        heartbeat: int = 60,
        connections_max: int = 16_384,
        channel_max: int = 2047,
        frame_max: int = 131_072,
        quorum_as_classic: bool = False,
        proxy_protocol: bool = False,
    ) -> Listener:
        """Let other processes use the store: any client of RabbitMQ (AMQP 0-9-1), at ``address``.

        ``address`` is "HOST:PORT", with IPv6 in brackets and port 0 for any free port, or
        "unix:PATH" (mode 0600), or "fd:N", a listening socket, which the listener owns from then
        on.  ``users`` has passwords by name, or is a function that decides, in a thread of the
        listener, whether a name, a password and a client's address may log in.  Without it the
        users of ``pyqstore user`` in the store's directory may log in (docs/AMQP.md); if there are
        none, ``guest`` with the password ``guest``, from this machine alone.  ``tls`` is a server's
        context, to speak TLS.  If it asks clients for certificates, a client may log in without a
        password (EXTERNAL) as the common name of its certificate, which must be among the users; a
        function ``certified`` may decide instead, by name and address.  If ``users`` is a function,
        logging in without a password needs ``certified``.

        The store is the virtual host "/".  ``vhosts`` has further ones by name, each with its own
        store.  A client that opens one sees the queues of that store alone.  A vhost ends when its
        store is closed, which only its clients are told; all vhosts end with this store.

        ``product``: the server's name for clients; some, such as Celery for its prefetch, use
        RabbitMQ's extensions only under the default name.  Offered to clients: ``heartbeat``
        seconds (0: none), ``channel_max`` channels of a connection, frames of ``frame_max`` bytes.
        ``quorum_as_classic``: a client that declares a quorum queue gets a durable classic one, as
        there are no other machines; otherwise it is refused (406).  ``proxy_protocol``: each
        connection begins with a header of haproxy's PROXY protocol, which names the client; use it
        for addresses that a proxy alone can reach.

        The listener runs until it or the store is closed.  OSError: the address is taken, or not of
        this machine; ValueError: it is no address; StoreClosed, ForkedStore.
        """
        listener = Listener(
            self,
            address,
            path=self._directory,
            vhosts=vhosts,
            users=users,
            tls=tls,
            certified=certified,
            product=product,
            heartbeat=heartbeat,
            connections_max=connections_max,
            channel_max=channel_max,
            frame_max=frame_max,
            quorum_as_classic=quorum_as_classic,
            proxy_protocol=proxy_protocol,
        )
        self._listeners.add(listener)
        return listener

    def serve_page(
        self,
        port: int = 15_672,
        host: str = "127.0.0.1",
        *,
        vhosts: Mapping[str, Store] | None = None,
        users: Mapping[str, str] | Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        hosts: Collection[str] = (),
    ) -> HttpServer:
        """Serve a page that shows the store, RabbitMQ's management API (/api) and metrics
        (/metrics) over HTTP (docs/HTTP.md).

        ``port`` 0 is any free port; ``url`` of the result is the page's address.  ``vhosts``,
        ``users`` and ``tls`` are those of ``listen``: without users only ``guest`` with the
        password ``guest`` may log in, from this machine alone.  ``hosts``: further names by which
        browsers call the server; it answers to its addresses, "localhost" and the machine's name.

        The server runs until it or the store is closed.  OSError: the address is taken, or not this
        machine's; ValueError: it is none, or others could reach it and there are no users;
        StoreClosed, ForkedStore.
        """
        from .http.server import HttpServer

        self.stats()  # raises when it is closed
        if not isinstance(host, str):
            raise TypeError(f"host must be str, not {type(host).__name__}")
        place = f"[{host}]" if ":" in host else host
        return HttpServer(self, f"{place}:{port}", vhosts=vhosts, users=users, tls=tls, hosts=hosts)

    @property
    def path(self) -> str:
        """The directory, as it was given to :func:`open`."""
        return self._path

    @property
    def directory(self) -> str:
        """The absolute path of the directory, also after a change of the working directory; or
        ":memory:"."""
        return self._directory

    @property
    def options(self) -> Mapping[str, Any]:
        """The options in force, by name, all but ``progress``; read only.

        ``segment_entries`` is the value at the store's creation.
        """
        given = {"create": self._create, "control": self._door is not None}
        return MappingProxyType({**decoded(self._options()), **given})

    def _end_calls(self, seconds: float) -> None:
        """No tool comes in any more, and those that are in have so long to end."""
        if self._door is not None:
            self._door.drain(seconds)

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return sorted(text_of(row[0]) for row in self._queues())

    def exchanges(self) -> dict[str, ExchangeInfo]:
        """All exchanges, sorted by name, predeclared ones included."""
        return exchanges_of(self._exchanges())

    def bindings(self) -> list[Binding]:
        """All bindings, sorted by source, destination and routing key."""
        return bindings_of(self._bindings())

    def queue_status(self, name: str) -> QueueStatus:
        """Counts and rates of one queue.  Raises NotFound.

        - ``messages_ready``, ``messages_unacked``, ``messages_delayed`` (not due yet),
          ``messages_passed`` (of a work queue: dropped by its stream before they were settled),
          ``consumers``, ``slow_consumers`` (with a used up prefetch, which acknowledged nothing
          while the queue grew by as many messages): counts.
        - ``alpha`` (body and entry in memory), ``beta`` (entry in memory), ``gamma`` (entry in
          memory and on disk), ``delta`` (on disk): messages in each state.
        - ``q1``, ``q2``, ``delta_len``, ``q3``, ``q4``: ready messages in each part of the queue,
          newest first: ``q4`` has those in state alpha in front of all others, ``q1`` those behind;
          ``q3`` those in beta and gamma in front of the first in delta, ``q2`` those behind.  Of a
          lazy queue ``q3`` has all in front of the first in delta, and ``delta_len`` all others.
        - ``ram_bytes``, ``disk_bytes``: bytes.
        - ``target_ram_count``: how many messages may stay in memory; infinity: no limit, while at
          most half of ``memory_budget`` is used.
        - ``ingress_rate``, ``egress_rate``: messages a second, now; events of five seconds ago
          count half.
        - ``durable``, ``exclusive``, ``auto_delete``: as declared; ``lazy``: its mode now.
        - ``stream``: whether this is a stream.  The offsets of a stream are from ``first`` to
          before ``next``, ``segments`` counts its files, ``messages_ready`` its messages (``alpha``
          in memory, ``delta`` in files alone), and ``messages_unacked`` those that its consumers
          have not acknowledged.

        For a lazy queue this waits until the published messages have left memory.
        """
        return QueueStatus(**self._queue_status(name))

    def browse(
        self,
        queue: str,
        start: int = 0,
        limit: int | None = None,
        *,
        damaged: Callable[[StoreCorrupt], object] | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The messages of ``queue``, ready, unacked and delayed, in their order, as record batches.
        Nothing is delivered, and no count changes.  No file is written, except for a work queue:
        large messages that its stream has in memory are first written to the stream's files.

        The columns are those of ``Channel.get_batch`` with ``sequence`` (uint64) in place of
        ``delivery_tag``, and ``unacked`` and ``delayed`` (bool) behind them.  ``start``: the first
        sequence to show, 0 for all; ``limit``: at most so many messages.  In a queue with
        priorities the bits of ``sequence`` above the lowest 56 have the distance from the highest
        priority.  For a stream ``sequence`` is the offset.  Messages that come or go meanwhile may
        or may not be shown.

        Raises NotFound, StoreClosed, StoreFailed, ValueError for a negative ``start`` or ``limit``,
        TypeError for one that is no whole number.  An unreadable message, or part of the queue,
        raises StoreCorrupt at its place; ``damaged``, if given, is called with the error instead,
        and the messages behind follow.
        """
        check_callable(damaged=damaged)
        position, left = operator.index(start), None if limit is None else operator.index(limit)
        if position < 0 or (left is not None and left < 0):
            raise ValueError("start and limit must not be negative")
        if position > _U64_MAX:
            raise ValueError(f"start must be at most {_U64_MAX}, not {position}")
        return self._pages(queue, position, left, damaged)

    def _pages(
        self,
        queue: str,
        position: int,
        left: int | None,
        damaged: Callable[[StoreCorrupt], object] | None,
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        while left is None or left > 0:
            most = _BROWSE_ROWS if left is None else min(left, _BROWSE_ROWS)
            position, batch, error = self._browse(queue, position, most, _BROWSE_BYTES)
            if batch is not None:
                left = None if left is None else left - len(batch)
                yield pyarrow.record_batch(batch)
            elif error is None:
                return
            elif damaged is None or not isinstance(error, StoreCorrupt):
                raise error
            else:
                damaged(error)

    def snapshot(self, path: str | os.PathLike[str]) -> Copied:
        """Copy the store as of one moment to the new directory ``path``.  The copy is a store that
        opens like any other, and recovers as after a crash at that moment.

        The copy has everything that was durable at the call.  Publishers and consumers go on: a
        checkpoint is made, and commits wait while the journal since then is copied.  Sealed files
        of streams are hard links if ``path`` is on the same file system; everything else is copied.
        Messages that were delivered and not acknowledged are ready in the copy, and ready ones may
        be marked redelivered.  Users of listeners are copied; staged rows and the inbox are not.
        The copy is durable when this returns; a process that ends before leaves no directory
        ``path``.

        Raises FileExistsError (``path`` exists and is no empty directory, or is a mount point),
        OSError (no space for the copy, ...: the unfinished copy is removed), StoreFull,
        StoreFailed, ValueError for a store in memory.
        """
        if self._path == ":memory:":
            raise ValueError("a store in memory has no files that could be copied")
        self._check()
        return snapshot(self, self._directory, path)

    def set_queue_mode(self, name: str, mode: Literal["default", "lazy"]) -> None:
        """Switch a queue to ``mode``, as ``x-queue-mode`` does in a declaration.

        "lazy": published messages go to the disk at once, and come back a segment at a time;
        "default": messages stay in memory while there is room.  The mode of a durable queue is
        durable when this returns, and is kept until it is set again.  Raises NotFound, ValueError
        for another mode.
        """
        self._set_queue_mode(name, bool(number_of("mode", mode, _MODES)))

    def adopt(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        key: str,
        *,
        mandatory: bool = True,
    ) -> Adoption:
        """Publish all rows of staged files (:class:`pyqstore.StagedWriter`) at once, durably when
        this returns, and note the ``key`` of the transaction with them.

        ``files``: paths, whose rows are published in this order; or a folder: all files that end in
        ".qsb", by name.  If the key was committed before, nothing changes, and the files need not
        exist any more.  Each distinct (exchange, routing key) is looked up once, before anything
        changes.  If all of them lead to one stream and nowhere else, the stream gets the files
        themselves by hard links: no body is copied, and the time does not grow with the rows.
        Otherwise, and where links cannot be made, the rows are published from the files in one
        transaction, which must fit in memory.  The files stay; remove them afterwards.

        Raises Unroutable (``mandatory``, and no queue would take some rows), NotFound (no such
        exchange), FileNotFoundError, StoreCorrupt (a file is not whole), PreconditionFailed (a
        message is too large, or a queue is full and refuses), StoreFull, ValueError (the key);
        nothing changed then.  After StoreFailed ``transaction_known`` tells.
        """
        if key and self.transaction_known(key):
            return Adoption(committed=False, rows=0, unroutable=0, files=0, linked=0)
        return Adoption(*self._adopt(staged_paths(files), key, mandatory))

    def forget_transaction(
        self, key: str | None = None, *, older_than: timedelta | float | None = None
    ) -> int:
        """Forget the ``key`` of a transaction, or all keys committed longer ago than ``older_than``
        (a timedelta, or seconds; 0: all); returns how many were known.

        Keys are kept until they are forgotten here.  A forgotten key may be committed again, and
        ``transaction_known`` returns False.  Durable when this returns.  With an age all keys are
        read and compared by wall time.  StoreCorrupt: a file of keys is damaged, and nothing was
        forgotten.  TypeError unless there is either a key or an age, ValueError for a negative one.
        """
        if (key is None) == (older_than is None):
            raise TypeError("give either a key or older_than")
        if older_than is None:
            return self._forget_key(key)  # type: ignore[arg-type]
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        try:
            is_age = 0 <= seconds < _U64_MAX / 1e6
        except ArithmeticError:  # decimal's NaN compares with nothing
            is_age = False
        if not is_age:
            raise ValueError(f"older_than must be 0 seconds or more, not {older_than!r}")
        return self._forget_older(int(seconds * 1_000_000))

    @overload
    def stats(self, *, detail: Literal[False] = False) -> Stats: ...
    @overload
    def stats(self, *, detail: Literal[True]) -> DetailedStats: ...
    @overload
    def stats(self, *, detail: bool) -> Stats: ...
    def stats(self, *, detail: bool = False) -> Stats:
        """Counters since the store was opened.

        - ``durable_lsn``, ``appended_lsn``: journal positions in bytes; ``commits``,
          ``fdatasyncs``: counts; ``bytes_journalled``, ``bytes_stored`` (message store),
          ``bytes_checkpointed``: bytes written.
        - ``messages_published``, ``messages_routed`` (copies in queues), ``messages_confirmed``,
          ``messages_returned``, ``messages_delivered``, ``messages_acked``, ``messages_requeued``:
          counts. ``messages_expired``; ``messages_dead_lettered``: that a dead-letter exchange led
          somewhere; ``messages_refused``: by queues that were full.
        - ``ram_bytes``: bytes of messages and what is kept of them in memory now, which
          ``memory_budget`` bounds.
        - ``checkpoints``, ``segments_written`` (files of the index), ``messages_paged_out`` (from
          memory to the index), ``messages_paged_in``: counts; ``checkpoint_lsn``: the journal
          position of the last checkpoint.
        - ``message_files``: files of the message store; ``message_bytes_live``,
          ``message_bytes_total``: bytes in them, of messages in queues, and of all.
        - ``commit_latency_us`` (write and fdatasync), ``confirm_latency_us`` (append to durable):
          ``p50``, ``p99``, ``max`` in microseconds.
        - ``sync``: "fdatasync" or "none"; ``failed``: whether an input/output error stopped the
          store.
        - ``recovery_ms``, ``recovered_messages``, ``recovered_records``, ``recovered_bytes``,
          ``recovered_lsn`` (where the replay began), ``torn_bytes``, ``lost_ranges``,
          ``lost_bytes``, ``lost_segments``, ``lost_messages``, ``recovered_queues``,
          ``ignored_arguments`` (of queues and bindings, that make no sense to this version): of the
          recovery at open.
        - ``commit_running_ms``: how long the commit under way has waited for the disk, 0 if none
          is; ``commit_stalls``: commits that took 30 s or more.  One that does is also logged, by
          the logger ``pyqstore``, while it does.
        - ``slow_consumers``: of all queues, as ``queue_status`` counts them.  Each is also logged
          once, by the logger ``pyqstore``.
        - ``inbox_adopted``, ``inbox_refused``: answers to processes that asked for an adoption
          (``adopt_into``); ``inbox_adopting``: whether one is under way; ``inbox_failing``: what
          cannot be read or answered, and is tried again; ``inbox_error``: the text of the last
          error, "" if there was none.
        - ``messages_received_confirm``: of those published, in confirm mode;
          ``connections_opened``, ``connections_closed`` (those of lone channels among them),
          ``channels_opened``, ``channels_closed``; ``queues_declared``: declarations that
          succeeded and were not passive, of ``queues_created`` and of queues that were there;
          ``queues_deleted``, by whatever.
        - ``clock_ahead_s``: how far the machine's clock is ahead of the store's
          (``accept_clock()``).
        - ``filesystem``: its name, as "ext4", or its number; ``filesystem_kind``: "local",
          "volatile" (in memory), "network" or "unknown".

        With ``detail`` also counters of one moment, by the names of RabbitMQ's ``message_stats``:

        - ``channels``, by ``Channel.number``, of those that are open: ``publish``, ``confirm``,
          ``return_unroutable``, ``drop_unroutable``, ``deliver``, ``deliver_no_ack``, ``get``,
          ``get_no_ack``, ``deliver_get`` (their sum), ``get_empty``, ``redeliver``, ``ack``,
          ``reject``, ``requeue``; ``all_channels``: their sums, with those of closed ones.
          ``connections``, by number, of those that are open: the sums of their channels.
        - ``queues``, by name: ``publish``, ``confirm`` and from ``deliver`` on the same,
          ``expired``, ``dead_lettered``, ``refused`` (full).  Dead letters are not counted as
          published.
        - ``exchanges``, by name: ``publish_in``, ``publish_out`` (copies that queues took),
          ``confirm``, ``return_unroutable``, ``drop_unroutable``.
        - ``routes``, by exchange and then queue, if messages came that way: ``publish``,
          ``confirm``.

        They begin at 0 when the store is opened.  A transaction is counted when it commits.
        """
        numbers: dict[str, Any] = self._stats()
        for name in ("commit_latency", "confirm_latency"):
            numbers[f"{name}_us"] = Latency(
                **{part: numbers.pop(f"{name}_{part}_us") for part in ("p50", "p99", "max")}
            )
        numbers["recovery_ms"] = numbers.pop("recovery_us") / 1000
        numbers["clock_ahead_s"] = numbers.pop("clock_ahead_us") / 1e6
        numbers["filesystem"], numbers["filesystem_kind"] = filesystem_of(
            numbers.pop("file_system")
        )
        numbers["sync"] = word_of(SYNC, numbers["sync"])
        if detail:
            return DetailedStats(**numbers, **self._counters()._asdict())
        return Stats(**numbers)

    def counters(self) -> dict[str, dict[Any, Counts]]:
        """Counts since the store was opened:

        - ``exchanges``, by name: ``publish``, ``unroutable``, ``confirm``;
        - ``queues``, by name, and ``queue_exchange``, by the names of both, if messages came that
          way: ``publish``, ``confirm``; of queues also ``deliver``, ``get``, ``redeliver``,
          ``ack`` and so on;
        - ``channels`` and ``connections`` that are open, by number.

        Each has all the names of ``stats(detail=True)``.  ``confirm`` counts messages whose
        publisher has been told, or could have been.  Counting is always on.
        """
        return self._counters().flat()

    def trace(self, exchange: str | None = None, queue: str | None = None) -> Trace:
        """Trace each step of messages from now on::

            with store.trace(queue="orders") as trace:
                for event in trace:
                    print(event.time, event.step, event.lsn, event.queues)

        ``publish``, ``route``, ``enqueue``, ``record`` (in the journal, in memory), ``sync`` (on
        the disk), ``confirm``, ``return``, ``deliver``, ``ack``, ``nack``: of a consumer, or to a
        publisher.  With ``exchange``: only messages published there, without steps that do not know
        the exchange (``ack`` and ``nack`` by a consumer).  With ``queue``: only messages routed
        there.  In a transaction ``enqueue`` and ``record`` come with the commit.  Messages of a
        batch or a commit on the same way are one event; a row that a queue refuses has an
        ``enqueue``, then a ``nack``.  The way of dead letters to their exchange, and rows staged by
        Spark's executors, are not traced.  Without a trace this costs nothing.  StoreClosed.
        """
        return Trace(self, exchange, queue)

    def _counters(self) -> Counters:
        return counters_of(self._count_names(), self._counts())

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening the store found; always the same object."""
        return self._recovery_report


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _close_open_stores() -> None:
    for store in list(_open_stores):
        try:
            store.close()
        except Error as error:
            warnings.warn(f"closing {store!r} at exit: {error}", ResourceWarning, stacklevel=1)


atexit.register(_close_open_stores)
