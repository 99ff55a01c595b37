"""Batches through Arrow Flight whose offsets and lengths are not those of their buffers.

``pyarrow`` makes none, but what it reads it takes as it is: each is written well, then damaged.
"""

import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyarrow import flight

from pyqstore.flight import Client
from pyqstore.flight.receiving import one_batch
from pyqstore.flight.wire import END, pack

ROWS = 60_000
WORDS = r"is damaged|body lies outside data buffer"


def cut(batch: pa.RecordBatch, size: int, left: int = 8) -> pa.RecordBatch:
    """As written, but the buffer of ``size`` bytes is told to have ``left``."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written = bytearray(sink.getvalue().to_pybytes())
    place = written.index(struct.pack("<q", size))
    written[place : place + 8] = struct.pack("<q", left)
    return pa.ipc.open_stream(bytes(written)).read_next_batch()


def short_values() -> pa.RecordBatch:
    return cut(pa.record_batch({"body": [b"", b"x" * ROWS]}), ROWS)


def short_nulls() -> pa.RecordBatch:
    keys = pa.array(["k", None] * (ROWS // 2))
    return cut(pa.record_batch({"body": [b""] * ROWS, "message_id": keys}), ROWS // 8)


def short_codes() -> pa.RecordBatch:
    keys = pa.array(["k"] * ROWS).dictionary_encode()
    return cut(pa.record_batch({"body": [b""] * ROWS, "routing_key": keys}), 4 * ROWS)


def codes_beyond() -> pa.RecordBatch:
    codes = pa.array([0, 2**30], pa.int32())
    keys = pa.DictionaryArray.from_arrays(codes, ["k"], safe=False)
    return pa.record_batch({"body": [b"", b""], "routing_key": keys})


def views_beyond() -> pa.RecordBatch:
    view = bytearray(struct.pack("<i4sii", 100, b"xxxx", 0, 0))
    buffers = [None, pa.py_buffer(view), pa.py_buffer(b"x" * 100)]
    body = pa.Array.from_buffers(pa.binary_view(), 1, buffers)
    batch = pa.record_batch({"body": body})
    view[:] = struct.pack("<i4sii", 1 << 30, b"xxxx", 0, 0)
    return batch


def headers_beyond() -> pa.RecordBatch:
    offsets = bytearray(struct.pack("<4i", 0, 1, 1, 2))
    entries = pa.StructArray.from_arrays(
        [pa.array(["a", "b"]), pa.array(["1", "2"])],
        fields=[pa.field("key", pa.string(), False), pa.field("value", pa.string())],
    )
    kind = pa.map_(pa.string(), pa.string())
    headers = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(offsets)], children=[entries])
    batch = pa.record_batch({"body": [b""] * 3, "headers": headers})
    offsets[:] = struct.pack("<4i", 0, 1 << 20, 1 << 21, 2)
    return batch


def short_children() -> pa.RecordBatch:
    headers = pa.array([[("k", "v" * ROWS)]], pa.map_(pa.string(), pa.string()))
    return cut(pa.record_batch({"body": [b""], "headers": headers}), ROWS)


DAMAGED = [
    short_values, short_nulls, short_codes, codes_beyond, views_beyond, headers_beyond,
    short_children,
]  # fmt: skip


def put(client: Client, batch: pa.RecordBatch, do: str, **arguments: object) -> None:
    """As it is: what the client does else looks into a batch."""
    link = client._link
    with link.dial.answers():
        descriptor = flight.FlightDescriptor.for_command(pack(do, **arguments))
        writer, answers = link.open().do_put(descriptor, batch.schema, link.dial.options())
        writer.write_batch(batch)
        writer.write_metadata(END)
        writer.done_writing()
        answers.read()
        writer.close()


@pytest.mark.parametrize("made", DAMAGED)
def test_a_batch_of_bytes_that_did_not_come_with_it_is_refused(
    remote: Client, queue: str, made: Callable[[], pa.RecordBatch]
) -> None:
    """The server published what lay behind them in its memory, or died."""
    with pytest.raises(ValueError, match=WORDS):
        put(remote, made(), "publish", exchange="", routing_key=queue)
    with pytest.raises(ValueError, match=WORDS):
        put(remote, made(), "publish_stream", stream=remote.stream("s").name)
    route = {"exchange": "", "routing_key": queue}
    with pytest.raises(ValueError, match=WORDS):
        put(remote, made(), "stage", transaction="t", partition=0, attempt="a", **route)
    assert remote.queue_status(queue).messages_ready == 0
    assert remote.publish_batch(pa.table({"body": [b"1"]}), "", queue).count == 1


@pytest.mark.parametrize("made", [made for made in DAMAGED if made is not views_beyond])
def test_a_damaged_batch_is_not_staged_for_a_commit_to_find(
    remote: Client, made: Callable[[], pa.RecordBatch]
) -> None:
    with pytest.raises(ValueError, match="is damaged"):
        put(remote, made(), "stage", transaction="t", partition=0, attempt="a")


@pytest.mark.parametrize("made", [made for made in DAMAGED if made is not views_beyond])
def test_a_client_does_not_take_a_damaged_batch(made: Callable[[], pa.RecordBatch]) -> None:
    class Chunk:
        data = made()

    class Reader:
        def read_chunk(self) -> type[Chunk]:
            return Chunk

    with pytest.raises(ValueError, match="is damaged"):
        one_batch(Reader())
