"""Stream a frame through a channel of this process, with bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .columns import check_columns, shape_batch
from .gathering import gathered
from .sink import UnroutableError

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore

BATCH_ROWS = 65536
WINDOW = 8


class NackedError(RuntimeError):
    """The store refused messages that were handed over, as a queue's reject-publish limit does."""


@dataclass(frozen=True)
class PublishResult:
    """What ``publish`` did; every row of it is confirmed.

    Attributes:
        rows: messages published.
        unroutable: of these, dropped because no queue took them.
        batches: calls of ``publish_batch`` that took.
        seconds: from the first row asked for to the last confirm.
        store_seconds: of these, in ``publish_batch`` and waiting for confirms.
        receipt: of the last batch; None when there was none.
    """

    rows: int
    unroutable: int
    batches: int
    seconds: float
    store_seconds: float
    receipt: pyqstore.Receipt | None


def publish(
    df: Any,
    channel: pyqstore.Channel,
    exchange: str = "",
    routing_key: str | None = None,
    *,
    body: str = "body",
    mandatory: bool | None = None,
    properties: pyqstore.Properties | None = None,
    window: int = WINDOW,
    timeout: float | None = None,
    progress: bool | Callable[[int], object] | None = None,
    staged: bool = True,
) -> PublishResult:
    """Publish every row of a frame and wait until each is confirmed.

    At most ``window`` batches of at most 65,536 rows are under way.  The partitions of a Spark
    DataFrame are computed side by side, into files in the store's directory ``staging``, which take
    as much room as the frame has bytes and go when this returns.  Without ``staged``, and where the
    executors do not see the store's directory, one partition is handed over at a time, and Spark's
    Java process has to hold the largest one, a few times over.  Batches have
    ``spark.sql.execution.arrow.maxRecordsPerBatch`` rows.

    Args:
        df: a Spark DataFrame, or anything with ``__arrow_c_stream__`` (pyarrow, polars, pandas,
            DuckDB ...), with the columns of ``Channel.publish_batch``.
        channel: open, not in a transaction; it is put into confirm mode.
        exchange: for rows without an exchange column.
        routing_key: for rows without a routing_key column.
        body: name of the column with the bodies.
        mandatory: what becomes of messages that no queue takes.  None: they are an error.  True:
            they come back to the channel's return listeners.  False: they are dropped, and counted.
        properties: for every message; a column beats it.
        window: batches that may be unconfirmed.
        timeout: seconds to wait for one batch's confirm; None waits for as long as it takes.
        progress: show a bar (needs rich); None: only on a terminal. Or a function, called with the
            rows confirmed.
        staged: through files, if df is a Spark DataFrame.

    Raises:
        ColumnError: a column or a row that makes no message.
        TimeoutError: a confirm did not come within timeout.
        UnroutableError: no queue took some messages of a batch; its others, and the batches before,
            are published.
        NackedError: some messages were refused (listeners of the channel are told which).
        pyqstore.Error: the channel refused, or the store failed.
        Any of these carries a note with the rows confirmed before it; rows after those may be
            stored or not.

    Source: flow control by unconfirmed publishes is the pattern of RabbitMQ's publisher confirms
    guide.
    """
    if window < 1:
        raise ValueError(f"window is {window}, expected 1 or more")
    started = time.monotonic()
    channel.confirm_select()
    pending: deque[pyqstore.Receipt] = deque()
    receipt: pyqstore.Receipt | None = None
    published = confirmed = batches = unroutable = 0
    store_seconds = 0.0
    with _progress(progress) as show, _stream(df, body, channel if staged else None) as stream:
        try:
            for batch in _batches(stream):
                shaped = shape_batch(batch, body=body, first_row=published)
                began = time.monotonic()
                receipt = channel.publish_batch(
                    shaped, exchange, routing_key, mandatory=bool(mandatory), properties=properties
                )
                pending.append(receipt)
                published += batch.num_rows
                batches += 1
                unroutable += receipt.unroutable
                if unroutable and mandatory is None:
                    raise _unroutable(receipt, exchange, routing_key)
                while len(pending) >= window or (pending and pending[0].done):
                    confirmed += _settle(pending.popleft(), timeout)
                if mandatory:
                    channel.process_events(0.0)  # messages that came back hold memory
                store_seconds += time.monotonic() - began
                show(confirmed)
            began = time.monotonic()
            while pending:
                confirmed += _settle(pending.popleft(), timeout)
            if not channel.wait_for_confirms(timeout):
                raise _refused(channel)
            store_seconds += time.monotonic() - began
            show(confirmed)
        except BaseException as error:
            error.add_note(
                f"publish: {confirmed} rows had been confirmed, {published} handed to the channel"
            )
            raise
    return PublishResult(
        rows=published,
        unroutable=unroutable,
        batches=batches,
        seconds=time.monotonic() - started,
        store_seconds=store_seconds,
        receipt=receipt,
    )


def _unroutable(
    receipt: pyqstore.Receipt, exchange: str, routing_key: str | None
) -> UnroutableError:
    key = "of the column" if routing_key is None else f"'{routing_key}'"
    return UnroutableError(
        f"no queue took {receipt.unroutable} of {receipt.count} rows of a batch: the exchange is "
        f"'{exchange}', the routing key {key}. Its other rows are published. Bind a queue for "
        f"them, or drop them with mandatory=False"
    )


def _refused(channel: pyqstore.Channel) -> Exception:
    """Why a wait for confirms said False."""
    from pyqstore import StoreFailed

    refusal = channel.refusal
    if isinstance(refusal, StoreFailed):
        return refusal
    error = NackedError(f"some messages were refused: {refusal}")
    error.__cause__ = refusal
    return error


def _settle(receipt: pyqstore.Receipt, timeout: float | None) -> int:
    """Wait for one batch; its rows."""
    receipt.wait(timeout)
    return receipt.count


def _batches(stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """None empty, none above BATCH_ROWS rows."""
    for batch in stream:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


@contextmanager
def _stream(
    df: Any, body: str, channel: pyqstore.Channel | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The frame's batches; through files of the channel's store, if there is one."""
    import pyarrow as pa

    if hasattr(df, "mapInArrow"):
        columns = [(field.name, field.dataType.simpleString()) for field in df.schema.fields]
        check_columns(columns, body=body)
        store = getattr(channel, "_store", None)
        directory = ":memory:" if store is None else store.directory
        with nullcontext() if directory == ":memory:" else gathered(df, directory) as batches:
            yield _one_by_one(df) if batches is None else batches
    elif hasattr(df, "__arrow_c_stream__"):
        yield pa.RecordBatchReader.from_stream(df)
    elif hasattr(df, "__arrow_c_array__"):
        yield iter([pa.record_batch(df)])
    else:
        raise TypeError(f"{type(df).__name__} has no __arrow_c_stream__")


def _one_by_one(df: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for row in _cells(df):
        with pa.ipc.open_stream(row.ipc) as reader:
            yield from reader


def _cells(df: Any) -> Iterator[Any]:
    """A Spark frame's batches as rows of one binary cell, one partition after the other.

    Spark's own ``__arrow_c_stream__`` does the same through ``DataFrame.toLocalIterator``; but its
    Java (4.3) keeps what those jobs answered for as long as it lives, and it fails on timestamps.
    Jobs of an RDD are forgotten.
    """
    cells = df.mapInArrow(_to_ipc, "ipc binary")
    if hasattr(df, "_jdf"):
        cells = cells.rdd
    rows: Iterator[Any] = cells.toLocalIterator()  # Spark Connect has no RDDs: it streams
    return rows


def _to_ipc(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: each batch as one binary cell, as Spark's own stream carries them."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays(
            [pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["ipc"]
        )


def _progress(
    progress: bool | Callable[[int], object] | None,
) -> AbstractContextManager[Callable[[int], object]]:
    if callable(progress):
        return nullcontext(progress)
    if progress is False:
        return nullcontext(_quiet)
    try:
        from .progress import rows_bar
    except ImportError:
        if progress:
            raise
        return nullcontext(_quiet)
    return rows_bar("publishing", force=progress is True)


def _quiet(_: int) -> None:
    pass
