"""The calls of Arrow Flight, in front of a store.

- ``do_action``: declaring, settling, asking, committing; arguments and answer are JSON.
- ``do_put``: a publish, or rows that are staged; an answer for each batch, ``END`` at the end.
- ``do_get``: a connection that is held, a batch of deliveries, a stream, a queue that is browsed.
- ``do_exchange``: an end of a shovel.

Each call runs in a thread of gRPC.  ``carried`` makes the exceptions that an answer carries to the
client.  A call that waits for its client also checks whether the server ends, except while it waits
for the client's next batch, where gRPC has no means for that.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..errors import ConnectionLost, PreconditionFailed
from ..store import Store
from ..waiting import Deadline
from .bases import ServerBase
from .checking import check_batch
from .failing import carried
from .holding import Holdings
from .putting import put
from .rows import READS, IsGone
from .staging import Staging
from .verbs import Verbs, check_no_stream
from .wire import unpack

__all__ = ["Service"]

_LOOK_S = 0.2
_BATCH_BYTES_MAX = 64 << 20
_HELD = pa.schema([("connection", pa.string())])


class Service(ServerBase):
    """The calls of one listener.  It accepts as soon as it is made."""

    def __init__(
        self, store: Store, location: str, *, holders_max: int, batch_bytes_max: int, **options: Any
    ) -> None:
        self._store = store
        self._holdings = Holdings(store, holders_max)
        self.staging: Staging = Staging(store.directory)
        self.staging.sweep_unfinished()
        self.staging.sweep_stale()
        self._verbs = Verbs(store, self._holdings, self.staging)
        self._batch_bytes_max = batch_bytes_max
        self.closing: threading.Event = threading.Event()
        super().__init__(location, **options)

    # Calls that are answered at once.

    def list_actions(self, context: object) -> list[tuple[str, str]]:
        """The names of the actions, and what they do."""
        return self._verbs.described()

    def do_action(self, context: object, action: flight.Action) -> list[bytes]:
        """Arguments and answer are JSON."""
        with carried():
            body = action.body.to_pybytes()
            answer = self._verbs.call(action.type, json.loads(body) if body else {})
            return [json.dumps(answer).encode()]

    # Calls that bring rows.

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """A publish, or rows that are staged."""
        with carried():
            do, arguments = unpack(descriptor.command or b"")
            with self._verbs.taker(do, reader.schema, arguments) as taker:
                put(self._bounded(reader), writer, taker)

    def _bounded(self, reader: Any) -> Iterator[tuple[pa.RecordBatch | None, bytes]]:
        """The batches that arrive, one by one."""
        while True:
            try:
                batch, told = reader.read_chunk()
            except StopIteration:
                return
            if self.closing.is_set():
                raise ConnectionLost("the server ends")
            if batch is not None:
                check_batch(batch)
                self._check_bytes(batch.nbytes)
            yield batch, b"" if told is None else told.to_pybytes()

    def _check_bytes(self, size: int) -> None:
        if size > self._batch_bytes_max:
            raise PreconditionFailed(
                406,
                f"PRECONDITION_FAILED - a batch of {size} bytes is larger than the server takes:"
                f" {self._batch_bytes_max}",
            )

    # A call that does both.

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """An end of a shovel."""
        from .shovelled import serve_end

        with carried():
            do, arguments = unpack(descriptor.command or b"")
            if do != "shovel":
                raise ValueError(f"no such descriptor: {do!r}; there is shovel")
            serve_end(self._store, arguments, reader, writer, self.closing)

    # Calls that take rows away.

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """A connection, deliveries, a stream, a queue."""
        with carried():
            do, arguments = unpack(ticket.ticket)
            reads: dict[str, Callable[..., tuple[pa.Schema, Iterable[Any]]]] = {
                "hold": partial(self._hold, context),
                "get_batch": partial(self._get_batch, context),
                **{
                    name: partial(read, self._store, self._gone(context))
                    for name, read in READS.items()
                },
            }
            if do not in reads:
                raise ValueError(f"no such ticket: {do!r}; there are {', '.join(reads)}")
            schema, batches = reads[do](**arguments)
            return flight.GeneratorStream(schema, _carried_rows(batches))

    def _hold(self, context: flight.ServerCallContext) -> tuple[pa.Schema, Iterator[Any]]:
        peer = context.peer()

        def hold() -> Iterator[pa.RecordBatch]:
            held = self._holdings.open(peer)
            try:
                yield pa.record_batch([pa.array([held.key])], schema=_HELD)
                while not context.is_cancelled():
                    if self.closing.wait(_LOOK_S):
                        raise _closing()
            finally:
                self._holdings.close(held)

        return _HELD, hold()

    def _get_batch(
        self,
        context: flight.ServerCallContext,
        connection: str,
        queue: str,
        max_messages: int,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: float = 0.0,
    ) -> tuple[pa.Schema, Iterable[Any]]:
        bound = min(max_bytes or _BATCH_BYTES_MAX, _BATCH_BYTES_MAX)
        held = self._holdings.find(connection)
        deadline = Deadline(timeout)
        check_no_stream(self._store, queue, "basic.get")  # what it raises costs no channel
        while True:
            with held.channel() as channel:
                batch = channel.get_batch(
                    queue,
                    max_messages,
                    max_bytes=bound,
                    auto_ack=auto_ack,
                    timeout=deadline.slice_ns() / 1e9,
                )
            if len(batch) > 0 or deadline.over or context.is_cancelled():
                return batch.schema, [batch]
            if self.closing.is_set():
                raise _closing()

    def _gone(self, context: flight.ServerCallContext) -> IsGone:
        def is_gone() -> bool:
            if self.closing.is_set():
                raise _closing()
            return bool(context.is_cancelled())

        return is_gone


def _closing() -> flight.FlightError:
    return flight.FlightUnavailableError("the server ends")


def _carried_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[flight.FlightDataStream]:
    """Batches with dictionaries need their own writer."""
    with carried():
        for batch in batches:
            one = pa.RecordBatchReader.from_batches(batch.schema, [batch])
            yield flight.RecordBatchStream(one)
