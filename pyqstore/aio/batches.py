"""Record batches that are made without the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["no_messages", "tags_of"]


def no_messages() -> pyarrow.RecordBatch:
    """The batch that ``get_batch`` returns if no message came, made without the channel, which is
    busy."""
    import pyarrow as pa

    from ..columns import DELIVERED, schema_of

    schema = schema_of(DELIVERED)
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def tags_of(batch: pyarrow.RecordBatch) -> tuple[int, int]:
    """The first and the last delivery tag of a batch with messages."""
    tags = batch.column("delivery_tag")
    return tags[0].as_py(), tags[-1].as_py()
