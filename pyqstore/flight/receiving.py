"""Rows from a server: no more of them are under way than gRPC's window permits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..waiting import check_main
from .checking import check_batch
from .dialing import Dial
from .forked import Grip

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["batches_of", "one_batch"]


def batches_of(
    client: Any, dial: Dial, ticket: bytes, *, is_endless: bool = False
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    """Schema and batches, none of them empty; the call ends when the iterator is garbage-collected.
    ``is_endless``: the call waits, and ends with the main thread (``check_main``)."""
    with dial.answers():
        reader = Grip(client.do_get(flight.Ticket(ticket), dial.options()))
        schema = reader.get().schema

    def batches() -> Iterator[pyarrow.RecordBatch]:
        try:
            while True:
                with dial.answers():
                    try:
                        batch = reader.get().read_chunk().data
                    except StopIteration:
                        return
                check_batch(batch)
                if batch.num_rows:
                    yield batch
                elif is_endless:
                    check_main()
        finally:
            reader.end("cancel")

    return schema, batches()


def one_batch(reader: Any) -> pyarrow.RecordBatch:
    """The only batch of an answer."""
    batch = reader.read_chunk().data
    check_batch(batch)
    for _ in reader:
        raise AssertionError("one batch was asked for")
    return batch
