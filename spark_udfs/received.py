"""The columns of messages that are read: names, types, and how the engine's become Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyqstore import columns
from pyqstore.columns import COLUMNS

from .columns import ColumnError, _listed, _near, _plain

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "b": "boolean",
    "C": "smallint",
    "I": "bigint",
    "l": "bigint",
    "L": "bigint",
    "i": "string",
    "u": "string",
    "z": "binary",
    "+m": "map<string,string>",
    "tss:UTC": "timestamp",
    "tsu:UTC": "timestamp",
}


def _received(batch: int) -> dict[str, str]:
    """The columns of such a batch, and Spark's types of them."""
    return {column.name: _TYPES[column.format] for column in COLUMNS if column.received & batch}


STREAM = _received(columns.STREAM) | {"redelivered": "boolean"}
QUEUE = STREAM | _received(columns.BROWSED)  # a queue's sequence is its offset
del QUEUE["message_timestamp"], QUEUE["sequence"]


def ddl(columns: dict[str, str]) -> str:
    """The columns as Spark's schemas are written."""
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def check_schema(asked: Sequence[tuple[str, str]], known: dict[str, str]) -> None:
    """Refuse a schema of the user's own that names what is not there.

    Args:
        asked: (name, type) of each column, the type as Spark's ``DataType.simpleString()`` has it.
        known: what there is to read.

    Raises:
        ColumnError: naming every wrong column and what is expected.
    """
    faults = []
    for name, type_ in asked:
        if name not in known:
            near = _near(name, list(known))
            faults.append(f"column '{name}' is not known{near}; known are {_listed(list(known))}")
        elif _plain(type_) != known[name]:
            faults.append(f"column '{name}' is {type_}, expected {known[name]}")
    if faults:
        raise ColumnError("; ".join(faults))


def stream_columns(names: Sequence[str]) -> list[str]:
    """What a stream's ``read`` is asked for, in the order of the schema; "offset" costs nothing."""
    return [name for name in dict.fromkeys([*names, "offset"]) if name != "redelivered"]


def as_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``, in its types, of what ``browse`` or a stream's ``read`` gave.

    Nothing of a stream was delivered before: its readers take nothing out of it.

    Raises:
        OverflowError: an offset of 2**63 or more.
    """
    import pyarrow as pa

    arrays = []
    for field in schema:
        name = field.name
        if name == "offset" and "sequence" in batch.schema.names:
            name = "sequence"
        if name == "redelivered" and name not in batch.schema.names:
            arrays.append(pa.repeat(False, batch.num_rows))
            continue
        try:
            arrays.append(batch.column(name).cast(field.type))
        except pa.ArrowInvalid as error:
            raise OverflowError(
                f"column '{field.name}': {error}.  Spark's numbers end at 2**63 - 1: a queue whose "
                f"priorities lie more than 127 below its highest is read without its offsets"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
