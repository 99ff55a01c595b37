"""The columns of a message frame: names, types, and how Spark's become the engine's.

Pure: no Spark session, no store.  ``check_columns`` looks at names and types before anything runs,
``shape_batch`` and ``check_rows`` at the values of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pyqstore import PreconditionFailed, codec
from pyqstore import columns as engine

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """What one column may be: Spark's names of the types it may have, and words for a person."""

    types: tuple[str, ...]
    expected: str


_STRING = Column(("string",), "string")
_TIMESTAMP = Column(("timestamp",), "timestamp")
_TYPES = {
    engine.TEXT: _STRING,
    engine.HEADERS: Column(("map<string,string>",), "map<string, string>"),
    engine.INTEGER: Column(
        ("tinyint", "smallint", "int", "bigint"), "tinyint, smallint, int or bigint"
    ),
    engine.TIMESTAMP: _TIMESTAMP,
    engine.INSTANT: _TIMESTAMP,
}
COPIES = ("CC", "BCC")  # headers that are lists
_STRING_BYTES_MAX = 255  # AMQP 0-9-1's short string
VOID = "void"  # what a column of nulls alone is, as lit(None)
BODY = Column(("binary", "string"), "binary or string")
PROPERTIES = {
    column.name: _TYPES[column.published] for column in engine.COLUMNS if column.published in _TYPES
}
# What tells of a delivery: a frame of received messages can be written as it is.
DELIVERY = engine.PLACES
_NUMBERS = {column.name: column for column in engine.COLUMNS if column.published == engine.INTEGER}
_RANGES = {"delivery_mode": "1 (transient) or 2 (persistent)", "expiration_ms": "not negative"}

_OUTLIVES = (
    "2 (persistent): what a job publishes is durable (spark_udfs.publish can send transient "
    "messages)"
)


class ColumnError(ValueError):
    """A column is missing, unknown, of the wrong type, or holds what no message may have."""


def check_columns(columns: Sequence[tuple[str, str]], *, body: str = "body") -> None:
    """Refuse columns that do not make messages.

    Args:
        columns: (name, type) of each, the type as Spark's ``DataType.simpleString()`` has it.
        body: name of the column with the bodies.

    Raises:
        ColumnError: naming every wrong column and what was expected of it.
    """
    known = {**PROPERTIES, body: BODY}
    names = [name for name, _ in columns]
    faults = []
    if body not in names:
        near = _near(body, names)
        faults.append(
            f"column '{body}' (the bodies, binary or string) is missing{near}; "
            f"there are {_listed(names)}"
        )
    faults += [
        f"column '{name}' is there {names.count(name)} times"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for name, type_ in columns:
        if name in DELIVERY and name != body:
            continue
        if name not in known:
            why = (
                f" (the bodies come from '{body}')" if name == "body" else _near(name, list(known))
            )
            faults.append(f"column '{name}' is not known{why}; known are {_listed(known)}")
        elif type_ == VOID and name != body:
            continue  # says as much as no column
        elif _plain(type_) not in known[name].types:
            faults.append(f"column '{name}' is {type_}, expected {known[name].expected}")
    if faults:
        raise ColumnError("; ".join(faults))


def shape_batch(
    batch: pa.RecordBatch, *, body: str = "body", first_row: int = 0, outlives: bool = False
) -> pa.RecordBatch:
    """The same rows, as the engine reads them: a column ``body``, small integers as uint8, nothing
    of a delivery.

    Only columns whose type must change are copied.

    Args:
        batch: n rows with at least the body column.
        body: name of the column with the bodies.
        first_row: number of the batch's first row, for the words of an error.
        outlives: refuse transient messages, because the store is closed before anyone can take
            them.

    Raises:
        ColumnError: a null body (row named), or a number out of its range.
    """
    import pyarrow as pa

    if body != "body" and "body" in batch.schema.names:
        raise ColumnError(f"column 'body' is not known (the bodies come from '{body}')")
    # Of what a stream had, ``timestamp`` is when it was published.
    is_received = "message_timestamp" in batch.schema.names
    arrays = []
    names = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if (name in DELIVERY and name != body) or (name == "timestamp" and is_received):
            continue
        if pa.types.is_null(array.type) and name != body:
            continue
        if name == body:
            if array.null_count:
                row = first_row + array.is_null().index(True).as_py()
                raise ColumnError(
                    f"column '{body}' is null in row {row}: a message needs a body (empty is one)"
                )
            name = "body"
        elif name in _NUMBERS:
            array = _to_number(_NUMBERS[name], array, first_row)
            if outlives and name == "delivery_mode":
                _check_range(name, array, 2, 2, _OUTLIVES, first_row)
        elif name == "message_timestamp":
            name = "timestamp"
        elif name == "headers":
            _check_headers(array, first_row)
        elif PROPERTIES.get(name) is _STRING:
            _check_length(name, array, first_row)
        names.append(name)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def check_rows(batch: pa.RecordBatch, *, first_row: int) -> None:
    """Refuse what no store would take: dates before 1970, names that are too long.

    Args:
        batch: as ``shape_batch`` made it.  Where rows go is the commit's to find out.
        first_row: number of the batch's first row, for the words of an error.

    Raises:
        ColumnError: a row makes no message.
    """
    names = [name for name in batch.schema.names if name not in ("exchange", "routing_key")]
    try:
        codec.check_rows(batch.select(names), first_row)
    except (ValueError, PreconditionFailed) as error:
        raise ColumnError(str(error)) from error


def _to_number(column: engine.Column, array: pa.Array, first_row: int) -> pa.Array:
    import pyarrow as pa

    low, high = column.low, column.high
    words = _RANGES.get(column.name, f"{low} to {high}")
    _check_range(column.name, array, low, high, words, first_row)
    return array.cast(pa.uint8()) if high < 256 and array.type != pa.uint8() else array


def _check_range(
    name: str, array: pa.Array, lowest: int, highest: int, words: str, first_row: int
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(array.type):
        raise ColumnError(f"column '{name}' is {array.type}, expected an integer")
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is None or (bounds["min"] >= lowest and bounds["max"] <= highest):
        return
    wrong = bounds["min"] if bounds["min"] < lowest else bounds["max"]
    row = first_row + pc.index(array, pa.scalar(wrong, array.type)).as_py()
    raise ColumnError(f"column '{name}' is {wrong} in row {row}, expected {words}")


def _check_headers(array: pa.Array, first_row: int) -> None:
    """Refuse headers that say where else a message goes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_map(array.type):
        return  # the engine says what it expects
    if not pc.any(pc.is_in(array.keys, pa.array(COPIES, array.type.key_type))).as_py():
        return
    for row, pairs in enumerate(array.to_pylist()):
        for key, _ in pairs or ():
            if key in COPIES:
                raise ColumnError(
                    f"column 'headers' has the key '{key}' in row {first_row + row}: CC and BCC "
                    f"are lists, which a map of strings cannot hold"
                )


def _check_length(name: str, array: pa.Array, first_row: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return  # dictionaries and views: the engine looks at each value anyway
    lengths = pc.binary_length(array)
    longest = pc.max(lengths).as_py() or 0
    if longest > _STRING_BYTES_MAX:
        row = first_row + pc.index(lengths, pa.scalar(longest, lengths.type)).as_py()
        raise ColumnError(
            f"column '{name}' has {longest} bytes in row {row}, "
            f"expected {_STRING_BYTES_MAX} at most"
        )


def _plain(type_: str) -> str:
    """A type without what Spark adds to strings: "varchar(10)", "string collate X"."""
    if type_.startswith(("varchar(", "char(", "string collate ")):
        return "string"
    return type_


def _near(name: str, candidates: Sequence[str]) -> str:
    lowered = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return f" (did you mean '{lowered[found[0]]}'?)" if found else ""


def _listed(names: Sequence[str] | dict[str, Column]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
