"""Messages of a queue that were claimed: consumed, and kept in the store until they are done with.

A claim is a durable queue, whose messages are chunks: each has rows as an Arrow stream in its body.
One transaction for each chunk publishes it there and acknowledges the queue's messages: whatever
happens, a message is either in the queue or in the claim, and no other consumer gets what is
claimed.  The last transaction has the claim's name as its key: from then on the claim is whole, and
nothing is added to it.  An attempt that died before that is carried on; nobody has read its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import MessageReturned, NotFound
from .properties import Properties

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .channel import Channel
    from .store import Store

__all__ = [
    "Claimed",
    "claim",
    "end_claim",
    "has_claim",
    "is_lost",
    "numbered",
    "release",
    "rows_of",
]

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 65_536
_NOT_GIVEN_BACK = (
    "offset",
    "exchange",
    "routing_key",
    "delivery_mode",
    "redelivered",
    "delivery_count",
    "unacked",
    "delayed",
)
_COPIES = ("CC", "BCC")


class Claimed(NamedTuple):
    """What a claim has."""

    taken: int
    """How many messages were consumed by this call; 0 where it told again what there was."""
    rows: int
    """How many there are in all."""
    chunks: int


def claim(store: Store, queue: str, name: str, rows_max: int | None = None) -> Claimed | None:
    """Consume what is ready in the queue, once: repeated, it tells the same rows.

    ``rows_max``: at most so many messages; None: all there are.  Returns None when the claim was
    released, or ended: what it had is not its own any more.  One call at a time for a claim.
    MessageReturned: its queue was deleted meanwhile; what was not in it yet stays in the queue.
    """
    if is_lost(store, name):
        return None
    taken = 0 if store.transaction_known(name) else _take(store, queue, name, rows_max)
    # Nothing is ever taken from a claim, so its sequences are the numbers of its chunks.
    chunks = int(store.queue_status(name).messages_ready)
    return Claimed(taken, _rows_in(store, name), chunks)


def has_claim(store: Store, name: str) -> bool:
    """Whether there is such a queue."""
    try:
        store.queue_status(name)
    except NotFound:
        return False
    return True


def is_lost(store: Store, name: str) -> bool:
    """Whether the claim was released, or ended."""
    is_whole = store.transaction_known(name)
    return (is_whole and not has_claim(store, name)) or store.transaction_known(_released(name))


def end_claim(store: Store, name: str) -> bool:
    """Its messages are acknowledged for good.  Whether there was one.

    Not beside a call of ``claim`` for it.
    """
    if not has_claim(store, name):
        return False
    with store.channel() as channel:
        channel.queue_delete(name)
    return True


def release(store: Store, queue: str, prefix: str) -> int:
    """Give back to the end of the queue what claims whose names begin so have of it.

    May be repeated when it was interrupted: nothing is lost, and nothing comes twice.  A claim that
    has nothing stays: it may be of another queue, and its batch may be repeated.
    PreconditionFailed: the queue is full and refuses more; the rest stays claimed.  NotFound.
    """
    released = 0
    with store.channel() as channel:
        channel.queue_declare(queue, passive=True)
        channel.tx_select()
        for name in store.queues():
            if name.startswith(prefix) and _is_to_release(store, name, queue):
                released += _release(channel, name, queue)
                _end_release(store, channel, name)
    return released


def rows_of(chunk: pyarrow.Scalar) -> pyarrow.RecordBatchReader:
    """The rows of a chunk, of which this is the body."""
    import pyarrow as pa

    return pa.ipc.open_stream(chunk.as_buffer())


def numbered(batch: pyarrow.RecordBatch, first: int) -> pyarrow.RecordBatch:
    """A batch that was got, with the columns of ``browse``, but ``offset``, the number of the row;
    without the dictionaries, of which a file would take but one."""
    import pyarrow as pa

    columns = {"offset": pa.array(range(first, first + batch.num_rows), pa.int64())}
    for name, column in zip(batch.schema.names[1:], batch.columns[1:], strict=True):
        has_dictionary = pa.types.is_dictionary(column.type)
        columns[name] = column.cast(column.type.value_type) if has_dictionary else column
    for name in ("unacked", "delayed"):
        columns[name] = pa.repeat(False, batch.num_rows)
    return pa.RecordBatch.from_pydict(columns)


def _take(store: Store, queue: str, name: str, rows_max: int | None) -> int:
    """How many messages it took.  REQUIRES that the key is unknown."""
    taken, chunk_max = 0, int(store.options["body_bytes_max"])
    with store.channel() as channel:
        channel.queue_declare(queue, passive=True)
        channel.queue_declare(name, durable=True)
        before = _rows_in(store, name)
        channel.tx_select()
        while rows_max is None or before + taken < rows_max:
            left = CHUNK_ROWS if rows_max is None else rows_max - before - taken
            batch = channel.get_batch(queue, min(CHUNK_ROWS, left), max_bytes=CHUNK_BYTES)
            if batch.num_rows == 0:
                break
            _publish(channel, queue, name, numbered(batch, before + taken), chunk_max)
            channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
            channel.tx_commit()
            taken += batch.num_rows
        channel.tx_commit(key=name)
    return taken


def _publish(
    channel: Channel, queue: str, name: str, rows: pyarrow.RecordBatch, chunk_max: int
) -> None:
    """As one chunk, or as many as it takes: headers and what else rows have count, too.

    A row that is too large alone is the engine's to refuse.  REQUIRES a channel with transactions.
    """
    chunk = _chunk_of(rows)
    if chunk.size > chunk_max and rows.num_rows > 1:
        half = rows.num_rows // 2
        for part in (rows.slice(0, half), rows.slice(half)):
            _publish(channel, queue, name, part, chunk_max)
        return
    headers: dict[str, Any] = {"queue": queue, "rows": rows.num_rows}
    properties = Properties(delivery_mode=2, headers=headers)
    receipt = channel.publish_batch(_one_row(chunk), "", name, properties=properties)
    if receipt.unroutable:
        raise MessageReturned(None)


def _chunk_of(rows: pyarrow.RecordBatch) -> pyarrow.Buffer:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _one_row(body: pyarrow.Buffer) -> pyarrow.RecordBatch:
    """A batch of one message, whose body is not copied."""
    import pyarrow as pa

    ends = pa.array([0, body.size], pa.int64()).buffers()[1]
    return pa.record_batch(
        {"body": pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, body])}
    )


def _rows_in(store: Store, name: str) -> int:
    return sum(
        int(dict(headers)["rows"])
        for batch in store.browse(name)
        for headers in batch["headers"].to_pylist()
    )


def _is_to_release(store: Store, name: str, queue: str) -> bool:
    """Whether it has messages of the queue, or a release was interrupted that had taken all."""
    for batch in store.browse(name, limit=1):
        return str(dict(batch["headers"][0].as_py())["queue"]) == queue
    return store.transaction_known(_released(name))


def _release(channel: Channel, name: str, queue: str) -> int:
    """REQUIRES a channel with transactions."""
    # First of all the claim's owner loses it: what is left of it is never read.
    channel.tx_commit(key=_released(name))
    released = 0
    while (chunk := channel.get_batch(name, 1)).num_rows:
        for rows in rows_of(chunk["body"][0]):
            channel.publish_batch(_publishable(rows), "", queue)
            released += rows.num_rows
        channel.basic_ack(chunk["delivery_tag"][0].as_py())
        channel.tx_commit()
    return released


def _end_release(store: Store, channel: Channel, name: str) -> None:
    """The claim goes, and the key that it was released under: its own key tells that it was whole
    and is gone.  Of one that was not whole nobody has read the rows, so it may be made anew."""
    if not store.transaction_known(name):
        store.forget_transaction(_released(name))
    channel.queue_delete(name)
    store.forget_transaction(_released(name))


def _publishable(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """As new messages, which are persistent.  Times of an earlier version have no zone, and are of
    UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]

    rows = rows.select([name for name in rows.schema.names if name not in _NOT_GIVEN_BACK])
    at = rows.schema.get_field_index("timestamp")
    rows = rows.set_column(at, "timestamp", rows["timestamp"].cast(pa.timestamp("s", "UTC")))
    headers = rows["headers"]
    if pc.any(pc.is_in(headers.keys, pa.array(_COPIES))).as_py():
        at = rows.schema.get_field_index("headers")
        kept = [
            None if pairs is None else [pair for pair in pairs if pair[0] not in _COPIES]
            for pairs in headers.to_pylist()
        ]
        rows = rows.set_column(at, "headers", pa.array(kept, headers.type))
    return rows


def _released(name: str) -> str:
    """The key of the transaction that a release begins with."""
    return f"{name}-released"
