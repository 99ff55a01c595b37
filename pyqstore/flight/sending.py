"""Sends rows to a server, in one thread: some batches ahead, then an answer for each.

A separate thread that waited for answers would keep pyarrow's writer from ending when a write
fails.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..errors import ConnectionLost
from ..message import Receipt
from ..times import utc_of
from .dialing import Dial
from .wire import END

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Counted", "pieces", "send", "stream_of"]

_PIECE_BYTES = 8 << 20
_DICTIONARY_BYTES = 1 << 20
_ROWS_TOLD = 8
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def stream_of(data: object) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    """Schema and batches of an Arrow object.  Times get their zone, because the server may be in
    another one.  TypeError: it is no Arrow object."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatchReader):  # what it raises comes out as it is
        return _zoned(data.schema, iter(data))
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return _zoned(batch.schema, iter([batch]))
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return _zoned(reader.schema, iter(reader))
    raise TypeError(
        "data must speak the Arrow PyCapsule protocol (__arrow_c_stream__ or __arrow_c_array__), as"
        f" pyarrow, polars and pandas 2.2 do; {type(data).__name__} does not"
    )


def _zoned(
    schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch]
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    import pyarrow as pa

    local = [
        index
        for index, type_ in enumerate(schema.types)
        if pa.types.is_timestamp(type_) and type_.tz is None
    ]
    if not local:
        return schema, batches
    for index in local:
        field = schema.field(index)
        schema = schema.set(index, field.with_type(pa.timestamp(field.type.unit, "UTC")))

    def zoned(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        columns = batch.columns
        for index in local:
            columns[index] = _as_utc(columns[index], schema.types[index])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return schema, map(zoned, batches)


def _as_utc(times: pyarrow.Array, type_: pyarrow.DataType) -> pyarrow.Array:
    """Local times as times of ``type_``."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]

    unit = _UNITS[type_.unit]
    ticks = times.cast(pa.int64())
    shown = [None if tick is None else tick // unit for tick in ticks.to_pylist()]
    moved = [None if each is None else (utc_of(each) - each) * unit for each in shown]
    return pc.add(ticks, pa.array(moved, pa.int64())).cast(type_)


def pieces(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """The batch in parts that are not too large for one message, except for single rows.

    A part includes a whole dictionary: a large one is reduced to the entries that the part's rows
    use.
    """
    if batch.num_rows == 0:
        return
    fits = _own_bytes(batch) <= _PIECE_BYTES
    if fits:
        batch = _compact(batch)
    if batch.num_rows == 1 or (fits and batch.nbytes <= _PIECE_BYTES):
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half))
    yield from pieces(batch.slice(half))


def _own_bytes(batch: pyarrow.RecordBatch) -> int:
    """Bytes of the rows, without dictionaries."""
    return sum(int(_indices_of(column).nbytes) for column in batch.columns)


def _indices_of(column: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa

    return column.indices if pa.types.is_dictionary(column.type) else column


def _compact(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    import pyarrow as pa

    columns = [
        _used(column)
        if pa.types.is_dictionary(column.type) and column.dictionary.nbytes > _DICTIONARY_BYTES
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _used(column: pyarrow.DictionaryArray) -> pyarrow.DictionaryArray:
    """The same values, with only the dictionary entries that they use."""
    import pyarrow as pa

    codes = column.indices.dictionary_encode()
    indices = codes.indices.cast(column.type.index_type)
    dictionary = column.dictionary.take(codes.dictionary)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=column.type.ordered)


def send(
    client: Any,
    dial: Dial,
    command: bytes,
    data: object,
    window: int,
    hear: Callable[[dict[str, Any]], object],
) -> dict[str, Any]:
    """Send all rows; ``hear`` is called with the answer to each batch.  Returns the last answer.

    Raises like ``Dial.answers``, and raises what ``data`` raises; the server takes neither for the
    end.
    """
    schema, batches = stream_of(data)
    with dial.answers():
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, answers = client.do_put(descriptor, schema, dial.options())
        flow = _Flow(writer, answers, hear)
        try:
            for batch in flow.settled(batches):
                for piece in pieces(batch):
                    flow.write(piece, window)
            writer.write_metadata(END)
            writer.done_writing()
            flow.hear_all()
            last = _answer(writer, answers)
        except BaseException:
            with contextlib.suppress(flight.FlightError):
                writer.close()
            raise
        writer.close()
    return last


class _Flow:
    """Batches and the answers to them."""

    def __init__(self, writer: Any, answers: Any, hear: Callable[[dict[str, Any]], object]) -> None:
        self._writer = writer
        self._answers = answers
        self._hear = hear
        self._waiting = 0

    def write(self, piece: pyarrow.RecordBatch, window: int) -> None:
        """Write the next batch, with at most ``window`` without an answer."""
        self._writer.write_batch(piece)
        self._waiting += 1
        if self._waiting >= window:
            self._hear_one()

    def hear_all(self) -> None:
        """Wait until all batches have their answers."""
        while self._waiting:
            self._hear_one()

    def settled(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """The caller's next batch; if it raises, the batches before it get their answers first."""
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception:
                with contextlib.suppress(Exception):  # what the data raises comes out
                    self._writer.done_writing()
                    self.hear_all()
                raise
            yield batch

    def _hear_one(self) -> None:
        self._hear(_answer(self._writer, self._answers))
        self._waiting -= 1


def _answer(writer: Any, answers: Any) -> dict[str, Any]:
    told = answers.read()
    if told is None:
        writer.close()  # which says why
        raise ConnectionLost("the server ended the call without an answer")
    answer: dict[str, Any] = json.loads(told.to_pybytes())
    return answer


class Counted:
    """Adds up the answers to a publish."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(("rows", "refused", "returned", "unroutable"), 0)
        self._refused_rows: list[int] = []
        self._refused_by = ""

    def __call__(self, answer: dict[str, Any]) -> None:
        """Add an answer."""
        first = self._sums["rows"]
        self._refused_rows += [first + row for row in answer["refused_rows"]]
        self._refused_by = self._refused_by or answer.get("refused_by", "")
        for name in self._sums:
            self._sums[name] += answer[name]

    @property
    def rows(self) -> int:
        """The number of rows with an answer."""
        return self._sums["rows"]

    def receipt(self) -> Receipt:
        """A receipt for all of them; its ``wait`` need not wait."""
        return Receipt(
            0,
            0,
            self._sums["rows"],
            refused=self._sums["refused"],
            returned=self._sums["returned"],
            unroutable=self._sums["unroutable"],
            refused_rows=tuple(self._refused_rows[:_ROWS_TOLD]),
            refused_by=self._refused_by,
        )
